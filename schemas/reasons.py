"""Reason codes, `entity.property.kind`, of our rejects and the partner's errors: who acts, what is
accepted.

What a rule says is in its entry of `schemas.rules`, what any other reason of ours says in its entry
below. Of the partner's errors the kind decides the action, and the property the hint.
`deploy/REASONS.md` is the page of them all.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from flows.steps import CUID, ISSUER, RUN, WHY, Sentence, Step, Text
from schemas import portal, rules
from schemas.actions import ASK, FIX, NOT_ELIGIBLE, NOTHING, RENEW, RESUBMIT
from schemas.rule import Rule


class Reason(NamedTuple):
    """A code, what happens to its row or line, who acts, what would be accepted."""

    code: str
    # reject, or the setting of [rules] that decides; of rows among others, what happens in words
    severity: str
    action: str
    hint: Text = ""  # "" in the tables below: what its column accepts


CANCELLED_CHUNK = "row.chunk.cancelled"
# Why the row of a card that was seen before is suppressed.
STANDING = "card.link.standing"  # has a link that does not expire soon
AWAITED = "card.link.awaiting"  # sent, and not answered yet
REFUSED = "card.link.refused"  # refused by the partner and unchanged since
CHANGED = "card.content.changed"  # its name or address is not what its link was made from
# its name and address are again what its link was made from, or after a row that could not be sent
# it has one that can
REVERTED = "card.content.reverted"
CHANGES = (CHANGED, REVERTED)
# Why a row is not eligible.
LENGTH_NOT_TAKEN = "card.pan.length_not_taken"
NETWORK_NOT_TAKEN = "card.pan.network_not_taken"
COUNTRY_NOT_SERVED = "address.country.not_served"
ENDS_BEFORE_LINK = "card.expiration.not_eligible"
NOT_WANTED = "row.eligible.not_wanted"
NOT_ELIGIBLES = (
    LENGTH_NOT_TAKEN,
    NETWORK_NOT_TAKEN,
    COUNTRY_NOT_SERVED,
    ENDS_BEFORE_LINK,
    NOT_WANTED,
)
EXCLUDED = "row.filter.excluded"  # left out by [status]
UNKNOWN_STATUS = "row.status.unknown"  # its status is one that [status] does not name
GIVEN_UP = "card.given.up"  # an operator decided that it needs no link
ERASED = "card.holder.erased"  # its cardholder is forgotten: nothing of the row is kept
DELETED = "card.row.deleted"  # its extract marks it as deleted: it is closed
UNREADABLE_DELETION = "card.row.deleted_unreadable"  # so does this one, without saying which card
# by [status]: a row of a card that needs no link, as its issuer says
SET_ASIDE = (EXCLUDED, DELETED, UNREADABLE_DELETION)
LINK_ENDED = "card.link.expired"  # had a link, which ended
SEEN = frozenset({STANDING, AWAITED, CHANGED, REVERTED})
SUPPRESSED = SEEN | {GIVEN_UP, DELETED, UNREADABLE_DELETION}  # what suppressed.csv lists
# Why a link that ends soon or has ended is not renewed.
ABSENT = "card.extract.absent"  # its card is not in the latest extract of a full portfolio
UNFIT = "card.extract.refused"  # its card's newest row was refused by us
INELIGIBLE = "card.extract.not_eligible"  # its card's newest row is not eligible
GONE = "card.extract.gone"  # the extract with its card's newest row is not stored any more
TYPED_IN = "card.extract.none"  # its card was in no extract: its fields were typed in
# `[status]` leaves it out of a later extract, which is no portfolio
EXCLUDED_SINCE = "card.extract.excluded"
DYING = "card.expiration.before_link"  # the card expires first: a new link would be of no use
_QUOTED = "a field in double quotes, with quotes inside it"
_FIELDS = "as many fields as the header has"
_LENGTH = "a line or record as long as its fields need"
LINES = (  # a line that is no record
    Reason(
        "line.encoding.invalid", "reject", FIX, "text in the encoding the issuer's [source] names"
    ),
    Reason("line.character.control", "reject", FIX, "no control characters"),
    Reason("line.quote.unterminated", "reject", FIX, f"{_QUOTED} doubled"),
    Reason("line.quote.bare", "reject", FIX, f"{_QUOTED} as `quoting` says"),
    Reason("line.fields.too_few", "reject", FIX, _FIELDS),
    Reason("line.fields.too_many", "reject", FIX, _FIELDS),
    Reason("line.fields.empty", "reject", FIX, "at least one field with text in it"),
    Reason("line.length.short", "reject", FIX, _LENGTH),
    Reason("line.length.long", "reject", FIX, _LENGTH),
    Reason(
        "segment.order.orphan",
        "reject",
        FIX,
        "a record behind the one that it belongs to, by the order of `segments`",
    ),
    Reason("segment.order.repeated", "reject", FIX, "at most one part of each type behind a row"),
    Reason("segment.type.unknown", "reject", FIX, "a record of a type that `segments` names"),
    Reason(
        "segment.key.missing",
        "reject",
        FIX,
        "a record with the same key of each type that `segment_optional` does not name",
    ),
    Reason(
        "segment.key.ambiguous",
        "reject",
        FIX,
        "one record with the same key of each type, or the same record again",
    ),
    Reason(
        "join.row.missing",
        "reject",
        FIX,
        "a row with the same key in the second file",
    ),
    Reason(
        "join.row.ambiguous",
        "reject",
        FIX,
        "one row with the same key in the second file, or the same row again",
    ),
    Reason("record.number.invalid", "reject", FIX, "a number as the field's PIC and USAGE say"),
)
_INELIGIBLE = "not sent: not eligible"
LETTERS = tuple(  # letters of a text that became question marks
    Reason(
        f"{portal.subject(column)}.lost_letters",
        "lost_letters",
        FIX,
        "the letters that became `?`: the export could not write them, so it needs another "
        "encoding, and `encoding` in [source] the same",
    )
    for column in portal.PROSE
)
_SENT = "a card without a link, or one that changed or whose link ends soon"
_ABSENT = "a card that is in the latest extract, in a row that can be sent"
_NAMED_AGAIN = "the extract put back as it was, or these cardholders in a new extract"
ROWS = (  # a row among others, of this extract or of earlier runs
    Reason("row.content.repeated", "not sent: duplicate", NOTHING, "each row once"),
    Reason("card.pan.repeated", "not sent: duplicate", NOTHING, "each card of a cardholder once"),
    Reason(
        "card.pan.other_cuid", "other_cuid", FIX, "one cuid for all rows of one holder of a card"
    ),
    Reason(
        EXCLUDED,
        "not sent: suppressed",
        NOTHING,
        "rows that the issuer's [status] sends",
    ),
    Reason(
        UNKNOWN_STATUS,
        "reject; by [status] `unknown` the extract is refused",
        FIX,
        "a value that [status] names: ask the issuer what it means, and add it there",
    ),
    Reason(
        DELETED,
        "not sent: suppressed",
        NOTHING,
        "a row that the issuer's [status] does not delete, where the card is to be linked",
    ),
    Reason(
        UNREADABLE_DELETION,
        "not sent: suppressed",
        FIX,
        "the cardholder's cuid and the whole card number: as it is, the row closes no card",
    ),
    Reason(LENGTH_NOT_TAKEN, _INELIGIBLE, NOT_ELIGIBLE, "a card with a number of 16 digits"),
    Reason(NETWORK_NOT_TAKEN, _INELIGIBLE, NOT_ELIGIBLE, "a card of the `networks` in [eligible]"),
    Reason(
        COUNTRY_NOT_SERVED,
        _INELIGIBLE,
        NOT_ELIGIBLE,
        "an address in the US or Canada, or in the `countries` of [eligible]",
    ),
    Reason(ENDS_BEFORE_LINK, _INELIGIBLE, NOT_ELIGIBLE, "a card that is valid until its link ends"),
    Reason(NOT_WANTED, _INELIGIBLE, NOT_ELIGIBLE, "a row that fulfils `where` in [eligible]"),
    Reason("cardholder.cuid.missing", "reject, in a portfolio only", FIX),
    Reason(STANDING, "not sent: suppressed", NOTHING, _SENT),
    Reason(AWAITED, "not sent: suppressed", NOTHING, _SENT),
    Reason(REFUSED, "not sent: suppressed", FIX, _SENT),
    Reason(
        CHANGED,
        "not sent: suppressed, its card has or awaits a link of another name or address",
        RESUBMIT,
        Sentence(
            "{resubmit}", resubmit=Step("resubmit", RUN, changed=True, reason=WHY, dry_run=True)
        ),
    ),
    Reason(
        REVERTED,
        "not sent: suppressed, its name and address are as sent, or its row can be sent again",
        NOTHING,
        _SENT,
    ),
    Reason(
        GIVEN_UP,
        "not sent: suppressed",
        NOTHING,
        Sentence(
            "{take_up}, where it needs a link after all",
            take_up=Step("mend give-up", ISSUER, cuid=CUID, undo=True, reason=WHY),
        ),
    ),
    Reason(
        ERASED,
        "not sent, or no longer named: the cardholder is forgotten",
        NOTHING,
        "an erasure is final; the issuer deletes the person's row at the source",
    ),
    Reason(
        LINK_ENDED,
        "linked until its link ended",
        RENEW,
        Sentence("{renew}", renew=Step("renew", ISSUER, dry_run=True)),
    ),
    Reason(ABSENT, "not renewed", NOTHING, _ABSENT),
    Reason(UNFIT, "not renewed", FIX, "the card in a later extract, in a row that can be sent"),
    Reason(
        INELIGIBLE,
        "not renewed",
        NOT_ELIGIBLE,
        "the card in a later extract, in a row that is eligible",
    ),
    Reason(
        EXCLUDED_SINCE,
        "not renewed, nor sent again",
        NOTHING,
        "the card in a later extract, in a row that [status] sends",
    ),
    Reason(GONE, "not renewed", FIX, _NAMED_AGAIN),
    Reason(
        TYPED_IN,
        "not renewed",
        RENEW,
        Sentence("another single link: {link}", link=Step("link", ISSUER, prompt=True)),
    ),
    Reason(DYING, "not renewed", NOTHING, "a card that outlives its link"),
    Reason("row.result.lost", "error, by an operator's decision", RESUBMIT),
    Reason("row.link.expired", "error, by an operator's decision", RESUBMIT),
    Reason(
        CANCELLED_CHUNK,
        "not sent, by an operator's decision",
        NOTHING,
        Sentence("{resubmit}", resubmit=Step("resubmit", RUN, missing=True, dry_run=True)),
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
    yield from LETTERS
    yield from rules.RULES


ACTIONS = {entry.code.rpartition(".")[2]: entry.action for entry in _entries()} | PARTNER
HINTS = {portal.subject(name): column.hint for name, column in portal.COLUMNS.items()}


def seen_rows(reasons: Mapping[str, int]) -> int:
    """Return how many rows are suppressed because their card has or awaits a link.

    `reasons`: rows by code.
    """
    return sum(reasons.get(code, 0) for code in SEEN)


def suppressed_rows(reasons: Mapping[str, int]) -> int:
    """Return how many rows are suppressed for what is known of their card (SUPPRESSED)."""
    return sum(reasons.get(code, 0) for code in SUPPRESSED)


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
