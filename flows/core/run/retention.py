"""What of a run is due to go, and why the rest is kept: what is unsent, unanswered or out of balance always is.

Pure: a run's documents in, a verdict out. Nothing is due unless it is known to be done.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Literal, NamedTuple

from flows.core.names import RunId, RunKeys
from flows.core.run.outbox import Item
from schemas.breaks import Break
from schemas.purged import Part
from schemas.retention import Retention

KEPT: Literal["kept"] = "kept"
_KEPT = re.compile(r"plan\.json|manifest\.json|(events|reseals|closed)/[^/]+\.json")
_LEDGER = re.compile(
    r"ledger/part-(\d{4}-)?\d{5}\.parquet"
    r"|outcomes/[0-9a-f]{24}\.parquet"
    r"|seals/\d{5}-\d{3}\.json"
    r"|claims/\d{6}\.json"
    r"|selection\.parquet"
    r"|single/\d+-\d+(-answer)?\.json"
    r"|placements/(part-(\d{4}-)?\d{5}\.parquet|claims/\d{6}\.json"
    r"|messages/part-(\d{4}-)?\d{5}/\d{9}-\d{8}T\d{12}-[0-9a-f]{8}\.json)"
    r"|report/((rejects|errors|chunks|links(-\d{5})?)\.csv|summary\.json|report\.(html|xlsx)"
    r"|(rows|links)/part-(\d{4}-)?\d{5}\.parquet)"
)
End = Literal["committed", "abandoned", "never"]
_UNCOMMITTED: dict[End, Part] = {"abandoned": "chunks", "never": "ledger"}


class State(NamedTuple):
    """What is known of a run: since when nothing happened to it any more, and what is still open in it, in words.

    `links_until` is the last day one of its links can be opened. `end` says how it ended: an abandoned run has
    neither answers nor cardholders, one that was planned and never committed must be abandoned before it goes.
    """

    since: datetime
    open: tuple[str, ...] = ()
    links_until: date | None = None
    end: End = "committed"


class Verdict(NamedTuple):
    """Whether a part of a run is due to go; `why` says what keeps it, or which setting lets it go.

    `until` is the day it is due where nothing but its age keeps it.
    """

    due: bool
    why: str
    until: date | None = None


def part_of(keys: RunKeys, key: str) -> Part | Literal["kept"] | None:
    """Tell which part of a run an object is, KEPT for what stays for good, None for what is not ours."""
    name = key.removeprefix(keys.base)
    if re.fullmatch(rf"(chunks|sealed/\d+)/{keys.run}-\d{{5}}\.[a-z0-9.]+", name):
        return "chunks"
    if _LEDGER.fullmatch(name):
        return "ledger"
    return KEPT if _KEPT.fullmatch(name) else None


def passing(keys: RunKeys, key: str) -> bool:
    """Tell whether an object was left by workers for each other and serves nobody once their run is over."""
    return re.fullmatch(r"exchanged/[0-9a-f]{16}-\d{4}-\w+\.parquet", key.removeprefix(keys.base)) is not None


def too_young(part: Part, run: RunId, settings: Retention, now: datetime) -> Verdict | None:
    """Say so where a run's business date alone keeps a part, so that little of it need be read; None where not."""
    name, length = setting(part, settings)
    earliest = datetime.combine(run.day, time(), UTC) + length
    return _young(name, earliest) if earliest > now else None


def verdict(part: Part, state: State, settings: Retention, now: datetime) -> Verdict:
    """Judge one part of a run; whatever is open in it keeps all of it.

    An abandoned run goes whole with its chunks; one that was never ended stays as long as a ledger does.
    """
    decides = part if state.end == "committed" else _UNCOMMITTED[state.end]
    name, length = setting(decides, settings)
    if state.open:
        return Verdict(False, "; ".join(state.open))
    if state.since + length > now:
        return _young(name, state.since + length)
    if part == "ledger" and state.links_until is not None and state.links_until >= now.date():
        return Verdict(False, f"it has links that live until {state.links_until}", state.links_until)
    return Verdict(True, name)


def _young(name: str, due: datetime) -> Verdict:
    return Verdict(False, f"{name}: not before {due:%Y-%m-%d}", due.date())


def setting(part: Part, settings: Retention) -> tuple[str, timedelta]:
    """Return the setting that decides on a part, as the TOML writes it, and its length."""
    days = settings.chunks_days if part == "chunks" else settings.ledger_days
    return f"{part}_days = {days}", timedelta(days=days)


def still_open(
    items: Collection[Item], awaiting: Mapping[int, int], breaks: Sequence[Break], *, closed: bool
) -> list[str]:
    """Say what is not done in a committed run, nothing where all of it is.

    `awaiting` has the rows without an answer, by chunk: those of a chunk that is answered are open unless an operator
    `closed` a break of the run, which is to say that they need no answer. A cancelled chunk has none to expect.
    """
    states = Counter(item.state for item in items)
    answered = {item.chunk.number for item in items if item.state == "answered"}
    lacking = 0 if closed else sum(rows for chunk, rows in awaiting.items() if chunk in answered)
    told = {
        "chunks not uploaded": states["waiting"],
        "chunks held": states["held"],
        "chunks without an answer": states["uploaded"],
        "rows without an answer": lacking,
        **{f"rows in break {one.name}": one.rows for one in breaks},
    }
    return [f"{number:,} {what}" for what, number in told.items() if number or what.startswith("rows in break")]


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
