"""The changes of a delivery of links, as frames and as files: what is new, replaced or withdrawn.

Put here what compares links; `delivery.py` reads and writes them.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from io import BytesIO
from typing import Final, NamedTuple

import polars as pl

from flows.book.stages import LOOK, served_cards
from flows.book.standing import GIVEN_UP, HAS_LINK, LEFT
from flows.extensions.deliveries.delivered import WITHDRAWN
from flows.extensions.deliveries.settings import CHANGES, Receiver
from flows.runs.frames import csv_pieces
from schemas.settings import LinkSettings
from schemas.tables import parquet

ISSUE = ["cuid", "last_4", "expiration"]  # of a card (`flows.runs.cards`)
CARD = ["cuid", "last_4"]
LINK = ["cuid", "link"]  # `link`: the digest of its URL
CHANGED = pl.Schema(  # links.parquet: the rows of links.csv
    {
        **dict.fromkeys((*ISSUE, "url", *CHANGES), pl.String()),
        "expires_on": pl.Date(),
        "until": pl.Date(),
        "run": pl.String(),  # "" where its fields were typed in
        "row": pl.UInt32(),
    }
)
FORGOTTEN = "forgotten"  # why the links of erased cardholders are withdrawn
ENDED = "receiver retired"  # why all links of a receiver are withdrawn
# why links are withdrawn of which nobody decided that they are: few of them are usual
UNDECIDED = [LEFT.name, "contradicted", "no longer reported"]
# a withdrawn link is in `delivery`, any other has its url
DELTA = pl.Schema({**CHANGED, "link": pl.Int64(), "delivery": pl.UInt32()})


def replayed(changes: pl.DataFrame) -> pl.DataFrame:
    """Return the last change of each link in these deliveries, which come in order."""
    return changes.unique(LINK, keep="last", maintain_order=True)


def perhaps_delivered(delivered: pl.DataFrame, pending: pl.DataFrame) -> pl.DataFrame:
    """Return the links that the receiving side may have, each once."""
    is_added = pl.col("change") != WITHDRAWN
    return pl.concat([delivered, pending.filter(is_added)]).unique(LINK, keep="first")


def undecided_withdrawals(changes: pl.DataFrame, pending: pl.DataFrame) -> pl.DataFrame:
    """Return the links that changes withdraw though nobody decided it, and no delivery has yet."""
    withdrawn = changes.filter(pl.col("why").is_in(UNDECIDED), change=WITHDRAWN)
    return withdrawn.join(pending.filter(change=WITHDRAWN), on=LINK, how="anti")


def surely_delivered(delivered: pl.DataFrame, pending: pl.DataFrame) -> pl.DataFrame:
    """Return the delivered links that no unconfirmed change takes back."""
    return delivered.join(pending.filter(change=WITHDRAWN), on=LINK, how="anti")


def delta(
    alive: pl.DataFrame,
    delivered: pl.DataFrame,
    pending: pl.DataFrame,
    reported: pl.DataFrame,
    stopped: pl.DataFrame,
    today: date,
) -> pl.DataFrame:
    """Return what turns `delivered`, with or without `pending`, into `alive` (DELTA).

    Links withdrawn come first, then new ones. `delivered`, `pending`: changes of deliveries
    (`delivered.CHANGE`). `reported`: every card that was sent (ISSUE). `stopped`: the
    cards that need no link any more (CARD), and their `standing`, which says why.
    """
    gone = perhaps_delivered(delivered, pending).join(alive, on=LINK, how="anti")
    fresh = alive.join(surely_delivered(delivered, pending), on=LINK, how="anti")
    both = [_withdrawn(gone, fresh, alive, reported, stopped, today), _added(fresh, gone)]
    return pl.concat([pl.DataFrame(schema=DELTA), *both], how="diagonal").select(*DELTA)


def _withdrawn(
    gone: pl.DataFrame,
    fresh: pl.DataFrame,
    alive: pl.DataFrame,
    reported: pl.DataFrame,
    stopped: pl.DataFrame,
    today: date,
) -> pl.DataFrame:
    """Return the links that may no longer be used, and why.

    A card that was issued again keeps its last four digits, and may have another expiry.
    """
    marked = _marked(_marked(gone, alive, "alive"), reported, "reported")
    marked = _marked(marked, fresh, "reissued", CARD)
    of_card = stopped.select(*CARD, pl.col("standing").cast(pl.String)).unique(CARD)
    marked = marked.join(of_card, on=CARD, how="left", maintain_order="left")
    why = (
        pl.when(pl.any_horizontal("alive", "reissued")).then(pl.lit("replaced"))
        .when(pl.col("until") < today).then(pl.lit("expired"))
        .when(pl.col("standing").is_not_null()).then("standing")
        .when("reported").then(pl.lit("contradicted"))
        .otherwise(pl.lit("no longer reported"))
    )  # fmt: skip
    return marked.with_columns(change=pl.lit(WITHDRAWN), why=why)


def _added(fresh: pl.DataFrame, gone: pl.DataFrame) -> pl.DataFrame:
    """Return the links that may be used from now on, and whether they replace another."""
    replaces = pl.when("replaces")
    return _marked(fresh, gone, "replaces", CARD).with_columns(
        change=replaces.then(pl.lit("replaced")).otherwise(pl.lit("new")),
        why=replaces.then(pl.lit("replaces a link withdrawn")).otherwise(pl.lit("no other link")),
    )


def _marked(
    rows: pl.DataFrame, others: pl.DataFrame, name: str, look: Sequence[str] = ISSUE
) -> pl.DataFrame:
    """Add whether each row's issue of a card, or its card, is among the others."""
    looked_for = others.select(look).join(rows, on=look, how="semi")  # few of a million
    known = looked_for.unique().with_columns(pl.lit(value=True).alias(name))
    return rows.join(known, on=look, how="left").with_columns(pl.col(name).fill_null(value=False))


EXPIRES_ON: Final = "expires_on"


def delivery_files(
    changes: pl.DataFrame, receiver: Receiver, links: LinkSettings
) -> dict[str, bytes]:
    """Return the files of a delivery by name, in clear.

    `changes`: its rows (CHANGED). `links`: what counts where the
    receiver's own settings do not say.
    """
    own = receiver.columns or links.columns
    columns = [(str(column), name) for column, name in own.items()]
    if not receiver.columns:
        columns += [(name, name) for name in CHANGES]
    dates = links
    if receiver.date_format is not None:
        dates = links.model_copy(update={"date_format": receiver.date_format})
    if receiver.format != "parquet":  # which has dates of its own
        changes = changes.with_columns(pl.col(EXPIRES_ON).dt.strftime(dates.strftime))
    rows = changes.select(pl.col(column).alias(name) for column, name in columns)
    limit = receiver.rows_per_file or links.rows_per_file
    write = _WRITERS[receiver.format]
    return {name: write(part) for name, part in _parts(rows, limit, receiver.format)}


def _parts(rows: pl.DataFrame, limit: int | None, kind: str) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield the rows of each file by its name.

    Parquet files are always numbered: links.parquet is our own record of the delivery.
    """
    if limit is None and kind != "parquet":
        yield f"links.{kind}", rows
        return
    for number, part in enumerate(rows.iter_slices(limit or rows.height), start=1):
        yield f"links-{number:05d}.{kind}", part


def _csv(rows: pl.DataFrame) -> bytes:
    return b"".join(csv_pieces([rows], rows.columns, unchanged=True))


def _json_lines(rows: pl.DataFrame) -> bytes:
    out = BytesIO()
    rows.write_ndjson(out)
    return out.getvalue()


_WRITERS: Final[dict[str, Callable[[pl.DataFrame], bytes]]] = {
    "csv": _csv,
    "jsonl": _json_lines,
    "parquet": parquet,
}


STOPPED = [LEFT.name, GIVEN_UP.name]  # states in which a card needs no link


class ToDeliver(NamedTuple):
    """How many links no delivery has, and how many delivered ones are to be withdrawn.

    `left`: those of them whose cards left, of so many `delivered`.
    """

    new: int = 0
    ended: int = 0
    left: int = 0
    delivered: int = 0


def to_deliver(cards: pl.DataFrame, delivered: pl.DataFrame, today: date) -> ToDeliver:
    """Count what the next delivery of these cards has; `delivered` as Stages has it."""
    served = served_cards(cards, today)
    stopped = cards.filter(pl.col("standing").cast(pl.String).is_in(STOPPED))
    gone = stopped.join(served, on=LOOK[:2], how="anti")
    ended = delivered.join(gone, on=LOOK[:2], how="semi")
    left = delivered.join(gone.filter(standing=LEFT.name), on=LOOK[:2], how="semi")
    theirs = delivered.join(cards, on=LOOK[:2], how="semi")
    new = served.filter(standing=HAS_LINK.name)
    return ToDeliver(new.height, ended.height, left.height, theirs.height)
