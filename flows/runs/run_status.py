"""The state of a run in words, and where its rows are."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from flows.steps import counted
from schemas.manifest import Manifest
from schemas.records import Purged

PURGED = " (purged)"  # in the state of a run whose ledger is gone
UNREPORTED = "committed, to be uploaded"  # the state of a run before its first report


class Refusal(NamedTuple):
    """What refused a run at its last attempt: the error, its sentence, when.

    `first` is when the run was first refused; `under` the digest of the settings, "" by an earlier
    version. `then`: what to do where that is no decision. `of_content`: another content alone can
    change it; else it is for the operator: a key, the store, settings, another environment.
    """

    error: str
    sentence: str
    at: datetime
    first: datetime
    under: str = ""
    then: str = ""
    of_content: bool = True


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


def headline(summary: Mapping[str, Any]) -> str:
    """Return the verdict of a report, with the rows that still wait and those never sent."""
    verdict: str = summary["verdict"]
    cancelled = summary["open"]["cancelled"]
    awaiting = summary["rows"]["awaiting"] - cancelled
    if not verdict.startswith("balanced"):
        return verdict
    parts = [verdict]
    if awaiting:
        parts.append(counted(awaiting, "row still waits", "rows still wait"))
    if cancelled:
        parts.append(f"{counted(cancelled, 'row')} not sent, in cancelled chunks")
    return "; ".join(parts)


def reported_status(run: str, summary: Mapping[str, Any]) -> RunStatus:
    """Return the status of a run that has a report, by the facts of its summary."""
    rows = summary["rows"]
    return RunStatus(run, headline(summary), **rows)


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
        UNREPORTED,
        read=counts.read,
        awaiting=counts.submitted,
        rejected=counts.rejected,
        ineligible=counts.ineligible,
        duplicate=counts.duplicate,
        suppressed=counts.suppressed,
    )
