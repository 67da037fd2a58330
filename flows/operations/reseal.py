"""Reseal chunks of a run after a key rotation: same rows, same chunks, new ciphertext; the old is
deleted.

The rows are read again from the run's source, and each is compared with the ledger before it
counts.
"""

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

import polars as pl

from flows.errors import CardlinkError, OperatorError
from flows.extracts.delivery import open_extract
from flows.resend.corrections import by_row, cells_of
from flows.resend.selection import reopen_source
from flows.runs.chains import add_next, records
from flows.runs.chunks import OutboxChunk, State, stored_chunks
from flows.runs.claim import Lease, LeaseLostError, claimed
from flows.runs.context import IssuerContext
from flows.runs.documents import committed, planned, read_ledger
from flows.runs.events import record_event
from flows.runs.identity import differences, digest, row_settings
from flows.runs.keys import keys_of
from flows.runs.outbox import outbox, select_chunks
from flows.runs.prior_state import check_values
from flows.runs.sealing import Plain, Sealer
from flows.runs.store import Cleaner, Store, write_once
from flows.runs.threads import concurrently
from flows.runs.versions import refuse_newer
from flows.submissions.chunk_csv import write_chunk
from flows.submissions.plan import SettingsChangedError
from flows.submissions.publisher import PartialRunError
from flows.submissions.rows import RowScope, SelectedRows
from flows.submissions.scan import Scan
from flows.submissions.seal_records import GROUP
from schemas import ledger
from schemas.manifest import Manifest, ManifestChunk
from schemas.portal import CUID
from schemas.records import Reseal

CHECKS = ["name_check", "address_check"]
SAME = ["cuid", "last_4", "expiration", *CHECKS]
RECORD = ["row", "origin", "fate", "chunk", "position", *SAME]
FIRST = 5  # row numbers named

FITS: frozenset[State] = frozenset({"waiting", "held"})
FORM = frozenset({"portal.armor", "portal.compression"})  # settings of the message, not of its rows


class RowsDifferError(OperatorError):
    """The rows read again differ from those in the ledger."""

    message = "{run}: {count} rows read again are not those of the ledger (rows {rows}). Nothing was resealed."
    next_step = "Another version or setting built them: cancel these chunks, and `cardlink resubmit` their rows."


def reread_rows(
    context: IssuerContext, manifest: Manifest, numbers: Collection[int]
) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield number and rows of these chunks, rows in the order they were sent, each chunk once it
    is complete.

    Reads the whole source. Raises RowsDifferError, SourceGoneError, and what reading raises.
    """
    parts = read_ledger(context.adapters.store, keys_of(manifest.run), manifest.ledger, RECORD)
    chosen = pl.col("chunk").is_in(list(numbers)) & (pl.col("fate") == ledger.SUBMITTED)
    sent = pl.concat([part.filter(chosen).drop("fate") for part in parts])
    entry, source = reopen_source(context, manifest.run, manifest.source)
    picks = sent.select("row", origin=pl.coalesce("origin", "row"))
    scope = RowScope(
        selected=SelectedRows(picks, by_row(cells_of(context, manifest))), keep_cells=True
    )
    with open_extract(context, entry, source) as stream:
        scan = Scan(context, stream, source, manifest.as_of, scope)
        yield from _complete_chunks(manifest.run, scan, sent)


def _complete_chunks(
    run: str, scan: Scan, sent: pl.DataFrame
) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield the chunks that are complete; memory holds those begun."""
    sizes = sent.group_by("chunk").agg(pl.len().alias("size"))
    begun: list[pl.DataFrame] = []
    missing = sent["row"]
    for piece in scan:
        fresh = [_checked(run, rows, sent) for rows in piece.chunks]
        missing = missing.filter(
            ~missing.is_in(pl.concat([missing.clear(), *(one["row"] for one in fresh)]).implode())
        )
        begun += fresh
        if begun:
            rows = (
                pl.concat(begun)
                .join(sizes, on="chunk")
                .with_columns(pl.len().over("chunk").alias("read"))
            )
            whole = rows.filter(pl.col("read") == pl.col("size")).sort("chunk", "position")
            begun = [rows.filter(pl.col("read") < pl.col("size")).drop("size", "read")]
            yield from (
                (int(key[0]), part)
                for key, part in whole.partition_by("chunk", as_dict=True).items()
            )
    if len(missing):
        raise RowsDifferError(run=run, count=len(missing), rows=_named(missing))


def _checked(run: str, rows: pl.DataFrame, sent: pl.DataFrame) -> pl.DataFrame:
    """Return rows with their chunk and position from the ledger; RowsDifferError where they differ
    from it.
    """
    reported = check_values(rows.drop(CHECKS)).with_columns(cuid=CUID)
    beside = reported.join(
        sent.select("row", "chunk", "position", pl.col(SAME).name.prefix("ledger ")), on="row"
    )
    unlike = [
        pl.col(name).ne_missing(pl.col(f"ledger {name}"))
        & (pl.col(f"ledger {name}").is_not_null() | (name not in CHECKS))
        for name in SAME
    ]
    differing = beside.filter(pl.any_horizontal(unlike))
    if differing.height:
        raise RowsDifferError(run=run, count=differing.height, rows=_named(differing["row"]))
    return beside


def _named(rows: pl.Series) -> str:
    return ", ".join(map(str, rows.sort().head(FIRST)))


class Resealed(NamedTuple):
    """Chunks that were, or would be, resealed, and to which keys; old objects deleted, and old
    objects left.
    """

    chunks: tuple[int, ...]
    recipients: tuple[str, ...]
    retired: int = 0
    left: int = 0


def reseal(
    context: IssuerContext,
    cleaner: Cleaner,
    run: str,
    numbers: Collection[int],
    reason: str,
    *,
    dry_run: bool = False,
) -> Resealed:
    """Reseal waiting and held chunks: these, or all that are sealed to other keys than the settings
    name now.

    Every row is first read again and compared with the ledger; a dry run stops after that. Raises
    UnknownRunError, ChunkStateError, SettingsChangedError, SourceGoneError, RowsDifferError,
    PartialRunError.
    """
    signed, manifest = context.adapters.signed(reason), committed(context.adapters.store, run)
    refuse_newer(manifest, keys_of(run).manifest)
    keys, plan = keys_of(run), planned(context.adapters.store, run)
    if (
        changed := set(differences(plan.settings, row_settings(context.issuer, context.header)))
        - FORM
    ):
        raise SettingsChangedError(run=run, changed=", ".join(sorted(changed)))
    with context.sealer() as sealer:
        store, recipients = context.adapters.store, sealer.fingerprints
        stored = stored_chunks(store, manifest)
        fitting = [item.chunk.number for item in _fitting(context, run, numbers)]
        chosen = [
            number for number in fitting if numbers or stored[number].recipients != recipients
        ]
        for _ in reread_rows(context, manifest, chosen) if chosen else ():
            pass  # compares each row with the ledger
        if dry_run:
            return Resealed(tuple(chosen), recipients, len(_replaced(store, manifest, chosen)))
        with claimed(context.adapters, keys.claims) as claim:
            if chosen:
                _seal(context, manifest, chosen, sealer, claim, signed)
            retired, left = _delete_replaced(context, cleaner, manifest)
    return Resealed(tuple(chosen), recipients, retired, left)


def _fitting(context: IssuerContext, run: str, numbers: Collection[int]) -> list[OutboxChunk]:
    return select_chunks(outbox(context.adapters, run), run, FITS, "sealed anew", numbers)


def _seal(
    context: IssuerContext,
    manifest: Manifest,
    numbers: Sequence[int],
    sealer: Sealer,
    claim: Lease,
    signed: Mapping[str, Any],
) -> None:
    """Publish new ciphertext under its own prefix, and commit it if the chunks are still waiting or
    held.
    """
    store, keys = context.adapters.store, keys_of(manifest.run)
    chain = list(records(store, keys.reseals, Reseal))
    folders = (
        one.key.rstrip("/").rpartition("/")[2] for one in store.keys(keys.resealed, shallow=True)
    )
    # by earlier attempts, complete or not
    begun = [int(name) for name in folders if name.isdecimal()]
    generation = max([*begun, *(one.generation for one in chain)], default=0) + 1
    chunks: list[ManifestChunk] = []
    read_again = reread_rows(context, manifest, numbers)
    while group := list(islice(read_again, GROUP)):
        claim.check()
        chunks += _publish(context, sealer, manifest, keys.sealed(generation), group)
    _fitting(context, manifest.run, numbers)  # nobody has uploaded one meanwhile
    ordered, sealed_to = tuple(sorted(chunks, key=lambda one: one.number)), sealer.fingerprints
    record = Reseal(
        **signed, run=manifest.run, generation=generation, recipients=sealed_to, chunks=ordered
    )
    if not add_next(store, keys.reseals, len(chain) + 1, record):
        raise LeaseLostError(prefix=keys.claims)


def _publish(
    context: IssuerContext,
    sealer: Sealer,
    manifest: Manifest,
    place: str,
    group: Sequence[tuple[int, pl.DataFrame]],
) -> Iterator[ManifestChunk]:
    """Seal a group of chunks and publish each create-only, verified; PartialRunError where gpg
    fails on one.
    """
    store, keys, names = (
        context.adapters.store,
        keys_of(manifest.run),
        {one.number: one.name for one in manifest.chunks},
    )
    plain = [
        Plain(keys.chunk_name(number, "csv"), write_chunk(rows["text"], context.header))
        for number, rows in group
    ]
    sealed = sealer.seal(plain)
    if problems := Counter(one.trouble for one in sealed if one.trouble):
        why = ", ".join(f"{count} {code}" for code, count in problems.most_common())
        again = shlex.join(["cardlink", "mend", "reseal", manifest.run, "--reason", "WHY"])
        count = problems.total()
        raise PartialRunError(
            run=manifest.run, count=count, reason=why, published=len(sealed) - count, command=again
        )
    places = [place + names[number] for number, _ in group]
    written = zip(places, sealed, strict=True)
    concurrently(
        lambda one: write_once(store, one[0], one[1].data), written, context.adapters.connections
    )
    for (number, rows), one in zip(group, sealed, strict=True):
        size, sha256 = len(one.data), digest(one.data)
        yield ManifestChunk(
            number=number, name=names[number], rows=rows.height, bytes=size, sha256=sha256
        )


def _replaced(store: Store, manifest: Manifest, numbers: Collection[int] = ()) -> list[str]:
    """Return the keys of a run's chunks that do not count any more, or will not once these numbers
    are resealed.
    """
    keys, chunks = keys_of(manifest.run), stored_chunks(store, manifest).values()
    current, names = (
        {one.key for one in chunks if one.chunk.number not in numbers},
        {one.chunk.name for one in chunks},
    )
    listed = (entry.key for prefix in (keys.chunks, keys.resealed) for entry in store.keys(prefix))
    return [key for key in listed if key not in current and key.rpartition("/")[2] in names]


def _delete_replaced(
    context: IssuerContext, cleaner: Cleaner, manifest: Manifest
) -> tuple[int, int]:
    """Delete replaced chunks and those of attempts that died; return how many were deleted and how
    many are left.

    Without the right to delete they are left: they have no effect, and are purged with the run's
    chunks.
    """
    keys, old = keys_of(manifest.run), _replaced(context.adapters.store, manifest)
    if old:
        record_event(
            context.adapters, keys, "retired", objects=[key.removeprefix(keys.base) for key in old]
        )
    deleted = 0
    for key in old:
        with suppress(CardlinkError):
            cleaner.delete(key)
            deleted += 1
    return deleted, len(old) - deleted
