"""Records added to a run after its commit: corrections by an operator, single links, purges.

Small immutable objects, each with who, when and why.
"""

from datetime import date, datetime
from typing import Final, Literal, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from schemas.manifest import Document, ManifestChunk

LINKED: Final = "linked"
REFUSED: Final = "refused"  # the partner gave no link
UNSENT: Final = "unsent"  # the service did not accept the request: nothing was done
UNKNOWN: Final = "unknown"  # requested, outcome unknown

Outcome = Literal["linked", "refused", "unsent"]

Part = Literal["chunks", "ledger"]
PARTS: tuple[Part, ...] = ("chunks", "ledger")


class Record(Document):
    """The base of a record: who did it, when, and why."""

    at: AwareDatetime
    by: str
    reason: str


class Abandoned(Record):
    """Stored at a run's manifest key when an operator abandoned the run before its commit."""

    abandoned: Literal[True] = True
    run: str


class Closing(Record):
    """A break of a run was closed with so many rows, or reopened.

    `decision` is one of `schemas.breaks.DECISIONS`, empty where it is reopened; `covers`
    are the sent rows it has its effect on: those of the break at that time.
    """

    what: Literal["closed", "reopened"]
    name: str
    place: str
    rows: int = 0
    decision: str = ""
    covers: tuple[int, ...] = ()


class KeptAnswer(Record):
    """The partner's answer about a chunk without any result, until it may take effect.

    `decision` is one of `schemas.breaks.DECISIONS`, `rows` how many it is about.
    """

    run: str
    chunk: int
    decision: str
    rows: int


class Attribution(Record):
    """A row of a result file was attributed to a sent row, or no longer, or the file reread.

    It holds only for a file of exactly these bytes. `position` is its data row; `run` and `row` are
    the row sent.
    """

    what: Literal["attributed", "withdrawn", "again"]
    result: str  # its key, card numbers masked
    digest: str
    runs: tuple[str, ...] = ()  # the runs its rows were attributed to so far
    position: int = 0
    run: str = ""
    row: int = 0
    last_4_confirmed: bool = False


class Dismissal(Record):
    """An extract shall not be sent, or on a day none comes; or that was taken back."""

    what: Literal["dismissed", "taken back"]
    key: str
    size: int


class NamedCard(NamedTuple):
    """A card as the book knows it (`flows/runs/cards.py`); no `last_4`: all cards of its holder."""

    holder: str
    last_4: str | None


class GivingUp(Record):
    """These cards need no link, or that was taken back.

    As it is stored, `holder` is our name for the person (`flows/runs/persons.py`).
    """

    what: Literal["given up", "taken up"]
    cards: tuple[NamedCard, ...]


class KeptLink(NamedTuple):
    """A link that stays, and what about it is known (`flows/book/kept_links.py`)."""

    holder: str
    last_4: str | None
    link: str
    name_check: int | None
    address_check: int | None
    refused: str


class LinkKept(Record):
    """These links stay as they are, or are asked about; `holder` as in `GivingUp`.

    `file`: key and size of the issuer's corrected file that says so, where one does.
    """

    what: Literal["kept", "asked again"]
    links: tuple[KeptLink, ...]
    file: tuple[str, int] | None = None


class FormDecision(Record):
    """The links of the partner have this form, or that was taken back.

    `links`: how many that were received until then have it.
    """

    what: Literal["confirmed", "taken back"]
    form: str  # `schemas.link_form.LinkForm`, as it is shown
    links: int


class Reseal(Record):
    """These chunks of a run, sealed again to these keys, replace the earlier ones."""

    run: str
    generation: int
    recipients: tuple[str, ...]
    chunks: tuple[ManifestChunk, ...]


class RewrittenPart(NamedTuple):
    """A part of a ledger whose rows of erased cardholders name nobody any more.

    `name`: as the manifest has it; `now`: the file with its records, and `sha256` of that.
    """

    name: str
    now: str
    sha256: str


class LedgerRewritten(Record):
    """These parts of a run's ledger replace those of the manifest."""

    parts: tuple[RewrittenPart, ...]


class Erasure(Record):
    """Cardholders are forgotten, or how far that has come.

    `persons`: keyed digests of all that they were known by (`flows/runs/erased.py`); nothing is
    sent for them again. `people` and `cards`: how many the book had of them. `deleted`: the keys of
    objects that named them and go; what they say of others is written anew before. `removed`: of
    what an erasure removes, only deliveries still name who is in the records so far; `finished`:
    these do not, either. `key`, in the first record of all: of the digests.
    """

    what: Literal["forgotten", "removed", "finished"]
    persons: tuple[str, ...] = ()
    people: int = 0
    cards: int = 0
    deleted: tuple[str, ...] = ()
    key: str = ""


class SingleAsked(Document):
    """One link that is about to be requested; `row` is None if its fields were typed in."""

    row: int | None
    cuid: str
    last_4: str
    expiration: str  # YYMM
    at: datetime
    by: str
    override: str = ""  # why, although the card has or awaits a link
    # the last day that is requested; None: the partner's choice
    link_until: date | None = None
    # by the reference of a card that the partner has, without its number
    by_reference: bool = False


class SingleAnswered(Document):
    """The outcome of one requested link."""

    outcome: Outcome
    at: datetime
    link_id: str | None = None
    url: str | None = None
    expires_on: date | None = None
    expires_form: str | None = None  # of an end that could not be read
    reasons: tuple[str, ...] = ()  # codes
    message: str = ""  # the partner's words, masked


class Removed(BaseModel):
    """How many cardholders and cards left the book with a ledger, by the state they stood in.

    Those whom no other ledger names.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    people: dict[str, int]
    cards: dict[str, int]


class Purged(Document):
    """One purged part of a run; `verdict` and `rows` are those of its last report."""

    run: str  # empty for links outside a run: single ones, deliveries
    part: Part
    at: AwareDatetime
    by: str
    since: AwareDatetime  # the last answer, or the last activity of a run that was never committed
    setting: str  # `chunks_days = 7`
    objects: dict[str, int]  # number of objects by folder of the run
    bytes: int
    verdict: str = ""
    rows: dict[str, int] = Field(default_factory=dict)
    # of a ledger
    removed: Removed | None = None
