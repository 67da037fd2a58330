"""Submits, answers, deaths, copies, late and swapped results in any order: after each step the
books balance.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from io import BytesIO
from typing import ClassVar

import polars as pl
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from flows.errors import TryAgainError
from flows.extensions.simulator.answer import Habits, answer_store
from flows.extensions.simulator.portal import Portal
from flows.reports.rebuild import rebuild
from flows.runs.events import ANSWERED
from flows.runs.keys import keys_of, results
from schemas.manifest import Manifest
from tests.memory import KilledError, MemoryOpener
from tests.memory_bench import MemoryBench, memory_bench
from tests.night import BANK, NOON, Bench, killed_at
from tests.torture.tally import Tally

SUBMITTED = ("planned", "committed", "reported")  # acts of a submit
INGESTED = (ANSWERED,)  # of an ingest
SUBMITTING = ("chunks/", "ledger/", *SUBMITTED)
INGESTING = ("results/", "links.csv", "summary.json", "report/", *INGESTED)


def deaths(places: Sequence[str]) -> st.SearchStrategy[tuple[str, int, bool] | None]:
    """Return no death, or one at the so-manyth operation on such a key, or such act, before or
    after it.
    """
    return st.none() | st.tuples(st.sampled_from(places), st.integers(1, 2), st.booleans())


HABITS = st.builds(
    Habits,
    late=st.sampled_from((0.0, 0.5)),
    twice=st.sampled_from((0.0, 0.5)),
    halves=st.sampled_from((0.0, 0.5)),
    swapped=st.booleans(),
    nameless=st.booleans(),
)


class WholeSystem(RuleBasedStateMachine):
    """One issuer's store, its operator, and the partner."""

    extracts = Bundle("extracts")
    lived: ClassVar[Counter[str]] = Counter()  # of all systems of this process

    def __init__(self) -> None:
        super().__init__()
        self.moment = NOON
        self.bench = memory_bench(
            self._now, portal={"rows_per_chunk": 3}, limits={"max_row_jump": 1000}
        )
        self.portal = Portal(
            MemoryOpener(), fail_share=0.2, shuffle=True, seed=3, today=NOON.date()
        )
        self.rows: dict[str, int] = {}
        self.seen: dict[str, Manifest] = {}  # by run, as it was when it was first seen and checked

    def _now(self) -> datetime:
        return self.moment

    @rule(target=extracts, rows=st.integers(1, 12), bad=st.sampled_from((0.0, 0.3)))
    def drop_an_extract(self, rows: int, bad: float) -> str:
        """The issuer drops an extract."""
        name = f"bank-{len(self.rows) + 1:04d}.csv"
        self.bench.drop(rows, name, bad=bad, seed=len(self.rows))
        self.rows[f"{BANK}/extracts/{name}"] = rows
        return name

    @rule(extract=extracts, death=deaths(SUBMITTING))
    def submit_one(self, extract: str, death: tuple[str, int, bool] | None) -> None:
        """An extract is submitted, for the first time or again, and the process may die."""
        self._living(death, lambda bench: bench.submit(extract, opened=["reject-rate"]))

    @rule(habits=HABITS)
    def the_partner_answers(self, habits: Habits) -> None:
        """Somebody uploads what waits and drops the results, in some disorder."""
        with suppress(TryAgainError):  # where a name is taken the person gives up for today
            answer_store(self.bench.adapters, BANK, self.portal, habits)

    @precondition(lambda self: self._results())
    @rule(data=st.data())
    def a_result_is_dropped_again(self, data: st.DataObject) -> None:
        """A result comes once more, under another name."""
        key = data.draw(st.sampled_from(self._results()))
        self.bench.drop_result(self.bench.content(key), f"copy {len(self._results())}.csv")

    @rule(death=deaths(INGESTING))
    def take_up_results(self, death: tuple[str, int, bool] | None) -> None:
        """Results are ingested, and the process may die."""
        self._living(death, lambda bench: bench.ingest())

    @rule(hours=st.integers(1, 48))
    def time_passes(self, hours: int) -> None:
        """Nothing happens for a while."""
        self.moment += timedelta(hours=hours)

    @invariant()
    def every_row_of_a_committed_run_is_where_the_ledger_says(self) -> None:
        """Extract, ledger, manifest and chunks agree, and a committed run never changes."""
        committed = list(self.bench.runs.manifests())
        assert len({manifest.source.key for manifest in committed}) == len(committed)
        for manifest in committed:
            if manifest.run not in self.seen:
                self._check(manifest)
            assert self.seen.setdefault(manifest.run, manifest) == manifest

    @invariant()
    def every_sent_row_is_linked_in_error_or_awaiting_as_the_partner_says(self) -> None:
        """The six figures of a run add up, and no link is one the partner did not make."""
        for run in self.seen:
            self._check_report(run)

    def teardown(self) -> None:
        """In the end everything is submitted, answered and taken up, once, and no report is out of
        date.
        """
        self.moment += timedelta(days=3)
        for key in self.rows:
            self.bench.submit(key, opened=["reject-rate"])
        for _ in range(2):
            answer_store(self.bench.adapters, BANK, self.portal)
        self.bench.ingest()
        for manifest in self.bench.runs.manifests():
            self.seen.setdefault(manifest.run, manifest)
            self._check(manifest)
            rows = self._check_report(manifest.run)
            assert rows["awaiting"] == 0
            assert rows == self._check_report(manifest.run, self.bench)
        assert len(self.seen) == len(self.rows)

    def _living(
        self, death: tuple[str, int, bool] | None, act: Callable[[MemoryBench], object]
    ) -> None:
        """Do something that may die; what died is not missed by the next one, whose claims have run
        out.
        """
        self.moment += timedelta(minutes=5)
        bench = self.bench
        if death is not None:
            what, times, is_late = death
            if what in (*SUBMITTED, *INGESTED):
                bench = killed_at(bench, what, times, late=is_late, for_good=True)
            else:
                bench.store.die_at(what, times, late=is_late)
        try:
            act(bench)
            self.lived["steps that ended by themselves"] += 1
        except KilledError:
            self.lived["steps that died"] += 1
        finally:
            self.bench.store.revive()

    def _results(self) -> list[str]:
        return sorted(key for key in self.bench.store.objects if key.startswith(results(BANK)))

    def _check(self, manifest: Manifest) -> None:
        counts, ledger = manifest.counts, self.bench.ledger(manifest.run)
        assert ledger["row"].to_list() == list(range(1, self.rows[manifest.source.key] + 1))
        assert (
            counts.read == counts.submitted + counts.rejected + counts.duplicate + counts.suppressed
        )
        keys, sent = (
            keys_of(manifest.run),
            ledger.filter(fate="submitted").sort("chunk", "position"),
        )
        plain = [
            MemoryOpener().open(self.bench.content(keys.chunks + one.name), 1 << 20)
            for one in manifest.chunks
        ]
        cuids = [
            line.partition(b",")[0].decode() for chunk in plain for line in chunk.splitlines()[1:]
        ]
        assert cuids == sent["cuid"].to_list()
        assert len(cuids) == counts.submitted == sum(chunk.rows for chunk in manifest.chunks)

    def _check_report(self, run: str, bench: Bench | None = None) -> dict[str, int]:
        """Check the report of a run as it stands on a bench, or else as a rebuild elsewhere makes
        it.
        """
        if bench is None:
            bench = self.bench.copy()
            rebuild(bench.context, bench.stored(run))
        rows: dict[str, int] = json.loads(bench.report(run, "summary.json"))["rows"]
        links = pl.read_csv(BytesIO(bench.report(run, "links.csv")), infer_schema=False)
        made = {
            (row.cuid, row.url) for upload in self.portal.books for row in upload.rows if row.url
        }
        assert rows["linked"] + rows["error"] + rows["awaiting"] == self.seen[run].counts.submitted
        assert set(links.select("cuid", "url").iter_rows()) <= made
        assert max(Counter(links["cuid"]).values(), default=1) == 1
        assert links.height == rows["linked"]
        return rows


def live_many(systems: int, steps: int = 12) -> Tally:
    """Live through so many whole systems of so many steps each; an AssertionError shows the
    shortest that fails.
    """
    chosen = settings(
        max_examples=systems,
        stateful_step_count=steps,
        deadline=None,  # cores are shared
        suppress_health_check=list(HealthCheck),
        database=None,
        print_blob=False,
    )
    run_state_machine_as_test(WholeSystem, settings=chosen)
    return Tally("whole systems in memory", systems, done=WholeSystem.lived)
