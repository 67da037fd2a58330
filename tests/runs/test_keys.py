from datetime import date

import pytest

from flows.runs.keys import RunId, RunKeys, keys_of


@pytest.mark.parametrize(
    "text", ["first-bank-20261120-3f9c21aa", "b-20261120-3f9c21aa-r2", "a-1-20260101-00000000-r10"]
)
def test_a_run_id_reads_back_as_it_was_written(text: str) -> None:
    run = RunId.parse(text)

    assert str(run) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bank",
        "bank-20261320-3f9c21aa",
        "bank-20261120-3f9c21a",
        "B-20261120-3f9c21aa",
        "b-20261120-3f9c21aa-r1",
        "../b-20261120-3f9c21aa",
    ],
)
def test_what_is_no_run_id_is_none(text: str) -> None:
    assert RunId.parse(text) is None


def test_chunks_are_named_after_their_run_and_number() -> None:
    keys = RunKeys(RunId("first-bank", date(2026, 11, 20), "3f9c21aa"))

    assert keys.chunks + keys.chunk_name(1) == (
        "first-bank/runs/first-bank-20261120-3f9c21aa/chunks/first-bank-20261120-3f9c21aa-00001.csv.pgp"
    )


@pytest.mark.parametrize("run", ["bank-20261120-01234567", "bank-20261120-e1234567"])
def test_the_epoch_of_a_chunk_is_read_from_its_name_and_names_of_other_runs_have_none(
    run: str,
) -> None:
    keys = keys_of(run)

    names = [keys.chunk_name(12, epoch=epoch) for epoch in (1, 2, 34)]

    assert [1, 2, 34] == [keys.chunk_epoch(name) for name in names]
    others = [f"{run}-r3-00001.csv.pgp", f"{run}-e2-1.csv.pgp", "notes.txt", f"other-{names[0]}"]
    assert [0] * len(others) == [keys.chunk_epoch(name) for name in others]
