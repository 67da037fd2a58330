"""The merchant sites of the practice service: what each asks, and how a placement there ends.

An answer is right unless it is the word `wrong`; an acknowledgement is right only as `ack`
(interface.md 2.5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

WRONG: Final = "wrong"
ACK: Final = "ack"
NEVER_STARTED: Final = "NEVER_STARTED"


class Field(NamedTuple):
    """A property descriptor (interface.md 2.4)."""

    key_name: str
    label: str
    secret: bool


class Ask(NamedTuple):
    """One credential request of a site: what it says, and the fields it collects.

    It has one type in messages, and another when it is polled.
    """

    type: str
    polled: str
    says: str
    fields: tuple[Field, ...]

    def lacks(self, answers: Mapping[str, str]) -> tuple[str, ...]:
        """Return the key names that `answers` does not hold."""
        if self is ACKNOWLEDGEMENT:
            return () if {"tfa", "tfa_message"} & answers.keys() else ("tfa",)
        return tuple(field.key_name for field in self.fields if not answers.get(field.key_name))

    def right(self, answers: Mapping[str, str]) -> bool:
        """Return whether the site takes these answers."""
        if self is ACKNOWLEDGEMENT:
            return ACK in (answers.get("tfa"), answers.get("tfa_message"))
        return WRONG not in (answers[field.key_name] for field in self.fields)


class End(NamedTuple):
    """How a job ends, what the site says, and whether that is after authentication."""

    status: str
    termination_type: str
    says: str
    authenticated: bool = False


class Site(NamedTuple):
    """A merchant site: what it asks, initial credentials first, and how a placement ends."""

    name: str
    asks: tuple[Ask, ...]
    end: End


SUCCESSFUL: Final = End("SUCCESSFUL", "BILLABLE", "Your card has been placed.", True)
DUPLICATE: Final = End(
    "DUPLICATE_CARD", "USER_DATA_FAILURE", "This card is on the site already.", True
)
SITE_FAILURE: Final = End(
    "UNSUCCESSFUL", "SITE_INTERACTION_FAILURE", "The site did not take the card.", True
)
PROCESS_FAILURE: Final = End(
    "PROCESS_FAILURE", "PROCESS_FAILURE", "Something went wrong on our side."
)
# a fifth type, seen in the wild
IDLE: Final = End(NEVER_STARTED, NEVER_STARTED, "The placement was never started.")
TIMEOUT: Final = End("TIMEOUT_TFA", "USER_DATA_FAILURE", "The time to answer has run out.")
TOO_MANY_TRIES: Final = End(
    "TOO_MANY_TRIES", "USER_DATA_FAILURE", "The site refused the answers too often."
)

USERNAME: Final = Field("username", "User name", secret=False)
EMAIL: Final = Field("email", "E-mail address", secret=False)
PASSWORD: Final = Field("password", "Password", secret=True)
PIN: Final = Field("pin", "PIN of your account", secret=True)


def credentials(*fields: Field) -> Ask:
    """Return the request for the initial credentials of a site."""
    return Ask("initial_account_link", "initial_account_link", "Sign in to the site.", fields)


CODE: Final = Ask(
    "tfa_request",
    "tfa",
    "The site asks for a code.",
    (Field("tfa", "Code sent to the phone ending in 00", secret=True),),
)
ACKNOWLEDGEMENT: Final = Ask(
    "tfa_message",
    "tfa_message",
    "The site has sent you a message.",
    (Field("tfa_message", "Open the link in the message sent to your phone", secret=False),),
)
QUESTIONS: Final = Ask(
    "security",
    "security",
    "The site asks security questions.",
    (
        Field("security_1", "Name of your first pet", secret=True),
        Field("security_2", "Street you grew up in", secret=True),
    ),
)

SITES: Final[dict[str, Site]] = {
    site.name: site
    for site in (
        Site("shop.example.com", (credentials(USERNAME, PASSWORD),), SUCCESSFUL),
        Site("video.example.com", (credentials(EMAIL, PASSWORD), CODE), SUCCESSFUL),
        Site("music.example.com", (credentials(EMAIL, PASSWORD, PIN), ACKNOWLEDGEMENT), SUCCESSFUL),
        Site("travel.example.com", (credentials(USERNAME, PASSWORD), QUESTIONS), SUCCESSFUL),
        Site("market.example.com", (credentials(USERNAME, PASSWORD), CODE, QUESTIONS), SUCCESSFUL),
        Site("again.example.com", (credentials(USERNAME, PASSWORD),), DUPLICATE),
        Site("broken.example.com", (credentials(USERNAME, PASSWORD),), SITE_FAILURE),
        Site("down.example.com", (credentials(USERNAME, PASSWORD),), PROCESS_FAILURE),
        Site("idle.example.com", (credentials(USERNAME, PASSWORD),), IDLE),
    )
}
