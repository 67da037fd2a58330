"""The hours from the drop of an extract to its links: of a run, and over the runs of an issuer.

They are counted from the extract's time in the store, which the event of the commit has, since
neither plan nor manifest may hold a clock.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Any

import polars as pl

from flows.reports.wording import percent
from flows.runs.stored_run import StoredRun

EXTRACT = "the extract's drop"  # what the hours are counted from
PLAN = "the run's plan"


def run_hours(run: StoredRun, arrivals: pl.DataFrame, within: int) -> dict[str, Any]:
    """Return the hours of a run's links, and what they are counted from.

    `arrivals` are links by when they arrived (`flows.reports.tally.ARRIVALS`).
    """
    since, start = _start(run)
    spread = Counter[float]()
    for arrived, links in arrivals.iter_rows():
        spread[round(max(0.0, (arrived - start).total_seconds()) / 3600, 1)] += links
    return {
        "since": since,
        "start": start.isoformat(timespec="seconds"),
        **_figures(spread, within),
    }


def hours_of(spreads: Iterable[Mapping[str, int]], within: int) -> dict[str, Any]:
    """Return links, median, slowest and share within the agreed hours, of several runs together.

    A spread is the number of links by hours, in tenths.
    """
    together = Counter[float]()
    for spread in spreads:
        together.update({float(hours): links for hours, links in spread.items()})
    return _figures(together, within)


def hours_line(hours: Mapping[str, Any] | None) -> str:
    """Return the sentence of the hours from drop to link; empty before the first link."""
    if not hours or not hours["links"]:
        return ""
    share = percent(hours["share"])
    since = hours.get("since", EXTRACT)
    return (
        f"From {since} to the link: median {hours['median']} h, slowest {hours['slowest']} h; "
        f"{share} of {hours['links']:,} links within the agreed {hours['within']} h."
    )


def _figures(spread: Mapping[float, int], within: int) -> dict[str, Any]:
    hours = sorted(spread)
    links = sum(spread.values())
    in_time = sum(spread[span] for span in hours if span <= within)
    return {
        "links": links,
        "median": _median(hours, spread),
        "slowest": hours[-1] if hours else None,
        "within": within,
        "share": in_time / links if links else None,
        "spread": {f"{span:.1f}": spread[span] for span in hours},
    }


def _median(hours: Sequence[float], spread: Mapping[float, int]) -> float | None:
    """Return the hours within which half of the links arrived; None where there is no link."""
    links_upto = list(accumulate(spread[span] for span in hours))
    for span, links in zip(hours, links_upto, strict=True):
        if 2 * links >= links_upto[-1]:
            return span
    return None


def _start(run: StoredRun) -> tuple[str, datetime]:
    """Return from what the hours are counted, and when that was.

    It is the drop of the extract; of a renewal, and where no event has it, the run's plan.
    """
    selection = run.committed().selection
    is_renewal = selection is not None and selection.kind == "renew"
    if run.dropped_at is not None and not is_renewal:
        return EXTRACT, run.dropped_at
    return PLAN, run.as_planned().planned_at
