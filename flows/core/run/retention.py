"""What of a run is due to go, and why the rest is kept: what is unsent, unanswered or out of balance always is.

Pure: a run's documents in, a verdict out. Nothing is due unless it is known to be done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Literal, NamedTuple

from flows.core.names import RunId, RunKeys
from flows.core.run.outbox import Item
from schemas.purged import Part
from schemas.retention import Retention

KEPT: Literal["kept"] = "kept"
_KEPT = re.compile(r"plan\.json|manifest\.json|(events|reseals|closed)/[^/]+\.json")
_LEDGER = re.compile(
    r"ledger/part-\d{5}\.parquet"
    r"|outcomes/[0-9a-f]{24}\.parquet"
    r"|seals/\d{5}-\d{3}\.json"
    r"|claims/\d{6}\.json"
    r"|selection\.parquet"
    r"|single/\d+-\d+(-answer)?\.json"
    r"|placements/(part-\d{5}\.parquet|messages/part-\d{5}/\d{9}-\d{8}T\d{12}-[0-9a-f]{8}\.json|claims/\d{6}\.json)"
    r"|report/((rejects|errors|chunks|links(-\d{5})?)\.csv|summary\.json|report\.(html|xlsx)"
    r"|(rows|links)/part-\d{5}\.parquet)"
)


class State(NamedTuple):
    """What is known of a run: since when nothing happened to it any more, and what is still open in it, in words.

    `links_until` is the last day one of its links can be opened.
    """

    run: RunId
    since: datetime
    open: tuple[str, ...] = ()
    links_until: date | None = None


class Verdict(NamedTuple):
    """Whether a part of a run is due to go; `why` says what keeps it, or which setting lets it go."""

    due: bool
    why: str


def part_of(keys: RunKeys, key: str) -> Part | Literal["kept"] | None:
    """Tell which part of a run an object is, KEPT for what stays for good, None for what is not ours."""
    name = key.removeprefix(keys.base)
    if re.fullmatch(rf"(chunks|sealed/\d+)/{keys.run}-\d{{5}}\.[a-z0-9.]+", name):
        return "chunks"
    if _LEDGER.fullmatch(name):
        return "ledger"
    return KEPT if _KEPT.fullmatch(name) else None


def setting(part: Part, settings: Retention) -> tuple[str, timedelta]:
    """Return the setting that decides on a part, as the TOML writes it, and its length."""
    days = settings.chunks_days if part == "chunks" else settings.ledger_days
    return f"{part}_days = {days}", timedelta(days=days)


def too_young(part: Part, run: RunId, settings: Retention, now: datetime) -> Verdict | None:
    """Say so where a run's business date alone keeps a part, so that nothing of it need be read; None where not."""
    name, length = setting(part, settings)
    earliest = datetime.combine(run.day, time(), UTC) + length
    return Verdict(False, f"{name}: not before {earliest:%Y-%m-%d}") if earliest > now else None


def verdict(part: Part, state: State, settings: Retention, now: datetime) -> Verdict:
    """Judge one part of a run; whatever is open in it keeps all of it."""
    name, length = setting(part, settings)
    if state.open:
        return Verdict(False, "; ".join(state.open))
    if state.since + length > now:
        return Verdict(False, f"{name}: due on {state.since + length:%Y-%m-%d}")
    if part == "ledger" and state.links_until is not None and state.links_until >= now.date():
        return Verdict(False, f"it has links that live until {state.links_until}")
    return Verdict(True, name)


def still_open(items: Sequence[Item], summary: Mapping[str, Any] | None, unanswered: Mapping[int, int]) -> list[str]:
    """Say what is not done in a committed run: `unanswered` has the rows awaiting, by chunk, as its report counts them.

    A cancelled chunk has no answer due. Without a report nothing is known to be done, unless nothing was sent.
    """
    found = [
        _told(sum(item.state == state for item in items), f"chunk {words}", f"chunks {words}")
        for state, words in (("waiting", "not uploaded"), ("held", "held"), ("uploaded", "without an answer"))
    ]
    if summary is None:
        return [one for one in [*found, "no report yet"] if one]
    done = {item.chunk.number for item in items if item.state == "answered"}
    found.append(
        _told(sum(rows for chunk, rows in unanswered.items() if chunk in done), "row awaiting", "rows awaiting")
    )
    return [one for one in found if one]


def open_breaks(summary: Mapping[str, Any]) -> list[str]:
    """Name the breaks of a run that nobody has closed, each kind once."""
    kinds = {one["name"] for one in summary["breaks"] if not one["notice"] and not one.get("closed")}
    return [f"break {name}" for name in sorted(kinds)] + (["more breaks"] if summary["more_breaks"] else [])


def last_answer(committed: datetime, events: Iterable[Mapping[str, Any]]) -> datetime:
    """Return when a run was last answered or its chunks cancelled, by its events.

    A result file counts from when it first came: one that did not find its place is looked at again and again.
    """
    first: dict[str, datetime] = {}
    for event in events:
        if event["what"] in ("committed", "answered", "cancelled"):
            at = datetime.fromisoformat(event["at"])
            for name in event.get("digests") or [event["at"]]:
                first[name] = min(at, first.get(name, at))
    return max(first.values(), default=committed)


def links_until(summary: Mapping[str, Any]) -> date | None:
    """Return the last day a link of the run lives; one that says no day is dead before any ledger is due."""
    return max((date.fromisoformat(day) for day in summary["expires"] if day), default=None)


def _told(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}" if number else ""
