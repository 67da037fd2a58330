"""Reading a foreign text takes time in proportion to its length, whatever is in it.

Times are compared with each other, never with a clock: eight times the text may take three times
its share; quadratic work would take eight times its share.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from flows.harmless import harmless
from flows.redaction import redact, shows_secret
from flows.results.error_text import parse_error
from flows.results.links import LinkRules, judge_link
from flows.results.masking import mask_host

SHORT = 1_000
TIMES = 8
TOLERANCE = 3
MEASURABLE = 0.02  # CPU seconds of the long text; nothing below it is quadratic
HOSTS = LinkRules(("links.example.com",))
READERS: dict[str, Callable[[str], object]] = {
    "redact": redact,
    "shows_secret": shows_secret,
    "harmless": harmless,
    "parse_error": parse_error,
    "judge_link": lambda text: judge_link(f"https://links.example.com/{text}", "1234", HOSTS),
    "mask_host": mask_host,
}
# each was quadratic in something once, or is near to what was
UNITS = ["1-", "1------", "2026-11-20", "ab-", "<a", "card hash ", "cuid:'", "\\u0031"]
PIECES = ["1", "-", "a", "@", ".", "{", "[", '"', "'", "\\", "<", "&#", "%31", "cvv", "0", "/", " "]


def cost(read: Callable[[str], object], text: str, times: int) -> float:
    """Return the CPU seconds of reading a text, the least of so many times; none is cached."""
    costs = []
    for number in range(times):
        began = time.process_time()
        read(f"{text}{number}")
        costs.append(time.process_time() - began)
    return min(costs)


def is_out_of_proportion(read: Callable[[str], object], unit: str) -> bool:
    long = (unit * SHORT * TIMES)[: SHORT * TIMES]
    for times in (1, 5):  # another process may come between
        of_long = cost(read, long, times)
        if of_long < MEASURABLE or of_long < TOLERANCE * TIMES * cost(read, long[:SHORT], times):
            return False
    return True


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("read", [redact, harmless, parse_error], ids=["log", "text", "error"])
def test_no_text_takes_more_than_its_share(read: Callable[[str], object], unit: str) -> None:
    assert not is_out_of_proportion(read, unit)


@pytest.mark.slow
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_nor_does_one_of_pieces_drawn_at_random(read: Callable[[str], object]) -> None:
    draw = random.Random(35)
    units = ["".join(draw.choices(PIECES, k=draw.choice((1, 2, 3, 4)))) for _ in range(300)]

    assert [] == [unit for unit in units if is_out_of_proportion(read, unit)]
