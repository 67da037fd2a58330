"""Stores that earlier versions wrote, walked by the command line of this one."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from flows.cli.main import main

FIXTURES = Path(__file__).parent
FATES = ("read", "linked", "error", "awaiting", "rejected", "duplicate", "suppressed")


def unpacked(name: str, folder: Path) -> Path:
    """Return a copy of a store whose result files are known as taken up where they were."""
    with tarfile.open(FIXTURES / f"{name}.tar.xz") as archive:
        # an argument of `extractall` from Python 3.11.4 on, and Debian 12 has 3.11.2
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    for marker in folder.glob("store/*/ingested/files-*.json"):
        keys = json.loads(marker.read_text()).values()
        marker.write_text(json.dumps({identity(folder, key): key for key in keys}))
    return folder


def identity(folder: Path, key: str) -> str:
    """Return the name version 0.1 gave a result file as it lies there: a copy lies under another
    inode.
    """
    status = (folder / "store" / key).stat()
    version = f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"
    return hashlib.sha256(f"{key}|{status.st_size}|{version}".encode()).hexdigest()[:32]


def cardlink(folder: Path, *arguments: object) -> Any:
    """Type a command and return the object it prints, which has its exit code."""
    done = CliRunner().invoke(main, ["--config", str(folder), "--json", *map(str, arguments)])
    assert done.exit_code in (0, 2, 3, 4), done.stderr
    return json.loads(done.stdout)


def states(folder: Path, issuer: str) -> dict[str, str]:
    """Return how each run of an issuer stands."""
    return {run["run"]: run["state"] for run in cardlink(folder, "status", issuer)["runs"]}


def fates(run: dict[str, Any]) -> tuple[int, ...]:
    """Return the counts of a run in the order of FATES."""
    return tuple(run[fate] for fate in FATES)


def breaks(report: dict[str, Any]) -> dict[tuple[str, str], int]:
    """Return the rows of each break by name and place; notices have no place of their own here."""
    return {
        (one["name"], "" if one["notice"] else one["place"]): one["rows"]
        for one in report["breaks"]
    }


def table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV of a report."""
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8-sig"))))


def files(folder: Path, below: str) -> set[str]:
    """Return the names of what is stored below a prefix."""
    return {path.name for path in (folder / "store" / below).rglob("*") if path.is_file()}


def finish(folder: Path, run: str, extract: str) -> dict[str, Any]:
    """Submit the extract of a run that was begun; where that is refused, do what the refusal
    says.
    """
    issuer = run.rpartition("-20")[0]
    done = cardlink(folder, "submit", issuer, "--extract", extract)
    if done["exit_code"] == 2:
        assert "--new-run" in done["message"]
        done = cardlink(
            folder, "submit", issuer, "--extract", extract, "--new-run", "begun by another version"
        )
    assert done["exit_code"] == 0
    found: dict[str, Any] = done["runs"][0]
    return found


def rows_to_upload(folder: Path, issuer: str, day: str) -> list[int]:
    """Return the rows of every chunk that waits, of whatever run of an extract of that day."""
    chunks = cardlink(folder, "outbox", "list", issuer)["chunks"]
    return [one["rows"] for one in chunks if f"-{day}-" in one["run"] and one["state"] == "waiting"]
