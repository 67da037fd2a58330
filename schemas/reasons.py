"""Reason codes, `entity.property.kind`, for our rejects and the partner's errors alike: who acts,
what is accepted.

What a rule says stands in its entry of `schemas.rules`, what any other reason of ours says in its
entry below. Of the partner's errors the kind decides the action, and the property the hint.
`deploy/REASONS.md` is the page of them all.
"""

from typing import NamedTuple

from schemas import portal, rules
from schemas.actions import ASK, FIX, NOTHING, RESUBMIT
from schemas.rule import SEVERITY_SETTINGS, Rule


class Reason(NamedTuple):
    """A code, what happens to its row or line, who acts, what would be accepted."""

    code: str
    # reject, or the setting of [rules] that decides; of rows among others, what happens in words
    severity: str
    action: str
    hint: str = ""  # "" in the tables below: what its column accepts

    @property
    def advice(self) -> str:
        """What would be accepted, and the setting that would let it pass; "" where neither is
        known.
        """
        # nobody is advised to send card numbers as text
        passable = self.severity in SEVERITY_SETTINGS - {"card_in_text"}
        passes = (
            f'to send it as it is, set `{self.severity} = "warn"` in [rules]' if passable else ""
        )
        return "; ".join(filter(None, (self.hint and f"accepted: {self.hint}", passes)))


CANCELLED_CHUNK = "row.chunk.cancelled"
LINES = (  # a line that is no record
    Reason(
        "line.encoding.invalid", "reject", FIX, "text in the encoding the issuer's [source] names"
    ),
    Reason("line.character.control", "reject", FIX, "no control characters"),
    Reason(
        "line.quote.unterminated",
        "reject",
        FIX,
        "a field in double quotes, with quotes inside it doubled",
    ),
    Reason(
        "line.quote.bare",
        "reject",
        FIX,
        "a field in double quotes, with quotes inside it as `quoting` says",
    ),
    Reason("line.fields.too_few", "reject", FIX, "as many fields as the header has"),
    Reason("line.fields.too_many", "reject", FIX, "as many fields as the header has"),
    Reason("line.fields.empty", "reject", FIX, "as many fields as the header has"),
    Reason("line.length.short", "reject", FIX, "a line as long as the fields' positions need"),
    Reason("line.length.long", "reject", FIX, "a line as long as the fields' positions need"),
)
_RESTS = "a card without a link, or one that changed or whose link ends soon"
_ABSENT = "a card that stands in the latest extract, in a row that can be sent"
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
    Reason("card.link.standing", "not sent: suppressed", NOTHING, _RESTS),
    Reason("card.link.awaiting", "not sent: suppressed", NOTHING, _RESTS),
    Reason("card.link.refused", "not sent: suppressed", FIX, _RESTS),
    Reason("card.link.renewed", "not renewed", NOTHING, _RESTS),
    Reason("card.extract.absent", "not renewed", NOTHING, _ABSENT),
    Reason("card.extract.refused", "not renewed", FIX, _ABSENT),
    Reason("card.expiration.before_link", "not renewed", NOTHING, "a card that outlives its link"),
    Reason("row.result.lost", "error, by an operator's decision", RESUBMIT),
    Reason("row.link.expired", "error, by an operator's decision", RESUBMIT),
    Reason(
        CANCELLED_CHUNK,
        "not sent, by an operator's decision",
        NOTHING,
        "`cardlink resubmit RUN --missing`",
    ),
)
PARTNER = {  # the kinds of the partner's errors that no rule of ours has
    "unavailable": RESUBMIT, "length": FIX, "exists": ASK, "unsupported": ASK, "unreadable": ASK, "other": ASK,
}  # fmt: skip


def _ours() -> tuple[Reason | Rule, ...]:
    return (*LINES, *ROWS, *rules.RULES)


ACTIONS = {one.code.rpartition(".")[2]: one.action for one in _ours()} | PARTNER
HINTS = {portal.subject(name): column.accepts for name, column in portal.COLUMNS.items()}


def reason(code: str) -> Reason:
    """Return what `code` asks for; an unknown kind goes to the partner, an unknown property has no
    hint.
    """
    subject, _, kind = code.rpartition(".")
    given = next(
        ((one.severity, one.action, one.hint) for one in _ours() if one.code == code), None
    )
    severity, action, hint = given or ("", ACTIONS.get(kind, ASK), "")
    return Reason(code, severity, action, hint or HINTS.get(subject, ""))
