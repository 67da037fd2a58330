"""The kinds of work: what is the matter, the first step, and the decisions that can follow.

The worklist is a conversation. A kind never decides for the operator: its first step asks,
downloads or shows something wherever that is possible, and its choices come after it, the one that
can do least harm first. (Confirming a delivery, ingesting a file again, requesting a single link
once more and carrying out another person's request are themselves the first step.)
Put here what is said about a kind of work: one `Kind`. Which work there is comes from
`flows.reports.worklist`, for what runs have, and `flows.operations.undecided_work`, for what stands
beside them; a break has its line by its kind in `schemas.breaks` alone. The file is one table, and
long for that reason alone.
"""

from functools import cache
from itertools import chain
from typing import Final, Literal, NamedTuple

from flows.extensions import hooks
from flows.steps import CUID, EXTRACT, FILE, FOLDER, RECEIPT, WHY, Slot, Step, Text
from schemas import breaks
from schemas.breaks import DECISIONS, KINDS, LOST, RESULT_SHORT
from schemas.reasons import ABSENT, GONE, LINK_ENDED, UNFIT

# who acts
ISSUER = "issuer"
PARTNER = "partner"
OPERATOR = "operator"

FEW = 3
MANY = 12

CARDHOLDERS = "cardholder"
ROWS = "row"


class Choice(NamedTuple):
    """A decision that can follow: its name, what it does, and the command for it."""

    name: str
    effect: Text
    command: Step
    # what its command can take at once
    widest: Literal["chunk", "run", "issuer", "issuers"] = "issuers"
    # only about what is late: where all of its work is, any of it, or some beside some that is not
    late: Literal["", "all", "any", "mixed"] = ""
    does: Step | None = None  # what its command carries out, where it is by number

    @property
    def label(self) -> str:
        """Its name as a command takes it."""
        return self.name.replace(" ", "-")

    @property
    def needs_reason_alone(self) -> bool:
        """Whether its command needs nothing more of a person, so that it can be made by number."""
        return {*self.command.placeholders} <= {WHY.name, RECEIPT.name}

    @property
    def facts(self) -> dict[str, str]:
        """The choice as plain facts."""
        return {
            "decision": self.name,
            "effect": str(self.effect),
            "command": str(self.command),
            "does": str(self.does or self.command),
        }

    def __str__(self) -> str:
        return f"{self.name}: {self.command}"


class Kind(NamedTuple):
    """A kind of matter: of a line of the worklist, or of news that end by themselves.

    `matter` says what is the matter, `then` what to do about it; `noun` and `rows` name what is
    counted. The slots of steps: `target`, the run or, for several, the issuer; `issuer`, `run`,
    `chunk`, `chunks`, `place`, `rows`, `codes`, `before`, and those that the work itself has.
    """

    name: str
    who: str
    matter: str
    first: Step
    then: str = ""
    choices: tuple[Choice, ...] = ()
    noun: str = "run"
    rows: str = ROWS
    of_one_run: bool = False  # its first step takes one run, so each run has a line of its own
    several: bool = False  # its first step takes several issuers, so all of them can have one line
    joins: str = ""  # the kind whose line stands for it and others that the same command settles
    named: int = FEW  # files or days named in its sentence
    noted: int = 1  # things of which it says what is known of each; else of the first alone
    is_alert: bool = False  # it is past its time where it holds: people are told
    is_news: bool = False  # people are told of it, and there is nothing of it in the worklist


WORK: Final[dict[str, Kind]] = {}  # by name


def _kind(kind: Kind) -> str:
    """Add a kind to WORK; return its name."""
    WORK[kind.name] = kind
    return kind.name


_INGEST = Step("ingest", Slot("issuer"))
_QUESTIONS = Step("questions", Slot("issuer"), to=FILE)
# the first step where the partner was asked, and the choice beside it
_ANSWERS = Step("answers", FILE, reason=WHY, dry_run=True)
_ASK_AGAIN = Choice("ask again", "The same questions, and newer ones.", _QUESTIONS)
_REPORT = Step("report", Slot("run"))
_CANCEL = Choice(
    "cancel",
    "The chunks are never sent.",
    Step("outbox cancel", Slot("run"), Slot("chunks"), reason=WHY),
    widest="run",
)


# of just the reasons that the line is about, so that no other line means the same rows
# and its dry run, whose next step has the number of rows: it is that of the command by construction
_RESUBMIT = Step("resubmit", Slot("target"), code=Slot("codes"), reason=WHY, dry_run=True)


def _send_again(effect: str) -> Choice:
    return Choice("send again", effect, _RESUBMIT)


def _rows_to_send_again(name: str, matter: str, effect: str, *, joins: str = "") -> str:
    """Add a kind of rows that go out again unchanged, or are given up; return its name."""
    kind = Kind(
        name,
        OPERATOR,
        matter,
        _RESUBMIT,
        choices=(_send_again(effect), _GIVE_OLD_UP, _GIVE_UP),
        rows=CARDHOLDERS,
        several=True,
        joins=joins,
    )
    return _kind(kind)


_NEEDS_NONE = "They need no link: nobody waits for them, and they are not sent again."
_GIVE_UP = Choice(
    "give up",
    _NEEDS_NONE,
    Step("mend give-up", Slot("target"), code=Slot("codes"), rows=Slot("rows"), reason=WHY),
)
# the rows that have waited too long, without those of last night
_GIVE_OLD_UP = Choice(
    "give up the old",
    "Those whose run is more than two weeks old need no link.",
    _GIVE_UP.command.adding(before=Slot("before")),
    late="mixed",
)
_GIVE_CHUNK_UP = Choice(
    "give up",
    "The cardholders who still wait in these chunks need no link; nobody waits for the answer.",
    Step("mend give-up", Slot("run"), chunk=Slot("chunks"), rows=Slot("rows"), reason=WHY),
    widest="run",
    late="all",
)
# of cards whose fields were typed in, which no code means
_GIVE_ONE_UP = Choice(
    "give up",
    "This cardholder needs no link.",
    Step("mend give-up", Slot("issuer"), cuid=CUID, reason=WHY),
    widest="issuer",
)


TO_UPLOAD = _kind(
    Kind(
        "chunks to upload",
        OPERATOR,
        "To be uploaded to the portal",
        Step("upload", Slot("target"), Slot("chunk"), to=FOLDER),
        "Fetch them, upload each file, then record it.",
        (
            Choice(
                "record",
                "They are uploaded to the portal: those that were fetched to the folder.",
                Step("upload", Slot("target"), Slot("chunk"), to=FOLDER, done=True),
            ),
            Choice(
                "hold back",
                "They cannot be fetched until they are released.",
                Step("outbox hold", Slot("run"), Slot("chunks"), reason=WHY),
                widest="run",
            ),
            _CANCEL,
        ),
        noun="chunk",
    )
)
OTHER_KEY = _kind(
    Kind(
        "chunks sealed to another key",
        OPERATOR,
        "They wait, sealed to a key that is no longer pinned, so the portal may not open them",
        Step("mend reseal", Slot("run"), reason=WHY, dry_run=True),
        "Do not upload them.",
        (
            Choice(
                "seal again",
                "The same rows are sealed to the keys that are pinned now.",
                Step("mend reseal", Slot("run"), reason=WHY),
            ),
            _CANCEL,
        ),
        noun="chunk",
        of_one_run=True,
    )
)
ON_HOLD = _kind(
    Kind(
        "chunks on hold",
        OPERATOR,
        "On hold in the outbox",
        Step("upload", Slot("run")),
        then="Read why, and find out whether that still holds.",
        choices=(
            Choice(
                "release",
                "They wait for the upload again.",
                Step("outbox release", Slot("run"), Slot("chunks"), reason=WHY),
                widest="run",
            ),
            _CANCEL,
        ),
        noun="chunk",
        of_one_run=True,
    )
)
AWAITED = _kind(
    Kind(
        "results awaited",
        PARTNER,
        "Uploaded, and the answer is not due yet",
        _INGEST,
        "Wait until then; download the results from the portal, then ingest.",
        noun="chunk",
        several=True,
    )
)
OVERDUE = _kind(
    Kind(
        "results overdue",
        OPERATOR,
        "Uploaded, and no answer came in time",
        _QUESTIONS,
        (
            "Look for the results at the portal first, and download them: a file that is dropped "
            "is a line of its own, to ingest. If there are none, send the questions to the partner."
        ),
        (
            Choice(
                "release",
                "It was never uploaded, as the partner says: it waits for the upload again.",
                Step("outbox release", Slot("run"), Slot("chunk"), reason=WHY),
                widest="chunk",
                late="all",
            ),
            Choice(
                LOST,
                DECISIONS[LOST].effect,
                Step(
                    "mend close",
                    Slot("run"),
                    RESULT_SHORT,
                    Slot("place"),
                    decision=LOST,
                    rows=Slot("rows"),
                    reason=WHY,
                ),
                widest="chunk",
                late="all",
            ),
            _GIVE_CHUNK_UP,
        ),
        noun="chunk",
        several=True,
        is_alert=True,
    )
)
ANSWER_KEPT = _kind(
    Kind(
        "answers that wait",
        PARTNER,
        "No result came, and the partner answered that they are lost, which does not count yet",
        _INGEST,
        (
            "Nobody has to do anything: the first ingest on that day or later decides so, and one "
            "before it takes in a result that came after all."
        ),
        noun="chunk",
        several=True,
    )
)
INCOMPLETE = _kind(
    Kind(
        "results still incomplete",
        OPERATOR,
        "Rows that wait, although their break was closed as explained",
        Step(
            "mend reopen",
            Slot("run"),
            Slot("name"),
            Slot("place"),
            rows=Slot("closed"),
            reason=WHY,
            dry_run=True,
        ),
        (
            "A result that comes is a line of its own, to ingest. If the partner has nothing more, "
            "open the break again: then its rows can be decided."
        ),
        (
            Choice(
                "open again",
                "The break is open, and its rows can be decided.",
                Step(
                    "mend reopen",
                    Slot("run"),
                    Slot("name"),
                    Slot("place"),
                    rows=Slot("closed"),
                    reason=WHY,
                ),
                widest="chunk",
            ),
            _GIVE_CHUNK_UP,
        ),
        noun="chunk",
        of_one_run=True,  # each break has a line of its own
        is_alert=True,
    )
)
CORRECT = _kind(
    Kind(
        "rows to correct",
        ISSUER,
        "Refused for what a field contains",
        Step("corrections", Slot("issuer"), to=FILE),
        "Let the issuer fill in the template; the next step it names sends the rows.",
        (_GIVE_OLD_UP, _GIVE_UP),
        rows=CARDHOLDERS,
        several=True,
    )
)
CORRECT_CARD = _kind(
    Kind(
        "card fields to correct",
        ISSUER,
        "Refused for their card number, expiration or CVV, or because the line cannot be read",
        Step("corrections", Slot("issuer"), to=FILE),
        (
            "Send the list to the issuer: no template can hold these fields. Rows that come "
            "corrected with a later extract are sent with it; a corrected extract for this run "
            "belongs in the issuer's corrections."
        ),
        (
            Choice(
                "send from a corrected extract",
                "Its rows replace those of the run, by number or cuid.",
                Step("resubmit", Slot("run"), extract=EXTRACT, reason=WHY),
                widest="run",
            ),
            _GIVE_OLD_UP,
            _GIVE_UP,
        ),
        rows=CARDHOLDERS,
        several=True,
    )
)
NAMELESS = _kind(
    Kind(
        "rows that name no cardholder",
        ISSUER,
        "Refused, and of nobody who is known: who stands in them is on no other list, unless "
        "another row names them",
        Step("corrections", Slot("issuer"), to=FILE),
        (
            "Send the list to the issuer: it has the number of each row, and no template can hold "
            "its fields. The next extract of a full portfolio without such rows ends this; else it "
            "ends two weeks later."
        ),
        (
            Choice(
                "send from a corrected extract",
                "Its rows replace those of the run, by number.",
                Step("resubmit", Slot("run"), extract=EXTRACT, reason=WHY),
                widest="run",
            ),
            Choice(
                "give up",
                "Nobody waits for these rows; such rows of a later extract are asked about anew.",
                Step("mend give-up", Slot("target"), nameless=True, rows=Slot("rows"), reason=WHY),
            ),
        ),
        several=True,
    )
)
AS_THEY_ARE = _rows_to_send_again(
    "rows to send again",
    "Without a link, though their rows are correct",
    "Their rows go out again as they are; cards with a link or a wait stay.",
)
SEND_AGAIN = _rows_to_send_again(
    "errors to send again",
    "Refused by the partner, though their rows are correct",
    "Their rows go out again as they are; cards with a link or a wait stay.",
    joins=AS_THEY_ARE,
)
ASK_ABOUT = _kind(
    Kind(
        "errors to ask about",
        PARTNER,
        "Refused by the partner for a reason that only it knows",
        _QUESTIONS,
        "Send the questions to the partner, and wait for its answer.",
        (_send_again("The partner takes their rows now, as it says."), _GIVE_OLD_UP, _GIVE_UP),
        rows=CARDHOLDERS,
        several=True,
    )
)
LOST_ROWS = _rows_to_send_again(
    "rows decided lost, to send again",
    "Without a usable answer, as an operator decided",
    "Their rows go out again as they are.",
    joins=AS_THEY_ARE,
)
EXPIRED_ROWS = _rows_to_send_again(
    "links expired on arrival, to send again",
    "Their link had expired when it came, as an operator decided",
    "Their rows go out again for new links.",
    joins=AS_THEY_ARE,
)
CANCELLED_ROWS = _rows_to_send_again(
    "rows of cancelled chunks",
    "Not sent: their chunk was cancelled",
    "Their rows go out again in new chunks.",
    joins=AS_THEY_ARE,
)
TYPED_IN = _kind(
    Kind(
        "single links without a link",
        PARTNER,
        "Requested singly with typed fields, and refused",
        Step("link", Slot("issuer"), prompt=True),
        "Ask the partner why, or correct the fields; request the link again.",
        (_GIVE_ONE_UP,),
        noun="",
        rows=CARDHOLDERS,
    )
)
UNKNOWN_SINGLES = _kind(
    Kind(
        "single links with unknown outcome",
        PARTNER,
        "Requested singly, and no answer came",
        Step("link", Slot("issuer"), errors=True, dry_run=True),
        (
            "The line lists their rows as lost; `errors.csv` of the run has their cuids. Ask the "
            "partner for the link of each cardholder; `link` with an override requests a second "
            "one, where it says that there is none."
        ),
        (_GIVE_ONE_UP,),
        noun="",
        rows=CARDHOLDERS,
    )
)


def _keep_or_send(kept: str, sent: str, **which: bool) -> tuple[Choice, Choice]:
    """Return the decisions about links that a newer row of their card is to replace."""
    keep = Step("mend keep-link", Slot("target"), **which, rows=Slot("rows"), reason=WHY)
    send = Step("resubmit", Slot("target"), **which, reason=WHY, dry_run=True)
    return Choice("keep the link", kept, keep), Choice("send again", sent, send)


CHANGED = _kind(
    Kind(
        "changed since their link",
        OPERATOR,
        "They have a link, but their name or address has changed since, so it may not open",
        Step("resubmit", Slot("target"), changed=True, reason=WHY, dry_run=True),
        "An extract that has their old name and address again takes them off this list.",
        _keep_or_send(
            "This change does not matter; a later one that differs is asked about again.",
            "New links are requested; each replaces the one it follows.",
            changed=True,
        ),
        rows=CARDHOLDERS,
        several=True,
    )
)
NOT_REPLACED = _kind(
    Kind(
        "links not replaced",
        OPERATOR,
        "Their changed row, or the renewal of their link, was refused; the old link still stands",
        Step("resubmit", Slot("target"), replacing=True, reason=WHY, dry_run=True),
        choices=_keep_or_send(
            "The old link is enough, until it ends.",
            "Their refused rows go out again; each link that comes replaces the old one.",
            replacing=True,
        ),
        rows=CARDHOLDERS,
        several=True,
    )
)
NOT_UPDATED = _kind(
    Kind(
        "newer rows refused",
        ISSUER,
        "They have a link, but we refused a newer row of theirs, which may have a change",
        Step("corrections", Slot("issuer"), to=FILE),
        (
            "Send the template to the issuer, who fills in its last column and sends it back. "
            "Then paste the line that `corrections` printed: a row whose name or address is "
            "another than the link was made from goes out, any other confirms the link, and both "
            "leave this list. So does a card whose row is right in a later extract."
        ),
        (
            Choice(
                "keep the link",
                "The link is enough until it ends, whatever such rows have.",
                Step("mend keep-link", Slot("target"), refused=True, rows=Slot("rows"), reason=WHY),
            ),
        ),
        rows=CARDHOLDERS,
        several=True,
    )
)
_RENEW = Step("renew", Slot("issuer"), within="7d", dry_run=True)
_ENDED = "Those of them whose link has ended need none."


def _give_up_ended(code: str) -> Choice:
    step = Step("mend give-up", Slot("issuer"), code=code, rows=Slot("rows"), reason=WHY)
    return Choice("give up", _ENDED, step, late="any")


TO_RENEW = _kind(
    Kind(
        "links to renew",
        OPERATOR,
        "Their links end within 7 days, or have ended",
        _RENEW,
        choices=(
            Choice("renew", "New links are requested.", _RENEW),
            _give_up_ended(LINK_ENDED),
        ),
        noun="",
        rows="link",
        several=True,
    )
)
LINKS_UNFIT = _kind(
    Kind(
        "links that end, rows refused",
        ISSUER,
        "Their links end or have ended, and we refused their newest rows",
        Step("corrections", Slot("issuer"), to=FILE),
        (
            "Let the issuer fill in the template, or correct the rows in a later extract: a card "
            "in a row that can be sent is renewed."
        ),
        (_give_up_ended(UNFIT),),
        noun="",
        rows="link",
        several=True,
    )
)
LINKS_GONE = _kind(
    Kind(
        "links that end, extract gone",
        ISSUER,
        "Their links end or have ended, and the extract with their rows is gone",
        _RENEW,
        "Put the file back as it was, or ask the issuer to name these cardholders again.",
        (_give_up_ended(GONE),),
        noun="extract",
        rows="link",
        several=True,
    )
)
LINKS_TYPED_IN = _kind(
    Kind(
        "single links that end",
        OPERATOR,
        "Their links end or have ended, and no extract has them: their fields were typed in",
        Step("link", Slot("issuer"), prompt=True),
        "Request another single link for each.",
        (_GIVE_ONE_UP,),
        noun="",
        rows="link",
    )
)
LINKS_ABSENT = _kind(
    Kind(
        "links that ended, not in the extract",
        ISSUER,
        "Their links ended, and the latest extract does not have them",
        Step("reconcile", Slot("issuer")),
        "Ask the issuer about them: unlinked.csv lists them; one that comes again gets a new link.",
        (_give_up_ended(ABSENT), _GIVE_ONE_UP),
        noun="",
        rows="link",
        several=True,
    )
)
TO_INGEST = _kind(
    Kind(
        "result files to ingest",
        OPERATOR,
        "Dropped, and not read yet",
        _INGEST,
        noun="file",
        several=True,
    )
)
STRAY_RESULTS = _kind(
    Kind(
        "result files to look at",
        OPERATOR,
        "They belong to no run",
        _INGEST,
        (
            "Do what is said about each, then ingest. They are read again by themselves once a run "
            "is committed or a setting changes: where the store was put back to a copy, submit the "
            "extracts first."
        ),
        noun="file",
        several=True,
        named=MANY,
        noted=MANY,
    )
)
UNUSABLE_NAMES = _kind(
    Kind(
        "files whose name cannot be used",
        ISSUER,
        "cardlink cannot use them",
        Step("check", Slot("issuer")),
        "Ask the sender to send them again under another name, and delete these.",
        noun="file",
        noted=MANY,
        is_alert=True,
    )
)
REFUSED_EXTRACTS = _kind(
    Kind(
        "refused extracts",
        ISSUER,
        "Refused before anything was sent",
        Step("check", Slot("issuer"), Slot("name"), rejects=FILE),
        (
            "See what is wrong, and every refused row; then ask the issuer for a corrected file: "
            "under the same name it takes the place of this one, under another dismiss this one."
        ),
        (
            Choice(
                "open the gate",
                "The rows that can be sent are sent; the refused ones wait for their correction.",
                Step("submit", Slot("issuer"), extract=Slot("name"), open=Slot("gate")),
            ),
            Choice(
                "dismiss",
                "The extract is not sent.",
                Step("dismiss", Slot("issuer"), Slot("name"), reason=WHY),
            ),
        ),
        noun="extract",
        of_one_run=True,
        is_alert=True,
    )
)
STOPPED_EXTRACTS = _kind(
    Kind(
        "stopped extracts",
        OPERATOR,
        "Stopped before anything was sent, and not by what is in the file",
        Step("check", Slot("issuer"), Slot("name")),
        (
            "Put right what it names: a key, the store, the settings, or a file of another "
            "environment. The next submit tries it again."
        ),
        (
            Choice(
                "dismiss",
                "The extract is not sent.",
                Step("dismiss", Slot("issuer"), Slot("name"), reason=WHY),
            ),
        ),
        noun="extract",
        of_one_run=True,
    )
)
HELD_BACK = _kind(
    Kind(
        "extracts held back",
        ISSUER,
        "Their name was committed with other content",
        Step("submit", Slot("issuer"), extract=Slot("name"), open="changed-extract", dry_run=True),
        "See what it would send, and ask the issuer which file counts.",
        (
            Choice(
                "dismiss",
                "The extract is not sent.",
                Step("dismiss", Slot("issuer"), Slot("name"), reason=WHY),
            ),
            Choice(
                "submit",
                "It is a correction: new cards are sent.",
                Step("submit", Slot("issuer"), extract=Slot("name"), open="changed-extract"),
            ),
        ),
        noun="extract",
        of_one_run=True,
        is_alert=True,
    )
)
CORRECTIONS = _kind(
    Kind(
        "corrections to send",
        OPERATOR,
        "The issuer dropped them, and no run has sent them",
        Step("resubmit", Slot("issuer"), corrections=Slot("name"), reason=WHY, dry_run=True),
        "See what it would send; a file that is not to be sent is taken away.",
        (
            Choice(
                "send",
                "The corrected rows are sent.",
                Step("resubmit", Slot("issuer"), corrections=Slot("name"), reason=WHY),
            ),
        ),
        noun="file",
        of_one_run=True,
    )
)
REPEATED_EXTRACTS = _kind(
    Kind(
        "extracts that repeat another",
        ISSUER,
        "They have the same bytes as an extract that was sent",
        Step("check", Slot("issuer"), Slot("name")),
        "Ask the issuer for the right file.",
        (
            Choice(
                "dismiss",
                "The extract is not sent.",
                Step("dismiss", Slot("issuer"), Slot("name"), reason=WHY),
            ),
        ),
        noun="extract",
        of_one_run=True,
        is_alert=True,
    )
)
_ABANDON = Choice(
    "abandon",
    "It is never committed, and none of its rows are sent by it.",
    Step("mend abandon", Slot("run"), reason=WHY),
    widest="run",
)
TO_FINISH = _kind(
    Kind(
        "runs to finish",
        OPERATOR,
        "Begun, and their process ended before the commit",
        Step("submit", Slot("issuer")),
        "The next submit of the extract finishes it, and says so.",
        (_ABANDON,),
        of_one_run=True,
    )
)
BEHIND = _kind(
    Kind(
        "reports to finish",
        OPERATOR,
        "Something was recorded that their report does not show",
        _INGEST,
        "Its command is under way, or was stopped; the next ingest makes the report.",
        several=True,
    )
)
LEFT_BEHIND = _kind(
    Kind(
        "runs left behind",
        OPERATOR,
        "Begun, and their process ended before the commit; none of their rows were sent",
        Step("mend abandon", Slot("run"), reason=WHY, dry_run=True),
        (
            "The same command finishes it; the next one that sends other rows of the issuer "
            "ends it, and says so."
        ),
        (_ABANDON,),
        of_one_run=True,
    )
)
NO_EXTRACT = _kind(
    Kind(
        "business days without an extract",
        ISSUER,
        "No extract was submitted",
        Step("backfill", Slot("issuer"), from_=Slot("first"), to=Slot("last")),
        (
            "Ask the issuer for the files. Where none was due, dismiss the day, and name one that "
            "comes again each year in `holidays` of [schedule]."
        ),
        (
            Choice(
                "dismiss",
                "No extract comes for this day.",
                Step("dismiss", Slot("issuer"), Slot("name"), reason=WHY),
                widest="chunk",
            ),
        ),
        noun="day",
        is_alert=True,
    )
)
LINK_FORMS = _kind(
    Kind(
        "link forms to confirm",
        PARTNER,
        "Links have a form that nobody has confirmed",
        Step("link-form", Slot("issuer"), Slot("name"), reason=WHY, dry_run=True),
        (
            "Ask the partner: do all your links look like this, with just as many characters? "
            "After a yes, confirm this form; after a no, ask for the form that they have, and "
            "confirm that one in its place."
        ),
        (
            Choice(
                "confirm",
                "A link of no confirmed form is a break from then on.",
                Step("link-form", Slot("issuer"), Slot("name"), reason=WHY),
            ),
        ),
        noun="form",
        rows="link",
        of_one_run=True,
    )
)
PURGING = _kind(
    Kind(
        "purges to finish",
        OPERATOR,
        "Recorded as deleted, and some of it is still there",
        Step("purge", Slot("issuer")),
        "A purge is under way, or was stopped; the next one finishes it.",
        several=True,
    )
)


def _break(name: str, kind: breaks.BreakKind) -> Kind:
    """Return the kind of work that a kind of break is."""
    first = _QUESTIONS if kind.question else _REPORT
    choices = [_closing(name, decision) for decision in kind.decisions]
    if LOST in kind.decisions:
        choices.append(_GIVE_CHUNK_UP)
    return Kind(
        f"break {name}",
        OPERATOR,
        kind.meaning.rstrip("."),
        first,
        str(kind.then),
        tuple(choices),
        noun="break",
        of_one_run=not kind.question,
        is_alert=True,
    )


def _closing(name: str, decision: str) -> Choice:
    step = Step(
        "mend close",
        Slot("target"),
        name,
        Slot("place"),
        decision=decision,
        rows=Slot("rows"),
        reason=WHY,
    )
    return Choice(decision, DECISIONS[decision].effect, step, widest="issuer")


for _name, _break_kind in KINDS.items():
    if not _break_kind.notice:
        _kind(_break(_name, _break_kind))


def is_asked_about(kind: str) -> bool:
    """Return whether the partner is asked about work of this kind."""
    return kind_named(kind).first == _QUESTIONS


def once_asked(kind: Kind) -> Kind:
    """Return what is said about work once the partner was asked about it."""
    if kind.first != _QUESTIONS:
        return kind
    return kind._replace(first=_ANSWERS, who=PARTNER, choices=(_ASK_AGAIN, *kind.choices))


@cache
def _of_extensions() -> dict[str, Kind]:
    kinds = chain.from_iterable(work_kinds() for work_kinds in hooks("work_kinds"))
    return {kind.name: kind for kind in kinds}


def every_kind() -> list[Kind]:
    """Return the kinds of matters, those of extensions too."""
    return [*WORK.values(), *_of_extensions().values()]


def kind_named(name: str) -> Kind:
    """Return what is said about a kind of work, an extension's too."""
    return WORK.get(name) or _of_extensions()[name]


def is_known(name: str) -> bool:
    """Return whether there is a kind of this name; that of an extension goes with it."""
    return name in WORK or name in _of_extensions()


def is_news(name: str) -> bool:
    """Return whether people are only told of a kind."""
    return is_known(name) and kind_named(name).is_news
