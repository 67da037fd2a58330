"""Acknowledge extracts: tell the issuer what became of each, as files that it can read by program.

What was told of an extract is replaced by what is told of it later. The files are written first,
into a folder of their own, then the record, which pins their bytes; `done.json` comes last and is
the record again, so whoever reads takes only folders that have one. Of two processes one wins; what
the other wrote is in a folder without `done.json`, which counts for nothing.

What is told of, and when again, is in `due_acknowledgements.py`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import polars as pl

from flows.book.book import read_book
from flows.book.people import counted_cards
from flows.errors import TryAgainError
from flows.operations.acknowledged_rows import (
    CARDS,
    acknowledged_rows,
    reason_totals,
    totals,
)
from flows.operations.due_acknowledgements import Due, still_open
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
from flows.runs.documents import read_document
from flows.runs.errors import NotFoundError
from flows.runs.frames import csv_pieces
from flows.runs.identity import canonical, digest
from flows.runs.keys import acknowledgements, link
from flows.runs.sealing import Sealer
from flows.runs.store import Store, read_if_stored
from flows.runs.stored_journal import flush_journal
from flows.runs.stored_run import StoredRun
from flows.runs.told import DONE, carry_on, confirmations, last_confirmed
from flows.steps import Step
from schemas.acknowledgement import (
    OPEN,
    REFUSED,
    AcknowledgedRows,
    AcknowledgementHead,
    FileTotals,
    status_of,
)
from schemas.actions import GATE_OF
from schemas.corrections import Template
from schemas.records import Acknowledgement, Confirmed

JSON = "acknowledgement.json"
CSV = "acknowledgement.csv"
CORRECTIONS = "corrections.csv"
REJECTS = "rejects.csv"
RECEIVED = "received"


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
    last_told = last.told if last else {}
    due_now = {due.subject: due for due in still_open(context, last_told)}
    known = {subject: says for subject, says in last_told.items() if subject in due_now}
    news = [due for subject, due in due_now.items() if known.get(subject) != due.says]
    if not news:
        return []
    written: list[Told] = []
    cards = _cards(context)
    with sealer_of(context, context.issuer.acknowledgement) as sealer:
        for due in news:
            number += 1
            known[due.subject] = due.says
            written.append(_tell(context, due, cards, sealer, number, dict(known)))
    carry_on(store, issuer)
    return written


def not_told(context: IssuerContext, until: datetime) -> list[str]:
    """Return the runs, and the files without one, of which the issuer was not told what has been
    known since then.
    """
    prefix = acknowledgements(context.issuer.issuer)
    _, last = last_record(context.adapters.store, prefix, Acknowledgement)
    known = last.told if last else {}
    news = [due for due in still_open(context, known) if known.get(due.subject) != due.says]
    return [mask_key(due.subject) for due in news if due.since < until]


def confirm(context: IssuerContext, number: int, reason: str) -> Confirmed:
    """Record that the issuer has an acknowledgement and those before it; return the record.

    Raises NotFoundError where there is none of that number, NoReasonError.
    """
    store = context.adapters.store
    issuer = context.issuer.issuer
    prefix = acknowledgements(issuer)
    if read_document(store, link(prefix, number), Acknowledgement) is None:
        step = Step("acknowledge", issuer, dry_run=True)
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


# Writing one
# --------------------------------------------------------------------------------------------------


def _cards(context: IssuerContext) -> pl.DataFrame:
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    book = read_book(context.adapters, context.issuer.issuer)
    return pl.concat(counted_cards(part.cards(today)).select(CARDS) for part in book.parts())


def _tell(
    context: IssuerContext,
    due: Due,
    cards: pl.DataFrame,
    sealer: Sealer | None,
    number: int,
    known: dict[str, str],
) -> Told:
    """Write an acknowledgement as that number; `known`: what each open run or file says now."""
    source = due.identity()
    file, plain = _contents(context, due, mask_key(source.key), cards, number)
    files = sealed(plain, sealer)
    digests = {name: digest(content) for name, content in files.items()}
    issuer = context.issuer.issuer
    record = Acknowledgement(
        run=file.run,
        extract=file.extract,
        sha256=source.sha256,
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
    context: IssuerContext, due: Due, extract: str, cards: pl.DataFrame, number: int
) -> tuple[AcknowledgementHead, dict[str, bytes]]:
    """Return what is said of a run or a file, and the files that say it, in clear."""
    head = {
        "number": number,
        "issuer": context.issuer.issuer,
        "run": due.run.id if due.run else "",
        "extract": extract,
        "business_date": due.run.planned().as_of.isoformat() if due.run else None,
        "at": context.adapters.now(),
        "corrects": due.corrects,
    }
    if due.is_over:
        over = AcknowledgementHead(**head, status=REFUSED, refusal=due.why)
        return over, {JSON: _json(over, [])}
    if due.run is None:
        waiting = AcknowledgementHead(**head, status=OPEN, waits=due.why)
        return waiting, {JSON: _json(waiting, [])}
    if due.run.manifest is None:
        return _refusal(due.run, head)
    return _committed(context, due.run, cards, head)


def _committed(
    context: IssuerContext, run: StoredRun, cards: pl.DataFrame, head: Mapping[str, Any]
) -> tuple[AcknowledgementHead, dict[str, bytes]]:
    """Return what became of the rows of a committed run."""
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
    """Return that a whole extract is refused, or that a gate holds it until somebody decides; and
    the rows that were refused, where they are known.
    """
    refusal = run.refusal
    sentence = f"{refusal.sentence}." if refusal else "The extract was refused."
    gate = GATE_OF.get(refusal.error) if refusal else None
    if gate is None:
        file = AcknowledgementHead(**head, status=REFUSED, refusal=sentence)
    else:
        held = f"{sentence} The extract is held back (gate {gate}) until somebody decides."
        file = AcknowledgementHead(**head, status=OPEN, waits=held)
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
    flush_journal(context.adapters, context.issuer.issuer)
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
