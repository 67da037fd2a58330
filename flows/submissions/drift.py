"""Drift: how the columns of a night depart from those of the nights before, by their profiles.

Weekly patterns and one odd night are not reported and hide nothing, and a change that stays counts
as usual after two nights. Intervals take 7.5 ms of CPU a submit with ten nights; distances between
all pairs of nights took 11 and gave the same verdicts.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import sqrt
from statistics import median
from typing import Any, NamedTuple

from flows.runs.stored_runs import Night
from flows.submissions.row_counts import unusual_lines
from flows.submissions.sample import KEPT
from schemas.manifest import ColumnProfile, Manifest, Profile
from schemas.portal import PAN

NIGHTS = 10  # compared with
FEWEST = 5  # nights needed for a comparison

FILLED = "filled in {now:.0%} of the rows, usually {usual:.0%}"
VARIED = "spread over about {values:,.0f} values, usually {many:,.0f}"
LONGER = "{now:.0%} of the cells are longer than {key} characters, usually {usual:.0%}"
FORM = (
    "{now:.0%} of the cells have the form {key} (A: letters, 9: digits, X: both), "
    "usually {usual:.0%}"
)
BEGINS = "{now:.0%} of the cards begin with {key}, usually {usual:.0%}"


class _Measure(NamedTuple):
    """One measure of a column: of how many cells it is, and the share of each length, form or BIN.

    `sentence` says how a departure is reported.
    """

    column: str
    sentence: str
    cells: int
    shares: Mapping[Any, float]


class _Departure(NamedTuple):
    """A share that departs: by how many times the widest difference allowed, and in words."""

    distance: float
    text: str


def departures(profile: Profile | None, nights: Sequence[Night], limit: float) -> list[str]:
    """Return a sentence per column that departs from the last nights.

    A column departs where a share is outside those of all nights but the highest and the lowest,
    and by more than `limit`, than chance explains, and than these nights are from each other. Of
    several such shares the furthest is reported. Nights without a profile do not count.
    """
    if profile is None:
        return []
    usual_nights = _usual_nights(nights)
    furthest: dict[str, _Departure] = {}
    for name, measure in _by_name(profile).items():
        usual = [night[name] for night in usual_nights if name in night]
        for departure in _departures_of(measure, usual, limit):
            known = furthest.setdefault(measure.column, departure)
            if departure.distance > known.distance:
                furthest[measure.column] = departure
    return [departure.text for departure in furthest.values()]


def drift_of(manifest: Manifest, nights: Sequence[Night], limit: float) -> list[str]:
    """Return how the columns and the lines of a night depart from those of the nights before."""
    return [
        *departures(manifest.profile, nights, limit),
        *unusual_lines(manifest.counts.set_aside, nights),
    ]


def _usual_nights(nights: Sequence[Night]) -> list[dict[tuple[str, str], _Measure]]:
    """Return the measures of the last nights that have a profile."""
    profiles = [night.profile for night in nights if night.profile is not None]
    return [_by_name(profile) for profile in profiles[-NIGHTS:]]


def _departures_of(
    measure: _Measure, usual: Sequence[_Measure], limit: float
) -> Iterator[_Departure]:
    """Yield the shares of a measure that depart from the usual nights, if those are enough."""
    if len(usual) < FEWEST:
        return
    # four standard deviations
    chance = 2 * sqrt(1 / measure.cells + 1 / median(night.cells for night in usual))
    keys = set[Any]().union(measure.shares, *(night.shares for night in usual))
    for key in sorted(keys):
        near = _near(key)
        before = sorted(night.shares.get(key, 0.0) for night in usual)
        before_near = sorted(night.shares.get(near, 0.0) for night in usual)
        lowest = before[1]
        highest = before[-2]
        below = lowest - measure.shares.get(near, 0.0)
        above = measure.shares.get(key, 0.0) - before_near[-2]
        distance = max(below, above) / max(limit, chance, highest - lowest)
        if distance > 1:
            yield _Departure(distance, _sentence(measure, key, median(before)))


def _near(key: Any) -> Any:
    """Return what a length is compared with as well; a form or BIN only with itself.

    A number may have a digit more than yesterday: what is longer than 12 characters was longer than
    11.
    """
    return key - key // 8 if isinstance(key, int) else key


def _sentence(measure: _Measure, key: Any, usual_share: float) -> str:
    share = measure.shares.get(key, 0.0)
    # so many values, all equally frequent, would make two cells equal as often as they are
    values = (share or 1) ** -2
    usual_values = (usual_share or 1) ** -2
    sentence = measure.sentence.format(
        key=key, now=share, usual=usual_share, values=values, many=usual_values
    )
    return f"{measure.column}: {sentence}"


def _by_name(profile: Profile) -> dict[tuple[str, str], _Measure]:
    """Return the measures of a profile, by column and sentence."""
    return {(measure.column, measure.sentence): measure for measure in _measures(profile)}


def _measures(profile: Profile) -> Iterator[_Measure]:
    """Yield the measures of a profile that has cells for them."""
    for name, column in profile.columns.items():
        bins = profile.bins if name == PAN else {}
        filled = column.filled
        # the chance that two cells are equal
        equal = filled / sqrt(max(1, column.distinct))
        counts: tuple[tuple[str, int, Mapping[Any, float]], ...] = (
            (FILLED, profile.rows, {"": filled}),
            (VARIED, filled, {"": equal}),
            (LONGER, filled, _longer(column)),
            (FORM, filled, column.forms),
            (BEGINS, sum(bins.values()), bins),
        )
        for sentence, cells, by_key in counts:
            if cells and by_key:
                shares = {key: count / cells for key, count in by_key.items()}
                yield _Measure(name, sentence, cells, shares)


def _longer(column: ColumnProfile) -> dict[int, int]:
    """Return how many cells of a column are longer than each length."""
    up_to = accumulate(column.lengths.get(length, 0) for length in range(KEPT))
    return {length: column.filled - cells for length, cells in enumerate(up_to)}
