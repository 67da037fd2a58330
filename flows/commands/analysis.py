"""The analysts' export, by hand."""

from __future__ import annotations

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.parameters import Issuer
from flows.commands.result import Place, Result
from flows.steps import counted
from flows.wiring import wire

with on_first_use():
    from flows.analysis import export as analysts
    from flows.runs import keys

FORM = "each ingest brings the export up to date; all of it is seldom made anew"


@entry("analysis", form=FORM)
def analysis(context: Context, issuer: Issuer, *, anew: bool = False) -> Result:
    """Bring the analysts' export of ISSUER up to date: rows, runs and book as Parquet.

    `ingest` does so at its end where `[analysis] export = true`; deploy/ANALYSIS.md has the tables
    and ten questions in SQL.

    Args:
        issuer: Whose runs. The export is in its folder `analysis/`.
        anew: Write all runs again, not only those that changed; books of earlier days stay.

    Example:
        cardlink analysis first-bank
    """
    issuer_context = wire(context.folder, issuer)
    done = analysts.export(issuer_context, anew=anew)
    place = f"{issuer_context.issuer.root}/{keys.analysis(issuer)}"
    written = f"{counted(done.runs, 'run')} with {counted(done.rows, 'row')}"
    book = "the book as it was" if done.cards is None else f"the book of {done.cards:,} cards"
    line = Place(place, f"{issuer}: {written}, {book}")
    return Result({"issuer": issuer, "place": place, **done._asdict()}, [line])
