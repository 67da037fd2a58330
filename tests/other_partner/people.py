"""Cardholders: what each does with a link, and how the jobs of the sites they choose go."""

from __future__ import annotations

from typing import NamedTuple


class Request(NamedTuple):
    """A credential request: its type, what it asks for, and who answers it."""

    kind: str
    keys: tuple[tuple[str, str, bool], ...]
    status: str
    cardholder_answers: bool = True


class Stage(NamedTuple):
    """A step of a job: seconds after the step before, and what the record says from then."""

    after: float
    status: str
    percent: int
    auth: int
    text: str = ""
    termination: str | None = None
    request: Request | None = None


FIRST = Request(
    "initial_account_link",
    (("username", "User name or e-mail", False), ("password", "Password", True)),
    "PENDING_NEWCREDS",
)
CODE = Request("tfa_request", (("tfa", "Enter the code we sent to ***-**12", False),), "PENDING")
TAP = Request(
    "tfa_message", (("tfa", "Open the message we sent you and tap Yes", False),), "PENDING"
)
TAP_BY_CLIENT = TAP._replace(cardholder_answers=False)
QUESTION = Request("security", (("security_1", "Name of your first pet", True),), "PENDING")


def asks(request: Request, percent: int, auth: int) -> Stage:
    """Return the stage at which a job stops for a request."""
    return Stage(1, request.status, percent, auth, request.keys[0][1], request=request)


START = Stage(0, "AUTH", 5, 10, "Signing in")
WORK = Stage(1, "UPDATING", 60, 100, "Placing your card")
DONE = Stage(2, "SUCCESSFUL", 100, 100, "Your card is in place", "BILLABLE")

JOBS: dict[str, tuple[Stage, ...]] = {
    "plain": (START, asks(FIRST, 10, 30), Stage(1, "VERIFYING_DEVICE", 30, 70), WORK, DONE),
    "code": (START, asks(FIRST, 10, 30), asks(CODE, 20, 60), WORK, DONE),
    "tap": (START, asks(FIRST, 10, 30), asks(TAP, 20, 60), WORK, DONE),
    "tap by client": (START, asks(FIRST, 10, 30), asks(TAP_BY_CLIENT, 20, 60), WORK, DONE),
    "question": (START, asks(QUESTION, 20, 60), WORK, DONE),
    "wrong password": (
        START,
        asks(FIRST, 10, 30),
        Stage(1, "AUTH_FAILURE", 15, 40, "Sign-in was refused", "USER_DATA_FAILURE"),
    ),
    "duplicate": (
        START,
        WORK,
        Stage(1, "DUPLICATE_CARD", 80, 100, "The card is there", "PROCESS_FAILURE"),
    ),
    "site down": (
        START,
        Stage(1, "SITE_UNAVAILABLE", 10, 20, "Site is down", "SITE_INTERACTION_FAILURE"),
    ),
}


class Cardholder(NamedTuple):
    """What a cardholder does: seconds until the link is opened, and the sites they choose."""

    opens_after: float | None
    verifies: bool = True
    sites: tuple[tuple[str, str], ...] = ()


PEOPLE: tuple[Cardholder, ...] = (
    Cardholder(2, sites=(("shop.example", "plain"),)),
    Cardholder(3, sites=(("video.example", "tap"), ("rides.example", "code"))),
    Cardholder(2, sites=(("shop.example", "wrong password"),)),
    Cardholder(None),
    Cardholder(4, verifies=False),
    Cardholder(2, sites=(("music.example", "question"),)),
    Cardholder(5, sites=(("rides.example", "site down"), ("shop.example", "plain"))),
    Cardholder(3, sites=(("video.example", "duplicate"),)),
    Cardholder(4),
    Cardholder(2, sites=(("video.example", "tap by client"),)),
)
