"""The way back: the version before goes on with what this one has stored, until the format is
upgraded.

Its code is taken from the history of the repository, so a copy without history skips this. With a
new version, BEFORE is the last commit of the one that it follows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from flows.adapters.local import LocalStore
from flows.commands.context import Context
from tests.test_dry_runs import WHY, bank
from tests.torture.acts import NAMED
from tests.torture.harmed_store import KilledError

ROOT = Path(__file__).parents[2]
BEFORE = "7cd09a06"  # the last commit of 0.1.0
PARTS = ("flows", "schemas", "sample_data", "deploy")
ENTRY = "from flows.cli.__main__ import run; run()"
NEWER = "was written by a newer cardlink"


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the code of the version before."""
    archive = subprocess.run(
        ["git", "archive", BEFORE, *PARTS], cwd=ROOT, capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip("needs the repository's history")
    folder = tmp_path_factory.mktemp("before")
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    return folder


def typed(code: Path, folder: Path, *words: str) -> dict[str, Any]:
    """Type a command of the version before; return what it prints as JSON."""
    environment = {**os.environ, "PYTHONPATH": str(code), "CARDLINK_ACTOR": "ann"}
    line = [sys.executable, "-c", ENTRY, "--json", "--config", str(folder), *words]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, check=False)
    facts: dict[str, Any] = json.loads(done.stdout)
    return {**facts, "said": done.stderr.decode()}


def now(folder: Path, command: str, **values: Any) -> dict[str, Any]:
    """Run a command of this version."""
    return NAMED[command].invoke(Context(folder, actor="ann"), values).facts


def submitted(folder: Path, name: str) -> str:
    [run] = now(folder, "submit", issuer="bank", extract=name)["runs"]
    return str(run["run"])


def begun(folder: Path, name: str) -> None:
    """Submit an extract by a process that is killed before it seals."""
    create = LocalStore.create

    def mortal(store: LocalStore, key: str, data: bytes) -> bool:
        if "/seals/" in key:
            raise KilledError
        return create(store, key, data)

    with patch.object(LocalStore, "create", mortal), pytest.raises(KilledError):
        now(folder, "submit", issuer="bank", extract=name)


def lived(folder: Path, *, upgrade: bool) -> tuple[str, str]:
    """Let this version answer a run and deliver it, leave one unanswered, and one begun; return the
    first two.
    """
    bench = bank(folder)
    for day in (20, 21, 22):
        bench.drop(12, f"bank-202611{day}.csv", seed=day)
    if upgrade:
        now(folder, "upgrade", issuer="bank", **WHY)
    answered = submitted(folder, "bank-20261120.csv")
    bench.answer(fail_share=0.3, seed=1)
    now(folder, "ingest", issuer="bank")
    now(folder, "deliver", issuer="bank")
    now(folder, "deliver", issuer="bank", confirm=1, **WHY)
    open_run = submitted(folder, "bank-20261121.csv")
    bench.answer(fail_share=0.3, seed=2)
    begun(folder, "bank-20261122.csv")
    return answered, open_run


@pytest.mark.slow
def test_the_version_before_goes_on_with_what_this_one_has_stored_and_this_one_after_it(
    code: Path, tmp_path: Path
) -> None:
    answered, open_run = lived(tmp_path, upgrade=False)
    results = tmp_path.glob(f"store/bank/results/*{open_run}*")

    finished = typed(code, tmp_path, "submit", "bank")
    ingested = typed(code, tmp_path, "ingest", "bank")
    reported = [typed(code, tmp_path, "report", run) for run in (answered, open_run)]
    resent = typed(code, tmp_path, "resubmit", answered, "--errors", "--reason", "once more")
    delivered = typed(code, tmp_path, "deliver", "bank")
    purged = typed(code, tmp_path, "purge", "bank")
    proved = typed(code, tmp_path, "audit", "verify", "bank")
    after = now(tmp_path, "audit verify", issuer="bank")
    deliveries = now(tmp_path, "deliver", issuer="bank")

    every = [finished, ingested, *reported, resent, delivered, purged, proved]
    assert [0] * len(every) == [each["exit_code"] for each in every]
    assert [] == [each["said"] for each in every if NEWER in each["said"]]
    assert [False] == [run["already"] for run in finished["runs"]]
    assert len(list(results)) == ingested["files"]
    assert ["balanced", "balanced"] == [report["verdict"] for report in reported]
    assert resent["counts"]["submitted"]
    assert (2, []) == (delivered["number"], proved["findings"])
    assert ([], 2) == (after["findings"], deliveries["number"])


@pytest.mark.slow
def test_after_the_upgrade_the_version_before_does_not_finish_what_was_begun(
    code: Path, tmp_path: Path
) -> None:
    answered, _ = lived(tmp_path, upgrade=True)
    [plan] = tmp_path.glob("store/bank/runs/bank-20261122-*/plan.json")
    before = plan.read_bytes()

    refused = typed(code, tmp_path, "submit", "bank")
    shown = typed(code, tmp_path, "history", answered)
    ingested = typed(code, tmp_path, "ingest", "bank")
    finished = now(tmp_path, "submit", issuer="bank")

    assert 2 == refused["exit_code"]
    assert f"bank/runs/{plan.parent.name}/plan.json {NEWER}" in refused["message"]
    assert [0, 0] == [shown["exit_code"], ingested["exit_code"]]
    assert before == plan.read_bytes()
    assert [False] == [run["already"] for run in finished["runs"]]
