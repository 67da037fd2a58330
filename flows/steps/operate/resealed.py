"""The chunks of a run as they count now, read from its manifest and the records that some were sealed anew."""

from __future__ import annotations

from flows.core.ports import Store
from flows.core.run.resealed import Lying, in_effect
from flows.steps.records import records
from flows.steps.runs import keys_of
from schemas.manifest import Manifest
from schemas.mended import Reseal


def lying(store: Store, manifest: Manifest) -> dict[int, Lying]:
    """Return where every chunk of a committed run lies, by number."""
    keys = keys_of(manifest.run)
    return in_effect(keys, manifest, records(store, keys.reseals, Reseal))


def as_it_lies(store: Store, manifest: Manifest) -> Manifest:
    """Return a manifest with size and digest of its chunks as they count now."""
    return manifest.model_copy(update={"chunks": tuple(one.chunk for one in lying(store, manifest).values())})
