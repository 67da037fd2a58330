"""Ask the partner about all runs at once, and decide as it answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.parameters import DryRun, Field, Reason
from flows.commands.private_files import write_new
from flows.commands.result import Part, Result, Table, worst
from flows.configuration import FileThereError
from flows.errors import CardlinkError
from flows.steps import WHY, Sentence, Step, counted
from flows.wiring import now, wire
from schemas.breaks import LOST

with on_first_use():
    from flows.operations import questions as partner_questions
    from flows.runs import context as contexts
    from schemas import settings


class _Open(NamedTuple):
    """The open questions of an issuer, and the context in which they are decided."""

    context: contexts.IssuerContext
    questions: list[partner_questions.Question]
    finished: tuple[str, ...] = ()  # commits that an interrupted command had begun


@entry("questions", form="it writes a file on the machine of the person who sends it", records=True)
def questions(context: Context, issuer: str = "", *, to: Path | None = None) -> Result:
    """Write what to ask the partner about all runs, as a file with a column for its answers.

    Rows of open breaks, chunks whose result is overdue, and cards refused for a reason that only
    the partner knows. The history of each run notes that they were written, and the worklist says
    so until there is something new to ask.

    Args:
        issuer: The issuer, as its TOML file is named (default: all of them).
        to: The file (default: questions-DAY.csv).

    Example:
        cardlink questions first-bank --to ask.csv
    """
    path = to or Path(f"questions-{now():%Y%m%d}.csv")

    def of_issuer(name: str) -> list[_Open]:
        issuer_context = wire(context.folder, name)
        return [_Open(issuer_context, partner_questions.open_questions(issuer_context))]

    of_issuers, unread = context.each(issuer, of_issuer)
    listed = list(chain.from_iterable(opened.questions for opened in of_issuers))
    if not listed:
        return Result({"file": "", "questions": 0}, ["nothing to ask"]).beside(unread)
    _write(path, partner_questions.as_csv(listed))
    for opened in of_issuers:
        partner_questions.note_written(opened.context, opened.questions)
    shown = [
        f"{path}: {counted(len(listed), 'question')}",
        "send it to the partner; in the column answer it fills in one of the words of the column "
        "answers",
        "a result that it sends once more belongs in the results: the next ingest takes it in, and "
        "answers to what it settles are left alone",
    ]
    facts = {"file": str(path), "questions": len(listed)}
    next_step = Step("answers", path, reason=WHY, dry_run=True)
    return Result(facts, shown, next_step).beside(unread)


def _write(path: Path, pieces: list[bytes]) -> None:
    """Write the file; one that is the same is there after an interrupted command."""
    try:
        write_new(path, pieces)
    except FileExistsError:
        if path.read_bytes() != b"".join(pieces):
            raise FileThereError(path=str(path)) from None


def _acts(context: Context, issuer: str, values: Mapping[str, Any]) -> Collection[settings.Act]:
    """Return what a file of answers decides about an issuer: nothing without a question of its."""
    file = values["answers"]
    filled_in = partner_questions.read_answers(file.name, file.read_bytes())
    open_ones = partner_questions.open_questions(wire(context.folder, issuer, dry_run=True))
    answers = partner_questions.matched(file.name, open_ones, filled_in).values()
    decided = {answer.decision for answer in answers}
    acts: list[settings.Act] = ["lost"] if LOST in decided else []
    return [*acts, "close"] if decided else acts


@entry(
    "answers",
    form="it reads a file on the machine of the person who got it",
    acts={"lost": "", "close": ""},
    decides=_acts,
)
def answers(
    context: Context,
    answers: Annotated[Path, Field(metavar="FILE")],
    *,
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Decide as the partner answered: FILE is one of `questions`, with its column answer filled in.

    A question that was settled meanwhile is left alone. That a chunk is lost counts from
    `lost_after_days` of [limits] after its upload on, since its result may still come: the answer
    is kept until then, and an ingest decides so.

    Args:
        answers: The file of questions, with the partner's answers.

    Example:
        cardlink answers ask.csv --reason 'mail of the partner, 20 November' --dry-run
    """
    content = answers.read_bytes()
    filled_in = partner_questions.read_answers(answers.name, content)

    def of_issuer(name: str) -> list[_Open]:
        issuer_context = wire(context.folder, name, dry_run=dry_run)
        finished = () if dry_run else partner_questions.finish_interrupted(issuer_context)
        return [_Open(issuer_context, partner_questions.open_questions(issuer_context), finished)]

    of_issuers, unread = context.each("", of_issuer)
    # before anything is decided: one answer that is none refuses the file
    matched = [
        partner_questions.matched(answers.name, issuer_questions.questions, filled_in)
        for issuer_questions in of_issuers
    ]
    rows: list[list[object]] = []
    refused: list[CardlinkError] = []
    kept: list[str] = []
    for issuer_questions, answered in zip(of_issuers, matched, strict=True):
        done = partner_questions.apply(issuer_questions.context, answered, reason, dry_run=dry_run)
        rows += [[*group, number] for group, number in done.applied.items()]
        refused += done.refused
        kept += done.kept
    settled = len(filled_in) - sum(map(len, matched))
    result = _answered(rows, refused, settled, answers, dry_run=dry_run, has_kept=bool(kept))
    finished = chain.from_iterable(issuer_questions.finished for issuer_questions in of_issuers)
    facts = {**result.facts, "kept": kept}
    return result._replace(facts=facts, shown=[*result.shown, *kept, *finished]).beside(unread)


def _answered(
    rows: list[list[object]],
    refused: list[CardlinkError],
    settled: int,
    file: Path,
    *,
    dry_run: bool,
    has_kept: bool,
) -> Result:
    """Show which answers were applied, and which were not."""
    head = ("run", "about", "answer", "questions")
    shown: list[Part] = [_line(rows, dry_run=dry_run)]
    if rows:
        shown.append(Table(head, rows))
    if settled:
        shown.append(f"{counted(settled, 'answer')} to questions that are not open any more")
    shown += [Sentence("not decided: {error}", error=error.text) for error in refused]
    facts = {
        "dry_run": dry_run,
        "decided": [dict(zip(head, row, strict=True)) for row in rows],
        "settled": settled,
        "refused": [str(error) for error in refused],
    }
    next_step = Step("worklist")
    if dry_run and (rows or has_kept):
        next_step = Step("answers", file, reason=WHY)
    code = worst(error.exit_code for error in refused)
    return Result(facts, shown, next_step, code)


def _line(rows: list[list[object]], *, dry_run: bool) -> str:
    """Say how many questions were decided, or would be; the last cell of a row counts them."""
    questions = counted(sum(int(str(row[-1])) for row in rows), "question")
    if dry_run:
        return f"dry run, nothing was changed: {questions} would be decided"
    return f"{questions} decided as answered"
