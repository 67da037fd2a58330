"""Which extracts are not submitted yet."""

from __future__ import annotations

from fnmatch import fnmatchcase

from flows.core.extract.extract_errors import checked_name
from flows.core.names import extracts
from flows.core.ports import Entry
from flows.steps.edges import IssuerEdges
from flows.steps.runs import keys_of, plans, read_manifest


def pending(edges: IssuerEdges) -> list[Entry]:
    """Return the extracts that match [source] pattern and have no committed run, oldest first; CardInNameError."""
    store, issuer = edges.edges.store, edges.issuer
    prefix = extracts(issuer.issuer)
    there = [
        entry
        for entry in store.keys(prefix)
        if fnmatchcase(checked_name(entry.key.removeprefix(prefix)), issuer.source.pattern)
    ]
    done = {
        (plan.source.key, plan.source.size, plan.source.version)
        for plan in plans(store, issuer.issuer)
        if plan.selection is None and read_manifest(store, keys_of(plan.run)) is not None
    }
    fresh = [entry for entry in there if (entry.key, entry.size, entry.version) not in done]
    return sorted(fresh, key=lambda entry: (entry.modified, entry.key))
