"""Which extracts are not submitted yet."""

from __future__ import annotations

from fnmatch import fnmatchcase

from flows.core.extract.extract_errors import checked_name
from flows.core.names import extracts
from flows.core.ports import Entry
from flows.steps.edges import IssuerEdges
from flows.steps.runs import keys_of, plans, read_end
from schemas.manifest import Manifest
from schemas.mended import Abandoned


def pending(edges: IssuerEdges) -> list[Entry]:
    """Return the extracts that match [source] pattern and still need a run, oldest first; CardInNameError.

    One whose last run was abandoned needs none: an operator decided so, and asks for a new run by name.
    """
    store, issuer = edges.edges.store, edges.issuer
    prefix = extracts(issuer.issuer)
    there = [
        entry
        for entry in store.keys(prefix)
        if fnmatchcase(checked_name(entry.key.removeprefix(prefix)), issuer.source.pattern)
    ]
    ends: dict[tuple[str, int, str], list[Manifest | Abandoned | None]] = {}
    for plan in plans(store, issuer.issuer):
        if plan.selection is None:
            source = (plan.source.key, plan.source.size, plan.source.version)
            ends.setdefault(source, []).append(read_end(store, keys_of(plan.run)))
    done = {source for source, found in ends.items() if found[-1] or any(isinstance(end, Manifest) for end in found)}
    fresh = [entry for entry in there if (entry.key, entry.size, entry.version) not in done]
    return sorted(fresh, key=lambda entry: (entry.modified, entry.key))
