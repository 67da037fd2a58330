"""The programme manager's report: what is read of each issuer, and what is written of all of them.

Of one issuer it is stored below `<issuer>/programme/`, of all that share a root below `programme/`
of that root.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

import polars as pl

from flows.book.book import read_book
from flows.book.people import balance, of_book, together
from flows.reports import programme
from flows.reports.page import render
from flows.reports.programme import STATE_NAMES, IssuerFacts
from flows.reports.run_facts import facts_of
from flows.reports.workbook import Sheet, workbook
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.frames import csv_pieces
from flows.runs.identity import canonical
from flows.runs.store import Store
from flows.steps import Step

LISTED = 15  # reasons listed on the page; reasons.csv has them all


class Programme(NamedTuple):
    """The report of some issuers: its tables by name, and the facts of its page."""

    tables: Mapping[str, pl.DataFrame]
    facts: dict[str, Any]


def read_issuer(context: IssuerContext) -> IssuerFacts:
    """Return what the programme's report has to know of an issuer; nothing is written."""
    adapters = context.adapters
    issuer = context.issuer.issuer
    today = local_day(adapters.now(), context.issuer.time_zone)
    book = read_book(adapters, issuer)
    cards = (part.cards(today) for part in book.parts())
    parts = [(programme.cardholders(of_part), balance(of_part)) for of_part in cards]
    return IssuerFacts(
        issuer=issuer,
        cardholders=pl.concat(cardholders for cardholders, _ in parts),
        balance=of_book(book, (counted for _, counted in parts)),
        runs=facts_of(book.runs, adapters),
        within=context.issuer.portal.link_within_hours,
    )


def programme_of(
    issuers: Sequence[IssuerFacts], now: datetime, weeks: int, unread: Sequence[str] = ()
) -> Programme:
    """Return the report of some issuers.

    The page shows the last so many weeks, and those before as one; the tables have every week.
    `unread`: issuers that could not be read, which are named.
    """
    counts = programme.by_week(issuers)
    tables = {
        "weeks": programme.without_unknown(counts),
        "issuers": _by_issuer(issuers, counts),
        "reasons": programme.reasons(issuers),
        "hours": programme.hours(issuers),
    }
    cardholders = together(known.balance for known in issuers)
    shown = programme.recent(counts, now.date(), weeks)
    facts = {
        "seen": now.isoformat(timespec="seconds"),
        "unread": list(unread),
        "cardholders": cardholders.facts,
        "waiting": _waiting(issuers),
        "issuers": _lines(tables["issuers"]),
        "all": _lines(programme.without_unknown(programme.added_up(counts)))[0],
        "weeks": _lines(programme.without_unknown(programme.added_up(shown, "week"))),
        "weeks_of_issuers": _lines(programme.added_up(shown, "week", "issuer")),
        "hours": programme.hours_over_all(issuers),
        "hours_of_weeks": _lines(programme.hours_by_week(issuers).drop("issuer")),
        "reasons": _reasons(programme.recent(tables["reasons"], now.date(), weeks)),
    }
    return Programme(tables, facts)


def _lines(table: pl.DataFrame) -> list[dict[str, Any]]:
    """Return a table as plain facts; a week is its Monday, "" stands for those before."""
    dates = pl.col(pl.Date).cast(pl.String).fill_null("")
    return table.with_columns(dates).to_dicts()


def _by_issuer(issuers: Sequence[IssuerFacts], counts: pl.DataFrame) -> pl.DataFrame:
    """Return a line an issuer: counts, for whom its cardholders wait, and how long links took."""
    known = programme.without_unknown(programme.added_up(counts, "issuer"))
    hours = programme.hours_by_issuer(issuers).drop("week", "placed")
    waits = programme.waiting(issuers)
    return waits.join(known, on="issuer", how="left").join(hours, on="issuer", how="left")


def _reasons(table: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the reasons with most rows, each with its rows by week."""
    by = ["code", "stage", "action"]
    most = table.group_by(by).agg(pl.col("rows").sum())
    listed = most.sort("rows", "code", "stage", descending=[True, False, False]).head(LISTED)
    weeks: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for line in _lines(table.group_by("week", *by).agg(pl.col("rows").sum())):
        weeks[line["code"], line["stage"]][line["week"]] = line["rows"]
    return [{**line, "weeks": weeks[line["code"], line["stage"]]} for line in listed.to_dicts()]


def _waiting(issuers: Iterable[IssuerFacts]) -> list[str]:
    """Return the result of each issuer some of whose cardholders wait, most waiting first."""
    waiting = [known for known in issuers if not known.balance.is_done]
    waiting.sort(key=lambda known: (-sum(known.balance.waits.values()), known.issuer))
    return [f"{known.issuer}: {known.balance.sentence}" for known in waiting]


def write_programme(store: Store, folder: str, report: Programme, forms: str = "") -> None:
    """Write a report below a folder: page, workbook, tables and facts."""
    for name, table in report.tables.items():
        store.replace(f"{folder}{name}.csv", csv_pieces([table], table.columns))
    sheets = {name.capitalize(): _sheet(table) for name, table in report.tables.items()}
    store.replace(f"{folder}report.xlsx", [workbook(sheets)])
    store.replace(f"{folder}report.html", [programme_page(report.facts, forms).encode()])
    store.replace(f"{folder}summary.json", [canonical(report.facts)])


def _sheet(table: pl.DataFrame) -> Sheet:
    return Sheet(table.columns, table.with_columns(pl.col(pl.Date).cast(pl.String)).iter_rows())


def programme_page(facts: Mapping[str, Any], forms: str = "") -> str:
    """Return the page of a report from its facts; `forms` as of a run's page."""
    weeks = {line["week"] for line in facts["weeks"]}
    reason_weeks = set(chain.from_iterable(line["weeks"] for line in facts["reasons"]))
    cells: dict[str, dict[str, Any]] = defaultdict(dict)
    for line in facts["weeks_of_issuers"]:
        cells[line["week"]][line["issuer"]] = line
    return render(
        "programme.html",
        all=facts,
        tone=_tone(facts),
        states=[name for name in STATE_NAMES if facts["all"][name]],
        weeks=sorted(weeks),
        reason_weeks=sorted(reason_weeks),
        cells=cells,
        hours={line["week"]: line for line in facts["hours_of_weeks"]},
        rebuild=Step("programme"),
        forms=forms,
    )


def _tone(facts: Mapping[str, Any]) -> str:
    """Return the tone of the page: good where nobody waits, a warning where an operator acts."""
    waits = facts["cardholders"]["waits"]
    if waits["operator"] or facts["unread"]:
        return "warn"
    return "wait" if any(waits.values()) else "good"
