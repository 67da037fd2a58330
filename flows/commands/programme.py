"""The programme manager's report: all issuers together, week by week."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import Field, Number
from flows.commands.result import Link, Part, Place, Result, Table
from flows.errors import CardlinkError
from flows.steps import Step, counted
from flows.wiring import forms_url, now, report_link, root_of, wire

with on_first_use():
    from flows.reports import programme as programmes
    from flows.reports import programme_report as reports
    from flows.runs import context as contexts
    from flows.runs import keys

if TYPE_CHECKING:
    from flows.runs.store import Store

WEEKS = 12
COLUMNS = {
    "named": "named",
    "sent": "sent",
    "had_link": "ever had a link",
    "have_link": "have a link",
    "expired_unused": "expired unused",
    "ever_placed": "ever placed",
}


class _Issuer(NamedTuple):
    """An issuer as it was read, and where its report is written."""

    context: contexts.IssuerContext
    facts: programmes.IssuerFacts


@entry("programme", form=Form("programme", "programme {issuer}", actor="none"))
def programme(
    context: Context, issuer: str = "", *, weeks: Annotated[Number, Field(most=520)] = WEEKS
) -> Result:
    """Report on all issuers together: cardholders by week and where they stand, hours, reasons.

    Writes a page, a workbook and CSVs: of all issuers below programme/ of each root that they
    share, of one issuer below its own folder.

    Args:
        issuer: Only this issuer (default: all of them).
        weeks: Weeks that the page shows one by one; those before are one line.

    Example:
        cardlink programme --weeks 12
    """

    def of_issuer(name: str) -> list[_Issuer]:
        issuer_context = wire(context.folder, name)
        return [_Issuer(issuer_context, reports.read_issuer(issuer_context))]

    issuers, unread = context.each(issuer, of_issuer)
    if not issuers:
        return Result({"issuers": []}, ["no issuers yet"]).beside(unread)
    report = _report(issuers, weeks, list(unread))
    shown = list(_shown(report.facts))
    places = list(_places(context.folder, issuers, issuer))
    for place in places:
        own = _report(place.issuers, weeks, list(unread))
        try:
            reports.write_programme(place.store, place.folder, own, forms_url())
        except CardlinkError as error:
            if issuer:
                raise
            unread |= {known.facts.issuer: error for known in place.issuers}
            continue
        shown += _where(place, is_only=len(places) == 1)
    is_ours = report.facts["cardholders"]["waits"]["operator"]
    next_step = Step("worklist", *filter(None, [issuer])) if is_ours else None
    return Result(report.facts, shown, next_step).beside(unread)


def _report(issuers: Sequence[_Issuer], weeks: int, unread: Sequence[str]) -> reports.Programme:
    facts = [issuer.facts for issuer in issuers]
    return reports.programme_of(facts, now(), weeks, unread)


class _Place(NamedTuple):
    """A folder of a root, and the issuers that its report is about."""

    root: str
    folder: str
    issuers: Sequence[_Issuer]

    @property
    def store(self) -> Store:
        """The store of the first of them, who share it."""
        return self.issuers[0].context.adapters.store


def _places(folder: Path, issuers: Sequence[_Issuer], issuer: str) -> Iterator[_Place]:
    """Yield where the report is written: of all issuers that share a root, or of one."""
    if issuer:
        yield _Place(issuers[0].context.issuer.root, keys.programme(issuer), issuers)
        return
    by_root: dict[str, list[_Issuer]] = defaultdict(list)
    for known in issuers:
        by_root[root_of(known.context.issuer, folder)].append(known)
    for root, sharing in by_root.items():
        yield _Place(root, keys.ALL_ISSUERS, sharing)


def _where(place: _Place, *, is_only: bool) -> Iterator[Part]:
    """Yield where a report is: a link where its address is known, and the folder.

    A page server has one page of all issuers, so there is no link where several roots have one.
    """
    names = ", ".join(known.facts.issuer for known in place.issuers)
    url = report_link(place.issuers[0].context, f"{place.folder}report.html")
    if url and is_only:
        yield Link(url, f"The programme's report of {names}", "programme-report")
    yield Place(f"files of {names}: {place.root.rstrip('/')}/{place.folder}")


def _shown(facts: dict[str, Any]) -> Iterator[Part]:
    """Yield the result in one sentence, the issuers, the weeks and the hours."""
    yield facts["cardholders"]["sentence"]
    if facts["cardholders"]["removed"]["sentence"]:
        yield facts["cardholders"]["removed"]["sentence"]
    yield ""
    issuers = [[line["issuer"], *_cells(line)] for line in facts["issuers"]]
    yield Table(("issuer", *COLUMNS.values()), issuers)
    yield ""
    weeks = [[line["week"] or "earlier", *_cells(line)] for line in facts["weeks"]]
    yield Table(("first named in the week of", *COLUMNS.values()), weeks)
    yield ""
    yield from _hours(facts["hours"])


def _cells(line: dict[str, Any]) -> list[object]:
    return ["not known" if line[name] is None else line[name] for name in COLUMNS]


def _hours(hours: dict[str, Any]) -> Iterator[str]:
    if hours["links"]:
        yield (
            f"to the link: median {hours['median_hours']} h, slowest {hours['slowest_hours']} h, "
            f"{hours['share_in_time']:.1%} as agreed"
        )
    if hours["placed"]:
        yield (
            f"from the link to the placed card: median {hours['median_days']:g} days, "
            f"slowest {counted(hours['slowest_days'], 'day')}"
        )
