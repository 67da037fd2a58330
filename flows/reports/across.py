"""The report across runs: what is outstanding since when, what failed over time, what is about to
expire.

And the worklist: what is to be done about all runs of an issuer, by whom, and the command to paste;
due first on top.
"""

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time, timedelta
from io import BytesIO
from typing import Any, NamedTuple

import polars as pl

from flows.reports import lists, page, summary
from flows.reports.tally import hours_of
from flows.reports.workbook import across_workbook
from flows.results.intake import parted
from flows.results.lineage import CANCELLED, Cardholders, run_rows
from flows.results.markers import read_waiting
from flows.runs import documents
from flows.runs.attempts import LIFE, active_twice
from flows.runs.chains import last_record
from flows.runs.chunks import chunk_states
from flows.runs.closings import chunk_of
from flows.runs.commits import commits_since
from flows.runs.context import IssuerContext
from flows.runs.frames import csv_pieces
from flows.runs.identity import canonical
from flows.runs.keys import RunKeys, deliveries, keys_of, placements, reconciliation
from flows.runs.single_links import prompted_links
from flows.runs.store import Store, read
from flows.runs.stored_runs import StoredRuns
from flows.runs.versions import read_facts
from schemas import tables as reports
from schemas.actions import ASK, FIX, RESUBMIT
from schemas.breaks import DECISIONS
from schemas.ledger import ERROR, REJECTED
from schemas.manifest import Manifest
from schemas.reasons import CANCELLED_CHUNK, reason
from schemas.records import Delivery

EXIT_CODES = {page.CLEAR: 0, page.AWAITED: 0, page.OVERDUE: 3, summary.OUT_OF_BALANCE: 4}

LISTED = 200  # reasons, and lines of the worklist, listed here; worklist.csv has every line


class RunFacts(NamedTuple):
    """One committed run: its figures, reasons by stage (code, rows), links by expiry date and
    hours, open chunks.
    """

    run: str
    as_of: date
    state: str
    rows: Mapping[str, int]
    reasons: Mapping[str, Sequence[tuple[str, int]]]
    expires: Mapping[date | None, int]
    waiting: tuple[summary.WaitingChunk, ...]
    breaks: Sequence[Mapping[str, Any]] = ()  # open ones, as in summary.json
    hours: Mapping[str, int] = {}


def across(
    runs: Sequence[RunFacts], unlinked: pl.DataFrame, terms: summary.ReportTerms
) -> dict[str, Any]:
    """Return the facts of the report across runs; `unlinked` comes from
    `flows.reports.lists.unlinked`.
    """
    waiting = [one for run in runs for one in run.waiting]
    late = [one for one in waiting if terms.overdue(one)]
    codes = unlinked.group_by(code="reason").agg(cardholders=pl.len()).drop_nulls("code")
    codes = codes.sort("cardholders", "code", descending=[True, False])
    verdict = page.OVERDUE if late else page.AWAITED if waiting else page.CLEAR
    return {
        "seen": terms.now.isoformat(timespec="seconds"),
        "answer_within_hours": terms.within,
        "verdict": summary.OUT_OF_BALANCE
        if any(run.state == summary.OUT_OF_BALANCE for run in runs)
        else verdict,
        "rows": {name: sum(run.rows[name] for run in runs) for name in summary.FIGURES},
        "runs": [
            {"run": run.run, "as_of": run.as_of.isoformat(), "state": run.state, **run.rows}
            for run in runs
        ],
        "outstanding": {
            **_sizes(waiting),
            "overdue": _sizes(late),
            "missing": {
                kind: _sizes([one for one in waiting if one.missing == kind])
                for kind in summary.LACKS
            },
            "ages": {
                age: _sizes(
                    [one for one in waiting if summary.age_step(one.since, terms.now) == age]
                )
                for age in summary.AGES
            },
        },
        "links": summary.by_expiry(
            (pair for run in runs for pair in run.expires.items()), terms.now.date()
        ),
        "reasons": _reasons(runs)[:LISTED],
        "unlinked": {
            "cardholders": unlinked.height,
            "by_attempts": unlinked["attempts"]
            .value_counts(name="cardholders")
            .sort("attempts")
            .to_dicts(),
            "reasons": [
                {**one, "action": reason(one["code"]).action}
                for one in codes.head(LISTED).to_dicts()
            ],
        },
    }


def _sizes(chunks: Sequence[summary.WaitingChunk]) -> dict[str, int]:
    return {"count": len(chunks), "rows": sum(one.awaiting for one in chunks)}


def _reasons(runs: Sequence[RunFacts]) -> list[dict[str, Any]]:
    """Return every reason, ours and the partner's, with its rows per business date, most rows
    first.
    """
    nights: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for run in runs:
        for stage, reported in run.reasons.items():
            for code, rows in reported:
                nights[code, stage][run.as_of.isoformat()] += rows
    found = [
        {
            "code": code,
            "stage": stage,
            "action": reason(code).action,
            "rows": sum(days.values()),
            "nights": dict(days),
        }
        for (code, stage), days in nights.items()
    ]
    return sorted(found, key=lambda one: (-one["rows"], one["code"], one["stage"]))


ISSUER, PARTNER, OPERATOR = "issuer", "partner", "operator"
DECIDED = {one.reason for one in DECISIONS.values() if one.reason}
# What is to be done about cardholders without a link, by the action of the reason of their last
# attempt.
_UNLINKED = {
    FIX: ("rows to correct", ISSUER, "cardlink corrections {run} --to FILE"),
    RESUBMIT: (
        "errors to send again",
        OPERATOR,
        "cardlink resubmit {run} --action 'resubmit as is' --reason WHY",
    ),
    ASK: (
        "errors to ask about",
        PARTNER,
        "cardlink resubmit {run} --action 'ask the partner' --reason WHY",
    ),
    "lost": (
        "rows decided lost, to send again",
        OPERATOR,
        "cardlink resubmit {run} --code {code} --reason WHY",
    ),
}


class Work(NamedTuple):
    """One line of the worklist (`schemas.tables.Work`); it ages since `since`."""

    due: datetime
    kind: str
    issuer: str
    run: str
    chunk: int | None
    rows: int
    since: datetime
    who: str
    command: str

    def facts(self, now: datetime) -> dict[str, Any]:
        """Return the line as the tables show it."""
        due, age = self.due.isoformat(timespec="seconds"), summary.duration(now - self.since)
        line = {
            name: value
            for name, value in self._asdict().items()
            if name not in ("since", "who", "command")
        }
        return {**line, "due": due, "age": age, "who": self.who, "command": self.command}


def _chunks(issuer: str, run: RunFacts, terms: summary.ReportTerms) -> Iterator[Work]:
    """Yield the chunks to upload, held, and awaited; what came and does not fit is a break."""
    broken = {chunk_of(one["place"]) for one in run.breaks}
    for one in run.waiting:
        due, place, who = (
            one.since + timedelta(hours=terms.within),
            f"{one.run} {one.chunk}",
            OPERATOR,
        )
        if one.chunk in broken or one.state == "cancelled":
            continue
        if one.state == "waiting" and one.missing == summary.MISSING:
            kind, due, command = (
                "chunks to upload",
                one.since,
                f"cardlink outbox fetch {place} --to FOLDER",
            )
        elif one.state == "held":
            kind, command = "chunks held", f"cardlink outbox release {place} --reason WHY"
        elif one.missing == summary.MISSING and terms.overdue(one):
            kind = "results overdue"
            command = f"cardlink mend close {one.run} RESULT_SHORT 'chunk {one.chunk}' --decision lost --reason WHY"
        else:
            kind, who, command = "results awaited", PARTNER, f"cardlink ingest {issuer}"
        yield Work(due, kind, issuer, one.run, one.chunk, one.awaiting, one.since, who, command)


def _breaks(issuer: str, run: RunFacts) -> Iterator[Work]:
    for one in run.breaks:
        since, ways = datetime.fromisoformat(one["since"]), one.get("decide")
        command = ways[0]["command"] if ways else f"cardlink report {run.run}"
        chunk = chunk_of(one["place"]) or None
        yield Work(
            since,
            f"break {one['name']}",
            issuer,
            run.run,
            chunk,
            one["rows"],
            since,
            OPERATOR,
            command,
        )


def _unlinked(issuer: str, runs: Iterable[RunFacts], unlinked: pl.DataFrame) -> Iterator[Work]:
    """Yield the cardholders whose last attempt gave no link, by its run and what is to be done
    about it.
    """
    days = {run.run: _midnight(run.as_of) for run in runs}
    decided = pl.when(pl.col("reason").is_in(sorted(DECIDED))).then(
        pl.struct(act=pl.lit("lost"), code="reason")
    )
    by = decided.otherwise(pl.struct(act="action", code=pl.lit(""))).struct.unnest()
    grouped = unlinked.with_columns(by).group_by("run", "act", "code").len()
    for run, action, code, rows in grouped.iter_rows():
        if action in _UNLINKED:
            kind, who, command = _UNLINKED[action]
            since = days[run]
            yield Work(
                since, kind, issuer, run, None, rows, since, who, command.format(run=run, code=code)
            )


def _ending(issuer: str, runs: Iterable[RunFacts], terms: summary.ReportTerms) -> Iterator[Work]:
    """Yield the links that end within a week."""
    today = terms.now.date()
    ends = [
        (day, links)
        for run in runs
        for day, links in run.expires.items()
        if day and 0 <= (day - today).days < 8
    ]
    if ends:
        due, rows, command = (
            _midnight(min(ends)[0]),
            sum(links for _, links in ends),
            f"cardlink renew {issuer}",
        )
        yield Work(
            due,
            f"links end {summary.SOON}",
            issuer,
            "",
            None,
            rows,
            terms.now,
            OPERATOR,
            f"{command} --within 7d",
        )


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


# What is read of the runs' own reports, which stay unchanged; all that is written is below
# `<issuer>/reconciliation/`.

BATCH = 100_000  # rows looked at together


class Survey(NamedTuple):
    """What is known across the runs: each run's facts, what is to be done, and the tables of
    `cards` without a link.
    """

    runs: list[RunFacts]
    cards: pl.DataFrame
    cardholders: dict[str, int]
    work: list[Work]
    terms: summary.ReportTerms
    since: date


def survey(context: IssuerContext, start: date | None = None, end: date | None = None) -> Survey:
    """Return what is known of the issuer's committed runs of these business dates; nothing is
    written.

    Without `start` every run counts, but cardholders only those of the runs of the last LIFE, since
    that reads every row: once.
    """
    store, issuer = context.adapters.store, context.issuer
    terms = summary.ReportTerms(context.adapters.now(), issuer.portal.answer_within_hours)
    every = list(documents.manifests(store, issuer.issuer))
    runs = [one for one in every if (start or one.as_of) <= one.as_of <= (end or one.as_of)]
    since = start or terms.now.date() - LIFE
    gone = documents.without_ledger(store, issuer.issuer)
    turns = {link.run: turn for turn, link in enumerate(commits_since(store, issuer.issuer))}
    lately = [run for run in runs if run.as_of >= since and run.run not in gone]
    held, tried = Cardholders(), list[pl.DataFrame]()

    def rows_of(run: Manifest) -> pl.DataFrame:
        rows = pl.concat(
            [part.select(*lists.CARD, "state", "reasons") for part in run_rows(store, run)]
        )
        return rows.with_columns(pl.lit(run.run).alias("run"))

    with ThreadPoolExecutor(context.adapters.connections) as readers:
        found = list(readers.map(lambda run: _facts(store, run), runs))
        in_order = sorted(lately, key=lambda one: turns.get(one.run, -1))
        together = parted(readers.map(rows_of, in_order), lambda one: one.height, BATCH)
        # a frame costs more than its rows, where runs are small
        for some in map(pl.concat, together):
            held.add([some])
            tried.append(_attempts(some))
    held.add([prompted_links(store, issuer.issuer)])
    cards, name = lists.unlinked(tried, held.settled()), issuer.issuer
    work = [one for run in found for one in (*_chunks(name, run, terms), *_breaks(name, run))]
    work += [*_unlinked(name, found, cards), *_ending(name, found, terms), *_strays(store, name)]
    for run, text in documents.refusals(store, name, every).items():
        at = datetime.fromisoformat(text)
        work.append(
            Work(
                at, "refused extracts", name, run, None, 0, at, ISSUER, f"cardlink extracts {name}"
            )
        )
    work = sorted([*work, *_unconfirmed(store, name)])
    return Survey(found, cards, held.count(), work, terms, since)


def reconcile_runs(
    context: IssuerContext, start: date | None = None, end: date | None = None
) -> dict[str, Any]:
    """Write the report across the issuer's committed runs of these business dates, and return its
    facts.
    """
    store, issuer = context.adapters.store, context.issuer
    found = survey(context, start, end)
    runs, cards, terms = found.runs, found.cards, found.terms
    twice = active_twice(
        StoredRuns(store, issuer.issuer),
        terms.now.date(),
        list(commits_since(store, issuer.issuer)),
    )
    work = pl.DataFrame([one.facts(terms.now) for one in found.work], reports.Work.dtypes())
    facts = {
        "issuer": issuer.issuer,
        "from": start.isoformat() if start else None,
        "to": end.isoformat() if end else None,
        "cardholders_since": found.since.isoformat(),
        **across(runs, cards, terms),
        "worklist": work.head(LISTED).to_dicts(),
        "more_work": max(0, work.height - LISTED),
        "to_do": dict(work.group_by("kind", maintain_order=True).len().iter_rows()),
        "cardholders": found.cardholders,
        "hours": hours_of((one.hours for one in runs), issuer.portal.link_within_hours),
        "active_twice": twice.height,
        "funnel": (read_facts(store, f"{placements(issuer.issuer)}summary.json") or {}).get(
            "funnel"
        ),
    }
    folder = reconciliation(issuer.issuer)
    tables = {"worklist": work, "unlinked": cards, "active-twice": twice}
    for name, one in tables.items():
        store.replace(f"{folder}{name}.csv", csv_pieces([one], one.columns))
    store.replace(f"{folder}summary.json", [canonical(facts)])
    store.replace(f"{folder}report.html", [page.across_page(facts).encode()])
    store.replace(f"{folder}report.xlsx", [across_workbook(tables)])
    return facts


def _strays(store: Store, issuer: str) -> Iterator[Work]:
    """Yield the result files with breaks that belong to no run, since each is there."""
    for file in (
        one.file for one in read_waiting(store, issuer).values() if one.told and not one.runs
    ):
        for at in (entry.modified for entry in store.keys(file) if entry.key == file):
            again = f"cardlink mend ingest-again {issuer} {shlex.quote(file.partition('/results/')[2])} --reason WHY"
            yield Work(at, "result files to look at", issuer, "", None, 0, at, OPERATOR, again)


def _unconfirmed(store: Store, issuer: str) -> Iterator[Work]:
    """Yield the last delivery of links, unless the receiving side has confirmed it."""
    number, last = last_record(store, deliveries(issuer), Delivery)
    if last is not None and not list(
        store.keys(f"{deliveries(issuer)}{number:06d}/confirmed.json")
    ):
        changes, command = (
            last.new + last.replaced + last.withdrawn,
            f"cardlink deliver {issuer} --confirm {number}",
        )
        yield Work(
            last.at,
            "links to confirm",
            issuer,
            "",
            None,
            changes,
            last.at,
            OPERATOR,
            f"{command} --reason RECEIPT",
        )


def _facts(store: Store, manifest: Manifest) -> RunFacts:
    """Return a run's facts from its report or the record of its purge; without either every sent
    row is awaiting.
    """
    keys = keys_of(manifest.run)
    found = documents.read_summary(store, keys)
    gone = documents.read_purged(store, keys, "ledger") if found is None else None
    if gone is not None:
        reasons = {"submit": sorted(manifest.reasons.items()), "partner": []}
        return RunFacts(manifest.run, manifest.as_of, gone.verdict, gone.rows, reasons, {}, ())
    counts = dict.fromkeys(summary.FIGURES, 0) | manifest.counts.model_dump(
        include=set(summary.FIGURES)
    )
    unanswered = {**counts, "awaiting": manifest.counts.submitted}
    reported = found or {
        "verdict": "committed, to be uploaded",
        "rows": unanswered,
        "expires": {},
        "reasons": {},
    }
    awaited = reported["rows"]["awaiting"]
    partner = [(one["code"], one["rows"]) for one in reported["reasons"].get("partner", ())]
    return RunFacts(
        manifest.run,
        manifest.as_of,
        reported["verdict"],
        reported["rows"],
        {"submit": sorted(manifest.reasons.items()), "partner": partner},
        {
            date.fromisoformat(day) if day else None: links
            for day, links in reported["expires"].items()
        },
        tuple(_waiting(store, keys, manifest, reported=found is not None)) if awaited else (),
        [one for one in reported.get("breaks", ()) if not one["notice"]],
        reported.get("hours", {}).get("spread", {}),
    )


def _waiting(
    store: Store, keys: RunKeys, manifest: Manifest, *, reported: bool
) -> list[summary.WaitingChunk]:
    """Return the chunks with unanswered rows; without a report that is all of them."""
    names = ("chunk", "sent", "answers", "awaiting")
    if reported:
        table = pl.read_csv(
            BytesIO(read(store, keys.report("chunks.csv"))), columns=names, infer_schema=False
        )
    else:
        table = pl.DataFrame(
            [(one.number, one.rows, 0, one.rows) for one in manifest.chunks], names, orient="row"
        )
    return summary.waiting_chunks(table.cast(pl.UInt32), chunk_states(store, keys, manifest))


def _attempts(rows: pl.DataFrame) -> pl.DataFrame:
    """Return what gave no link (`lists.TRIED`): errors of the partner, refusals of ours, cancelled
    chunks.
    """
    state, code = pl.col("state"), pl.col("reasons").list.first().str.split("|").list.last()
    stages = {ERROR: "partner", REJECTED: "submit", CANCELLED: lists.OUTBOX}
    stage = state.replace_strict(stages, default=None, return_dtype=pl.String).alias("stage")
    why = pl.when(state == CANCELLED).then(pl.lit(CANCELLED_CHUNK)).otherwise(code).alias("reason")
    return rows.select(*lists.CARD, "run", stage, why).drop_nulls("stage")
