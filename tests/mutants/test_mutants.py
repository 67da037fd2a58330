"""`make mutants`: a fault is put in and taken out again, its tests find it, and the tables are true."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from flows.runs import events
from tests.mutants import swap
from tests.mutants.by_hand import faults
from tests.mutants.campaign import (
    Calls,
    accepted,
    files_of,
    jobs_of,
    read_calls,
    run_in_processes,
)
from tests.mutants.sources import ROOT, Mutant, compiled
from tests.planted import entered

FILE = "flows/runs/events.py"
FUNCTION = "last_answer"
TEST = "tests/operations/test_retention.py"
NIGHT = datetime.fromisoformat("2026-11-20T12:00:00Z")


def test_every_fault_of_the_table_can_be_put_in_and_names_tests_that_exist() -> None:
    known = faults()

    for fault in known:
        compile(fault.mutant.code, fault.mutant.file, "exec")
    assert [] == [test for fault in known for test in fault.tests if not (ROOT / test).is_file()]
    assert [] == [fault.what for fault in known if not fault.mutant.function]
    assert len(known) == len({fault.what for fault in known})


def test_every_accepted_mutant_has_a_reason_and_its_line_is_still_there() -> None:
    for (file, was, _), reason in accepted().items():
        assert reason.strip()
        assert " ".join(was.split()) in " ".join((ROOT / file).read_text().split())


def test_a_module_that_keeps_its_annotations_keeps_them_when_it_is_compiled_anew() -> None:
    names: dict[str, Any] = {}

    exec(compiled("def route(number: int) -> None: ...", "route.py"), names)

    assert {"number": int, "return": None} == names["route"].__annotations__


def test_every_file_that_is_sampled_exists() -> None:
    assert [] == [file for file in files_of(()) if not (ROOT / file).is_file()]


def test_a_fault_is_there_wherever_a_function_was_imported_until_it_is_taken_out() -> None:
    imported_before = events.last_answer
    source = (
        (ROOT / FILE).read_text().replace("return max(first.values()", "return min(first.values()")
    )
    looks = [
        entered("answered", datetime(2026, 11, 20 + day, 12, tzinfo=UTC), digests=[str(day)])
        for day in (1, 2)
    ]

    with swap.fault(FILE, FUNCTION, source):
        during = imported_before(NIGHT, looks)
    after = imported_before(NIGHT, looks)

    assert [date(2026, 11, 21), date(2026, 11, 22)] == [during.date(), after.date()]


def test_code_that_does_not_fit_the_running_function_is_told() -> None:
    source = (ROOT / FILE).read_text().replace("def last_answer", "def another")

    with pytest.raises(swap.MisfitError), swap.fault(FILE, FUNCTION, source):
        pass


def test_tests_of_the_folder_come_first_then_quick_files_and_one_runs_always(
    tmp_path: Path,
) -> None:
    own, slow, quick, failing = (
        f"tests/{name}.py" for name in ("runs/test_own", "cli/test_a", "cli/test_b", "cli/test_c")
    )
    noted = {
        "seconds": {f"{slow}::1": 9.0, f"{quick}::1": 0.1, f"{quick}::2": 0.3, f"{own}::1": 1.0}
        | {f"{failing}::1": 0.0},
        "failed": [f"{failing}::1"],
        "tests": {f"{FILE}:{FUNCTION}": [0, 1, 2, 3, 4]},
    }
    (tmp_path / "all.jsonl").write_text(json.dumps(noted) + "\n")
    mutant = Mutant(FILE, FUNCTION, 1, "", "", "")

    calls = read_calls(tmp_path)
    [short] = jobs_of([mutant], calls, 0)
    [long] = jobs_of([mutant], calls, 60)

    in_order = [f"{own}::1", f"{quick}::1", f"{quick}::2", f"{slow}::1"]
    assert (in_order[:1], 3) == (short["tests"], short["left"])
    assert (in_order, 0) == (long["tests"], long["left"])
    assert [] == Calls({}, {}).of(mutant)


@pytest.mark.slow
def test_of_three_mutants_one_is_killed_one_survives_and_one_never_ends(tmp_path: Path) -> None:
    source = (ROOT / FILE).read_text()
    changes = {
        "return max(first.values()": "return min(first.values()",
        "    first: dict[str, datetime] = {}": "    first: dict[str, datetime] = dict()",
        "    for event in events:": "    while True:\n        pass\n    for event in events:",
    }
    jobs = [
        {"id": at, "tests": [TEST], "limit": 5, "file": FILE, "function": FUNCTION}
        | {"code": source.replace(was, becomes)}
        for at, (was, becomes) in enumerate(changes.items())
    ]

    verdicts = run_in_processes(jobs, tmp_path)

    assert ["killed", "survived", "killed"] == [verdicts[at]["verdict"] for at in range(3)]
    assert "counts_from_when_it_came" in verdicts[0]["by"]


@pytest.mark.slow
def test_what_a_mutant_leaves_behind_does_not_make_a_test_notice_the_next_one(
    tmp_path: Path,
) -> None:
    source = (ROOT / FILE).read_text()
    was = "    first: dict[str, datetime] = {}"
    becomes = [f'    globals()["max"] = min\n{was}', was.replace("{}", "dict()")]
    jobs = [
        {"id": at, "tests": [TEST], "limit": 5, "file": FILE, "function": FUNCTION}
        | {"code": source.replace(was, other)}
        for at, other in enumerate(becomes)
    ]

    verdicts = run_in_processes(jobs, tmp_path)

    assert ["killed", "survived"] == [verdicts[at]["verdict"] for at in range(2)]


@pytest.mark.slow
def test_what_mutmut_makes_of_a_file_is_small_faults_of_its_functions() -> None:
    mutations = pytest.importorskip("tests.mutants.mutations").Mutations(FILE)

    mutants = [mutations[at] for at in range(len(mutations))]

    assert ("if event['what'] in _ANSWERING:".replace("'", '"')) in {one.was for one in mutants}
    assert FUNCTION in {one.function for one in mutants}
    assert len(mutants) == len({one.code for one in mutants})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "was", "becomes"),
    [
        ("flows/operations/retention.py", "if due > now:", "if due >= now:"),
        (FILE, "return max(", "return min("),
        ("flows/book/fold.py", 'waiting=place.filter(conditions["waiting"]).last(),', ".first(),"),
        ("flows/resend/selected_runs.py", "reverse=True", "reverse=False"),
        ("flows/extensions/deliveries/changes.py", 'keep="last"', 'keep="first"'),
        ("flows/extensions/governance/before_act.py", "rehearsals[-1]", "rehearsals[0]"),
    ],
)
def test_faults_of_limits_and_of_precedence_are_made(file: str, was: str, becomes: str) -> None:
    mutations = pytest.importorskip("tests.mutants.mutations").Mutations(file, edges=True)

    mutants = [mutations[at] for at in range(len(mutations))]

    assert [True] == [True for one in mutants if was in one.was and becomes in one.becomes][:1]
