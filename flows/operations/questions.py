"""The questions to the partner about all runs of an issuer, and its answers.

A question has an id made of what it is about, so that an answer is read back however the file was
sorted, and a question that was settled meanwhile is left alone. Answers are decisions: they are
applied by the functions of `mend close` and `resubmit`.
"""

import csv
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from io import BytesIO, StringIO
from typing import Any, NamedTuple

import polars as pl

from flows.book.book import Book, book_of
from flows.book.people import counted_cards
from flows.book.standing import REFUSED
from flows.errors import CardlinkError, OperatorError
from flows.operations.break_decisions import TooEarlyError, close_break, is_at
from flows.operations.kept_answers import keep_answer
from flows.reports.asked import record_asked
from flows.reports.behind import finish_reports
from flows.reports.open_items import MISSING, ReportTerms, WaitingChunk
from flows.reports.run_facts import run_facts
from flows.resend.resubmission import Request
from flows.resend.resubmission_run import rehearse_resubmit, send_again, take_in_results
from flows.resend.selection import RowSelection
from flows.runs.business_date import local_day
from flows.runs.closings import kept_answers
from flows.runs.context import IssuerContext
from flows.runs.frames import csv_pieces
from flows.runs.identity import digest
from flows.runs.keys import keys_of
from flows.runs.shown_rows import refuse_other_rows
from flows.runs.store import read
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.steps import Sentence, Step
from flows.submissions.commit import finish_commits
from schemas.actions import ASK
from schemas.breaks import KINDS, LOST, RESULT_SHORT

COLUMNS = ("id", "issuer", "chunk", "cuid", "last_4", "rows", "question", "answers", "answer")
SEND_AGAIN = "send again"
BOM = "\ufeff".encode()  # a spreadsheet that reads it saves UTF-8
_BREAK = ["break", "place", "row", "cuid", "last_4", "chunk"]
_REFUSED_ROW = ["row", "reason", "message"]
ROW = ", row "  # a result row that answers none of ours is closed with the others of its file


class AnswersUnreadableError(OperatorError):
    """A file of answers is not one that was written as questions, or has an answer of no choice."""

    message = "{file}: {problem}. Nothing was decided."
    next_step = Sentence(
        "Write the questions again, and let the column answer have one of the words of the column "
        "answers, or nothing: {questions}.",
        questions=Step("questions"),
    )


class Question(NamedTuple):
    """One question: about a row, or about all `rows` of a place where `row` is 0.

    `about` is the break, or ASK for a row that the partner refused; `answers` are the decisions
    that can be its answer.
    """

    issuer: str
    run: str
    about: str
    place: str
    row: int
    chunk: str  # as it was uploaded
    cuid: str
    last_4: str
    question: str
    answers: tuple[str, ...]
    rows: int = 1

    @property
    def id(self) -> str:
        """What it is known by, in every file that has it."""
        about = "|".join(map(str, (self.run, self.about, self.place, self.row, self.cuid)))
        return digest(about.encode())[:12]

    @property
    def cells(self) -> tuple[str, ...]:
        """Its cells (COLUMNS), without an answer."""
        answers = " | ".join(self.answers)
        return (
            *(self.id, self.issuer, self.chunk, self.cuid, self.last_4, str(self.rows)),
            *(self.question, answers, ""),
        )


class Answer(NamedTuple):
    """What a file says to a question, and how many rows it was about when it was written."""

    decision: str
    rows: str


class Answered(NamedTuple):
    """Answers that were, or would be, applied: questions by run, what they are about and answer.

    `refused`: why answers could not be applied. `kept`: those that take effect later, and when.
    """

    applied: Mapping[tuple[str, str, str], int]
    refused: Sequence[CardlinkError]
    kept: Sequence[str] = ()


def open_questions(context: IssuerContext) -> list[Question]:
    """Return what to ask the partner about the runs of an issuer, oldest run first."""
    terms = ReportTerms(context.adapters.now(), context.issuer.portal.answer_within_hours)
    questions: list[Question] = []
    runs = StoredRuns(context.adapters, context.issuer.issuer)
    book = book_of(context.adapters, runs)
    over = book.given_up_chunks | kept_answers(context.adapters, runs.issuer).keys()
    for run in runs.committed(book.runs.closed):
        if run.purged_ledger is None:
            questions += _about_chunks(run, terms, over)
            questions += _about_breaks(run)
    return [*questions, *_about_refusals(context, book)]


def _about_chunks(
    run: StoredRun, terms: ReportTerms, over: Collection[tuple[str, int]]
) -> Iterator[Question]:
    """Yield a question about each chunk whose result is overdue, and that is not given up, nor
    answered already.
    """
    for chunk in run_facts(run).waiting:
        is_unanswered = chunk.state == "uploaded" and chunk.missing == MISSING
        is_awaited = (run.id, chunk.chunk) not in over
        if is_unanswered and is_awaited and terms.overdue(chunk):
            yield _about_chunk(run, chunk)


def _about_chunk(run: StoredRun, chunk: WaitingChunk) -> Question:
    text = (
        f"The chunk of {chunk.awaiting:,} rows was uploaded on {chunk.since:%Y-%m-%d} and has no "
        "result: what became of it?"
    )
    return Question(
        issuer=run.issuer,
        run=run.id,
        about=RESULT_SHORT,
        place=f"chunk {chunk.chunk}",
        row=0,
        chunk=_chunk_name(run, chunk.chunk),
        cuid="",
        last_4="",
        question=text,
        answers=(LOST,),
        rows=chunk.awaiting,
    )


def _about_breaks(run: StoredRun) -> Iterator[Question]:
    """Yield a question about each row of an open break that the partner can explain.

    Of result rows that name nobody, one about all of a place.
    """
    open_breaks = [known for known in (run.summary or {}).get("breaks", ()) if not known["notice"]]
    if not any(KINDS[known["name"]].question for known in open_breaks):
        return
    content = read(run.store, run.keys.report("breaks.csv"))
    listed = pl.read_csv(BytesIO(content), columns=_BREAK, infer_schema=False).fill_null("")
    rows = (row for row in listed.iter_rows(named=True) if KINDS[row["break"]].question)
    for question in dict.fromkeys(_about_row(run, broken) for broken in rows):
        yield question if question.row else question._replace(rows=_rows_at(question, open_breaks))


def _rows_at(question: Question, open_breaks: Iterable[Mapping[str, Any]]) -> int:
    """Return how many rows the breaks have that a question about a whole place is about."""
    place = question.about, question.place
    return sum(
        known["rows"] for known in open_breaks if is_at(known["name"], known["place"], *place)
    )


def _about_row(run: StoredRun, broken: Mapping[str, str]) -> Question:
    """Return the question about a row of an open break; `broken`: its line of breaks.csv."""
    kind = KINDS[broken["break"]]
    place = broken["place"].partition(ROW)[0]
    chunk = broken["place"]
    if broken["chunk"]:
        place = f"chunk {broken['chunk']}"
        chunk = _chunk_name(run, int(broken["chunk"]))
    return Question(
        issuer=run.issuer,
        run=run.id,
        about=broken["break"],
        place=place,
        row=int(broken["row"] or 0),
        chunk=chunk,
        cuid=broken["cuid"],
        last_4=broken["last_4"],
        question=kind.question,
        answers=kind.decisions,
    )


def _about_refusals(context: IssuerContext, book: Book) -> Iterator[Question]:
    """Yield a question about each card refused last for a reason that only the partner knows.

    Of a run whose first report is under way, or was stopped, they are asked once it is there.
    """
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    is_refused = pl.col("standing").cast(pl.String) == REFUSED.name
    is_asked = (pl.col("action") == ASK) & (pl.col("who") != "")
    to_ask = is_refused & is_asked & (pl.col("run") != "")
    parts = (part.cards(today) for part in book.parts())
    cards = pl.concat(counted_cards(of_part).filter(to_ask) for of_part in parts)
    for (run_id,), rows in cards.sort("run", "row").group_by("run", maintain_order=True):
        run = StoredRun.by_id(context.adapters, str(run_id))
        if run.summary is None:
            continue
        messages = _messages(run)
        for row, chunk, cuid, last_4 in rows.select("row", "chunk", "cuid", "last_4").iter_rows():
            refusal = f"It was refused: {messages.get(row, 'without a readable reason')}"
            yield Question(
                issuer=run.issuer,
                run=run.id,
                about=ASK,
                place="",
                row=row,
                chunk=_chunk_name(run, chunk) if chunk else "",
                cuid=cuid or "",
                last_4=last_4 or "",
                question=f"{refusal}. Do you take it now, if we send it again as it is?",
                answers=(SEND_AGAIN,),
            )


def _messages(run: StoredRun) -> dict[int, str]:
    """Return the partner's message about each refused row, as errors.csv has it: masked."""
    content = read(run.store, run.keys.report("errors.csv"))
    listed = pl.read_csv(BytesIO(content), columns=_REFUSED_ROW, infer_schema=False)
    return {
        int(row): message or code for row, code, message in listed.select(_REFUSED_ROW).iter_rows()
    }


def _chunk_name(run: StoredRun, number: int) -> str:
    return run.sealed_chunks[number].chunk.name


def note_written(context: IssuerContext, questions: Iterable[Question]) -> None:
    """Record in the history of each run that the questions about it were written."""
    by_run = defaultdict[str, list[str]](list)
    for question in questions:
        by_run[question.run].append(question.id)
    for run, ids in by_run.items():
        record_asked(context.adapters, StoredRun.by_id(context.adapters, run), ids)


def as_csv(questions: Sequence[Question]) -> list[bytes]:
    """Return the file of questions in pieces: a line each, the column answer empty."""
    cells = [question.cells for question in questions]
    return [BOM, *csv_pieces([pl.DataFrame(cells, list(COLUMNS), orient="row")], COLUMNS)]


def read_answers(file: str, content: bytes) -> dict[str, Answer]:
    """Return the answers of a filled-in file by the id of their question.

    AnswersUnreadableError.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise AnswersUnreadableError(file=file, problem="it is not UTF-8") from None
    reader = csv.DictReader(StringIO(text))
    lacking = sorted({"id", "rows", "answer"} - set(reader.fieldnames or ()))
    if lacking:
        problem = f"its header lacks {', '.join(lacking)}"
        raise AnswersUnreadableError(file=file, problem=problem)
    answers: dict[str, Answer] = {}
    for record in reader:
        decision = (record["answer"] or "").strip().lower()
        answer = Answer(decision, (record["rows"] or "").strip())
        number = (record["id"] or "").strip()
        if decision and answers.setdefault(number, answer) != answer:
            problem = f"question {number} has two answers"
            raise AnswersUnreadableError(file=file, problem=problem)
    return answers


def matched(
    file: str, questions: Iterable[Question], answers: Mapping[str, Answer]
) -> dict[Question, Answer]:
    """Return the answers to the questions that are open.

    AnswersUnreadableError where an answer is none that its question has.
    """
    answered = {question: answers[question.id] for question in questions if question.id in answers}
    for question, answer in answered.items():
        if answer.decision not in question.answers:
            problem = f"question {question.id} has no answer of its choices"
            raise AnswersUnreadableError(file=file, problem=problem)
    return answered


def finish_interrupted(context: IssuerContext) -> tuple[str, ...]:
    """Finish the commits and reports that an interrupted command left; return what that was."""
    finished = finish_commits(context)
    finish_reports(context)
    return finished


def apply(
    context: IssuerContext, answered: Mapping[Question, Answer], reason: str, *, dry_run: bool
) -> Answered:
    """Decide as the partner answered; what is refused does not stop the rest.

    An answer about a place that has other rows than those the question was written about is. One
    that may not take effect yet is kept until it may (`kept_answers.py`).
    """
    if not dry_run and any(question.about == ASK for question in answered):
        take_in_results(context)
    groups = _decided_together(answered)
    applied: dict[tuple[str, str, str], int] = defaultdict(int)
    refused: list[CardlinkError] = []
    kept: list[str] = []
    for (run, about, place, answer), questions in groups.items():
        rows = frozenset(question.row for question in questions if question.row)
        try:
            if not rows:
                [question] = questions
                shown = answered[question].rows
                place_of_run = f"{about} at {place} of {run}"
                refuse_other_rows(context.issuer.issuer, place_of_run, question.rows, shown)
            if about == ASK:
                _send_again(context, run, rows, reason, dry_run=dry_run)
            else:
                close_break(context, run, about, place, reason, answer, rows)
        except TooEarlyError as early:
            kept.append(keep_answer(context, early, answer, questions[0].rows, reason))
        except CardlinkError as error:
            refused.append(error)
        else:
            applied[run, about, answer] += len(questions)
    return Answered(applied, refused, kept)


def _decided_together(
    answered: Mapping[Question, Answer],
) -> dict[tuple[str, str, str, str], list[Question]]:
    """Return the questions that one decision answers, by run, subject, place and answer."""
    groups: dict[tuple[str, str, str, str], list[Question]] = defaultdict(list)
    for question, answer in answered.items():
        place = question.place if not question.row else ""
        groups[question.run, question.about, place, answer.decision].append(question)
    return groups


def _send_again(
    context: IssuerContext, run: str, rows: frozenset[int], reason: str, *, dry_run: bool
) -> None:
    request = Request(str(keys_of(run).run), RowSelection(rows=rows), reason)
    if dry_run:
        rehearse_resubmit(context, request)
    else:
        send_again(context, request)
