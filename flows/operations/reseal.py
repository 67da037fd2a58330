"""Reseal chunks of a run after a key rotation: same rows, same chunks, new ciphertext.

The rows are read again from the run's source, and each is compared with the ledger before it
counts; the old ciphertext is deleted.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Any, NamedTuple

import polars as pl

from flows.errors import CardlinkError
from flows.operations.reread import reread_rows
from flows.runs.chunks import OutboxChunk, State
from flows.runs.claim import Lease, LeaseLostError, claimed, work_on
from flows.runs.context import IssuerContext
from flows.runs.decisions import RESEAL, decide
from flows.runs.events import record_event
from flows.runs.identity import differences, digest, row_settings
from flows.runs.journal import Act, enter
from flows.runs.outbox import select_chunks
from flows.runs.sealing import Plain, Sealed, Sealer
from flows.runs.store import Cleaner, write_once
from flows.runs.stored_run import StoredRun
from flows.runs.threads import concurrently
from flows.steps import WHY, Step
from flows.submissions.chunk_csv import write_chunk
from flows.submissions.plan import SettingsChangedError
from flows.submissions.publisher import GROUP, PartialRunError
from schemas.manifest import ManifestChunk, Plan
from schemas.records import Reseal

FITS: frozenset[State] = frozenset({"waiting", "held"})
FORM = frozenset({"portal.armor", "portal.compression"})  # settings of the message, not of its rows


class Resealed(NamedTuple):
    """Chunks that were, or would be, resealed, and to which keys.

    Old objects were `retired` (deleted), or are `left`.
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
    """Reseal chunks that wait or are on hold: these, or all sealed to other keys than now set.

    Every row is first read again and compared with the ledger; a dry run stops after that. Raises
    UnknownRunError, ChunkStateError, SettingsChangedError, SourceGoneError, RowsDifferError,
    PartialRunError.
    """
    signed = context.adapters.signed(reason)
    stored_run = StoredRun.by_id(context.adapters, run)
    _refuse_other_settings(context, stored_run.planned())
    with context.sealer() as sealer:
        recipients = sealer.fingerprints
        chosen = _chosen(stored_run, numbers, recipients)
        if chosen:
            _compare_with_ledger(context, stored_run, chosen)
        if dry_run:
            return Resealed(chosen, recipients, len(_replaced(stored_run, chosen)))
        with claimed(context.adapters, work_on(context.adapters, run)) as claim:
            if chosen:
                _seal(context, stored_run.fresh(), chosen, sealer, claim, signed)
            retired, left = _delete_replaced(context, cleaner, stored_run.fresh())
    return Resealed(chosen, recipients, retired, left)


def _refuse_other_settings(context: IssuerContext, plan: Plan) -> None:
    changed = set(differences(plan.settings, row_settings(context.issuer, context.header))) - FORM
    if changed:
        raise SettingsChangedError(run=plan.run, changed=", ".join(sorted(changed)))


def _chosen(
    run: StoredRun, numbers: Collection[int], recipients: tuple[str, ...]
) -> tuple[int, ...]:
    """Return these chunks; where none is named, those sealed to other keys."""
    fitting = [chunk.chunk.number for chunk in _fitting(run, numbers)]
    if numbers:
        return tuple(fitting)
    sealed = run.sealed_chunks
    return tuple(number for number in fitting if sealed[number].recipients != recipients)


def _fitting(run: StoredRun, numbers: Collection[int]) -> list[OutboxChunk]:
    return select_chunks(run.outbox, run.id, FITS, "sealed anew", numbers)


def _compare_with_ledger(context: IssuerContext, run: StoredRun, numbers: Collection[int]) -> None:
    for _ in reread_rows(context, run, numbers):
        pass  # each row is compared as it is read


def _seal(
    context: IssuerContext,
    run: StoredRun,
    numbers: Sequence[int],
    sealer: Sealer,
    claim: Lease,
    signed: Mapping[str, Any],
) -> None:
    """Publish new ciphertext under its own prefix, and commit it.

    It is committed if the chunks still wait or are on hold.
    """
    seen = run.reseals
    generation = _next_generation(run)
    place = run.keys.sealed(generation)
    chunks: list[ManifestChunk] = []
    chunk_rows = reread_rows(context, run, numbers)
    while group := list(islice(chunk_rows, GROUP)):
        claim.check()
        chunks += _publish(context, sealer, run, place, group)
    _fitting(run.fresh(), numbers)  # nobody has uploaded one meanwhile
    record = Reseal(
        **signed,
        run=run.id,
        generation=generation,
        recipients=sealer.fingerprints,
        chunks=tuple(sorted(chunks, key=lambda chunk: chunk.number)),
    )

    def work(act: Act) -> None:
        now = StoredRun(context.adapters.within(act.connection), run.keys)
        if now.reseals != seen:
            raise LeaseLostError(subject=run.id)
        claim.check_epoch(act.connection)
        decide(act, RESEAL, run.id, record, stands=str(generation))

    enter(context.adapters, run.issuer, "chunks sealed anew", work, run=run.id)


def _next_generation(run: StoredRun) -> int:
    """Return a number that no attempt used, complete or not."""
    folders = run.store.keys(run.keys.resealed, shallow=True)
    names = [folder.key.rstrip("/").rpartition("/")[2] for folder in folders]
    begun = [int(name) for name in names if name.isdecimal()]
    recorded = [reseal.generation for reseal in run.reseals]
    return max([*begun, *recorded], default=0) + 1


def _publish(
    context: IssuerContext,
    sealer: Sealer,
    run: StoredRun,
    place: str,
    group: Sequence[tuple[int, pl.DataFrame]],
) -> list[ManifestChunk]:
    """Seal a group of chunks and publish each create-only, verified.

    PartialRunError where gpg fails on one.
    """
    names = {chunk.number: chunk.name for chunk in run.committed().chunks}
    plain = [
        Plain(run.keys.chunk_name(number, "csv"), write_chunk(rows["text"], context.header))
        for number, rows in group
    ]
    messages = sealer.seal(plain)
    _refuse_failed(run, messages)
    chunks = [
        ManifestChunk(
            number=number,
            name=names[number],
            rows=rows.height,
            bytes=len(message.data),
            sha256=digest(message.data),
        )
        for (number, rows), message in zip(group, messages, strict=True)
    ]
    contents = {
        place + chunk.name: message.data for chunk, message in zip(chunks, messages, strict=True)
    }
    concurrently(
        lambda key: write_once(run.store, key, contents[key]),
        contents,
        context.adapters.connections,
    )
    return chunks


def _refuse_failed(run: StoredRun, messages: Sequence[Sealed]) -> None:
    problems = Counter(message.trouble for message in messages if message.trouble)
    if not problems:
        return
    reason = ", ".join(f"{count} {code}" for code, count in problems.most_common())
    raise PartialRunError(
        run=run.id,
        count=problems.total(),
        reason=reason,
        command=Step("mend reseal", run.id, reason=WHY),
    )


def _replaced(run: StoredRun, numbers: Collection[int] = ()) -> list[str]:
    """Return the keys of a run's chunks that do not count any more.

    Or will not, once these numbers are resealed.
    """
    chunks = run.sealed_chunks.values()
    current = {stored.key for stored in chunks if stored.chunk.number not in numbers}
    names = {stored.chunk.name for stored in chunks}
    entries = chain(run.store.keys(run.keys.chunks), run.store.keys(run.keys.resealed))
    return [
        entry.key
        for entry in entries
        if entry.key not in current and entry.key.rpartition("/")[2] in names
    ]


def _delete_replaced(context: IssuerContext, cleaner: Cleaner, run: StoredRun) -> tuple[int, int]:
    """Delete replaced chunks and those of attempts that died.

    Return how many were deleted and how many are left. Without the right to delete they are left:
    they have no effect, and are purged with the run's chunks.
    """
    old = _replaced(run)
    if old:
        objects = [key.removeprefix(run.keys.base) for key in old]
        record_event(context.adapters, run.keys, "retired", chunks=objects)
    deleted = 0
    for key in old:
        with suppress(CardlinkError):
            cleaner.delete(key)
            deleted += 1
    return deleted, len(old) - deleted
