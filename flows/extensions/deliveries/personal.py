"""What was handed over of cardholders: found, erased, purged and recovered.

Links are withdrawn before they are erased: whoever has them must confirm that first.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import chain

from flows.extensions.deliveries.acknowledgement import TOLD_ROWS, acknowledgements, runs_by_number
from flows.extensions.deliveries.delivered import (
    FILES,
    DeliveryId,
    all_deliveries,
    delivered_links_key,
    deliveries,
    deliveries_with_changes,
    delivery_folder,
    delivery_of,
    forget_changes,
    next_links_key,
    read_changes,
    read_delivered_links,
    write_changes,
)
from flows.runs.adapters import Adapters
from flows.runs.context import IssuerContext
from flows.runs.erased import Mention, People, Place
from flows.runs.frames import from_parquet
from flows.runs.store import Cleaner, Entry, read_if_stored
from schemas.tables import parquet

PLACES = {
    "deliveries": Place(
        "cuid, last 4, personal link",
        "so that receivers use links and stop using those withdrawn; copies at `to` are theirs",
        "[retention] ledger_days; after an erasure, until each receiver confirms the withdrawal",
        erased=True,
        waits=True,
    ),
    "acknowledgements": Place(
        "cuid, last 4, where each card stands, why a row was refused",
        "so that the issuer knows what became of its extract; copies at `to` are the issuer's",
        "[retention] ledger_days after it was written",
        erased=True,
    ),
}


def evidence() -> str:
    """Return the pattern of what decides who has which link."""
    return r"[^/]+/deliveries/([a-z][a-z0-9-]*/)?\d{6}/(links[^/]*|done\.json)"


def folders() -> tuple[str, ...]:
    """Return the folders of an issuer that retention and erasures clean."""
    return ("deliveries", "acknowledgements")


def places() -> dict[str, Place]:
    """Return where personal data is kept."""
    return PLACES


def mentions(context: IssuerContext, people: People, runs: Collection[str]) -> Iterator[Mention]:
    """Yield what names some of these cardholders, of whom these runs have rows."""
    yield from _in_acknowledgements(context.adapters, context.issuer.issuer, runs)
    yield from _in_deliveries(context, people)


def _in_acknowledgements(
    adapters: Adapters, issuer: str, runs: Collection[str]
) -> Iterator[Mention]:
    """Yield the files that told the issuer of these runs; those without a row, of a database that
    was lost, may be of any run.
    """
    if not runs:
        return
    run_of = runs_by_number(adapters, issuer)
    for entry in adapters.store.keys(acknowledgements(issuer)):
        file = TOLD_ROWS.search(entry.key)
        if file is None:
            continue
        run = run_of.get(int(file["number"]))
        if run is None or run in runs:  # "": it names no rows
            yield Mention("acknowledgements", entry.key, (), run or "")


def _in_deliveries(context: IssuerContext, people: People) -> Iterator[Mention]:
    """Yield the deliveries with links of these cardholders: as they were handed out, or their rows
    alone, where a process died before it wrote them.
    """
    store = context.adapters.store
    issuer = context.issuer.issuer
    with context.adapters.database.snapshot() as connection:
        changes = read_changes(connection, issuer)
    rows = changes.filter(people.named_by(changes["cuid"])).drop("link")
    stored = [delivery_of(entry.key) for entry in store.keys(deliveries(issuer))]
    named_by_store = {delivery for delivery in stored if delivery is not None}
    for delivery in sorted(named_by_store.union(all_deliveries(context.adapters, issuer))):
        whose = {"receiver": delivery.receiver, "delivery": delivery.number}
        key = delivered_links_key(store, issuer, delivery)
        content = read_if_stored(store, key) if key else None
        if content is not None:
            links = from_parquet(content)
            named = links.filter(people.named_by(links["cuid"]))
        else:
            named = rows.filter(**whose)
        if not named.is_empty():
            place = key or delivery_folder(issuer, delivery.number, delivery.receiver)
            yield Mention("deliveries", place, [{**whose, **row} for row in named.to_dicts()])


def erase(
    _context: IssuerContext, cleaner: Cleaner, _people: People, named: Iterable[Mention]
) -> None:
    """Delete the files that told the issuer of them."""
    for mention in named:
        if mention.place == "acknowledgements":
            cleaner.delete(mention.key)


def erase_confirmed(
    context: IssuerContext,
    cleaner: Cleaner,
    people: People,
    named: Iterable[Mention],
    note: Callable[[Sequence[str]], None],
) -> None:
    """Take cardholders out of deliveries, once nobody has a link of them; `note` the files that go
    first.
    """
    delivered = sorted({*filter(None, (delivery_of(mention.key) for mention in named))})
    objects = delivered_objects(context, delivered)
    if objects:
        note(objects)
    erase_in_deliveries(context, cleaner, people, delivered)


def delivered_objects(context: IssuerContext, delivered: Iterable[DeliveryId]) -> list[str]:
    """Return the keys of the files of these deliveries that name links: they go."""
    store = context.adapters.store
    issuer = context.issuer.issuer
    folders = [delivery_folder(issuer, each.number, each.receiver) for each in delivered]
    entries = chain.from_iterable(map(store.keys, folders))
    return [entry.key for entry in entries if FILES.search(entry.key)]


def erase_in_deliveries(
    context: IssuerContext, cleaner: Cleaner, people: People, delivered: Sequence[DeliveryId]
) -> None:
    """Take cardholders out of deliveries that are confirmed or superseded.

    Their rows go first, by which nobody is found any more than by the files. The changes for others
    are written anew; the files go, since the receiver has them.
    """
    store = context.adapters.store
    issuer = context.issuer.issuer
    with context.adapters.database.snapshot() as connection:
        cuids = read_changes(connection, issuer)["cuid"]
    erased = set(cuids.filter(people.named_by(cuids)))
    forget_changes(context.adapters, issuer, dict.fromkeys(delivered, erased))
    for delivery in delivered:
        old = delivered_objects(context, [delivery])
        key = delivered_links_key(store, issuer, delivery)
        content = read_if_stored(store, key) if key else None
        if key and content is not None:
            changes = from_parquet(content)
            now = next_links_key(key)
            store.create(now, parquet(changes.filter(~people.named_by(changes["cuid"]))))
            old = [each for each in old if each != now]
        for each in old:
            cleaner.delete(each)


# Retention and recovery
# --------------------------------------------------------------------------------------------------


def purgeable(context: IssuerContext, until: datetime) -> dict[str, list[Entry]]:
    """Return the files that name cardholders and are as old as that; the rows stay."""
    issuer = context.issuer.issuer
    store = context.adapters.store
    folders = (("deliveries", deliveries, FILES), ("acknowledgements", acknowledgements, TOLD_ROWS))
    return {
        kind: [
            entry
            for entry in store.keys(folder(issuer))
            if name.search(entry.key) and entry.modified <= until
        ]
        for kind, folder, name in folders
    }


def before_purge(context: IssuerContext, keys: Collection[str]) -> None:
    """Delete the rows of the deliveries whose links are all among these: their files go next."""
    gone = [
        delivery
        for delivery in sorted({*filter(None, map(delivery_of, keys))})
        if delivered_links_key(context.adapters.store, context.issuer.issuer, delivery) in keys
    ]
    if gone:
        forget_changes(context.adapters, context.issuer.issuer, dict.fromkeys(gone))


def recovered(adapters: Adapters, issuer: str) -> None:
    """Write which links were delivered, of deliveries of which only the store has that."""
    with adapters.database.snapshot() as connection:
        known = deliveries_with_changes(connection, issuer)
    for delivery in all_deliveries(adapters, issuer):
        if delivery in known:
            continue
        content = read_delivered_links(adapters.store, issuer, delivery)
        if content is not None:
            write = partial(write_changes, issuer=issuer, delivery=delivery)
            changes = from_parquet(content)
            adapters.database.act(issuer, partial(write, changes=changes))
