"""The state of a run in words, and where its rows are."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from schemas.manifest import Manifest
from schemas.records import Purged

PURGED = " (purged)"  # in the state of a run whose ledger is gone


class Refusal(NamedTuple):
    """What refused a run at its last attempt: the error, its sentence, when.

    `first` is when the run was first refused; `under` the digest of the settings, "" by an earlier
    version.
    """

    error: str
    sentence: str
    at: str
    first: str
    under: str = ""


class RunStatus(NamedTuple):
    """A run's state in words, and where its rows are (zeros before a report).

    `why` says why it was refused.
    """

    run: str
    state: str
    read: int = 0
    linked: int = 0
    error: int = 0
    awaiting: int = 0
    rejected: int = 0
    ineligible: int = 0
    duplicate: int = 0
    suppressed: int = 0
    why: str = ""


def headline(verdict: str, awaiting: int) -> str:
    """Return a verdict that does not leave out the rows that still wait for an answer."""
    if not awaiting or not verdict.startswith("balanced"):
        return verdict
    waits = f"{awaiting:,} rows still wait" if awaiting > 1 else "1 row still waits"
    return f"{verdict}; {waits}"


def reported_status(run: str, summary: Mapping[str, Any]) -> RunStatus:
    """Return the status of a run that has a report, by the facts of its summary."""
    rows = summary["rows"]
    return RunStatus(run, headline(summary["verdict"], rows["awaiting"]), **rows)


def purged_status(run: str, record: Purged) -> RunStatus:
    """Return the status of a run whose ledger was purged: that of its last report."""
    rows: dict[str, Any] = dict(record.rows)
    return RunStatus(run, purged_state(record.verdict), **rows)


def purged_state(verdict: str) -> str:
    """Return the state of a run whose ledger was purged, from the verdict of its last report."""
    return f"{verdict}{PURGED}"


def unreported_status(run: str, manifest: Manifest) -> RunStatus:
    """Return the status of a committed run without a report: every row it sent is awaited."""
    counts = manifest.counts
    return RunStatus(
        run,
        "committed, to be uploaded",
        read=counts.read,
        awaiting=counts.submitted,
        rejected=counts.rejected,
        ineligible=counts.ineligible,
        duplicate=counts.duplicate,
        suppressed=counts.suppressed,
    )
