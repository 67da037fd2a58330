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
from datetime import datetime
from typing import Any, NamedTuple

import polars as pl
from sqlalchemy import func, select

from flows.book.book import read_book
from flows.book.people import counted_cards
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
    NotReachedError,
    begin,
    bring,
    complete,
    confirm_handed,
    free_number,
    last_handed,
    place_lines,
    read_handed,
    sealed,
    sealer_of,
)
from flows.extensions.deliveries.receipts import newest_receipt
from flows.extensions.deliveries.settings import Destination, acknowledging
from flows.extensions.deliveries.tables import ACKNOWLEDGEMENT
from flows.redaction import redact
from flows.reports.balance import Line
from flows.resend.template import correction_template
from flows.results.masking import mask_key
from flows.runs.adapters import Adapters
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.frames import csv_pieces
from flows.runs.identity import canonical, digest
from flows.runs.journal import Act
from flows.runs.sealing import Sealer
from flows.runs.store import read_if_stored
from flows.runs.stored_run import StoredRun
from flows.steps import Step
from schemas.actions import GATE_OF
from schemas.corrections import Template

JSON = "acknowledgement.json"
CSV = "acknowledgement.csv"
CORRECTIONS = "corrections.csv"
REJECTS = "rejects.csv"


class Told(NamedTuple):
    """An acknowledgement that was written, and its number."""

    number: int
    record: Acknowledgement


def acknowledge(context: IssuerContext) -> list[Told]:
    """Tell the issuer of every extract about which there is something new; nothing where it wants
    none.

    Raises HandedOverMeanwhileError, NotReachedError, NotSealedError.
    """
    settings = acknowledging(context.issuer)
    if settings is None:
        return []
    issuer = context.issuer.issuer
    _bring(context, settings)
    last_told = told_last(context.adapters, issuer)
    due_now = {due.subject: due for due in still_open(context, last_told)}
    closed = last_told.keys() - due_now.keys()
    news = [due for subject, due in due_now.items() if last_told.get(subject) != due.says]
    if not news:
        return []
    cards = _cards(context)
    last = last_handed(context.adapters, acknowledgements_to(issuer))
    number = last.number if last else 0
    told: list[Told] = []
    with sealer_of(context, settings) as sealer:
        for due in news:
            told.append(_tell(context, settings, due, cards, sealer, number, closed))
            number = told[-1].number
    return told


def _bring(context: IssuerContext, settings: Destination) -> None:
    """Bring the last one to where the issuer takes it; NotReachedError."""
    line = acknowledgements_to(context.issuer.issuer)
    problem = bring(context, line, settings)
    last = last_handed(context.adapters, line)
    if problem and last is not None and last.trouble is not None:
        since = f"{last.trouble.failing_since:%Y-%m-%d %H:%M} UTC"
        raise NotReachedError(whom=line.issuer, since=since, problem=problem)


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
    listing = Step("acknowledge", issuer, dry_run=True)
    return confirm_handed(context, acknowledgements_to(issuer), number, reason, listing)


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
    number, _ = newest_receipt(context, line, settings, later)
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
    settings: Destination,
    due: Due,
    cards: pl.DataFrame,
    sealer: Sealer | None,
    after: int,
    closed: Collection[str],
) -> Told:
    """Write an acknowledgement after the one with that number; `closed`: what nothing is open about
    any more.
    """
    line = acknowledgements_to(context.issuer.issuer)
    number = free_number(context, line, after)
    source = due.identity()
    file, plain = _contents(context, due, mask_key(source.key), cards, number)
    record = Acknowledgement(
        run=file.run,
        extract=file.extract,
        sha256=source.sha256,
        status=file.status,
        rows={total.status: total.rows for total in file.totals},
        files={name: digest(content) for name, content in plain.items()},
        sealed_to=settings.fingerprint,
        at=file.at,
        by=redact(context.adapters.actor),
    )
    files = sealed(plain, sealer)

    def replace_earlier(act: Act) -> None:
        for subject in sorted({*closed, due.subject}):
            act.update(line.table, {"subject": subject}, says=None)

    begin(
        context,
        line,
        number,
        record,
        replace_earlier,
        after=after,
        subject=due.subject,
        says=due.says,
    )
    as_files = {name: digest(content) for name, content in files.items()}
    marker = canonical(record.model_copy(update={"files": as_files}))
    complete(context, line, number, files, lambda: marker)
    _bring(context, settings)
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


# a file that names rows, in the folder of an acknowledgement
TOLD_ROWS = re.compile(r"/(?P<number>\d{6})/[a-z]+\.(csv|json)(\.pgp)?(?<!/done\.json)$")


def acknowledgements(issuer: str) -> str:
    """Return the prefix of what an issuer is told, a folder for each time."""
    return f"{issuer}/acknowledgements/"


def acknowledgements_to(issuer: str) -> handover.Line[Acknowledgement]:
    """Return the acknowledgements to an issuer."""
    folder = "acknowledgements"
    return handover.Line(issuer, ACKNOWLEDGEMENT, Acknowledgement, {}, folder, folder)


def told_last(adapters: Adapters, issuer: str) -> dict[str, str]:
    """Return what was told last of each run or file that is still open, by digest."""
    row_of = ACKNOWLEDGEMENT.c
    query = select(row_of.subject, row_of.says).where(
        row_of.issuer == issuer, row_of.says.is_not(None), row_of.done_at.is_not(None)
    )
    with adapters.database.snapshot() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}


def runs_by_number(adapters: Adapters, issuer: str) -> dict[int, str]:
    """Return the run of which each acknowledgement told, "" for none."""
    row_of = ACKNOWLEDGEMENT.c
    query = select(row_of.number, row_of.run).where(row_of.issuer == issuer)
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


def balance_lines(context: IssuerContext, run: StoredRun) -> Iterator[Line]:
    """Yield the equation of what the issuer was told of a run, where it was."""
    if acknowledging(context.issuer) is None:
        return
    rows = rows_told(context.adapters, context.issuer.issuer, run.id)
    if rows is not None:
        yield Line("rows acknowledged = rows read", rows, run.committed().counts.read)
