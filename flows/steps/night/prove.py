"""Before anything rests on a store: it was seen, once, to create an object for exactly one of many writers."""

from __future__ import annotations

import hashlib

from flows.core.names import probes
from flows.core.run.planning import canonical
from flows.core.storage.store_errors import ObjectMissingError
from flows.steps.edges import IssuerEdges, read, write_once


def prove(edges: IssuerEdges) -> None:
    """Race writers on a store not yet proved, and remember that it passed; StoreUnsafeError refuses the store.

    The proof is bound to what the store calls itself, so that objects copied elsewhere prove nothing there.
    """
    store, prefix = edges.edges.store, probes(edges.issuer.issuer)
    itself = repr(store)
    key = f"{prefix}passed-{hashlib.sha256(itself.encode()).hexdigest()[:16]}.json"
    try:
        read(store, key)
    except ObjectMissingError:
        edges.edges.probe(store, prefix)
        write_once(store, key, canonical({"store": itself}))
