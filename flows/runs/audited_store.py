"""A store whose writes are in the journal: what matters for good is named there by its digest.

Such an object is created once and never replaced. It is named before it is written, and noted as
written after. So what is there and has no name was put there by somebody else, what was written and
is gone was removed, and what is named alone is what a killed process was about to write.
"""

from datetime import timedelta
from typing import Final

from flows.errors import CardlinkError
from flows.runs.adapters import Adapters
from flows.runs.identity import digest
from flows.runs.journal import Act, enter
from flows.runs.named_objects import is_named
from flows.runs.store import Store, read_if_stored

WRITING: Final = "writing"  # of an entry whose fact `objects` has digests by key
WRITTEN: Final = "written"  # of the entry after that, with the same fact
FAILED: Final = "not written"  # instead of that, where the store refused; it may be there after all
# after that long, what is named and not there is not about to be written any more
UNDER_WAY: Final = timedelta(minutes=15)


def audited(adapters: Adapters) -> Adapters:
    """Return adapters whose store enters in the journal what it writes of what `is_named`.

    Otherwise the store is like theirs. It may not write while a transaction is open.
    """
    below = adapters.store

    def create(_: Store, key: str, data: bytes) -> bool:
        """Write `key` unless it exists, as a store does."""
        if not is_named(key):
            return below.create(key, data)
        if read_if_stored(below, key, 0) is not None:
            return False
        sha256 = digest(data)
        _name(adapters, WRITING, key, sha256)
        try:
            is_created = below.create(key, data)
        except CardlinkError:
            _name(adapters, FAILED, key, "")
            raise
        if is_created:
            _name(adapters, WRITTEN, key, sha256)
        return is_created

    own = {"create": create, "__repr__": lambda _: repr(below)}
    kind = type("AuditedStore", (type(below),), own)
    store: Store = object.__new__(kind)
    store.__dict__ = below.__dict__  # everything else it can do, and is, stays its own
    return adapters._replace(store=store)


def _name(adapters: Adapters, word: str, key: str, sha256: str) -> None:
    """Enter an object in the journal."""

    def name(act: Act) -> None:
        act.facts["objects"] = {key: sha256}

    enter(adapters, key.partition("/")[0], word, name)
