"""Acknowledge extracts: tell the issuer what became of each, as files that it can read by program.

What was told of an extract is replaced by what is told of it later. The files are written first,
into a folder of their own, then the record, which pins their bytes; `done.json` comes last and is
the record again, so whoever reads takes only folders that have one. Of two processes one wins; what
the other wrote is in a folder without `done.json`, which counts for nothing.

An extract is told of again once its report says something else: what is in the record by digest.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import polars as pl

from flows.book.book import read_book
from flows.book.known_runs import KnownRuns, known_runs
from flows.book.people import counted_cards
from flows.errors import TryAgainError
from flows.operations.acknowledged_rows import (
    CARDS,
    acknowledged_rows,
    reason_totals,
    totals,
)
from flows.operations.handing_over import (
    copy_to,
    digests_in_receipts,
    place_lines,
    sealed,
    sealer_of,
)
from flows.redaction import redact
from flows.resend.template import correction_template
from flows.results.masking import mask_key
from flows.runs.business_date import local_day
from flows.runs.chains import add_next, last_record, records
from flows.runs.context import IssuerContext
from flows.runs.errors import NotFoundError
from flows.runs.frames import csv_pieces
from flows.runs.identity import canonical, digest
from flows.runs.keys import acknowledgements, link
from flows.runs.sealing import Sealer
from flows.runs.store import Store, read_if_stored
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.told import confirmations, last_confirmed
from flows.runs.versions import read_document
from flows.steps import Step
from schemas.acknowledgement import (
    AcknowledgedRows,
    AcknowledgementHead,
    FileTotals,
    status_of,
)
from schemas.corrections import Template
from schemas.records import Acknowledgement, Confirmed

JSON = "acknowledgement.json"
CSV = "acknowledgement.csv"
CORRECTIONS = "corrections.csv"
REJECTS = "rejects.csv"
DONE = "done.json"
RECEIVED = "received"
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class AcknowledgedMeanwhileError(TryAgainError):
    """Another process has just written the next acknowledgement."""

    message = (
        "Acknowledgement {number} of {issuer} was written meanwhile by another command; "
        "this one counts for nothing."
    )
    next_step = "Run {same_command} again: it tells the issuer what is new after that one."


class Told(NamedTuple):
    """An acknowledgement that was written, and its number."""

    number: int
    record: Acknowledgement


class _Due(NamedTuple):
    """A run about which the issuer is to be told something, by the digest of that."""

    run: StoredRun
    says: str


def acknowledge(context: IssuerContext) -> list[Told]:
    """Tell the issuer of every extract about which there is something new; nothing where it wants
    none.

    Raises AcknowledgedMeanwhileError, NotSealedError.
    """
    if context.issuer.acknowledgement is None:
        return []
    store = context.adapters.store
    issuer = context.issuer.issuer
    number, last = last_record(store, acknowledgements(issuer), Acknowledgement)
    if last is not None:
        _hand_out(context, last)
    open_runs = {due.run.id: due for due in _open(store, issuer)}
    known = {run: says for run, says in (last.told if last else {}).items() if run in open_runs}
    news = [due for run, due in open_runs.items() if known.get(run) != due.says]
    if not news:
        return []
    written: list[Told] = []
    cards = _cards(context)
    with sealer_of(context, context.issuer.acknowledgement) as sealer:
        for due in news:
            number += 1
            known[due.run.id] = due.says
            written.append(_tell(context, due.run, cards, sealer, number, dict(known)))
    return written


def not_told(context: IssuerContext, until: datetime) -> list[str]:
    """Return the runs of which the issuer was not told what has been known since then."""
    store = context.adapters.store
    issuer = context.issuer.issuer
    _, last = last_record(store, acknowledgements(issuer), Acknowledgement)
    known = last.told if last else {}
    news = [due.run for due in _open(store, issuer) if known.get(due.run.id) != due.says]
    return [run.id for run in news if _last_event(run) < until]


def _last_event(run: StoredRun) -> datetime:
    return max((entry.modified for entry in run.event_entries), default=LONG_AGO)


def confirm(context: IssuerContext, number: int, reason: str) -> Confirmed:
    """Record that the issuer has an acknowledgement and those before it; return the record.

    Raises NotFoundError where there is none of that number, NoReasonError.
    """
    store = context.adapters.store
    issuer = context.issuer.issuer
    prefix = acknowledgements(issuer)
    if read_document(store, link(prefix, number), Acknowledgement) is None:
        step = Step("acknowledge", issuer)
        raise NotFoundError(place=issuer, what=f"acknowledgement {number}", command=step)
    confirmed = Confirmed(**context.adapters.signed(reason))
    key = link(confirmations(issuer), number)
    store.create(key, canonical(confirmed))
    return read_document(store, key, Confirmed) or confirmed


def take_receipts(context: IssuerContext) -> int:
    """Record the newest receipt that the issuer dropped; return the last confirmed number, or 0.

    A receipt is a file `received` in the folder of an acknowledgement that names the SHA-256 of its
    files. It counts for those before, too.
    """
    prefix = acknowledgements(context.issuer.issuer)
    store = context.adapters.store
    confirmed = last_confirmed(store, context.issuer.issuer)
    later = list(records(store, prefix, Acknowledgement, confirmed + 1))
    for number in range(confirmed + len(later), confirmed, -1):
        if _is_receipted(context, later[number - confirmed - 1]):
            confirm(context, number, "receipt of the issuer")
            return number
    return confirmed


def check_place(context: IssuerContext) -> list[str]:
    """Return what is fine about telling the issuer: its key, and the place where it takes files."""
    settings = context.issuer.acknowledgement
    if settings is None:
        return []
    return place_lines(context, settings)


# What is new
# --------------------------------------------------------------------------------------------------


def _open(store: Store, issuer: str) -> Iterator[_Due]:
    """Yield the runs of whole extracts about which something is open, and what is to be said."""
    known = known_runs(store, issuer)
    runs = StoredRuns(store, issuer)
    whole = [plan for plan in known.committed if plan.is_whole and plan.run not in known.closed]
    for plan in whole:
        run = StoredRun.by_id(store, plan.run)
        if run.purged_ledger is None:
            yield _Due(run, _says(run))
    for refused, moment in _refused(runs, known).items():
        yield _Due(StoredRun.by_id(store, refused), digest(f"refused {moment}".encode()))


def _refused(runs: StoredRuns, known: KnownRuns) -> Mapping[str, str]:
    committed = known.committed
    extracts = {plan.key for plan in committed if plan.is_whole}
    return runs.refused({plan.run for plan in committed}, extracts)


def _says(run: StoredRun) -> str:
    """Return the digest of what a run's report says of its rows."""
    summary = run.summary or {}
    rows = {name: summary.get(name) for name in ("rows", "attempts", "reasons")}
    return digest(canonical({**rows, "sha256": run.committed().source.sha256}))


def _cards(context: IssuerContext) -> pl.DataFrame:
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    book = read_book(context.adapters.store, context.issuer.issuer)
    return counted_cards(book.cards(today)).select(CARDS)


# Writing one
# --------------------------------------------------------------------------------------------------


def _tell(
    context: IssuerContext,
    run: StoredRun,
    cards: pl.DataFrame,
    sealer: Sealer | None,
    number: int,
    known: dict[str, str],
) -> Told:
    """Write the acknowledgement of a run as that number; `known`: what each open run says now."""
    file, plain = _contents(context, run, cards, number)
    files = sealed(plain, sealer)
    digests = {name: digest(content) for name, content in files.items()}
    issuer = context.issuer.issuer
    record = Acknowledgement(
        run=run.id,
        extract=mask_key(file.extract),
        sha256=run.planned().source.sha256,
        status=file.status,
        rows={total.status: total.rows for total in file.totals},
        folder=f"{number:06d}-{digest(canonical(digests))[:8]}/",
        files=digests,
        told=known,
        at=file.at,
        by=redact(context.adapters.actor),
    )
    store = context.adapters.store
    for name, content in files.items():
        store.create(f"{acknowledgements(issuer)}{record.folder}{name}", content)
    if not add_next(store, acknowledgements(issuer), number, record):
        raise AcknowledgedMeanwhileError(issuer=issuer, number=number)
    _hand_out(context, record)
    return Told(number, record)


def _contents(
    context: IssuerContext, run: StoredRun, cards: pl.DataFrame, number: int
) -> tuple[AcknowledgementHead, dict[str, bytes]]:
    """Return what is said of a run, and the files that say it, in clear."""
    head = {
        "number": number,
        "issuer": context.issuer.issuer,
        "run": run.id,
        "extract": mask_key(run.planned().source.key),
        "business_date": run.planned().as_of.isoformat(),
        "at": context.adapters.now(),
    }
    if run.manifest is None:
        return _refusal(run, head)
    frames = list(acknowledged_rows(run, cards))
    file = AcknowledgementHead(**head, **_sums(run, frames))
    plain = {
        JSON: _json(file, frames),
        CSV: b"".join(csv_pieces(iter(frames), AcknowledgedRows.dtypes())),
    }
    template = list(correction_template(context, run.id))
    if sum(frame.height for frame in template):
        plain[CORRECTIONS] = b"".join(csv_pieces(iter(template), Template.dtypes()))
    return file, plain


def _sums(run: StoredRun, frames: Sequence[pl.DataFrame]) -> dict[str, Any]:
    """Return status, totals and reasons of a committed run."""
    manifest = run.committed()
    by_status = totals(frames)
    return {
        "status": status_of({total.status: total.rows for total in by_status}),
        "file": FileTotals(
            rows_stated=manifest.counts.trailer,
            rows_read=manifest.counts.read,
            sha256=manifest.source.sha256,
            sequence=manifest.sequence,
        ),
        "totals": by_status,
        "reasons": reason_totals(frames),
    }


def _refusal(
    run: StoredRun, head: Mapping[str, Any]
) -> tuple[AcknowledgementHead, dict[str, bytes]]:
    """Return that a whole extract is refused, and the rows that were, where they are known."""
    refusal = run.refusal
    sentence = f"{refusal.sentence}." if refusal else "The extract was refused."
    file = AcknowledgementHead(**head, status="RJCT", refusal=sentence)
    rejects = read_if_stored(run.store, run.keys.report(REJECTS))
    return file, {JSON: _json(file, []), **({REJECTS: rejects} if rejects else {})}


def _json(file: AcknowledgementHead, frames: Sequence[pl.DataFrame]) -> bytes:
    """Return the whole JSON; its rows are written by polars, since they may be a million."""
    rows = pl.concat([pl.DataFrame(schema=AcknowledgedRows.dtypes()), *frames]).write_json()
    head = file.model_dump_json(indent=1)
    return f'{head.removesuffix("}").rstrip()},\n "rows": {rows}\n}}\n'.encode()


def _hand_out(context: IssuerContext, record: Acknowledgement) -> None:
    """Write `done.json`, and copy the files to where the issuer takes them, as far as that is not
    done.
    """
    store = context.adapters.store
    folder = f"{acknowledgements(context.issuer.issuer)}{record.folder}"
    store.create(folder + DONE, canonical(record))
    place = _place(context)
    if place is not None:
        done = {DONE: canonical(record)}
        copy_to(store, folder, record.files, place, record.folder, done)


def _place(context: IssuerContext) -> Store | None:
    """Return where the issuer takes its files; None where they stay in the store."""
    settings = context.issuer.acknowledgement
    return context.place_of(settings) if settings is not None else None


# Receipts
# --------------------------------------------------------------------------------------------------


def _is_receipted(context: IssuerContext, record: Acknowledgement) -> bool:
    """Return whether the issuer has dropped a receipt that names the bytes of all files."""
    own = f"{acknowledgements(context.issuer.issuer)}{record.folder}{RECEIVED}"
    elsewhere = _place(context), record.folder + RECEIVED
    named = digests_in_receipts([(context.adapters.store, own), elsewhere])
    return named is not None and named.issuperset(record.files.values())
