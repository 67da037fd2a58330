"""The manual step on a real night: what waits, what is given out, what is noted."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from flows.runs.adapters import NoReasonError
from flows.runs.chunks import Move
from flows.runs.errors import NotFoundError, UnknownRunError
from flows.runs.outbox import SUMS, ChunkStateError, fetch, move, outboxes
from flows.submissions.rehearsal import rehearse
from flows.submissions.submit import Request, SentTwiceError, refuse_resend
from tests.night import Bench, local_bench, made_once


@pytest.fixture
def night(tmp_path: Path) -> tuple[Bench, str]:
    """A committed run of three chunks."""
    return sent(tmp_path)


@made_once
def sent(folder: Path) -> tuple[Bench, str]:
    bench = local_bench(folder, portal={"rows_per_chunk": 20})
    return bench, bench.submit(bench.drop(50)).manifest.run


def states(bench: Bench, run: str) -> list[str]:
    return [item.state for item in bench.stored(run).outbox]


def test_every_chunk_of_a_committed_run_waits_for_its_upload(night: tuple[Bench, str]) -> None:
    bench, run = night

    found = list(outboxes(bench.runs))

    assert [(item.run, item.chunk.number, item.state) for item in found] == [
        (run, n, "waiting") for n in (1, 2, 3)
    ]


def test_fetched_chunks_are_the_published_bytes_with_their_sums(night: tuple[Bench, str]) -> None:
    bench, run = night
    folder: dict[str, bytes] = {}

    fetch(bench.context.adapters, run, folder.__setitem__, [2, 3])

    sums = folder.pop(SUMS).decode().splitlines()
    assert sums == [f"{hashlib.sha256(data).hexdigest()}  {name}" for name, data in folder.items()]
    assert sorted(folder) == [f"{run}-00002.csv.pgp", f"{run}-00003.csv.pgp"]


def test_what_is_held_uploaded_or_cancelled_is_not_given_out(night: tuple[Bench, str]) -> None:
    bench, run = night
    outside = bench.context.adapters
    move(outside, run, "uploaded", [1])
    move(outside, run, "held", [2], "the issuer asked for it")

    done = fetch(outside, run, lambda name, data: None)

    assert [item.chunk.number for item in done] == [3]
    with pytest.raises(ChunkStateError, match="is uploaded"):
        fetch(outside, run, lambda name, data: None, [1])


def test_a_move_is_an_entry_of_the_journal_and_no_object(night: tuple[Bench, str]) -> None:
    bench, run = night
    before = bench.snapshot()

    move(bench.context.adapters, run, "held", [1], "the issuer asked for it")

    [entry] = bench.stored(run).events("held")
    assert before == bench.snapshot()
    assert [f"{run}-00001.csv.pgp"] == entry.facts["chunks"]
    assert "the issuer asked for it" == entry.reason


@pytest.mark.parametrize(
    ("what", "numbers", "reason", "error"),
    [
        ("held", [1], "", NoReasonError),
        ("held", [4], "why", NotFoundError),
    ],
)
def test_a_move_that_does_not_fit_is_refused_and_notes_nothing(
    night: tuple[Bench, str], what: Move, numbers: list[int], reason: str, error: type[Exception]
) -> None:
    bench, run = night
    before = bench.snapshot()

    with pytest.raises(error):
        move(bench.context.adapters, run, what, numbers, reason)

    assert before == bench.snapshot()


def test_a_chunk_is_moved_once_and_only_where_its_state_allows_it(night: tuple[Bench, str]) -> None:
    bench, run = night
    move(bench.context.adapters, run, "held", [1], "why")
    before = bench.snapshot()

    repeated = move(bench.context.adapters, run, "held", [1], "why")
    with pytest.raises(ChunkStateError):
        move(bench.context.adapters, run, "uploaded", [1, 2])

    assert ([], before) == (repeated, bench.snapshot())


def test_a_run_without_commit_has_no_outbox(tmp_path: Path) -> None:
    with pytest.raises(UnknownRunError):
        local_bench(tmp_path).stored("bank-20261120-00000000").outbox  # noqa: B018 - reads


def test_results_answer_chunks_whether_or_not_anyone_marked_anything(
    night: tuple[Bench, str],
) -> None:
    bench, run = night
    move(bench.context.adapters, run, "uploaded", [1])

    bench.answer()
    bench.ingest()

    assert states(bench, run) == ["answered"] * 3
    assert list(outboxes(bench.runs)) == []


def test_another_run_of_an_extract_is_refused_until_its_chunks_are_cancelled(
    night: tuple[Bench, str],
) -> None:
    bench, run = night
    again = Request("bank-20261120.csv", new_run="the portal lost them")

    with pytest.raises(SentTwiceError, match="3 of 3 chunks"):
        refuse_resend(bench.context, again)
    move(bench.context.adapters, run, "cancelled", reason="the portal lost them")

    refuse_resend(bench.context, again)
    assert states(bench, run) == ["cancelled"] * 3


def test_a_dry_run_says_exactly_what_a_real_run_sends_and_writes_nothing(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, portal={"rows_per_chunk": 20})
    extract = bench.drop(90, bad=0.2, seed=5)
    before = bench.snapshot()

    rehearsed = rehearse(bench.context, Request(extract))
    untouched = bench.snapshot()
    manifest = bench.submit(extract).manifest

    assert before == untouched
    assert (rehearsed.run, rehearsed.counts) == (manifest.run, manifest.counts)
    assert rehearsed.chunk_rows == tuple(chunk.rows for chunk in manifest.chunks)
    assert {one.code: one.rows for one in rehearsed.found} == manifest.reasons


def test_a_dry_run_of_a_committed_extract_says_that_nothing_would_be_sent(
    night: tuple[Bench, str],
) -> None:
    bench, run = night

    rehearsed = rehearse(bench.context, Request("bank-20261120.csv"))

    assert rehearsed.already == run
    assert "a real run would send nothing" in str(rehearsed.verdict)
