"""How few rows an extract may have, and how many lines that are none, by those before it.

A file that was cut off has fewer rows; one whose rows are taken for comments has more lines aside.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, sqrt
from statistics import median
from typing import Final

from flows.runs.stored_runs import Night
from schemas.issuer import Limits

# How far below the lowest of the last runs is too far, as a share of the median, and after how
# many runs.
PORTFOLIO_FALL: Final = 0.1
PORTFOLIO_NIGHTS: Final = 3  # two show no usual size
DELTA_FALL: Final = 0.25
DELTA_NIGHTS: Final = 7  # so that each day of a week was seen


def fewest_rows(before: Sequence[int], limits: Limits, *, full_portfolio: bool) -> int:
    """Return the fewest rows that an extract may have after those `before` it; 0: any number.

    `max_row_fall` says it. Without that it is learned: a portfolio hardly changes from night to
    night, the numbers of deltas differ as much as they did.
    """
    needed = PORTFOLIO_NIGHTS if full_portfolio else DELTA_NIGHTS
    usual = round(median(before)) if before else 0
    if limits.max_row_fall is not None:
        fixed = ceil((1 - limits.max_row_fall) * usual)
        return fixed if len(before) >= PORTFOLIO_NIGHTS else 0
    if len(before) < needed or limits.max_row_jump >= 1:
        return 0
    chance = 3 * sqrt(usual)  # three standard deviations of a count
    if full_portfolio:
        margin = max(PORTFOLIO_FALL * usual, chance)
    else:
        margin = max(DELTA_FALL * usual, chance, usual - min(before))
    return max(0, ceil(min(before) - margin))


def unusual_lines(set_aside: Mapping[str, int] | None, nights: Sequence[Night]) -> Iterator[str]:
    """Yield which kinds of lines that are no rows are more than in all these nights.

    They may be as many more as those nights differ. Lines of long records vary with what is typed.
    """
    before = [night.set_aside for night in nights if night.set_aside is not None]
    if set_aside is None or len(before) < PORTFOLIO_NIGHTS:
        return
    for kind in ("header", "comment", "blank", "trailer"):
        usual = [lines.get(kind, 0) for lines in before]
        number = set_aside.get(kind, 0)
        if number > 2 * max(usual) - min(usual):
            yield f"{kind} lines: {number:,}, usually {min(usual):,} to {max(usual):,}"
