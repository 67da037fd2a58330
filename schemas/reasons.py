"""Reason codes, `entity.property.kind`, for our rejects and the partner's errors alike: who acts, what is accepted.

What a rule says stands in its entry of `schemas.rules`, what any other reason of ours says in its entry below. Of the
partner's errors the kind decides the action, and the property the hint. `python -m schemas.reasons > deploy/REASONS.md`
writes the page of them all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple, get_args

from schemas import portal, rules
from schemas.actions import ASK, FIX, NOTHING, RESUBMIT
from schemas.row_settings import RuleSettings, Severity


class Reason(NamedTuple):
    """A code, who acts on it (`action`), and what would be accepted (`hint`)."""

    code: str
    action: str
    hint: str


class Entry(NamedTuple):
    """A reason that is no rule of a row's cells; `happens`: what happens to the row or line by default."""

    code: str
    happens: str
    action: str
    hint: str = ""  # what would be accepted, where that is not what its column accepts


LINES = (  # a line that is no record
    Entry("line.encoding.invalid", "reject", FIX, "text in the encoding the issuer's [source] names"),
    Entry("line.character.control", "reject", FIX, "no control characters"),
    Entry("line.quote.unterminated", "reject", FIX, "a field in double quotes, with quotes inside it doubled"),
    Entry("line.quote.bare", "reject", FIX, "a field in double quotes, with quotes inside it doubled"),
    Entry("line.fields.too_few", "reject", FIX, "as many fields as the header has"),
    Entry("line.fields.too_many", "reject", FIX, "as many fields as the header has"),
    Entry("line.fields.empty", "reject", FIX, "as many fields as the header has"),
    Entry("line.length.short", "reject", FIX, "a line as long as the fields' positions need"),
    Entry("line.length.long", "reject", FIX, "a line as long as the fields' positions need"),
)
_RESTS = "a card without a link, or one that changed or whose link ends soon"
_ABSENT = "a card that stands in the latest extract, in a row that can be sent"
ROWS = (  # a row among others, of this extract or of earlier runs
    Entry("row.content.repeated", "not sent: duplicate", NOTHING, "each row once"),
    Entry("card.pan.repeated", "not sent: duplicate", NOTHING, "each card of a cardholder once"),
    Entry(
        "card.pan.other_cuid", "`other_cuid`: warn", FIX, "one cuid for all rows of a card, unless its holders differ"
    ),
    Entry("row.filter.excluded", "not sent: suppressed", NOTHING, "rows that the issuer's [filter] lets through"),
    Entry("cardholder.cuid.missing", "reject, in a portfolio only", FIX),
    Entry("card.link.standing", "not sent: suppressed", NOTHING, _RESTS),
    Entry("card.link.awaiting", "not sent: suppressed", NOTHING, _RESTS),
    Entry("card.link.refused", "not sent: suppressed", FIX, _RESTS),
    Entry("card.link.renewed", "not renewed", NOTHING, _RESTS),
    Entry("card.extract.absent", "not renewed", NOTHING, _ABSENT),
    Entry("card.extract.refused", "not renewed", FIX, _ABSENT),
    Entry(
        "card.expiration.before_link",
        "not renewed",
        NOTHING,
        "a card that outlives its link: one that ends first needs no other link",
    ),
)
PARTNER = {  # the kinds of the partner's errors that no rule of ours has
    "unavailable": RESUBMIT, "length": FIX, "exists": ASK, "unsupported": ASK, "unreadable": ASK, "other": ASK,
}  # fmt: skip

_ENTRIES = {entry.code: entry for entry in (*LINES, *ROWS)}
ACTIONS = (
    {code.rpartition(".")[2]: entry.action for code, entry in _ENTRIES.items()}
    | {rule.code.rpartition(".")[2]: rule.action for rule in rules.RULES}
    | PARTNER
)
HINTS = {column.subject: column.accepts for column in portal.COLUMNS}


def reason(code: str) -> Reason:
    """Return what `code` asks for; an unknown kind goes to the partner, an unknown property has no hint."""
    subject, _, kind = code.rpartition(".")
    rule = next((rule for rule in rules.RULES if rule.code == code), None)
    if rule is not None:
        return Reason(code, rule.action, rule.hint or HINTS.get(subject, ""))
    if code in _ENTRIES:
        return Reason(code, _ENTRIES[code].action, _ENTRIES[code].hint or HINTS.get(subject, ""))
    return Reason(code, ACTIONS.get(kind, ASK), HINTS.get(subject, ""))


def page() -> str:
    """Return `deploy/REASONS.md`: every reason, what happens to the row by default, who acts, what is accepted."""
    return "\n".join(_page())


def _page() -> Iterator[str]:
    yield INTRODUCTION
    yield from (
        "## What a row must hold",
        "",
        "| code | column | by default | who acts | accepted |",
        "|---|---|---|---|---|",
    )
    for rule in rules.RULES:
        _, action, hint = reason(rule.code)
        yield f"| `{rule.code}` | `{rule.column}` | {_severity(rule)} | {action} | {hint} |"
    for title, entries in (("What a line must be", LINES), ("Rows among others", ROWS)):
        yield from ("", f"## {title}", "", "| code | by default | who acts | accepted |", "|---|---|---|---|")
        told = ((one, reason(one.code)) for one in entries)
        yield from (f"| `{one.code}` | {one.happens} | {one.action} | {hint} |" for one, (_, _, hint) in told)
    yield from ("", "## The partner's errors", "", PARTNERS, "", "| kind | who acts |", "|---|---|")
    yield from (f"| `{kind}` | {action} |" for kind, action in sorted(PARTNER.items()))
    yield ""


def _severity(rule: rules.Rule) -> str:
    default = rule.severity_by(RuleSettings())
    return default if rule.severity in get_args(Severity) else f"`{rule.severity}`: {default}"


INTRODUCTION = """# Reasons

Every reason code that a report, `rejects.csv` or a correction template can show. The page is made from the tables in
`schemas/rules.py` and `schemas/reasons.py` by `python -m schemas.reasons > deploy/REASONS.md`; a test compares.

*By default*: `reject` keeps the row back, `warn` sends it and reports it. Where a name stands before it, that setting
of `[rules]` decides: `reject`, `warn` or `off`. Of the rules that a cell breaks, the first of the table is reported.
*Who acts*: "fix at source" is for the issuer, "resubmit as is" for the operator; "nothing" is for nobody.
"""
PARTNERS = """The partner's messages are read as `entity.property.kind` too. The kinds are those above, which ask for
the same there, and these; what is accepted is what the column accepts."""

if __name__ == "__main__":
    sys.stdout.write(page())
