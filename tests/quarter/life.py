"""A quarter of an issuer's life: nights, answers, corrections, renewals, a key rotation, deaths,
and retention.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import NamedTuple, TypeVar

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
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.simulator.portal import Portal
from flows.simulator.portal_key import PortalKey
from schemas.actions import RESUBMIT
from schemas.breaks import RESULT_SHORT
from schemas.manifest import Manifest
from schemas.portal import CITY, POSTAL_CODE
from tests import keys
from tests.night import BANK, Bench, issuer
from tests.quarter.mortal import MortalStore, Reaper
from tests.quarter.partner import Keyring, Partner
from tests.quarter.town import Population, found

FIRST = date(2026, 8, 24)
WITHIN = 14  # days before its end a link is renewed by `renew`; a night does it later
PATIENCE = 9  # days until rows without an answer are given up
ROWS = pl.DataFrame(
    schema={
        **{"chunk": pl.UInt32, "position": pl.UInt32, "row": pl.UInt32},
        **dict.fromkeys(("cuid", "last_4", "state", "url"), pl.String),
        "expires_on": pl.Date,
    }
)
T = TypeVar("T")
P = TypeVar("P", bound=NamedTuple)


def asked(name: str, default: P) -> P:
    """Return the plan that a command line asks for: an option for each field."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.{name}")
    for option, usual in default._asdict().items():
        parser.add_argument(f"--{option.replace('_', '-')}", type=type(usual), default=usual)
    return default._replace(**vars(parser.parse_args()))


class Plan(NamedTuple):
    """How long and how large: nights, days between them, people, rows a chunk, the share of steps
    that are killed.
    """

    nights: int = 90
    stride: int = 1
    rows: int = 20_000
    per_chunk: int = 1000
    deaths: float = 0.15
    seed: int = 1


@dataclass
class Quarter:
    """What happened: the bench, the town, the partner, and what was purged when."""

    plan: Plan
    bench: Bench
    store: MortalStore
    town: Population
    partner: Partner
    reaper: Reaper
    day: date = FIRST
    hour: float = 0.0
    purged: list[tuple[date, PurgePlan]] = field(default_factory=list)
    # keys of extracts and results: what is not ours to delete
    dropped: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)  # chunks whose gaps were closed by hand
    # looks at what a purge is about to delete
    watch: Callable[[Quarter, PurgePlan], None] = lambda *_: None

    @property
    def did(self) -> Counter[str]:
        """What was done how often, and what was killed."""
        return self.reaper.did

    def now(self) -> datetime:
        """Return the moment by the quarter's clock."""
        return datetime(self.day.year, self.day.month, self.day.day, tzinfo=UTC) + timedelta(
            hours=self.hour
        )

    def runs(self) -> list[Manifest]:
        """Return the committed runs."""
        return list(StoredRuns(self.store, BANK).manifests())

    def survive(self, what: str, work: Callable[[], T]) -> T:
        """Do a step as often as it takes: it may be killed."""
        return self.reaper.survive(what, work)

    def wait(self) -> None:
        """Let an hour go by."""
        self.hour += 1


@contextmanager
def lived(
    folder: Path,
    plan: Plan,
    watch: Callable[[Quarter, PurgePlan], None],
    on_progress: Callable[[str], None] = lambda _: None,
) -> Iterator[Quarter]:
    """Live through the quarter and give it after its last night; `watch` looks on before anything
    is purged.
    """
    (folder / "store").mkdir(parents=True)
    first, second = keys.sound(), keys.sound(copy=2)
    with GpgOpener([first.secret]) as opens_first, GpgOpener([second.secret]) as opens_second:
        keyring = Keyring([opens_first])
        portal = Portal(keyring, today=FIRST, fail_share=0.04, seed=plan.seed)
        quarter = _begin(folder, plan, Partner(portal, keyring))
        quarter.watch = watch
        for night in range(plan.nights):
            _night(quarter, night)
            if night == plan.nights // 2:
                _rotate(quarter, second, opens_second)
            _day(quarter, night)
            on_progress(f"{quarter.day}: {dict(quarter.did)}")
        _answers(quarter)
        yield quarter


def _begin(folder: Path, plan: Plan, partner: Partner) -> Quarter:
    settings = issuer(
        full_portfolio=True,
        portfolio={"renew_within_days": WITHIN // 2},
        retention={"chunks_days": 7, "ledger_days": 63},
        portal={"rows_per_chunk": plan.per_chunk},
    )
    clock: list[Quarter] = []
    store = MortalStore(folder / "store", lambda: clock[0].now())
    bench = Bench(store, settings, lambda: clock[0].now())
    days = plan.nights * plan.stride
    population = found(plan.rows, days, FIRST, plan.seed)
    reaper = Reaper(store, random.Random(plan.seed), plan.deaths, lambda: clock[0].wait())
    clock.append(Quarter(plan, bench, store, population, partner, reaper))
    return clock[0]


def _night(quarter: Quarter, night: int) -> None:
    """Let the town live, drop its extract, and submit it."""
    if night:
        quarter.day, quarter.hour = quarter.day + timedelta(days=quarter.plan.stride), 1.5
        quarter.town.live(quarter.day, quarter.plan.stride)
    extract = quarter.bench.drop_bytes(quarter.town.extract(), f"bank-{quarter.day:%Y%m%d}.csv")
    quarter.dropped.add(extracts(BANK) + extract)
    quarter.survive("submit", lambda: quarter.bench.submit(extract))


def _day(quarter: Quarter, night: int) -> None:
    """Live through the working day after a night."""
    quarter.hour = max(quarter.hour, 9)
    _answers(quarter)
    _resubmit_as_is(quarter)
    _give_up(quarter)
    if night % max(1, 7 // quarter.plan.stride) == 0:
        _correct(quarter)
        quarter.survive("renew", lambda: renew(quarter.bench.context, WITHIN))
        _purge(quarter)


def _answers(quarter: Quarter) -> None:
    """Carry to the partner what waits, bring back what there is, and take it up."""
    quarter.partner.take(quarter.bench, quarter.day)
    quarter.dropped |= quarter.partner.answer(quarter.bench, quarter.day)
    quarter.survive("ingest", quarter.bench.ingest)


def _resubmit_as_is(quarter: Quarter) -> None:
    """Send again what the partner could not take just then."""
    wanted = RowSelection(actions=frozenset({RESUBMIT}))
    for run in _lately(quarter, max(5, 2 * quarter.plan.stride), "error"):
        _resubmit(quarter, Request(run, wanted, "as it is"))


def _correct(quarter: Quarter) -> None:
    """Fill in what is known by now of the rows that were refused, and send them again."""
    for run in {*_lately(quarter, 21, "error"), *_lately(quarter, quarter.plan.stride, "rejected")}:
        asked = pl.concat(correction_template(quarter.bench.context, run))
        filled = asked.with_columns(
            correction=pl.Series(
                [_right(quarter, *cell) for cell in _cells(asked)], dtype=pl.String
            )
        )
        if filled["correction"].count():
            name = f"{run}-{quarter.day:%Y%m%d}.csv"
            request = Request(run, RowSelection(), "corrected by the issuer", corrections=name)
            _resubmit(quarter, request, filled.write_csv().encode())


def _cells(asked: pl.DataFrame) -> list[tuple[str, str]]:
    return asked.select("cuid", "column").rows()


def _right(quarter: Quarter, cuid: str, column: str) -> str | None:
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
    try:
        quarter.survive(
            "resubmit", lambda: resubmit(quarter.bench.context, request, content=content)
        )
    except NothingToSendError:
        quarter.did["nothing to resubmit"] += 1


def _give_up(quarter: Quarter) -> None:
    """Send again, on a recorded word, what the partner never answered, and close the break."""
    partner, context = quarter.partner, quarter.bench.context
    overdue = quarter.day - timedelta(days=PATIENCE)
    for chunk in sorted(
        one for one in partner.lost if partner.answered.get(one, date.max) <= overdue
    ):
        partner.lost.remove(chunk)
        run, number = chunk.partition(".")[0][:-6], int(chunk.partition(".")[0][-5:])
        rows = report_rows(quarter, run).filter(chunk=number, state="awaiting")["row"]
        word = "the partner lost them"
        _resubmit(quarter, Request(run, RowSelection(rows=frozenset(rows)), word, override=word))
        close_break(context, run, RESULT_SHORT, f"chunk {number}", word)
        quarter.given_up.add(chunk)
        quarter.did["breaks closed"] += 1


def _purge(quarter: Quarter) -> None:
    due = plan_purge(quarter.bench.context, quarter.store)
    quarter.watch(quarter, due)
    quarter.survive("purge", lambda: purge(quarter.bench.context, quarter.store))
    quarter.purged.append((quarter.day, due))


def _rotate(quarter: Quarter, key: PortalKey, opener: Opener) -> None:
    """Change the portal's key: what still waits is sealed anew, since only the new key opens what
    comes.
    """
    portal = quarter.bench.issuer.portal.model_copy(update={"fingerprints": (key.fingerprint,)})
    quarter.bench.issuer = quarter.bench.issuer.model_copy(update={"portal": portal})
    quarter.bench.key = key
    quarter.partner.keyring.openers = [opener]
    waiting = {item.run for item in outboxes(quarter.bench.runs)}
    for run in sorted(waiting):
        again = partial(
            reseal, quarter.bench.context, quarter.store, run, (), "the portal has a new key"
        )
        quarter.did["chunks sealed anew"] += len(quarter.survive("reseal", again).chunks)


def _lately(quarter: Quarter, days: int, what: str) -> list[str]:
    """Return the runs of the last days whose report counts rows of a kind."""
    since = quarter.day - timedelta(days=days)
    recent = [one.run for one in quarter.runs() if one.as_of > since]
    reports = {run: StoredRun.by_id(quarter.store, run).summary for run in recent}
    return [run for run, report in reports.items() if report and report["rows"][what]]


def report_rows(quarter: Quarter, run: str) -> pl.DataFrame:
    """Return the reconciled rows of a run as its report has them."""
    parts = [entry.key for entry in quarter.store.keys(keys_of(run).report("rows/"))]
    frames = (
        pl.read_parquet(BytesIO(quarter.bench.content(key)), columns=ROWS.columns) for key in parts
    )
    return pl.concat([ROWS, *frames])
