"""What a submit plans, does under its claim, records and tells, whatever others do meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime, timedelta
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from flows.book.book import read_book
from flows.database.errors import DatabaseFullError
from flows.errors import CardlinkError
from flows.runs.adapters import Adapters
from flows.runs.claim import OLD, ClaimedError, Lease, claimed, work_on
from flows.runs.commits import OvertakenError
from flows.runs.context import IssuerContext
from flows.runs.errors import AbandonedError
from flows.runs.events import REFUSED
from flows.runs.identity import canonical, digest
from flows.runs.keys import RunId, extracts, keys_of
from flows.runs.outbox import move
from flows.runs.sealing import Sealer, Warned
from flows.runs.store import Entry
from flows.runs.stored_runs import StoredRuns
from flows.steps import Step
from flows.submissions import submit as submitting
from flows.submissions.begun import LEFT, OVERTAKEN, abandon_left
from flows.submissions.build import ExpectedOutcome, Job, Progress, build_run
from flows.submissions.changed_extract import ChangedExtractError
from flows.submissions.commit import commit_run
from flows.submissions.gates import CHANGED_EXTRACT, OPENABLE, Built, RejectRateError
from flows.submissions.row_scope import RowScope
from flows.submissions.submit import (
    Request,
    SentTwiceError,
    UnexpectedOutcomeError,
    prepare,
    refuse_resend,
    settings_now,
    submit,
)
from schemas.manifest import Selection
from schemas.rules import RECIPE
from tests.builders import quick
from tests.memory import KilledError, MemorySealer, MemoryStore
from tests.memory_bench import MemoryBench, memory_bench
from tests.night import BANK, DAY, NOON, killed_at
from tests.storms import FailingStore
from tests.submissions.test_begun_runs import planned

ROWS = Selection(kind="resubmit", of="x", rows=1, sha256="some rows", reason="wrong")
NEXT = DAY + timedelta(days=1)
EXTRACT = "bank-20261120.csv"
# of which each night may name other people
ANY_PORTFOLIO: dict[str, Any] = {
    "full_portfolio": True,
    "limits": {"max_leavers": 1.0, "max_newcomers": 1.0},
}


def content_of(rows: int) -> bytes:
    bench = memory_bench()
    return bench.content(extracts(BANK) + bench.drop(rows))


class Meanwhile(MemoryStore):
    """Something else happens once, just before an object of some name is written."""

    def __init__(self, store: MemoryStore, part: str, act: Callable[[], None]) -> None:
        super().__init__()
        self.objects = store.objects
        self.part, self.act = part, act

    def _once(self, key: str) -> None:
        if self.part and self.part in key:
            self.part = ""
            self.act()

    def create(self, key: str, data: bytes) -> bool:
        self._once(key)
        return super().create(key, data)

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        self._once(key)
        super().replace(key, parts)


def killed() -> None:
    raise KilledError


class Stages:
    """Records the stages of a command, and what is noted about each."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []

    @contextmanager
    def __call__(self, name: str, **facts: Any) -> Iterator[Callable[..., None]]:
        noted = dict(facts)
        self.seen.append((name, noted))
        yield lambda **more: noted.update(more)


def test_a_submit_has_four_stages_and_tells_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = memory_bench()
    stages = Stages()
    told: list[Progress] = []
    monkeypatch.setattr(submitting, "stage", stages)

    done = submit(bench.context, Request(bench.drop(40, bad=0.2)), told.append)

    counts = done.manifest.counts
    run = {"run": done.manifest.run}
    rows = {"read": 40, "submitted": counts.submitted, "rejected": counts.rejected}
    assert [
        ("plan", run),
        ("check and seal", run | rows),
        ("commit", run),
    ] == stages.seen
    assert Progress(40, 1, 1.0) == told[-1]
    [chunk] = [data for key, (_, data) in bench.store.objects.items() if "/chunks/" in key]
    assert len(chunk) == done.manifest.chunks[0].bytes
    assert (False, ()) == (done.already, done.remarks)
    assert 0 < counts.rejected < 40


class Warning(MemorySealer):
    warnings = (Warned("the key ends soon"),)


def test_what_an_operator_should_know_is_told_in_the_order_in_which_it_was_done() -> None:
    bench = memory_bench()
    extract = bench.drop(5)
    bench.submit(extract)
    left = planned(bench, f"{BANK}-20261119-01234567", selection=ROWS)
    other = bench.drop(6, "bank-20261121.csv", seed=3)

    @contextmanager
    def sealer() -> Iterator[Sealer]:
        yield Warning()

    done = submit(bench.context._replace(sealer=sealer), Request(other))

    assert (
        f"run {left} had been begun and is abandoned: {LEFT}",
        "the key ends soon",
    ) == done.remarks


def test_what_an_operator_should_know_of_an_extract_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = memory_bench()
    build = build_run

    def with_column(*arguments: Any) -> Built:
        return build(*arguments)._replace(columns=("a new column",))

    monkeypatch.setattr(submitting, "build_run", with_column)

    assert (f"{extracts(BANK)}{EXTRACT} has a new column",) == bench.submit(bench.drop(5)).remarks


def test_a_committed_run_stays_and_what_changed_since_is_told() -> None:
    bench = memory_bench()
    first = bench.submit(bench.drop(5))
    before = bench.snapshot()

    again = bench.submit(EXTRACT, business_date=NEXT)

    assert again.already is True
    assert first.already is False
    assert first.manifest == again.manifest
    assert ("changed since that run: the business date",) == again.remarks
    assert before == bench.snapshot()


def test_a_run_that_the_last_holder_of_the_claim_finished_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = memory_bench()
    extract = bench.drop(5)
    job, _ = prepare(bench.context, Request(extract))
    manifest = build_run(bench.context, job, MemorySealer()).manifest
    chunks = {key for key in bench.store.objects if "/chunks/" in key}

    def claimed_late(*subject: Any) -> Any:
        assert commit_run(bench.context, job, manifest)
        return claimed(*subject)

    monkeypatch.setattr(submitting, "claimed", claimed_late)

    done = bench.submit(extract)

    assert done.already is True
    assert (manifest, ()) == (done.manifest, done.remarks)
    assert chunks == {key for key in bench.store.objects if "/chunks/" in key}


def test_a_run_that_another_process_commits_at_the_last_moment_was_committed_already() -> None:
    bench = memory_bench()
    extract = bench.drop(5)
    job, _ = prepare(bench.context, Request(extract))
    manifest = build_run(bench.context, job, MemorySealer(), epoch=2).manifest

    def commit_first() -> None:
        assert commit_run(bench.context, job, manifest)

    bench.store = Meanwhile(bench.store, "/ledger/", commit_first)

    assert bench.submit(extract).already is True


def test_the_gates_that_an_operator_opened_are_recorded_before_the_commit() -> None:
    bench = memory_bench()
    extract = bench.drop(20, bad=0.9)
    opened = ["row-jump", "reject-rate"]

    done = bench.submit(extract, opened=opened).manifest

    [event] = bench.stored(done.run).events("opened")
    assert sorted(opened) == event.facts["gates"]
    [committed] = bench.stored(done.run).events("committed")
    assert event.number < committed.number
    other = bench.submit(bench.drop(5, "bank-20261121.csv", seed=1)).manifest
    assert [] == bench.stored(other.run).events("opened")


@pytest.mark.parametrize("full_portfolio", [False, True])
def test_a_refused_run_has_its_lists_and_an_event_that_says_why_and_under_which_settings(
    full_portfolio: bool,
) -> None:
    bench = memory_bench(full_portfolio=full_portfolio)
    whole = content_of(5)
    bench.submit(bench.drop_bytes(whole, "bank-20261119.csv"))
    bad = whole + b"".join(
        line.replace(b"US", b"XX") for line in content_of(40).splitlines(keepends=True)[1:]
    )
    extract = bench.drop_bytes(bad, EXTRACT)

    with pytest.raises(RejectRateError) as refused:
        bench.submit(extract)

    [run] = [str(run) for run in bench.runs.ids if bench.stored(str(run)).manifest is None]
    [event] = bench.stored(run).events(REFUSED)
    assert "RejectRateError" == event.facts["why"]
    assert refused.value.what_happened == event.facts["sentence"] + "."
    assert settings_now(bench.issuer) == event.facts["under"]
    reports = {key.rpartition("/")[2] for key in bench.snapshot() if f"{run}/report/" in key}
    lists = {"rejects.csv"} if full_portfolio else {"rejects.csv", "suppressed.csv"}
    assert lists == reports


def test_the_digest_of_settings_is_as_earlier_versions_stored_it() -> None:
    issuer = memory_bench(schedule={"holidays": ["2026-12-25"]}).issuer

    stored = digest(canonical({"recipe": RECIPE, **issuer.model_dump(mode="json")}))

    assert stored == settings_now(issuer)
    assert stored != settings_now(memory_bench(limits={"max_row_jump": 0.9}).issuer)


def test_a_refusal_that_cannot_be_recorded_is_the_error_that_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = memory_bench()
    extract = bench.drop(20, bad=0.9)

    def full(*_: object, **facts: object) -> None:
        raise DatabaseFullError(place="x", code="SQLITE_FULL")

    monkeypatch.setattr(submitting, "record_event", full)

    with pytest.raises(RejectRateError):
        bench.submit(extract)


@pytest.mark.parametrize("otherwise", quick(2, ["", "counts", "sha256", "reasons"]))
def test_a_run_with_another_outcome_than_the_approved_one_is_not_committed(otherwise: str) -> None:
    approved = memory_bench()
    manifest = approved.submit(approved.drop(20, bad=0.2)).manifest
    expected = ExpectedOutcome(manifest.source.sha256, manifest.counts, manifest.reasons)
    other: dict[str, Any] = {
        "sha256": "0" * 64,
        "counts": manifest.counts.model_copy(update={"lines": 99, "submitted": 3}),
        "reasons": {},
    }
    if otherwise:
        expected = expected._replace(**{otherwise: other[otherwise]})
    bench = memory_bench()
    extract = bench.drop(20, bad=0.2)

    try:
        bench.submit(extract, expected=expected)
    except UnexpectedOutcomeError as error:
        told = error.fields
    else:
        told = {}

    facts = {
        "extract": extracts(BANK) + extract,
        "now": manifest.counts.submitted,
        "listed": expected.counts.submitted,
    }
    assert (facts if otherwise else {}) == told
    assert bool(otherwise) != bench.stored(manifest.run).is_ended


def test_of_two_at_once_the_second_is_refused_and_records_nothing() -> None:
    bench = memory_bench()
    extract = bench.drop(5)
    job, _ = prepare(bench.context, Request(extract))
    Lease.take(work_on(bench.adapters, job.plan.run), "b", NOON, timedelta(hours=1))

    with pytest.raises(ClaimedError):
        bench.submit(extract)

    assert not [key for key in bench.snapshot() if "/chunks/" in key]


def test_an_abandoned_run_is_not_gone_on_with() -> None:
    bench = memory_bench()
    extract = bench.drop(5)
    job, _ = prepare(bench.context, Request(extract))
    abandon_left(bench.adapters, job.plan.run, "not wanted")

    with pytest.raises(AbandonedError):
        bench.submit(extract)


class Swept(MemoryStore):
    """A store that can be cleaned."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[tuple[str, datetime]] = []

    def leftovers(self, prefix: str, before: datetime) -> list[Entry]:
        self.looks.append((prefix, before))
        return []

    def discard(self, leftover: Entry) -> None:
        raise AssertionError

    delete = discard  # neither is called

    def hides(self) -> bool:
        return False


def test_what_killed_writers_left_of_the_run_is_looked_for() -> None:
    bench = memory_bench()
    bench.store = store = Swept()

    manifest = bench.submit(bench.drop(5)).manifest

    assert [(keys_of(manifest.run).base, NOON - OLD)] == store.looks


# What is planned


@pytest.mark.parametrize(
    ("settings", "guarded"),
    [
        ({}, True),
        ({"resend": {"seen_before": "send"}}, False),
        ({"resend": {"seen_before": "send"}, **ANY_PORTFOLIO}, True),
        (ANY_PORTFOLIO, True),
    ],
)
def test_a_job_has_what_was_known_when_its_rows_were_chosen(
    settings: dict[str, Any], guarded: bool
) -> None:
    bench = memory_bench(**settings)
    for day in (18, 19):
        bench.submit(bench.drop(5, f"bank-202611{day}.csv", seed=day))
    expected = ExpectedOutcome("0", bench.manifest(str(bench.runs.ids[0])).counts, {})
    extract = bench.drop(5)
    request = Request(extract, NEXT, ("row-jump", "reject-rate"), "lost it", expected)

    job, remarks = prepare(bench.context, request)

    entry = bench.store.objects[extracts(BANK) + extract][0]
    assert (2, guarded, expected, entry) == (job.since, guarded, job.expected, job.entry)
    assert ("row-jump", "reject-rate") == job.opened
    assert guarded == (job.scope.prior is not None)
    assert guarded == bool(job.plan.known)
    assert (NEXT, "lost it", RowScope(prior=job.scope.prior)) == (
        job.plan.as_of,
        job.plan.reason,
        job.scope,
    )
    assert job.guarded is guarded
    line = str(job.retry_command)
    assert line == (
        f"cardlink submit {BANK} --extract {extract} "
        "--open reject-rate --open row-jump --new-run 'lost it'"
    )
    assert () == remarks


def test_what_is_known_of_cards_is_marked_by_the_people_of_the_issuer_who_were_erased(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = memory_bench()
    asked: list[tuple[Adapters, str]] = []

    class Erased:
        def marked(self, known: str) -> str:
            return f"{known} without two people"

    def erased_people(adapters: Adapters, issuer: str) -> Erased:
        asked.append((adapters, issuer))
        return Erased()

    monkeypatch.setattr(submitting, "erased_people", erased_people)

    job, _ = prepare(bench.context, Request(bench.drop(5)))

    stores = [(repr(adapters.store), issuer) for adapters, issuer in asked]
    assert [(repr(bench.store), BANK)] == stores
    assert job.plan.known.endswith(" without two people")


def test_a_job_may_be_of_a_file_that_is_not_among_the_extracts() -> None:
    bench = memory_bench()
    bench.store.create("bank/elsewhere/x-20261119.csv", content_of(3))
    entry = bench.store.objects["bank/elsewhere/x-20261119.csv"][0]

    job, _ = prepare(bench.context, Request("x-20261119.csv"), entry=entry)

    assert (entry, entry.key) == (job.entry, job.plan.source.key)
    assert date(2026, 11, 19) == job.plan.as_of


def test_a_card_number_in_a_reason_is_masked_before_it_is_stored() -> None:
    bench = memory_bench()

    job, _ = prepare(bench.context, Request(bench.drop(5), new_run="lost 4242424242424242"))

    assert "4242424242424242" not in job.plan.reason
    assert job.plan.reason.startswith("lost ")


@pytest.mark.parametrize("given", [False, True])
def test_the_business_date_is_that_of_the_name_unless_one_is_given(given: bool) -> None:
    bench = memory_bench()
    extract = bench.drop(5)
    with pytest.raises(KilledError):
        killed_at(bench, "planned", late=True).submit(extract)

    job, _ = prepare(bench.context, Request(EXTRACT, NEXT if given else None))

    assert (NEXT if given else DAY) == job.plan.as_of


@pytest.mark.parametrize(
    ("settings", "opened", "is_held"),
    [
        ({}, (), True),
        ({}, ("row-jump",), True),
        ({}, (CHANGED_EXTRACT,), False),
        ({"source": {"same_name": "replace"}}, (), False),
    ],
)
def test_other_content_under_a_committed_name_is_held_back_for_a_decision(
    settings: dict[str, Any], opened: tuple[str, ...], is_held: bool
) -> None:
    bench = memory_bench(**settings)
    bench.submit(bench.drop(5))
    bench.drop(6)
    held: list[CardlinkError] = []

    job, _ = prepare(bench.context, Request(EXTRACT, opened=opened), held.append)

    assert is_held == bool(held)
    assert all(isinstance(error, ChangedExtractError) for error in held)
    assert 2 == len({str(run) for run in bench.runs.ids} | {job.plan.run})
    if is_held:
        with pytest.raises(ChangedExtractError):
            bench.submit(EXTRACT, opened=opened)


def test_whether_an_extract_has_changed_is_judged_by_the_cards_that_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = memory_bench()
    bench.submit(bench.drop(5, "bank-20261119.csv"))
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(submitting, "changed_extract", lambda *asks: asked.append(asks))

    job, _ = prepare(bench.context, Request(bench.drop(6)))

    assert job.scope.prior is not None
    assert [job.scope.prior] == [known for *_, known in asked]


# Runs of selected rows


def job_of(bench: MemoryBench, selection: Selection | None) -> Job:
    """Return the job of a run that was planned and is not committed."""
    run = planned(bench, f"{BANK}-20261120-01234567", selection=selection)
    plan = bench.stored(run).planned()
    return Job(plan, Entry("x", 1, NOON, ""), RowScope(), (), Step("submit"), 0, bench.runs)


def test_a_run_ends_no_run_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = memory_bench()
    job = job_of(bench, None)
    committed: Any = submitting.Submitted(None, already=False)  # type: ignore[arg-type]  # not read
    monkeypatch.setattr(submitting, "_committed", lambda *_: committed)

    done = submitting.execute(bench.context, job, MemorySealer())

    assert committed == done
    assert not bench.stored(job.plan.run).is_ended


@pytest.mark.parametrize("selection", [None, ROWS])
def test_gates_that_may_be_opened_are_open_for_selected_rows(
    monkeypatch: pytest.MonkeyPatch, selection: Selection | None
) -> None:
    bench = memory_bench()
    job = job_of(bench, selection)._replace(opened=(CHANGED_EXTRACT,))
    built: Any = SimpleNamespace(manifest=SimpleNamespace(counts=None, reasons={}))
    judged: list[tuple[Any, ...]] = []

    def refusals(*arguments: Any) -> Iterator[CardlinkError]:
        judged.append(arguments)
        return iter(())

    monkeypatch.setattr(submitting, "refusals", refusals)

    submitting._judge(bench.context, job, built)

    assert [(built, bench.issuer, OPENABLE if selection else job.opened)] == judged


@pytest.mark.parametrize("selection", [None, ROWS])
def test_a_run_of_selected_rows_that_is_overtaken_is_abandoned(
    monkeypatch: pytest.MonkeyPatch, selection: Selection | None
) -> None:
    bench = memory_bench()
    job = job_of(bench, selection)
    run = job.plan.run
    overtaken = OvertakenError(run=run, other="another", what="1 of its cards")

    def committed(*_: Any) -> NoReturn:
        raise overtaken

    monkeypatch.setattr(submitting, "_committed", committed)

    with pytest.raises(OvertakenError):
        submitting.execute(bench.context, job, MemorySealer())

    end = bench.stored(run).end
    assert (None if selection is None else OVERTAKEN) == getattr(end, "reason", None)


# A new run of what was sent


def test_without_a_reason_for_a_new_run_nothing_is_sent_twice() -> None:
    bench = memory_bench()
    bench.submit(bench.drop(5))

    refuse_resend(bench.context, Request(EXTRACT))


def sent(**settings: Any) -> tuple[MemoryBench, str]:
    """Return a bench with a run of another extract, and one of three chunks."""
    bench = memory_bench(portal={"rows_per_chunk": 2}, **settings)
    bench.submit(bench.drop(5, "bank-20261119.csv", seed=5))
    return bench, bench.submit(bench.drop(6)).manifest.run


@pytest.mark.parametrize("cancelled", quick(2, [1, 0, 2]))
def test_a_new_run_of_chunks_that_wait_is_refused(cancelled: int) -> None:
    bench, run = sent()
    for number in range(1, cancelled + 1):
        move(bench.context.adapters, run, "cancelled", [number], "wrong")

    with pytest.raises(SentTwiceError) as refused:
        refuse_resend(bench.context, Request(EXTRACT, new_run="lost"))

    facts = {"extract": EXTRACT, "count": 3 - cancelled, "chunks": 3, "run": run}
    assert facts == refused.value.fields


def test_a_new_run_of_cancelled_chunks_or_of_other_content_is_none_of_what_was_sent() -> None:
    bench, run = sent()
    other = bench.drop(7, "bank-20261122.csv", seed=8)
    refuse_resend(bench.context, Request(other, new_run="lost"))
    move(bench.context.adapters, run, "cancelled", (), "wrong")

    refuse_resend(bench.context, Request(EXTRACT, new_run="lost"))


def test_a_run_that_was_planned_and_not_committed_has_sent_nothing() -> None:
    bench = memory_bench()
    prepare(bench.context, Request(bench.drop(5)))

    refuse_resend(bench.context, Request(EXTRACT, new_run="lost"))


def test_a_new_run_that_is_committed_may_be_requested_again() -> None:
    bench, _ = sent(resend={"seen_before": "send"})
    submit(bench.context, Request(EXTRACT, new_run="lost 4242424242424242"))

    refuse_resend(bench.context, Request(EXTRACT, new_run="lost 4242424242424242"))
    with pytest.raises(SentTwiceError):
        refuse_resend(bench.context, Request(EXTRACT, new_run="lost again"))


def test_where_no_portfolio_is_sent_a_run_of_any_date_has_sent_the_same() -> None:
    bench, _ = sent()

    with pytest.raises(SentTwiceError):
        refuse_resend(bench.context, Request(EXTRACT, NEXT, new_run="lost"))


def test_of_a_portfolio_only_runs_of_the_same_date_have_sent_the_same() -> None:
    bench, run = sent(**ANY_PORTFOLIO)

    refuse_resend(bench.context, Request(EXTRACT, NEXT, new_run="lost"))
    with pytest.raises(SentTwiceError) as refused:
        refuse_resend(bench.context, Request(EXTRACT, new_run="lost"))

    assert run == refused.value.fields["run"]
    assert RunId.parse(run) is not None


def test_a_run_of_a_portfolio_for_a_date_that_was_given_counts_for_that_date() -> None:
    bench = memory_bench(full_portfolio=True)
    bench.submit(bench.drop(5), business_date=NEXT)

    with pytest.raises(SentTwiceError):
        refuse_resend(bench.context, Request(EXTRACT, NEXT, new_run="lost"))
    refuse_resend(bench.context, Request(EXTRACT, new_run="lost"))


# What is listed


def test_neither_a_submit_nor_an_ingest_lists_the_runs() -> None:
    bench = memory_bench()
    bench.submit(bench.drop(5, "bank-20261119.csv", seed=5))
    read_book(bench.context.adapters, BANK)
    listed: list[tuple[str, str]] = []

    def note(operation: str, key: str) -> None:
        listed.append((operation, key))

    watched = replace(bench, store=FailingStore(bench.store, note))  # type: ignore[arg-type]
    name = bench.drop(5)

    watched.submit(name)
    by_submit = listed.count(("keys", f"{BANK}/runs/"))
    bench.answer()
    listed.clear()
    watched.ingest()

    assert (0, 0) == (by_submit, listed.count(("keys", f"{BANK}/runs/")))


def test_what_others_left_is_looked_for_in_the_runs_that_were_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = memory_bench()
    handed: list[StoredRuns] = []

    def end_none(context: IssuerContext, runs: StoredRuns, own_run: str = "") -> tuple[str, ...]:
        handed.append(runs)
        return ()

    monkeypatch.setattr(submitting, "end_begun", end_none)

    submitting.settle(bench.context)
    bench.submit(bench.drop(5))

    left, _ = handed
    assert (repr(bench.store), "bank") == (repr(left.store), left.issuer)
