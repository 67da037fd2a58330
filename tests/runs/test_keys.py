from datetime import date

import pytest

from flows.runs.keys import RunId, RunKeys


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
