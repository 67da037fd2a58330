"""Acknowledge extracts: tell the issuer what became of each, as files that it can read by program.

What was told of an extract is replaced by what is told of it later. The row is made first, which
pins the bytes of the files, then these, in a folder of their own; `done.json` comes last, so
whoever reads takes only folders that have one. Of two processes one wins, and the other writes
nothing. Of a process that died before all files were there, the next command tells again under the
next number.

What is told of, and when again, is in `due.py`.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import polars as pl
from sqlalchemy import func, select

from flows.book.book import read_book
from flows.book.people import counted_cards
from flows.errors import TryAgainError
from flows.extensions.deliveries import handover
from flows.extensions.deliveries.acknowledged_rows import (
    CARDS,
    acknowledged_rows,
    reason_totals,
    totals,
)
from flows.extensions.deliveries.due import Due, still_open
from flows.extensions.deliveries.formats import (
    OPEN,
    REFUSED,
    AcknowledgedRows,
    Acknowledgement,
    AcknowledgementHead,
    Confirmed,
    FileTotals,
    status_of,
)
from flows.extensions.deliveries.handover import (
    DONE,
    Handed,
    Receipts,
    confirm_handed,
    copy_to,
    handed,
    last_handed,
    make,
    note,
    place_lines,
    place_of,
    read_handed,
    sealed,
    sealer_of,
)
from flows.extensions.deliveries.settings import acknowledging
from flows.extensions.deliveries.tables import ACKNOWLEDGEMENT
from flows.redaction import redact
from flows.reports.balance import Line
from flows.resend.template import correction_template
from flows.results.masking import mask_key
from flows.runs.adapters import Adapters
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.errors import NotFoundError
from flows.runs.frames import csv_pieces
from flows.runs.identity import canonical, digest
from flows.runs.journal import Act, enter
from flows.runs.sealing import Sealer
from flows.runs.store import is_stored, read_if_stored
from flows.runs.stored_journal import flush_journal
from flows.runs.stored_run import StoredRun
from flows.steps import Step
from schemas.actions import GATE_OF
from schemas.corrections import Template

JSON = "acknowledgement.json"
CSV = "acknowledgement.csv"
CORRECTIONS = "corrections.csv"
REJECTS = "rejects.csv"


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
    if acknowledging(context.issuer) is None:
        return []
    issuer = context.issuer.issuer
    last = last_handed(context.adapters, acknowledgements_to(issuer))
    number = last.number if last else 0
    if last is not None:
        _go_on(context, last)
    last_told = told_last(context.adapters, issuer)
    due_now = {due.subject: due for due in still_open(context, last_told)}
    closed = last_told.keys() - due_now.keys()
    news = [due for subject, due in due_now.items() if last_told.get(subject) != due.says]
    if not news:
        return []
    cards = _cards(context)
    with sealer_of(context, acknowledging(context.issuer)) as sealer:
        return [
            _tell(context, due, cards, sealer, next_number, closed)
            for next_number, due in enumerate(news, number + 1)
        ]


def not_told(context: IssuerContext, until: datetime) -> list[str]:
    """Return the runs, and the files without one, of which the issuer was not told what has been
    known since then.
    """
    known = told_last(context.adapters, context.issuer.issuer)
    news = [due for due in still_open(context, known) if known.get(due.subject) != due.says]
    return [due.subject for due in news if due.since < until]


def confirm(context: IssuerContext, number: int, reason: str) -> Confirmed:
    """Record that the issuer has an acknowledgement and those before it; return the record.

    Raises NotFoundError where there is none of that number, NoReasonError.
    """
    issuer = context.issuer.issuer
    line = acknowledgements_to(issuer)
    confirmed = confirm_handed(context.adapters, line, number, reason)
    if confirmed is None:
        step = Step("acknowledge", issuer, dry_run=True)
        raise NotFoundError(place=issuer, what=f"acknowledgement {number}", command=step)
    return confirmed


def take_receipts(context: IssuerContext) -> int:
    """Record the newest receipt that the issuer dropped; return the last confirmed number, or 0.

    A receipt is a file `received` in the folder of an acknowledgement that names the SHA-256 of its
    files. It counts for those before, too.
    """
    issuer = context.issuer.issuer
    settings = acknowledging(context.issuer)
    confirmed = last_confirmed(context.adapters, issuer)
    if settings is None:
        return confirmed
    line = acknowledgements_to(issuer)
    row = line.table.c
    with context.adapters.database.snapshot() as connection:
        is_later = row.number > confirmed
        later = read_handed(connection, line, is_later, row.done_at.is_not(None))
    number, _ = Receipts(context, settings).newest(
        later,
        lambda sent: (f"{acknowledgements(issuer)}{sent.record.folder}", sent.record.folder),
        lambda sent: [sent.record.files.values()],
    )
    if number:
        confirm(context, number, "receipt of the issuer")
    return number or confirmed


def check_place(context: IssuerContext) -> list[str]:
    """Return what is fine about telling the issuer: its key, and the place where it takes files."""
    settings = acknowledging(context.issuer)
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
    closed: Collection[str],
) -> Told:
    """Write an acknowledgement as that number; `closed`: what nothing is open about any more."""
    source = due.identity()
    file, plain = _contents(context, due, mask_key(source.key), cards, number)
    files = sealed(plain, sealer)
    digests = {name: digest(content) for name, content in files.items()}
    record = Acknowledgement(
        run=file.run,
        extract=file.extract,
        sha256=source.sha256,
        status=file.status,
        rows={total.status: total.rows for total in file.totals},
        folder=f"{number:06d}-{digest(canonical(digests))[:8]}/",
        files=digests,
        at=file.at,
        by=redact(context.adapters.actor),
    )
    _make(context, due, number, record, closed)
    folder = f"{acknowledgements(context.issuer.issuer)}{record.folder}"
    for name, content in files.items():
        context.adapters.store.create(folder + name, content)
    _finish(context, number, record)
    _copy(context, record)
    return Told(number, record)


def _make(
    context: IssuerContext, due: Due, number: int, record: Acknowledgement, closed: Collection[str]
) -> None:
    """Make the row of an acknowledgement; AcknowledgedMeanwhileError."""
    issuer = context.issuer.issuer
    line = acknowledgements_to(issuer)

    def work(act: Act) -> None:
        for subject in sorted({*closed, due.subject}):
            act.update(line.table, {"subject": subject}, says=None)
        if not make(act, line, number, record, subject=due.subject, says=due.says):
            raise AcknowledgedMeanwhileError(issuer=issuer, number=number)

    enter(context.adapters, issuer, "acknowledgement made", work)


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


def _go_on(context: IssuerContext, last: Handed[Acknowledgement]) -> None:
    """Do what a process that died has not done with the last acknowledgement; where files of it
    are missing, note that nothing was told by it.
    """
    issuer = context.issuer.issuer
    folder = f"{acknowledgements(issuer)}{last.record.folder}"
    if last.is_done:
        _copy(context, last.record)
    elif all(is_stored(context.adapters.store, folder + name) for name in last.record.files):
        _finish(context, last.number, last.record)
        _copy(context, last.record)
    elif last.row["says"] is not None:
        enter(context.adapters, issuer, "acknowledgement dropped", partial(_drop, last.number))


def _drop(number: int, act: Act) -> None:
    act.update(acknowledgements_to(act.issuer).table, {"number": number}, says=None)


def _finish(context: IssuerContext, number: int, record: Acknowledgement) -> None:
    """Write `done.json`, and that it is there."""
    issuer = context.issuer.issuer
    marker = f"{acknowledgements(issuer)}{record.folder}{NOTICE}"
    context.adapters.store.create(marker, canonical(record))
    note(context.adapters, acknowledgements_to(issuer), number, DONE)


def _copy(context: IssuerContext, record: Acknowledgement) -> None:
    """Copy the files to where the issuer takes them, as far as they are not there."""
    settings = acknowledging(context.issuer)
    place = place_of(context, settings) if settings is not None else None
    flush_journal(context.adapters, context.issuer.issuer)
    if place is not None:
        folder = f"{acknowledgements(context.issuer.issuer)}{record.folder}"
        done = {NOTICE: canonical(record)}
        copy_to(context.adapters.store, folder, record.files, place, record.folder, done)


NOTICE = "done.json"  # written last: whoever reads takes only folders that have it
# a file that names rows, in the folder of an acknowledgement
TOLD_ROWS = re.compile(
    r"/(?P<folder>\d{6}-[0-9a-f]{8}/)[a-z]+\.(csv|json)(\.pgp)?(?<!/done\.json)$"
)


def acknowledgements(issuer: str) -> str:
    """Return the prefix of what an issuer is told, a folder for each time."""
    return f"{issuer}/acknowledgements/"


def acknowledgements_to(issuer: str) -> handover.Line[Acknowledgement]:
    """Return the acknowledgements to an issuer."""
    return handover.Line(issuer, ACKNOWLEDGEMENT, Acknowledgement, {})


def told_last(adapters: Adapters, issuer: str) -> dict[str, str]:
    """Return what was told last of each run or file that is still open, by digest."""
    row_of = ACKNOWLEDGEMENT.c
    query = select(row_of.subject, row_of.says).where(
        row_of.issuer == issuer, row_of.says.is_not(None)
    )
    with adapters.database.snapshot() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}


def runs_by_folder(adapters: Adapters, issuer: str) -> dict[str, str]:
    """Return the run of which each acknowledgement told, "" for none, by its folder."""
    row_of = ACKNOWLEDGEMENT.c
    query = select(row_of.folder, row_of.run).where(row_of.issuer == issuer)
    with adapters.database.snapshot() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}


def rows_told(adapters: Adapters, issuer: str, run: str) -> int | None:
    """Return of how many rows of a run the issuer was told last; None where it was of none."""
    row = ACKNOWLEDGEMENT.c
    query = select(row.rows).where(row.issuer == issuer, row.run == run, row.done_at.is_not(None))
    with adapters.database.snapshot() as connection:
        newest_first = connection.execute(query.order_by(row.number.desc())).scalars()
        counts = next((rows for rows in newest_first if rows), None)
    return sum(counts.values()) if counts else None


def last_confirmed(adapters: Adapters, issuer: str) -> int:
    """Return the number of the last acknowledgement that the issuer has confirmed, or 0."""
    row = ACKNOWLEDGEMENT.c
    query = select(func.max(row.number)).where(row.issuer == issuer, row.confirmed_at.is_not(None))
    with adapters.database.snapshot() as connection:
        return connection.execute(query).scalar() or 0


def first_unconfirmed(
    adapters: Adapters, issuer: str, within: timedelta, now: datetime
) -> tuple[int, int, Acknowledgement] | None:
    """Return the first acknowledgement whose receipt is late: its number, that of the last one, and
    its record; None where none is late.
    """
    row = ACKNOWLEDGEMENT.c
    later = (row.number > last_confirmed(adapters, issuer), row.done_at.is_not(None))
    ends = select(func.min(row.number), func.max(row.number)).where(row.issuer == issuer, *later)
    with adapters.database.snapshot() as connection:
        first, last = connection.execute(ends).one()
    late = handed(adapters, acknowledgements_to(issuer), first) if first else None
    if late is None or now < late.record.at + within:
        return None
    return first, last, late.record


def half_told(adapters: Adapters, issuer: str) -> Handed[Acknowledgement] | None:
    """Return the last acknowledgement where it is not complete, so that nobody takes it, and what
    it tells was not told again.
    """
    last = last_handed(adapters, acknowledgements_to(issuer))
    if last is None or last.is_done or last.row["says"] is None:
        return None
    return last


def balance_lines(context: IssuerContext, run: StoredRun) -> Iterator[Line]:
    """Yield the equation of what the issuer was told of a run, where it was."""
    if acknowledging(context.issuer) is None:
        return
    rows = rows_told(context.adapters, context.issuer.issuer, run.id)
    if rows is not None:
        yield Line("rows acknowledged = rows read", rows, run.committed().counts.read)
