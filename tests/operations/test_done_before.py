"""A decision whose command was killed right after it took effect is repeated, as README says: it is
done already, by whom and when, and nothing is refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.commands.result import Result
from flows.configuration import load_issuer
from flows.errors import OperatorError
from flows.runs.decisions import done_before
from flows.runs.journal import COMMAND, entries
from flows.wiring import edges
from schemas.database import JOURNAL
from tests.builders import quick
from tests.cli.test_mend import cardlink
from tests.test_dry_runs import WHY, answered, facts_of
from tests.torture.acts import ACTS, run

# decisions about what is not there any more once they are made
REFUSED_SO_FAR = [
    "mend close",
    "mend abandon",
    "mend reopen",
    "mend attribute",
    "mend withdraw",
    "mend take-over",
    "audit accept",
]
OTHERS = sorted(
    name
    for name, act in ACTS.items()
    if act.entry.has_parameter("reason") and name not in (*REFUSED_SO_FAR, "mend ingest-again")
)


@pytest.mark.parametrize("name", quick(2, REFUSED_SO_FAR))
def test_a_decision_that_is_repeated_says_by_whom_and_when_it_was_made(
    tmp_path: Path, name: str
) -> None:
    case = ACTS[name].prepare(tmp_path)
    run(ACTS[name], tmp_path, case, "anna")

    repeated = run(ACTS[name], tmp_path, case, "bert")

    assert 0 == repeated.exit_code
    assert "done already, by anna via" in repeated.sentence
    assert repeated.facts["done"]["by"].startswith("anna via")


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_no_decision_that_is_repeated_is_refused(tmp_path: Path, name: str) -> None:
    case = ACTS[name].prepare(tmp_path)
    first = run(ACTS[name], tmp_path, case)

    repeated = run(ACTS[name], tmp_path, case)

    assert isinstance(repeated, Result)
    assert repeated.exit_code in (0, first.exit_code)


def test_the_same_decision_with_another_reason_is_another_and_is_refused_as_before(
    tmp_path: Path,
) -> None:
    case = ACTS["mend close"].prepare(tmp_path)
    closed = run(ACTS["mend close"], tmp_path, case, "anna")
    other = {**case, "reason": "another one"}

    with pytest.raises(OperatorError, match="has no open break"):
        run(ACTS["mend close"], tmp_path, other)

    assert 0 == closed.exit_code


def test_what_was_decided_and_taken_back_since_is_not_done_already(tmp_path: Path) -> None:
    case = ACTS["mend close"].prepare(tmp_path)
    run(ACTS["mend close"], tmp_path, case)
    adapters = edges(load_issuer(tmp_path, "bank"), tmp_path)
    entry = entries(adapters, "bank", JOURNAL.c.what == "break closed")[-1]
    command = entry.facts[COMMAND]
    stood = done_before(adapters, "bank", command)

    facts_of(tmp_path, "mend reopen", **case)

    assert entry == stood
    assert None is done_before(adapters, "bank", command)


def test_what_a_person_types_twice_ends_with_code_0(tmp_path: Path) -> None:
    bench, of = answered(tmp_path)
    facts_of(tmp_path, "mend give-up", run=of, row=(1,), **WHY)
    line = ("mend", "give-up", of, "--row", "1", "--undo", "--reason", WHY["reason"])

    first = cardlink(tmp_path, *line)
    again = cardlink(tmp_path, *line)

    assert (0, 0) == (first.exit_code, again.exit_code)
    assert "done already" in again.stdout
    assert bench.issuer.issuer in again.stderr
