"""What every step is given: the issuer, its adapters, and how keys are opened.

A dry run is given one whose writes stay in memory.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from flows.database.rehearsed import Rehearsed
from flows.errors import BugError
from flows.runs.adapters import Adapters
from flows.runs.header import Header
from flows.runs.overlay import Overlay
from flows.runs.sealing import Opener, Sealer
from flows.runs.store import Store
from schemas.issuer import Issuer


@contextmanager
def _no_sealer(*_: str) -> Iterator[Sealer]:
    raise BugError(place="sealing", kind="no key of whom it is for")
    yield


class IssuerContext(NamedTuple):
    """One issuer and what its steps work with.

    `sealer` and `opener` are opened only where they are needed.
    """

    issuer: Issuer
    adapters: Adapters
    header: Header
    sealer: Callable[[], AbstractContextManager[Sealer]]
    opener: Callable[[], AbstractContextManager[Opener | None]]
    # digest of the key that `opener` has, '' without one
    opener_key: Callable[[], str] = lambda: ""
    # seals to a key of others, given its file beside the TOML and its fingerprint
    sealer_to: Callable[[str, str], AbstractContextManager[Sealer]] = _no_sealer
    # opens a place of others, as a `root` is written; None where nothing is written there
    place_of: Callable[[str], Store | None] = lambda _: None
    forms_url: str = ""  # where a browser finds the forms; "" where nobody says


def overlaid(context: IssuerContext) -> IssuerContext:
    """Return a context whose writes stay in memory; one that is so already as it is."""
    adapters = context.adapters
    if isinstance(adapters.store, Overlay):
        return context
    return context._replace(
        adapters=adapters._replace(
            store=Overlay(adapters.store, adapters.now()),
            database=Rehearsed(adapters.database),
        ),
        place_of=lambda _: None,
    )
