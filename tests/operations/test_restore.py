"""A bucket that is put back to an earlier copy: what deploy/UPGRADE.md says to do, and that nothing
is lost by it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from flows import wiring
from flows.commands.context import Context
from tests.test_dry_runs import bank
from tests.torture.acts import NAMED


def done(folder: Path, command: str, **values: Any) -> dict[str, Any]:
    return NAMED[command].invoke(Context(folder, actor="ann"), values).facts


@pytest.mark.slow
def test_after_a_restore_a_lost_run_is_submitted_again_before_its_results_and_is_the_same(
    tmp_path: Path,
) -> None:
    bench, store, copy = bank(tmp_path), tmp_path / "store", tmp_path / "copy"
    bench.drop(12, "bank-20261120.csv", seed=1)
    done(tmp_path, "submit", issuer="bank")
    shutil.copytree(store, copy)
    bench.database.backup(tmp_path / "copy.db")
    bench.drop(12, "bank-20261121.csv", seed=2)
    [lost] = done(tmp_path, "submit", issuer="bank")["runs"]
    bench.answer(fail_share=0.2, seed=1)

    for dropped in ("extracts", "results"):  # what others dropped since stays
        shutil.copytree(store / "bank" / dropped, copy / "bank" / dropped, dirs_exist_ok=True)
    shutil.rmtree(store)
    copy.rename(store)
    bench.database.close()
    for file in tmp_path.glob("cardlink.db*"):
        file.unlink()
    (tmp_path / "copy.db").rename(tmp_path / "cardlink.db")
    wiring._database.cache_clear()
    whole = done(tmp_path, "audit verify", issuer="bank")
    early = done(tmp_path, "ingest", issuer="bank")
    [again] = done(tmp_path, "submit", issuer="bank")["runs"]
    done(tmp_path, "upload", run=lost["run"], done=True)
    late = done(tmp_path, "ingest", issuer="bank")
    proof = done(tmp_path, "audit verify", issuer="bank")

    assert [] == whole["findings"]
    assert "submit the extract again first" in str(early)
    assert (lost["run"], lost["counts"]) == (again["run"], again["counts"])
    assert {lost["run"]: "balanced"} == {
        report["run"]: report["verdict"]
        for report in late["reports"]
        if report["run"] == lost["run"]
    }
    assert [] == proof["findings"]
