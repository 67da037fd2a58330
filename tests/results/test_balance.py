"""The balance shows every equation of a run with both of its sides."""

from __future__ import annotations

from datetime import date

import pytest

from flows.reports.balance import Line, balance, verdict
from flows.reports.verdicts import ABOVE_LIMIT, BALANCED, OUT_OF_BALANCE, WAITING
from flows.results.read import ResultRows
from flows.results.reconcile import reconcile
from schemas.issuer import Limits
from schemas.manifest import Counts, Manifest, ManifestChunk, SourceIdentity
from tests.night import issuer
from tests.results.outcomes import RUN, attribute_all, link, refusal, result, sent_rows

TODAY = date(2026, 11, 21)


def manifest(submitted: int = 10, rejected: int = 2, trailer: int | None = 12) -> Manifest:
    chunks = [
        ManifestChunk(number=at, name=f"{RUN}-{at:05d}.csv.pgp", rows=5, bytes=900, sha256="0" * 64)
        for at in (1, 2)
    ]
    counts = Counts(
        lines=14,
        read=12,
        submitted=submitted,
        rejected=rejected,
        duplicate=0,
        suppressed=0,
        trailer=trailer,
    )
    return Manifest(
        run=RUN,
        as_of=TODAY,
        settings_sha256="0" * 64,
        recipe=1,
        recipients=(),
        reasons={},
        repairs={},
        ledger=(),
        source=SourceIdentity(
            key="first-bank/extracts/a.csv", version="1", size=1, sha256="0" * 64
        ),
        counts=counts,
        chunks=tuple(chunks),
    )


def balanced(*files: ResultRows, **counts: int) -> list[Line]:
    found = reconcile(sent_rows(), attribute_all(files, sent_rows()), TODAY)
    return balance(manifest(**counts), found.chunks, sum(not one.notice for one in found.breaks))


def differing(told: list[Line]) -> list[str]:
    return [line.name for line in told if not line.holds]


def test_a_committed_run_balances_before_any_result() -> None:
    told = balanced()

    assert (12, 12) == told[0][1:3]
    assert differing(told) == []


def test_a_trailer_that_counts_otherwise_does_not_balance() -> None:
    assert ["trailer count = rows read"] == differing(balanced(trailer=13))


@pytest.mark.parametrize(
    ("source", "record"),
    [
        ({"trailer": "^T([0-9]+)"}, "trailer"),
        ({"format": "xlsx", "trailer": "^T;([0-9]+)"}, "total row"),
        ({"header_record": "^H([0-9]+)"}, "header record"),
        ({"header_record": "^H([0-9]+)", "trailer": "^T([0-9]+)"}, "trailer"),
    ],
)
def test_the_count_is_called_by_the_record_that_states_it(
    source: dict[str, str], record: str
) -> None:
    counted_in = issuer(source=source).source.counted_in

    lines = balance(manifest(), reconcile(sent_rows(), [], TODAY).chunks, 0, 0, counted_in)

    assert f"{record} count = rows read" == lines[0].name


@pytest.mark.parametrize(("comments", "differ"), [(1, []), (0, ["lines = rows + header"])])
def test_every_line_of_the_extract_is_in_the_balance(comments: int, differ: list[str]) -> None:
    run = manifest()
    kinds = {"header": 1} | ({"comment": comments} if comments else {})
    counts = run.counts.model_copy(update={"set_aside": kinds})

    lines = balance(
        run.model_copy(update={"counts": counts}), reconcile(sent_rows(), [], TODAY).chunks, 0
    )

    assert differ == differing(lines)
    assert 14 == next(line.left for line in lines if line.name.startswith("lines = rows + header"))


def test_a_lost_row_does_not_balance() -> None:
    assert 3 == len(differing(balanced(submitted=9)))


def test_partly_answered_runs_balance_as_long_as_whole_chunks_are_answered() -> None:
    told = balanced(result([link(1), link(2), refusal(3), link(4), link(5)]))

    assert differing(told) == []
    assert Line("submitted = linked + error + awaiting", 10, 10) in told


def test_a_short_answer_shows_in_the_rows_and_in_the_breaks() -> None:
    assert ["result rows = rows sent, of answered chunks", "open breaks = 0"] == differing(
        balanced(result([link(1)]))
    )


def test_a_link_that_was_not_taken_shows_in_the_links() -> None:
    told = balanced(result([link(1, host="evil.example"), *(link(at) for at in range(2, 6))]))

    assert Line("links received = rows linked", 5, 4) in told
    assert differing(told)


HOLDS, DIFFERS = Line("a = b", 1, 1), Line("a = b", 1, 2)


def judged(
    states: dict[str, int], *lines: Line, decided: int = 0, rejected: int = 0, **limits: float
) -> str:
    """Return the verdict of a run of twelve rows."""
    run = manifest(12 - rejected, rejected)
    counts = {"linked": 0, "error": 0, "awaiting": 0, **states}
    known = Limits.model_validate({"max_reject_rate": 1.0, "max_error_rate": 1.0, **limits})
    return verdict(run, counts, lines or [HOLDS], known, decided)


@pytest.mark.parametrize(("rejected", "expected"), [(3, BALANCED), (4, ABOVE_LIMIT)])
def test_a_run_may_have_as_many_rejects_as_the_limit_says(rejected: int, expected: str) -> None:
    assert expected == judged({"linked": 8}, rejected=rejected, max_reject_rate=0.25)


@pytest.mark.parametrize(
    ("errors", "decided", "expected"),
    [(2, 0, BALANCED), (3, 0, ABOVE_LIMIT), (4, 2, BALANCED), (5, 2, ABOVE_LIMIT)],
)
def test_a_run_may_have_as_many_errors_as_the_limit_says_but_for_those_that_were_decided(
    errors: int, decided: int, expected: str
) -> None:
    states = {"linked": 8, "error": errors}

    assert expected == judged(states, decided=decided, max_error_rate=0.2)


def test_out_of_balance_comes_before_the_limits_and_these_before_what_waits() -> None:
    waits = {"linked": 1, "error": 8, "awaiting": 1}

    assert OUT_OF_BALANCE == judged(waits, HOLDS, DIFFERS, max_error_rate=0.1)
    assert ABOVE_LIMIT == judged(waits, HOLDS, DIFFERS._replace(closed=1), max_error_rate=0.1)
    assert WAITING == judged(waits)
