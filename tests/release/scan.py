"""`make scan`: what the images install, compared with the published vulnerabilities of Python packages.

It needs a network in which pip-audit reaches its service. Exit code 0: every package was compared,
and what was found is accepted; 1: findings, or an acceptance that ran out; 2: not everything was
compared, so nothing is said. `deploy/accepted-vulnerabilities.toml` has what is accepted, and why.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tests.lock import FILES

ROOT: Final = Path(__file__).parent.parent.parent
ACCEPTED: Final = ROOT / "deploy" / "accepted-vulnerabilities.toml"
LONGEST: Final = timedelta(days=92)  # until somebody looks at an accepted finding again


class Accepted(BaseModel):
    """A finding that does not stop a release, with the reason and the day to look again."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, Field(min_length=5)]
    package: str
    reason: Annotated[str, Field(min_length=20)]
    until: date


class Finding(NamedTuple):
    """A vulnerability of an installed version, by all the names it has."""

    package: str
    version: str
    ids: frozenset[str]
    fixed_in: str


class ScanError(Exception):
    """Not everything was compared with what is known."""


def scanned(requirements: Path) -> str:
    """Return pip-audit's answer about a file of requirements; ScanError."""
    options = ["--disable-pip", "--require-hashes", "--progress-spinner", "off", "--format", "json"]
    command = [sys.executable, "-m", "pip_audit", *options, "-r", str(requirements)]
    done = subprocess.run([*command, *sys.argv[1:]], capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise ScanError(f"pip-audit gave no answer, it needs its service: {last[:200]}")
    return done.stdout


def findings_in(answer: str) -> list[Finding]:
    """Return the findings of pip-audit's JSON; ScanError if a package was left out."""
    try:
        packages: list[dict[str, Any]] = json.loads(answer)["dependencies"]
    except (ValueError, KeyError):
        raise ScanError("pip-audit's answer is not its JSON") from None
    left_out = [package["name"] for package in packages if "skip_reason" in package]
    if left_out or not packages:
        raise ScanError(_left_out(left_out, len(packages)))
    return [
        _finding(package, vulnerability)
        for package in packages
        for vulnerability in package["vulns"]
    ]


def _left_out(names: Sequence[str], count: int) -> str:
    if len(names) == count:
        return (
            f"the service knows none of {count} packages: "
            "a mirror of the index has no vulnerabilities"
        )
    return f"the service does not know {', '.join(names)}"


def _finding(package: dict[str, Any], vulnerability: dict[str, Any]) -> Finding:
    ids = frozenset([vulnerability["id"], *vulnerability.get("aliases", ())])
    fixed_in = ", ".join(vulnerability["fix_versions"]) or "no version"
    return Finding(package["name"], package["version"], ids, fixed_in)


def accepted_in(text: str, today: date) -> list[Accepted]:
    """Return the accepted findings of a file; ScanError names what is wrong with one."""
    try:
        document = tomllib.loads(text)
        entries = [Accepted.model_validate(entry) for entry in document.pop("accepted", [])]
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise ScanError(f"{ACCEPTED.name}: {error}") from None
    if document:
        raise ScanError(f"{ACCEPTED.name}: only [[accepted]] is known, not {', '.join(document)}")
    far = [entry.id for entry in entries if entry.until - today > LONGEST]
    if far:
        raise ScanError(
            f"{ACCEPTED.name}: {', '.join(far)}: `until` is more than {LONGEST.days} days ahead"
        )
    return entries


def judged(
    findings: Iterable[Finding], accepted: Sequence[Accepted], today: date
) -> tuple[list[str], list[str]]:
    """Return the sentences that stop a release, and those that only remark something."""
    stops: list[str] = []
    remarks: list[str] = []
    used: set[Accepted] = set()
    for finding in findings:
        name = f"{finding.package} {finding.version}: {', '.join(sorted(finding.ids))}"
        entry = _entry_of(finding, accepted)
        if entry is None:
            stops.append(f"{name}; fixed in {finding.fixed_in}")
            continue
        used.add(entry)
        if entry.until < today:
            stops.append(f"{name}; accepted until {entry.until}: look again ({entry.reason})")
        else:
            remarks.append(f"{name}; accepted until {entry.until}: {entry.reason}")
    remarks += [
        f"{entry.package}: {entry.id} is not found any more: take it out of {ACCEPTED.name}"
        for entry in accepted
        if entry not in used
    ]
    return stops, remarks


def _entry_of(finding: Finding, accepted: Iterable[Accepted]) -> Accepted | None:
    for entry in accepted:
        if entry.id in finding.ids and entry.package.lower() == finding.package.lower():
            return entry
    return None


def main() -> int:
    """Print what was found; return the exit code."""
    today = date.today()
    try:
        accepted = accepted_in(ACCEPTED.read_text("utf-8"), today)
        answers = [scanned(ROOT / "deploy" / name) for name in FILES]
        found = {finding: None for answer in answers for finding in findings_in(answer)}
    except ScanError as error:
        print(f"not scanned: {error}", file=sys.stderr)
        print("run `make scan` where the service of pip-audit can be reached", file=sys.stderr)
        return 2
    stops, remarks = judged(found, accepted, today)
    print("\n".join([*stops, *remarks, f"{len(stops)} findings that stop a release"]))
    return 1 if stops else 0


if __name__ == "__main__":
    sys.exit(main())
