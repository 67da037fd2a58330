"""The breaks: every way the results may not balance with what was sent, with its meaning and next
step.
"""

from typing import Final, NamedTuple

from flows.steps import CommandName, Sentence, Text


class Decision(NamedTuple):
    """What an operator may decide about a break: its meaning, its effect, and the reason its rows
    then have.
    """

    meaning: str
    effect: Text
    reason: str = ""


SENT_AGAIN = Sentence(
    "The rows are errors without a link: {resubmit} sends them again.",
    resubmit=CommandName("resubmit"),
)
DECISIONS: Final[dict[str, Decision]] = {}  # by name


def _decision(name: str, meaning: str, effect: Text, reason: str = "") -> str:
    """Add a decision to DECISIONS; return its name."""
    DECISIONS[name] = Decision(meaning, effect, reason)
    return name


EXPLAINED = _decision(
    "explained",
    "The difference is explained.",
    "The break is closed; its rows stay as they are, and those without a link go on waiting.",
)
LOST = _decision(
    "lost",
    "The partner has no usable answer for these rows.",
    SENT_AGAIN,
    "row.result.lost",
)
EXPIRED = _decision(
    "expired",
    "The link cannot be used any more.",
    SENT_AGAIN,
    "row.link.expired",
)
LINK = _decision(
    "link",
    "The link counts.",
    "The rows are linked: links.csv has the link that came last.",
)
ERROR = _decision(
    "error",
    "The error counts.",
    "The rows are errors without a link; errors.csv has the partner's reason.",
    "row.result.lost",
)
# reasons that rows have by a decision of an operator, not by an answer of the partner
DECIDED: Final = frozenset(decision.reason for decision in DECISIONS.values() if decision.reason)
# those that a kind of break offers, the one that can do least harm first
UNUSABLE = (EXPLAINED, LOST)
CONTRADICTED = (ERROR, LOST, LINK)


class BreakKind(NamedTuple):
    """A kind of break; a `notice` is worth reading, but nothing is out of balance.

    `question` is what to ask the partner about each of its rows; `decisions` are those it offers
    (DECISIONS).
    """

    meaning: str
    then: Text
    notice: bool = False
    question: str = ""
    decisions: tuple[str, ...] = (EXPLAINED,)


KINDS: Final[dict[str, BreakKind]] = {}  # by name


def _kind(
    name: str,
    meaning: str,
    then: Text,
    *,
    notice: bool = False,
    question: str = "",
    decisions: tuple[str, ...] = (EXPLAINED,),
) -> str:
    """Add a kind of break to KINDS; return its name."""
    KINDS[name] = BreakKind(meaning, then, notice, question, decisions)
    return name


RESULT_SHORT = _kind(
    "RESULT_SHORT",
    "The result of a chunk does not cover all of its rows.",
    (
        "Download the chunk's result again from the portal; if rows are still missing, ask the "
        "partner, then decide."
    ),
    question="The result of the chunk has no row for it: what became of it?",
    decisions=UNUSABLE,
)
RESULT_LONG = _kind(
    "RESULT_LONG",
    "A chunk has more result rows than rows sent.",
    "Compare the result with the upload; ask the partner why rows appear twice.",
    question="The result has more rows than the chunk: which of them count?",
)
UNKNOWN_CUID = _kind(
    "UNKNOWN_CUID",
    "A result row names a cuid that was not sent in the chunks of its file.",
    "Check whether the file was uploaded manually or for another issuer; its rows were not used.",
    question="We sent no such cardholder in this chunk: whose result is it?",
)
LAST4_MISMATCH = _kind(
    "LAST4_MISMATCH",
    "A result row has the cuid of a sent row but other last four digits.",
    "Do not send this link; ask the partner which card it belongs to.",
    question="The result has other last four digits: which card is the link for?",
    decisions=UNUSABLE,
)
DUPLICATE_RESULT = _kind(
    "DUPLICATE_RESULT",
    "The same result row came in more than one file.",
    "Nothing: it was counted once. The extra file can stay.",
    notice=True,
)
CONFLICTING_RESULT = _kind(
    "CONFLICTING_RESULT",
    (
        "Two files, or two contents of one file that came again, give different results for the "
        "same row."
    ),
    (
        "Find out whether the chunk was uploaded twice, or who changed the file; ask the partner "
        "which result is valid, then decide."
    ),
    question="Two results differ for it: which one is valid?",
    decisions=CONTRADICTED,
)
URL_AND_ERROR = _kind(
    "URL_AND_ERROR",
    "A result row has a link and an error.",
    "Do not send this link; ask the partner whether the card was created, then decide.",
    question="The result has a link and an error: was the card created?",
    decisions=CONTRADICTED,
)
NEITHER_URL_NOR_ERROR = _kind(
    "NEITHER_URL_NOR_ERROR",
    "A result row has neither a link nor an error.",
    "Ask the partner what became of these rows.",
    question="The result has neither a link nor an error: what became of it?",
    decisions=UNUSABLE,
)
UNATTRIBUTED_ERROR = _kind(
    "UNATTRIBUTED_ERROR",
    "An error cannot be matched to a sent row: it names no cuid, and its position proves nothing.",
    Sentence(
        "Read the message in the result file, then {attribute} it; or ask the partner for its "
        "cuid.",
        attribute=CommandName("mend attribute"),
    ),
    question="An error in the result names no cardholder: what became of those without a row?",
    decisions=UNUSABLE,
)
UNNAMED_ROW = _kind(
    "UNNAMED_ROW",
    "A result row names no cuid, and has no error that could name one.",
    "Do not send its link, if it has one; ask the partner whose row it is.",
    question="A row of the result names no cardholder: what became of those without a row?",
    decisions=UNUSABLE,
)
RESULT_FOR_CANCELLED = _kind(
    "RESULT_FOR_CANCELLED",
    (
        "A result came for a chunk that was cancelled: somebody uploaded it. Its rows count as "
        "the result says."
    ),
    Sentence(
        "Find out who uploaded it; check with {trace} whether its rows were also sent in another "
        "run.",
        trace=CommandName("trace"),
    ),
)
FOREIGN_FILE = _kind(
    "FOREIGN_FILE",
    "No row of the file matches a row that was sent.",
    (
        "Move the file to the issuer it belongs to, or remove it from the results folder. Where "
        "the store was put back to a copy, submit the extract again first: it makes the same run, "
        "and the file fits."
    ),
)
DAMAGED_FILE = _kind(
    "DAMAGED_FILE",
    "A result file is empty, truncated or not a result file.",
    "Download it again from the portal.",
)
DAMAGED_COPY = _kind(
    "DAMAGED_COPY",
    "A result file is damaged, and every row of its chunks has its answer all the same.",
    "Nothing: the answers came in another file. The damaged one can be removed.",
    notice=True,
)
MISNAMED_FILE = _kind(
    "MISNAMED_FILE",
    "A result file is named after one chunk but contains the results of another.",
    "Nothing: its rows decided. Check how downloads are named.",
    notice=True,
)
STRANGE_NAME = _kind(
    "STRANGE_NAME",
    (
        "A result file is named after a run that this issuer does not have, but its rows answer "
        "this issuer's."
    ),
    (
        "Its rows decided. Find out whether it belongs to another issuer: cuids of two issuers "
        "can be equal."
    ),
    notice=True,
)
MERGED_FILE = _kind(
    "MERGED_FILE",
    "One result file contains the results of more than one chunk.",
    "Nothing: every row was counted where it belongs.",
    notice=True,
)
URL_NOT_ALLOWED = _kind(
    "URL_NOT_ALLOWED",
    "A link is not https or its host is not one of the issuer's allowed hosts.",
    "Do not send this link; add its host to allowed_hosts only if the partner confirms it.",
    question="The host of the link is not agreed: is it yours?",
    decisions=UNUSABLE,
)
LINK_FORM = _kind(
    "LINK_FORM",
    "A link is not of the form of the partner's links.",
    Sentence(
        "Do not send this link. {check} shows the form it has: ask the partner whether their links "
        "have changed. If so, confirm that form with {link_form}, and ingest again.",
        check=CommandName("check"),
        link_form=CommandName("link-form"),
    ),
    question="The link is not of the form of your other links: is it yours, and whole?",
    decisions=UNUSABLE,
)
LINK_CUT = _kind(
    "LINK_CUT",
    "A link is cut: its result file ends within it, or it is too short.",
    (
        "Download the file again from the portal: the row counts as soon as its whole link comes. "
        "If it is as short there, ask the partner, then decide."
    ),
    question="The link is cut: what is the whole link?",
    decisions=UNUSABLE,
)
LINK_SHOWS_CARD = _kind(
    "LINK_SHOWS_CARD",
    "A link contains what looks like the number of its own card, or a CVV.",
    (
        "Do not send or copy this link, and remove the result file once its rows are decided; ask "
        "the partner, then decide."
    ),
    question="The link seems to contain the card's number or CVV: why?",
    decisions=UNUSABLE,
)
# of a URL that is not a link; whether it is may change with the allowed hosts, confirmed forms
NO_LINK: Final = (URL_NOT_ALLOWED, LINK_FORM, LINK_CUT, LINK_SHOWS_CARD)
LINK_EXPIRED = _kind(
    "LINK_EXPIRED",
    "A link had already expired when its result arrived.",
    "Do not send this link; decide that it expired, then resubmit the rows for new ones.",
    decisions=(EXPIRED, EXPLAINED),
)
EXPIRY_UNREADABLE = _kind(
    "EXPIRY_UNREADABLE",
    "A result says the end of links in a form that cannot be read (A: a letter, 9: a digit).",
    (
        "Send the links: they count, as if they ended two months after they came. Ask the partner "
        "when they end. Where day and month cannot be told apart, set day_first of [portal], and "
        "ingest again."
    ),
)
UNKNOWN_TRANSACTION = _kind(
    "UNKNOWN_TRANSACTION",
    "A row of a transaction report names no cuid with a link from us.",
    (
        "Check whether the report belongs to another issuer; ask the partner how that cardholder "
        "got a link."
    ),
)
DAMAGED_TRANSACTIONS = _kind(
    "DAMAGED_TRANSACTIONS",
    "A transaction file is empty, too large or not a transaction report.",
    "Download it again from the portal; where its columns have other names, say them in "
    "[service.report].",
)
UNREADABLE_TRANSACTIONS = _kind(
    "UNREADABLE_TRANSACTIONS",
    "A transaction report says days in a form that cannot be read (A: a letter, 9: a digit).",
    "Ask the partner how they are written; until then its rows have no day of completion.",
)

# result rows of a chunk that may answer any of its unanswered rows
PLACELESS = (UNATTRIBUTED_ERROR, UNNAMED_ROW)


class Break(NamedTuple):
    """One break: kind, rows affected (chunks, for a merged file), place, next step, run."""

    name: str
    rows: int
    place: str
    then: str
    run: str = ""

    @property
    def notice(self) -> bool:
        """True where nothing is out of balance."""
        return KINDS[self.name].notice


def break_of(name: str, rows: int, place: str, run: str = "") -> Break:
    """Return a break of kind `name` with its next step."""
    return Break(name, rows, place, str(KINDS[name].then), run)
