"""The format of what is stored: the version before reads it until `upgrade`, and is refused after."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from flows import __version__
from flows.commands.changelog import releases_of
from flows.commands.context import Context
from flows.registry import ENTRIES
from flows.runs.formats import CHANGES, FIRST, NEWEST, NewerStoreError, version_in
from flows.wiring import shipped
from schemas.manifest import Plan
from tests.stored.fields import TABLE
from tests.test_dry_runs import CASES, WHY, bank

NAMED = {entry.name: entry for entry in ENTRIES}
# the newest versions of documents that 0.1.0 reads and acts on
KNOWN_BY_0_1_0 = {
    "Plan": 3,
    "Manifest": 5,
    "SourceIdentity": 2,
    "Approval": 2,
    "AuditEntry": 2,
    "SingleAsked": 2,
    "Delivery": 2,
    "Purged": 2,
    "Parquet": 3,
    "summary.json": 4,
}


def run_of(folder: Path) -> dict[str, Any]:
    """Submit an extract; return the plan of its run as it is stored."""
    done = NAMED["submit"].invoke(Context(folder), {"issuer": "bank"})
    [run] = done.facts["runs"]
    plan = folder / "store/bank/runs" / run["run"] / "plan.json"
    content: dict[str, Any] = json.loads(plan.read_bytes())
    return content


def test_a_run_is_planned_as_the_version_before_reads_it_until_the_format_is_upgraded(
    tmp_path: Path,
) -> None:
    bench = bank(tmp_path)
    bench.drop(3, "bank-20261120.csv", seed=1)
    before = run_of(tmp_path)
    upgrade = NAMED["upgrade"]

    tried = upgrade.invoke(Context(tmp_path), {"issuer": "bank", "dry_run": True, **WHY})
    done = upgrade.invoke(Context(tmp_path), {"issuer": "bank", **WHY})
    again = upgrade.invoke(Context(tmp_path), {"issuer": "bank", **WHY})
    bench.drop(3, "bank-20261121.csv", seed=2)
    after = run_of(tmp_path)

    assert (version_in(Plan, FIRST), None) == (before["format"], before.get("release"))
    assert (version_in(Plan, NEWEST), __version__) == (after["format"], after["release"])
    assert [(FIRST, NEWEST, 1), (FIRST, NEWEST, 1), (NEWEST, NEWEST, 0)] == [
        (each.facts["before"], each.facts["format"], len(each.facts["changes"]))
        for each in (tried, done, again)
    ]


@pytest.mark.parametrize("command", ["submit", "ingest", "upgrade", "deliver", "agree"])
def test_a_store_in_a_later_format_is_refused_by_whatever_changes_something_in_one_sentence(
    tmp_path: Path, command: str
) -> None:
    case = CASES["upgrade"](tmp_path)
    record = {"at": "2027-01-01T00:00:00Z", "by": "ann", "reason": "a week", "release": "0.9.0"}
    formats = tmp_path / "store/bank/formats"
    formats.mkdir(parents=True)
    for number in range(FIRST + 1, NEWEST + 3):
        # as that version may write it, with a field that this one does not know
        content = {**record, "number": number, "format": 2, "machines": 3}
        (formats / f"{number:06d}.json").write_text(json.dumps(content))
    before = sorted((tmp_path / "store").rglob("*"))

    reason = WHY if NAMED[command].has_parameter("reason") else {}
    with pytest.raises(NewerStoreError) as refused:
        NAMED[command].invoke(Context(tmp_path), {"issuer": case["issuer"], **reason})

    sentence = (
        f"bank is stored in format {NEWEST + 2}, which needs cardlink 0.9.0 or later; this is "
        f"{__version__}. Nothing was changed."
    )
    assert sentence in str(refused.value)
    assert before == sorted((tmp_path / "store").rglob("*"))


def test_whatever_a_version_stores_otherwise_than_the_one_before_is_a_line_of_its_table() -> None:
    raised = {kind: number for change in CHANGES for kind, (_, number) in change.documents.items()}
    newest = {kind: max(map(int, versions)) for kind, versions in TABLE.items()}

    # a document whose version was raised: by which format, or by which setting? flows/runs/formats
    assert newest == {**dict.fromkeys(newest, 1), **KNOWN_BY_0_1_0, **raised}
    assert [*range(FIRST + 1, NEWEST + 1)] == sorted(
        change.number for change in CHANGES if change.number
    )


def test_the_changelog_begins_with_the_version_that_is_installed_and_says_what_is_new_since() -> (
    None
):
    releases = list(releases_of(shipped("CHANGELOG.md").read_text("utf-8")))

    shown = NAMED["changelog"].invoke(Context(Path()), {"since": "0.1.0"}).facts
    nothing = NAMED["changelog"].invoke(Context(Path()), {"since": "99.0.0"}).facts

    assert __version__ == releases[0].version == shown["installed"]
    assert releases == sorted(releases, key=lambda release: release.number, reverse=True)
    assert [release.version for release in releases] == [
        release["version"] for release in shown["releases"]
    ]
    assert [] == nothing["releases"]
    newest = [__version__]
    for suffix, new in ((".dev12+g1a2b3c4d", newest), ("+c5678abcd", newest), (".post3+g12", [])):
        since = NAMED["changelog"].invoke(Context(Path()), {"since": __version__ + suffix}).facts
        assert new == [release["version"] for release in since["releases"]]
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
