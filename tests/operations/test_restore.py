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
from flows.runs.stored_journal import OtherJournalError
from tests.night import Bench
from tests.test_dry_runs import bank
from tests.torture.acts import NAMED


def done(folder: Path, command: str, **values: Any) -> dict[str, Any]:
    return NAMED[command].invoke(Context(folder, actor="ann"), values).facts


def restore(bench: Bench, folder: Path, *kept: str) -> None:
    """Put the copies of store and database in their places; these folders of objects stay."""
    store, copy = folder / "store", folder / "copy"
    for name in kept:
        shutil.copytree(store / "bank" / name, copy / "bank" / name, dirs_exist_ok=True)
    shutil.rmtree(store)
    copy.rename(store)
    bench.database.close()
    for file in folder.glob("cardlink.db*"):
        file.unlink()
    (folder / "copy.db").rename(folder / "cardlink.db")
    wiring._database.cache_clear()


def answered_in_between(folder: Path) -> tuple[Bench, dict[str, Any]]:
    """Return a bench that was copied before answers came and another night repeated everybody, and
    the run of that night.
    """
    bench, store = bank(folder), folder / "store"
    bench.drop(12, "bank-20261120.csv", seed=1)
    [first] = done(folder, "submit", issuer="bank")["runs"]
    done(folder, "upload", run=first["run"], done=True)
    shutil.copytree(store, folder / "copy")
    bench.database.backup(folder / "copy.db")
    bench.answer(fail_share=0.5, seed=1)
    done(folder, "ingest", issuer="bank")
    extracts = store / "bank" / "extracts"
    bench.drop(8, "bank-20261121.csv", seed=2)
    both = [path.read_text().splitlines() for path in sorted(extracts.iterdir())]
    (extracts / "bank-20261121.csv").write_text("\n".join([*both[0], *both[1][1:]]) + "\n")
    [lost] = done(folder, "submit", issuer="bank")["runs"]
    return bench, lost


@pytest.mark.slow
def test_where_answers_came_in_between_a_lost_run_has_its_id_and_other_chunks(
    tmp_path: Path,
) -> None:
    bench, lost = answered_in_between(tmp_path)
    restore(bench, tmp_path, "extracts", "results")

    [again] = done(tmp_path, "submit", issuer="bank")["runs"]

    assert lost["run"] == again["run"]
    assert (13, 8) == (lost["counts"]["submitted"], again["counts"]["submitted"])


@pytest.mark.slow
def test_where_newer_segments_are_left_a_restore_is_refused_until_the_database_is_recovered(
    tmp_path: Path,
) -> None:
    bench, lost = answered_in_between(tmp_path)
    restore(bench, tmp_path, "extracts", "results", "journal")

    with pytest.raises(OtherJournalError):
        done(tmp_path, "submit", issuer="bank")
    done(tmp_path, "recover", issuer="bank", reason="the bucket was put back")
    submitted = done(tmp_path, "submit", issuer="bank")["runs"]
    findings = done(tmp_path, "audit verify", issuer="bank")["findings"]

    assert [] == submitted
    assert {"removed"} == {finding["what"] for finding in findings}
    assert all(lost["run"] in finding["key"] for finding in findings)


@pytest.mark.slow
def test_after_a_restore_a_lost_run_is_submitted_again_before_its_results_and_is_the_same(
    tmp_path: Path,
) -> None:
    bench = bank(tmp_path)
    bench.drop(12, "bank-20261120.csv", seed=1)
    done(tmp_path, "submit", issuer="bank")
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    bench.database.backup(tmp_path / "copy.db")
    bench.drop(12, "bank-20261121.csv", seed=2)
    [lost] = done(tmp_path, "submit", issuer="bank")["runs"]
    bench.answer(fail_share=0.2, seed=1)

    restore(bench, tmp_path, "extracts", "results")  # what others dropped since stays
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
