"""Reason codes, `entity.property.kind`, of our rejects and the partner's errors: who acts, what is
accepted.

What a rule says is in its entry of `schemas.rules`, what any other reason of ours says in its entry
below. Of the partner's errors the kind decides the action, and the property the hint.
`deploy/REASONS.md` is the page of them all.
"""

from collections.abc import Iterator
from typing import NamedTuple

from flows.steps import RUN, Sentence, Step, Text
from schemas import portal, rules
from schemas.actions import ASK, FIX, NOTHING, RESUBMIT
from schemas.rule import SEVERITY_SETTINGS, Rule


class Reason(NamedTuple):
    """A code, what happens to its row or line, who acts, what would be accepted."""

    code: str
    # reject, or the setting of [rules] that decides; of rows among others, what happens in words
    severity: str
    action: str
    hint: Text = ""  # "" in the tables below: what its column accepts

    @property
    def advice(self) -> str:
        """What would be accepted, and the setting that would let it pass; "" where neither is
        known.
        """
        parts = []
        if self.hint:
            parts.append(f"accepted: {self.hint}")
        # nobody is advised to send card numbers as text
        if self.severity in SEVERITY_SETTINGS - {"card_in_text"}:
            parts.append(f'to send it as it is, set `{self.severity} = "warn"` in [rules]')
        return "; ".join(parts)


CANCELLED_CHUNK = "row.chunk.cancelled"
_QUOTED = "a field in double quotes, with quotes inside it"
_FIELDS = "as many fields as the header has"
_LENGTH = "a line as long as the fields' positions need"
LINES = (  # a line that is no record
    Reason(
        "line.encoding.invalid", "reject", FIX, "text in the encoding the issuer's [source] names"
    ),
    Reason("line.character.control", "reject", FIX, "no control characters"),
    Reason("line.quote.unterminated", "reject", FIX, f"{_QUOTED} doubled"),
    Reason("line.quote.bare", "reject", FIX, f"{_QUOTED} as `quoting` says"),
    Reason("line.fields.too_few", "reject", FIX, _FIELDS),
    Reason("line.fields.too_many", "reject", FIX, _FIELDS),
    Reason("line.fields.empty", "reject", FIX, _FIELDS),
    Reason("line.length.short", "reject", FIX, _LENGTH),
    Reason("line.length.long", "reject", FIX, _LENGTH),
)
_SENT = "a card without a link, or one that changed or whose link ends soon"
_ABSENT = "a card that is in the latest extract, in a row that can be sent"
ROWS = (  # a row among others, of this extract or of earlier runs
    Reason("row.content.repeated", "not sent: duplicate", NOTHING, "each row once"),
    Reason("card.pan.repeated", "not sent: duplicate", NOTHING, "each card of a cardholder once"),
    Reason(
        "card.pan.other_cuid", "other_cuid", FIX, "one cuid for all rows of one holder of a card"
    ),
    Reason(
        "row.filter.excluded",
        "not sent: suppressed",
        NOTHING,
        "rows that the issuer's [filter] lets through",
    ),
    Reason("cardholder.cuid.missing", "reject, in a portfolio only", FIX),
    Reason("card.link.standing", "not sent: suppressed", NOTHING, _SENT),
    Reason("card.link.awaiting", "not sent: suppressed", NOTHING, _SENT),
    Reason("card.link.refused", "not sent: suppressed", FIX, _SENT),
    Reason("card.link.renewed", "not renewed", NOTHING, _SENT),
    Reason("card.extract.absent", "not renewed", NOTHING, _ABSENT),
    Reason("card.extract.refused", "not renewed", FIX, _ABSENT),
    Reason("card.expiration.before_link", "not renewed", NOTHING, "a card that outlives its link"),
    Reason("row.result.lost", "error, by an operator's decision", RESUBMIT),
    Reason("row.link.expired", "error, by an operator's decision", RESUBMIT),
    Reason(
        CANCELLED_CHUNK,
        "not sent, by an operator's decision",
        NOTHING,
        Sentence("{resubmit}", resubmit=Step("resubmit", RUN, missing=True)),
    ),
)
# The kinds of the partner's errors that no rule of ours has.
PARTNER = {
    "unavailable": RESUBMIT,
    "length": FIX,
    "exists": ASK,
    "unsupported": ASK,
    "unreadable": ASK,
    "other": ASK,
}


def _entries() -> Iterator[Reason | Rule]:
    """Yield everything that has a code of ours."""
    yield from LINES
    yield from ROWS
    yield from rules.RULES


ACTIONS = {entry.code.rpartition(".")[2]: entry.action for entry in _entries()} | PARTNER
HINTS = {portal.subject(name): column.accepts for name, column in portal.COLUMNS.items()}


def reason(code: str) -> Reason:
    """Return what `code` asks for.

    An unknown kind goes to the partner, an unknown property has no hint.
    """
    subject, _, kind = code.rpartition(".")
    hint: Text = HINTS.get(subject, "")
    for entry in _entries():
        if entry.code == code:
            return Reason(code, entry.severity, entry.action, entry.hint or hint)
    return Reason(code, "", ACTIONS.get(kind, ASK), hint)
