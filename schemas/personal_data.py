"""Where personal data of a cardholder is kept, why, and until when: one entry for each place."""

from functools import cache
from typing import NamedTuple

from flows.extensions import hooks


class Place(NamedTuple):
    """A kind of object that names cardholders: what it has of each, why, and until when.

    `erased`: an erasure removes it; else it stays until its own end. `waits`: once others have
    confirmed that they do not use it any more.
    """

    holds: str
    why: str
    until: str
    erased: bool
    waits: bool = False


PLACES = {
    "extracts": Place(
        "all that the issuer wrote: name, address, e-mail, phone",
        "to make the request for a link",
        "the issuer's lifecycle rule; delete the person at the source, too",
        erased=False,
    ),
    "corrections": Place(
        "the fields of rows that somebody corrected",
        "to send these rows again",
        "the issuer's lifecycle rule",
        erased=False,
    ),
    "chunks": Place(
        "the row as it was sent, encrypted to the partner",
        "to be uploaded",
        "[retention] chunks_days after the last answer",
        erased=False,
    ),
    "results": Place(
        "what the partner wrote: cuid, last 4, link, error",
        "evidence of what the partner answered",
        "the issuer's lifecycle rule",
        erased=False,
    ),
    "ledger": Place(
        "cuid, last 4, expiry month, what was decided; of name and address a checksum of 32 bits",
        "to send nobody twice, and to say where each stands; book and reports repeat it",
        "[retention] ledger_days after the last answer",
        erased=True,
    ),
    "outcomes": Place(
        "cuid, last 4, personal link and its last day, the partner's reason",
        "so that links arrive; lists, pages and reports repeat it",
        "[retention] ledger_days after the last answer",
        erased=True,
    ),
    "single": Place(
        "cuid, last 4, expiry month, link, who requested it",
        "a link is never requested twice",
        "[retention] ledger_days; one that was typed in, until its link ends",
        erased=True,
    ),
    "placements": Place(
        "ids at the partner, whether the link was opened, merchants at which the card was placed",
        "the funnel",
        "[retention] ledger_days after the last answer",
        erased=True,
    ),
    "decisions": Place(
        "cuid and last 4, the reason that an operator typed, who decided",
        "decisions bind later runs, and are evidence of who decided",
        "not purged; an erasure leaves what was decided, and not about whom",
        erased=True,
    ),
    "unfinished": Place(
        "the ledger of a run that was never committed",
        "to go on with the run",
        "the run is abandoned, and purged",
        erased=False,
    ),
}


@cache
def places() -> dict[str, Place]:
    """Return all places by name, those of extensions too."""
    every = dict(PLACES)
    for of_extension in hooks("places"):
        every |= of_extension()
    return every


def place_of(name: str) -> Place:
    """Return a place by its name."""
    return places()[name]
