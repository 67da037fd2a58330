"""The verdicts of a report, on a run and across an issuer's runs, each with its exit code."""

from typing import NamedTuple


class Verdict(NamedTuple):
    """What a verdict stands for: the exit code, the tone of its page, and what it says of a run."""

    exit_code: int
    tone: str
    sentence: str = ""


BALANCED = "balanced"
WAITING = "balanced, answers awaited"
ABOVE_LIMIT = "balanced, rejects or errors above the limit"
OUT_OF_BALANCE = "out of balance"
OF_A_RUN = {
    BALANCED: Verdict(
        0,
        "good",
        "Every row of the extract is accounted for, and no row sent waits for an answer.",
    ),
    WAITING: Verdict(
        0, "wait", "Every row of the extract is accounted for; some rows sent have no answer yet."
    ),
    ABOVE_LIMIT: Verdict(
        3,
        "warn",
        "Every row is accounted for, but more rows failed than the issuer's limits allow.",
    ),
    OUT_OF_BALANCE: Verdict(
        4,
        "bad",
        "The numbers do not add up: see the breaks and the control totals that differ.",
    ),
}

CLEAR = "nothing outstanding"
AWAITED = "answers awaited"
OVERDUE = "answers overdue"
ACROSS_RUNS = {
    CLEAR: Verdict(0, "good"),
    AWAITED: Verdict(0, "wait"),
    OVERDUE: Verdict(3, "warn"),
    OUT_OF_BALANCE: Verdict(4, "bad"),
}
