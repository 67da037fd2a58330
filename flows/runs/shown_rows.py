"""A decision about several rows carries how many of them were shown to whoever decided.

Where there are others by the time it is made, it is refused: it was made about others.
"""

from flows.errors import OperatorError
from flows.steps import Option, Sentence, Slot, Step


class OtherRowsError(OperatorError):
    """A decision is about other rows than those that were shown."""

    message = "{place}: this is about {count:row} now, {shown}. Nothing was decided."
    next_step = Sentence(
        "{worklist} shows them as they are now; {same_command} with {dry_run} shows how many.",
        worklist=Step("worklist", Slot("issuer")),
        dry_run=Option("--dry-run"),
    )


def refuse_other_rows(issuer: str, place: str, count: int, rows: str | None) -> None:
    """Raise OtherRowsError unless a decision is about just so many rows as were shown.

    `rows`: how many a person was shown; None where nothing has to be compared.
    """
    if rows is not None and rows != str(count):
        shown = f"not {rows}" if rows else "and no number was given"
        raise OtherRowsError(issuer=issuer, place=place, count=count, shown=shown)
