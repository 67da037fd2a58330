"""Where every chunk of a run lies now: as it was committed, or as it was sealed anew since."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from flows.core.names import RunKeys
from schemas.manifest import Manifest, ManifestChunk
from schemas.mended import Reseal


class Lying(NamedTuple):
    """One chunk as it counts now: its object's size and digest, its key, and whom it is sealed to."""

    chunk: ManifestChunk
    key: str
    recipients: tuple[str, ...]


def in_effect(keys: RunKeys, manifest: Manifest, reseals: Iterable[Reseal]) -> dict[int, Lying]:
    """Return the chunks of a run by number; of several sealings of one the last counts."""
    found = {one.number: Lying(one, keys.chunks + one.name, manifest.recipients) for one in manifest.chunks}
    for reseal in reseals:
        place = keys.sealed(reseal.generation)
        found |= {one.number: Lying(one, place + one.name, reseal.recipients) for one in reseal.chunks}
    return found
