"""All runs of an issuer, or of all issuers: what became of them, and what is to be done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from flows.commands import on_first_use
from flows.commands.cardholders import standing_table
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import Field
from flows.commands.result import Link, Part, Place, Result, Table, worst
from flows.commands.results import TOP
from flows.commands.worklist import Conversation, conversation, everything_to_do
from flows.steps import Sentence, Step, counted
from flows.wiring import report_link, wire

with on_first_use():
    from flows.operations import matters, undecided_work
    from flows.reports import across, advice, hours, verdicts
    from flows.reports import survey as surveys
    from flows.reports import work as works
    from flows.runs import context as contexts
    from flows.runs import keys

if TYPE_CHECKING:
    pass


class _Overview(NamedTuple):
    """What is known across the runs of an issuer, and how it is shown."""

    facts: dict[str, Any]
    shown: list[Part]


@entry("reconcile", form=Form("reconciliation", "reconciliation {issuer}", actor="optional"))
def reconcile(
    context: Context,
    issuer: str = "",
    *,
    from_date: Annotated[date | None, Field("--from")] = None,
    to_date: Annotated[date | None, Field("--to")] = None,
) -> Result:
    """Report across runs: open and overdue chunks, errors over time, cardholders without a link.

    Of a period, the files are in a folder of their own: those of all runs stay as they are.

    Args:
        issuer: The issuer, as its TOML file is named (default: all of them).
        from_date: First business date (default: the first there is).
        to_date: Last business date (default: the last there is).

    Example:
        cardlink reconcile first-bank --from 2026-11-01 --to 2026-11-30
    """

    def of_issuer(name: str) -> list[_Overview]:
        issuer_context = wire(context.folder, name)
        beside = undecided_work.beside_runs()
        survey = surveys.survey(issuer_context, from_date, to_date, beside)
        if from_date is None and to_date is None:
            survey = survey._replace(work=matters.numbered(issuer_context, survey.work))
        facts = across.report_across(issuer_context, survey, from_date, to_date)
        place = _place(issuer_context, keys.period(name, from_date, to_date))
        return [_Overview(facts, [*_across(facts, survey, issuer_context), place, ""])]

    overviews, unread = context.each(issuer, of_issuer)
    shown = list(chain.from_iterable(overview.shown for overview in overviews))
    facts = [overview.facts for overview in overviews]
    codes = [verdicts.ACROSS_RUNS[across_runs["verdict"]].exit_code for across_runs in facts]
    worth_a_look = [known["issuer"] for known, code in zip(facts, codes, strict=True) if code]
    next_step = Step("worklist", *worth_a_look[:1])
    result = Result({"issuers": facts}, shown[:-1] or ["no issuers yet"], next_step, worst(codes))
    return result.beside(unread)


def _place(context: contexts.IssuerContext, folder: str) -> Part:
    """Return where the files are: a link to the page among them where its address is known."""
    issuer = context.issuer
    url = report_link(context, f"{folder}report.html")
    if url:
        return Link(url, f"All runs of {issuer.issuer}", f"{issuer.issuer}-all-runs")
    return Place(f"files: {issuer.root}/{folder}")


def _across(
    facts: dict[str, Any], survey: surveys.Survey, context: contexts.IssuerContext
) -> Iterator[Part]:
    """Yield the report across runs: rows, cardholders, what is outstanding, and what is to do."""
    name = facts["issuer"]
    yield f"{name}: {facts['cardholders']['sentence']}"
    yield f"{counted(len(facts['runs']), 'run')}, {facts['verdict']}"
    yield ""
    yield Table(("rows", "count"), list(facts["rows"].items()))
    yield ""
    yield standing_table(facts["cardholders"])
    moment = survey.terms.now
    lines = works.lines(survey.work)
    yield everything_to_do([Conversation(line, context) for line in lines], moment, name)
    if facts["hours"]["links"]:
        yield ""
        yield hours.hours_line(facts["hours"])
    yield from _outstanding(facts["outstanding"])
    for line in lines[:TOP]:
        yield ""
        yield from conversation(line, moment)
    if len(lines) > TOP:
        yield Sentence("and more: {worklist:bare}", worklist=Step("worklist", name))
    yield ""
    for number, sentence in enumerate(advice.across_advice(facts), start=1):
        yield Sentence("{number}. {advice}", number=number, advice=sentence)


def _outstanding(outstanding: Mapping[str, Any]) -> Iterator[Part]:
    if outstanding["count"]:
        ages = outstanding["ages"].items()
        yield ""
        yield Table(
            ("outstanding since", "chunks", "rows"),
            [[age, sizes["count"], sizes["rows"]] for age, sizes in ages],
        )
