from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from flows.adapters.local import LocalStore
from flows.extensions.simulator.answer import Answered, Habits, answer_store
from flows.extensions.simulator.portal import Portal
from flows.runs.keys import RunId, RunKeys
from flows.runs.store import Store, read
from schemas.manifest import Counts, Manifest, ManifestChunk, SourceIdentity
from tests.night import edges
from tests.planted import a_plan, plant, plant_commit
from tests.simulator.uploads import DAY, answers, paper_seal, people, portal, upload_csv

ISSUER = "first-bank"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def commit_run(
    store: Store, sizes: Sequence[int], day: date = DAY, contents: Sequence[bytes] = ()
) -> RunKeys:
    """Write a run as submit leaves it: sealed chunks of these sizes, and a manifest that names
    them.
    """
    keys = RunKeys(RunId(ISSUER, day, "3f9c21aa"))
    sealed = contents or [
        paper_seal(upload_csv(people(size, seed=day.day * 100 + index)))
        for index, size in enumerate(sizes)
    ]
    chunks = [
        ManifestChunk(
            number=number,
            name=keys.chunk_name(number),
            rows=size,
            bytes=len(data),
            sha256=sha256(data).hexdigest(),
        )
        for number, (size, data) in enumerate(zip(sizes, sealed, strict=True), start=1)
    ]
    for chunk, data in zip(chunks, sealed, strict=True):
        store.create(keys.chunks + chunk.name, data)
    rows = sum(sizes)
    counts = Counts(
        lines=rows + 1, read=rows, submitted=rows, rejected=0, duplicate=0, suppressed=0
    )
    source = SourceIdentity(
        key=f"{ISSUER}/extracts/a.csv", version="1", size=1, sha256="3f9c21aa" + "0" * 56
    )
    manifest = Manifest(
        run=str(keys.run),
        source=source,
        as_of=day,
        settings_sha256="0" * 64,
        recipe=1,
        recipients=("A" * 40,),
        counts=counts,
        reasons={},
        repairs={},
        chunks=tuple(chunks),
        ledger=(),
    )
    plant(edges(store), a_plan(manifest.run, source=source))
    plant_commit(edges(store), manifest)
    return keys


def result_rows(store: Store, answered: Answered) -> list[list[dict[str, str]]]:
    return [answers(read(store, file.key)) for file in answered.delivered]


def names(answered: Answered) -> list[str]:
    return [file.key.removeprefix(f"{ISSUER}/results/") for file in answered.delivered]


def test_every_chunk_of_a_committed_run_gets_one_result_file(store: LocalStore) -> None:
    commit_run(store, [3, 2])

    answered = answer_store(edges(store), ISSUER, portal())

    assert [
        "card-links-first-bank-20261120-3f9c21aa-00001-result.csv",
        "card-links-first-bank-20261120-3f9c21aa-00002-result.csv",
    ] == names(answered)
    assert [3, 2] == [len(rows) for rows in result_rows(store, answered)]
    assert (5, 0) == (answered.linked, answered.errors)


def test_a_second_call_answers_nothing_again(store: LocalStore) -> None:
    commit_run(store, [3])
    answer_store(edges(store), ISSUER, portal())

    again = answer_store(edges(store), ISSUER, portal())

    assert Answered((), (), ()) == again


def test_a_run_without_manifest_is_not_uploaded(store: LocalStore) -> None:
    keys = RunKeys(RunId(ISSUER, DAY, "3f9c21aa"))
    store.create(keys.chunks + keys.chunk_name(1), paper_seal(upload_csv(people(1))))

    answered = answer_store(edges(store), ISSUER, portal())

    assert Answered((), (), ()) == answered


def test_what_the_portal_refuses_is_told_with_its_reason_and_the_others_go_on(
    store: LocalStore,
) -> None:
    commit_run(store, [1, 1], contents=[b"\xc1not for this key", paper_seal(upload_csv(people(1)))])

    answered = answer_store(edges(store), ISSUER, portal())

    refusal = (
        "first-bank-20261120-3f9c21aa-00001.csv.pgp",
        "it cannot be decrypted with the portal's key",
    )
    assert (refusal,) == answered.refused
    assert 1 == len(answered.delivered)


def test_late_chunks_wait_and_are_answered_on_a_later_day(store: LocalStore) -> None:
    commit_run(store, [1] * 12)
    handle = portal()
    first = answer_store(edges(store), ISSUER, handle, Habits(late=0.5))

    handle.today += timedelta(days=1)
    second = answer_store(edges(store), ISSUER, handle)

    assert 0 < len(first.waiting) < 12
    assert first.waiting == tuple(file.chunk for file in second.delivered)


def test_halves_come_one_call_after_another_and_join_to_the_whole(store: LocalStore) -> None:
    commit_run(store, [5])

    first = answer_store(edges(store), ISSUER, portal(), Habits(halves=1.0))
    second = answer_store(edges(store), ISSUER, portal(), Habits(halves=1.0))

    assert (["1of2.csv"], ["2of2.csv"]) == tuple(
        [key[-8:] for key in names(call)] for call in (first, second)
    )
    joined = [row.row for call in (first, second) for file in call.delivered for row in file.rows]
    assert [1, 2, 3, 4, 5] == joined


def test_a_result_that_comes_twice_has_the_same_bytes_under_two_names(store: LocalStore) -> None:
    commit_run(store, [3])

    answered = answer_store(edges(store), ISSUER, portal(), Habits(twice=1.0))

    once, twice = result_rows(store, answered)
    assert once == twice
    assert ["result.csv", "result (1).csv"] == [name.rpartition("-")[2] for name in names(answered)]


def test_swapped_results_bear_each_others_names_and_the_deliveries_say_so(
    store: LocalStore,
) -> None:
    commit_run(store, [3, 2])

    answered = answer_store(edges(store), ISSUER, portal(), Habits(swapped=True))

    assert [("2", "1"), ("1", "2")] == [
        (file.key[-12], file.chunk[-9]) for file in answered.delivered
    ]
    assert [3, 2] == [len(rows) for rows in result_rows(store, answered)]


def test_a_foreign_file_holds_nobody_of_ours(store: LocalStore) -> None:
    commit_run(store, [3])

    answered = answer_store(edges(store), ISSUER, portal(), Habits(foreign=True))

    ours, foreign = ({row["cuid"] for row in rows} for rows in result_rows(store, answered))
    assert not ours & foreign
    assert 1 == len(foreign)


def test_names_that_say_nothing_still_tell_what_is_answered(store: LocalStore) -> None:
    commit_run(store, [3, 2])

    first = answer_store(edges(store), ISSUER, portal(), Habits(nameless=True))
    second = answer_store(edges(store), ISSUER, portal(), Habits(nameless=True))

    assert not [name for name in names(first) if ISSUER in name or "0000" in name]
    assert Answered((), (), ()) == second


@pytest.mark.parametrize(
    "habits",
    [
        Habits(),
        Habits(late=0.4, twice=0.3),
        Habits(halves=0.6, swapped=True),
        Habits(late=0.3, twice=0.3, halves=0.3, swapped=True, nameless=True),
    ],
)
def test_over_a_week_every_row_is_delivered_whatever_the_habits(
    store: LocalStore, habits: Habits
) -> None:
    handle: Portal = portal(fail_share=0.1, shuffle=True)
    delivered: set[tuple[str, int]] = set()
    for night in range(7):
        handle.today = DAY + timedelta(days=night)
        if night < 3:
            commit_run(store, [4, 1, 3], handle.today)
        delivered |= _rows(answer_store(edges(store), ISSUER, handle, habits))

    delivered |= _rows(answer_store(edges(store), ISSUER, handle)) | _rows(
        answer_store(edges(store), ISSUER, handle)
    )

    assert 3 * (4 + 1 + 3) == len(delivered)


def _rows(answered: Answered) -> set[tuple[str, int]]:
    return {(file.chunk, row.row) for file in answered.delivered for row in file.rows}
