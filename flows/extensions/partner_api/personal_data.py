"""What is stored of cardholders here: found for an export or an erasure, and taken out.

What is known of a run's links is deleted with its ledger.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from sqlalchemy import Connection, select

from flows.book.stored_book import delete_rows
from flows.extensions.partner_api.placements import transactions
from flows.extensions.partner_api.tables import PLACEMENT, REPORTED_ROW, SERVICE_MESSAGE
from flows.extensions.partner_api.transactions import POSITION, reported_rows
from flows.runs.context import IssuerContext
from flows.runs.erased import IDENTITY, Mention, People, Place, rows_of
from flows.runs.journal import plain
from flows.runs.keys import runs as runs_of
from flows.runs.store import Cleaner
from flows.runs.stored_run import StoredRun

PLACE = "placements"
REPORTS = f"database, table {REPORTED_ROW.name}"
PLACES = {
    PLACE: Place(
        "ids at the partner, whether the link was opened, merchants at which the card was placed",
        "the funnel",
        "[retention] ledger_days after the last answer",
        erased=True,
    )
}
_OF_LINKS = (PLACEMENT, SERVICE_MESSAGE)


def places() -> dict[str, Place]:
    """Return where personal data is kept."""
    return PLACES


def mentions(context: IssuerContext, people: People, runs: Collection[str]) -> Iterator[Mention]:
    """Yield what is known of cardholders: of their rows of these runs, and by reports."""
    for run in sorted(runs):
        yield from _in_run(StoredRun.by_id(context.adapters, run), people)
    rows = reported_rows(context.adapters, context.issuer.issuer)
    named = rows.filter(people.named_by(rows["cuid"]))
    if not named.is_empty():
        yield Mention(PLACE, REPORTS, named.to_dicts())
        # the reports themselves were dropped by the partner
        yield Mention("results", transactions(context.issuer.issuer), ())


def _in_run(run: StoredRun, people: People) -> Iterator[Mention]:
    """Yield what is known of the links of cardholders in a run, and their messages."""
    own = (part.filter(rows_of(people, part))["row"] for part in run.ledger(IDENTITY))
    rows = tuple(chain.from_iterable(own))
    for table in _OF_LINKS:
        of_run = (table.c.issuer == run.issuer) & (table.c.run == run.id)
        query = select(table).where(of_run, table.c.row.in_(rows))
        with run.adapters.database.snapshot() as connection:
            facts = [plain(row) for row in connection.execute(query).mappings()]
        if facts:
            yield Mention(PLACE, f"database, table {table.name}, run {run.id}", facts, run.id, rows)


def erase(
    context: IssuerContext, _cleaner: Cleaner, _people: People, named: Iterable[Mention]
) -> None:
    """Take cardholders out of what is known of links, and of transaction reports."""
    of_place = [mention for mention in named if mention.place == PLACE]
    issuer = context.issuer.issuer

    def work(connection: Connection) -> None:
        for mention in of_place:
            for facts in mention.facts:
                if mention.key == REPORTS:
                    place = {"file": facts["file"], POSITION: facts[POSITION]}
                    delete_rows(connection, REPORTED_ROW, issuer, **place)
                else:
                    _delete_links(connection, issuer, run=facts["run"], row=facts["row"])

    context.adapters.database.act(issuer, work)


def before_purge(context: IssuerContext, keys: Collection[str]) -> None:
    """Delete what is known of the links of the runs whose ledgers are among these objects."""
    issuer = context.issuer.issuer
    below_runs = (key.removeprefix(runs_of(issuer)) for key in keys)
    parts = (below.split("/") for below in below_runs)
    runs = {run for run, folder, *_ in parts if folder == "ledger"}

    def work(connection: Connection) -> None:
        for run in runs:
            _delete_links(connection, issuer, run=run)

    context.adapters.database.act(issuer, work)


def _delete_links(connection: Connection, issuer: str, **of_link: object) -> None:
    for table in _OF_LINKS:
        delete_rows(connection, table, issuer, **of_link)
