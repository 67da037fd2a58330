"""The partner's answers that may not take effect yet, since a result may still come: they are kept,
and an ingest decides as they say once it may.
"""

from functools import partial

from flows.errors import OperatorError
from flows.operations.break_decisions import TooEarlyError, close_break
from flows.runs.closings import kept_answers
from flows.runs.context import IssuerContext
from flows.runs.decisions import ANSWER, decide, lift
from flows.runs.errors import NotFoundError
from flows.runs.journal import Act, enter
from flows.runs.shown_rows import OtherRowsError
from flows.steps import counted
from schemas.breaks import RESULT_SHORT
from schemas.records import KeptAnswer


def keep_answer(
    context: IssuerContext, early: TooEarlyError, decision: str, rows: int, reason: str
) -> str:
    """Keep an answer that may not take effect yet; return a sentence that says when it will."""
    run, chunk, day = (early.fields[name] for name in ("run", "number", "day"))
    signed = context.adapters.signed(reason)
    answer = KeptAnswer(**signed, run=run, chunk=chunk, decision=decision, rows=rows)

    def work(act: Act) -> None:
        _drop(act, answer)
        decide(act, ANSWER, run, answer, stands=f"chunk {chunk}")

    enter(context.adapters, context.issuer.issuer, "answer kept", work, run=run, reason=reason)
    return (
        f"{run}, chunk {chunk}: the answer {decision} is kept, since a result may still come; the "
        f"first ingest from {day} on decides so"
    )


def apply_kept(context: IssuerContext) -> list[str]:
    """Let the answers that were kept take effect, where they may by now; say what came of each.

    One whose chunk has another fate by now, such as a result that came, is kept no longer.
    """
    issuer = context.issuer.issuer
    lines: list[str] = []
    for answer in kept_answers(context.adapters, issuer).values():
        place = f"chunk {answer.chunk}"
        reason = f"{answer.reason} (answer kept on {answer.at:%Y-%m-%d} by {answer.by})"
        rows = str(answer.rows)
        try:
            close_break(context, answer.run, RESULT_SHORT, place, reason, answer.decision, (), rows)
        except TooEarlyError:
            continue
        except (NotFoundError, OtherRowsError):
            outcome = "no longer applies"
        except OperatorError as error:
            lines.append(f"{answer.run}, {place}: the answer stays kept: {error.what_happened}")
            continue
        else:
            outcome = f"of {answer.at:%Y-%m-%d} took effect: {counted(answer.rows, 'row')}"
        lines.append(f"{answer.run}, {place}: the answer {answer.decision} {outcome}")
        drop = partial(_drop, answer=answer)
        enter(context.adapters, issuer, "answer not kept any more", drop, run=answer.run)
    return lines


def _drop(act: Act, answer: KeptAnswer) -> None:
    lift(act, ANSWER, answer.run, f"chunk {answer.chunk}")
