"""A quarter of an issuer's life: nights, answers, corrections, renewals, a key rotation, deaths,
and retention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from io import BytesIO
from typing import TypeVar

import polars as pl

from flows.adapters.gpg_opener import GpgOpener
from flows.operations.break_decisions import close_break
from flows.operations.purge import PurgePlan, plan_purge, purge
from flows.operations.reseal import reseal
from flows.resend.renewal import renew
from flows.resend.resubmission import Request
from flows.resend.resubmission_run import NothingToSendError, resubmit
from flows.resend.selection import RowSelection
from flows.resend.template import correction_template
from flows.runs.keys import extracts, keys_of
from flows.runs.outbox import outboxes
from flows.runs.sealing import Opener
from flows.simulator.portal_key import PortalKey
from schemas.actions import RESUBMIT
from schemas.breaks import RESULT_SHORT
from schemas.manifest import Manifest
from schemas.portal import CITY, POSTAL_CODE
from tests import keys
from tests.lives.partner import Partner, run_of
from tests.lives.place import FIRST, Place, Progress
from tests.lives.town import Population, found_town
from tests.night import BANK, Bench, issuer

WITHIN = 14  # days before its end a link is renewed by `renew`; a night does it later
PATIENCE = 9  # days until rows without an answer are given up
T = TypeVar("T")
ROWS = pl.DataFrame(
    schema={
        **{"chunk": pl.UInt32, "position": pl.UInt32, "row": pl.UInt32},
        **dict.fromkeys(("cuid", "last_4", "state", "url"), pl.String),
        "expires_on": pl.Date,
    }
)


@dataclass
class Quarter:
    """What happened: the place, the bench, the town, the partner, and what was purged when."""

    place: Place
    bench: Bench
    town: Population
    partner: Partner
    purged: list[tuple[date, PurgePlan]] = field(default_factory=list)
    # keys of extracts and results: what is not ours to delete
    dropped: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)  # chunks whose gaps were closed by hand
    # what was seen of runs before they were purged
    gone: set[str] = field(default_factory=set)  # runs whose report went with their ledger
    differing: list[str] = field(default_factory=list)
    too_soon: list[str] = field(default_factory=list)

    @property
    def day(self) -> date:
        """Today."""
        return self.place.clock.day

    @property
    def did(self) -> Counter[str]:
        """What was done how often, and what was killed."""
        return self.place.reaper.did

    def survive(self, step: str, work: Callable[[], T]) -> T:
        """Do a step as often as it takes: it may be killed."""
        return self.place.reaper.survive(step, work)

    def runs(self) -> list[Manifest]:
        """Return the committed runs."""
        return list(self.bench.runs.manifests())


@contextmanager
def lived(
    place: Place,
    watch: Callable[[Quarter, PurgePlan], None],
    on_progress: Progress = lambda _: None,
) -> Iterator[Quarter]:
    """Live through the quarter and give it after its last night; `watch` looks on before anything
    is purged.
    """
    plan = place.plan
    first, second = keys.sound(), keys.sound(copy=2)
    with GpgOpener([first.secret]) as opens_first, GpgOpener([second.secret]) as opens_second:
        settings = issuer(
            full_portfolio=True,
            portfolio={"renew_within_days": WITHIN // 2},
            retention={"chunks_days": 7, "ledger_days": 63},
            portal={"rows_per_chunk": plan.per_chunk},
        )
        bench = Bench(place.store, settings, place.clock.now)
        town = found_town(plan.rows, plan.nights * plan.stride, FIRST, plan.seed)
        quarter = Quarter(place, bench, town, Partner.of(bench, opens_first, plan.seed))
        for night in range(plan.nights):
            _night(quarter, night)
            if night == plan.nights // 2:
                _rotate(quarter, second, opens_second)
            _day(quarter, night, watch)
            on_progress(f"{quarter.day}: {dict(quarter.did)}")
        _answers(quarter)
        yield quarter


def _night(quarter: Quarter, night: int) -> None:
    """Let the town live, drop its extract, and submit it."""
    stride = quarter.place.plan.stride
    quarter.place.clock.begin_night(night * stride)
    if night:
        quarter.town.live(quarter.day, stride)
    extract = quarter.bench.drop_bytes(quarter.town.extract(), f"bank-{quarter.day:%Y%m%d}.csv")
    quarter.dropped.add(extracts(BANK) + extract)
    quarter.survive("submit", lambda: quarter.bench.submit(extract))


def _day(quarter: Quarter, night: int, watch: Callable[[Quarter, PurgePlan], None]) -> None:
    """Live through the working day after a night."""
    quarter.place.clock.hour = max(quarter.place.clock.hour, 9)
    _answers(quarter)
    _resubmit_as_is(quarter)
    _give_up(quarter)
    if night % max(1, 7 // quarter.place.plan.stride) == 0:
        _correct(quarter)
        quarter.survive("renew", lambda: renew(quarter.bench.context, WITHIN))
        due = plan_purge(quarter.bench.context, quarter.place.store)
        watch(quarter, due)
        quarter.survive("purge", lambda: purge(quarter.bench.context, quarter.place.store))
        quarter.purged.append((quarter.day, due))


def _answers(quarter: Quarter) -> None:
    """Carry to the partner what waits, bring back what there is, and take it up."""
    quarter.partner.take()
    quarter.dropped |= quarter.partner.answer()
    quarter.survive("ingest", quarter.bench.ingest)


def _resubmit_as_is(quarter: Quarter) -> None:
    """Send again what the partner could not take just then."""
    selection = RowSelection(actions=frozenset({RESUBMIT}))
    for run in _lately(quarter, max(5, 2 * quarter.place.plan.stride), "error"):
        _resubmit(quarter, Request(run, selection, "as it is"))


def _correct(quarter: Quarter) -> None:
    """Fill in what is known by now of the rows that were refused, and send them again."""
    refused = _lately(quarter, 21, "error")
    rejected = _lately(quarter, quarter.place.plan.stride, "rejected")
    for run in sorted({*refused, *rejected}):
        template = pl.concat(correction_template(quarter.bench.context, run))
        cells = template.select("cuid", "column").rows()
        corrections = [_correction(quarter, *cell) for cell in cells]
        filled = template.with_columns(correction=pl.Series(corrections, dtype=pl.String))
        if filled["correction"].count():
            name = f"{run}-{quarter.day:%Y%m%d}.csv"
            request = Request(run, RowSelection(), "corrected by the issuer", corrections=name)
            _resubmit(quarter, request, filled.write_csv().encode())


def _correction(quarter: Quarter, cuid: str, column: str) -> str | None:
    """Say what ought to stand in a cell: the city that was left out, another postal code of the
    same place.
    """
    if column == CITY:
        return quarter.town.cities.get(cuid)
    if column != POSTAL_CODE:
        return None
    code = quarter.town.cell(cuid, POSTAL_CODE)
    return code[:-1] + str((int(code[-1]) + 1) % 10)


def _resubmit(quarter: Quarter, request: Request, content: bytes | None = None) -> None:
    send = partial(resubmit, quarter.bench.context, request, content=content)
    try:
        quarter.survive("resubmit", send)
    except NothingToSendError:
        quarter.did["nothing to resubmit"] += 1


def _give_up(quarter: Quarter) -> None:
    """Send again, on a recorded word, what the partner never answered, and close the break."""
    partner = quarter.partner
    overdue = quarter.day - timedelta(days=PATIENCE)
    gaps = [chunk for chunk in partner.lost if partner.answered.get(chunk, date.max) <= overdue]
    for chunk in sorted(gaps):
        partner.lost.remove(chunk)
        run = run_of(chunk)
        number = int(chunk.removeprefix(f"{run}-").partition(".")[0])
        rows = report_rows(quarter, run).filter(chunk=number, state="awaiting")["row"]
        word = "the partner lost them"
        _resubmit(quarter, Request(run, RowSelection(rows=frozenset(rows)), word, override=word))
        close_break(quarter.bench.context, run, RESULT_SHORT, f"chunk {number}", word)
        quarter.given_up.add(chunk)
        quarter.did["breaks closed"] += 1


def _rotate(quarter: Quarter, key: PortalKey, opener: Opener) -> None:
    """Change the portal's key: what still waits is sealed anew, since only the new key opens what
    comes.
    """
    portal = quarter.bench.issuer.portal.model_copy(update={"fingerprints": (key.fingerprint,)})
    quarter.bench.issuer = quarter.bench.issuer.model_copy(update={"portal": portal})
    quarter.bench.key = key
    quarter.partner.keyring.opener = opener
    waiting = {item.run for item in outboxes(quarter.bench.runs)}
    for run in sorted(waiting):
        word = "the portal has a new key"
        seal_anew = partial(reseal, quarter.bench.context, quarter.place.store, run, (), word)
        quarter.did["chunks sealed anew"] += len(quarter.survive("reseal", seal_anew).chunks)


def _lately(quarter: Quarter, days: int, kind: str) -> list[str]:
    """Return the runs of the last days whose report counts rows of a kind."""
    since = quarter.day - timedelta(days=days)
    recent = [run.run for run in quarter.runs() if run.as_of > since]
    reports = {run: quarter.bench.stored(run).summary for run in recent}
    return [run for run, report in reports.items() if report and report["rows"][kind]]


def report_rows(quarter: Quarter, run: str) -> pl.DataFrame:
    """Return the reconciled rows of a run as its report has them."""
    parts = [entry.key for entry in quarter.place.store.keys(keys_of(run).report("rows/"))]
    frames = (
        pl.read_parquet(BytesIO(quarter.bench.content(key)), columns=ROWS.columns) for key in parts
    )
    return pl.concat([ROWS, *frames])
