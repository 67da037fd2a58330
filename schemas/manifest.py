"""The documents of a run: the plan (written first) and the manifest (the commit, written last).

Canonical JSON: sorted keys, no spaces, no clock and no process id, so that two identical runs write
the same bytes.
"""

from datetime import date
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Document(BaseModel):
    """A small immutable JSON object."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SourceFile(Document):
    """One of the files that are an extract together."""

    key: str
    version: str
    size: int
    sha256: str


class SourceIdentity(Document):
    """The bytes a run reads: key below the store's root, pinned version, size and SHA-256.

    Of two files that are joined, `files` has each; version, size and digest are those of both.
    """

    key: str
    version: str
    size: int
    sha256: str
    newlines: int = 0  # line ends among the bytes, to estimate the rows; no help where compressed
    # the extract itself, and the second file that is joined to it
    files: tuple[SourceFile, ...] = ()


class Selection(Document):
    """The rows of its source that a run sends, if not all of them; they are stored in its
    `selection.parquet`.
    """

    kind: Literal["resubmit", "renew"]
    of: str  # the run whose rows are sent again
    rows: int
    sha256: str  # of the rows asked for, and of the corrections
    reason: str  # why, in the operator's words
    override: str = ""  # why rows that are linked or awaiting may be sent again
    # the filled-in template that is merged with the source
    corrections: SourceIdentity | None = None


class Inputs(Document):
    """What a run is made from."""

    run: str
    source: SourceIdentity
    as_of: date
    settings_sha256: str
    recipe: int
    recipients: tuple[str, ...]
    selection: Selection | None = None


class Plan(Inputs):
    """The inputs of a run, fixed before any work starts: a rerun uses the same plan, and is refused
    if it differs.
    """

    settings: dict[str, Any]
    reason: str = ""  # why an extract that already had a run gets another
    known: str = ""  # digest of the prior state of the issuer's cards; "" where it does not count
    release: str  # the version of cardlink that planned the run


# What the lines or records of an extract are that are no rows: of a row that spans several, and of
# another type, they are `continued` and `parts`.
ASIDE = ("header", "comment", "blank", "trailer", "continued", "parts")


class Counts(Document):
    """What became of the source's rows; `read` is the sum of the fates.

    `ineligible`: not eligible for a link ([eligible]).
    `set_aside`: lines or records that are no rows, by kind (ASIDE); None of selected rows.
    """

    lines: int
    read: int
    submitted: int
    rejected: int
    ineligible: int = 0
    duplicate: int
    suppressed: int
    trailer: int | None = None
    set_aside: dict[str, int] | None = None


class ManifestChunk(Document):
    """One sealed chunk: upload file name, data rows, bytes and SHA-256 of the ciphertext."""

    number: int
    name: str
    rows: int
    bytes: int
    sha256: str


class LedgerPart(Document):
    """One Parquet part of the ledger."""

    name: str
    rows: int
    sha256: str


class SourceColumn(Document):
    """Where a portal column comes from in the issuer's file, and how its text is read."""

    names: tuple[str, ...]  # source columns; in fixed format places
    place: str = ""  # the part of the text that is taken
    # of dates the form that fits all rows, where the settings have `auto`
    form: str = ""
    # what `lookup` knows: the first ones, and how many more
    texts: tuple[str, ...] = ()
    more_texts: int = 0


class Layout(Document):
    """How the issuer's file was read, as far as it takes to report a reject in the bank's words."""

    columns: dict[str, SourceColumn]  # by portal column
    size: int  # fields of a record; in fixed format its characters
    # the names of the file's columns, where it names them
    header: tuple[str, ...] = ()
    # repairs that a row turned off for the whole file, by the line of the first such row
    turned_off: dict[str, int] = {}


class ColumnProfile(Document):
    """What the cells of a column look like: counts, and never a cell."""

    filled: int  # of the sampled rows
    # estimated for the whole extract: as varied as this many equally frequent values
    distinct: float
    lengths: dict[int, int]  # cells by number of characters
    # cells by form: A for letters, 9 for digits, X for both mixed; none of a CVV or its hash
    forms: dict[str, int]


class Profile(Document):
    """What an extract looks like, by a sample of its rows."""

    rows: int
    columns: dict[str, ColumnProfile]
    bins: dict[str, int]  # cards by their first six digits


class JoinedRows(Document):
    """What became of the rows of a second file: `used` by rows of the extract, `unused` by none, or
    `refused`, which cannot be read. `read` is their sum.
    """

    read: int
    used: int
    unused: int
    refused: int


class Manifest(Inputs):
    """The commit of a run: nothing counts, and nothing is offered for upload, until it exists."""

    counts: Counts
    reasons: dict[str, int]
    repairs: dict[str, int]
    chunks: tuple[ManifestChunk, ...]
    ledger: tuple[LedgerPart, ...]
    # of the extract, where it has one
    sequence: int | None = None
    # of a whole extract
    profile: Profile | None = None
    # None where no row was read
    layout: Layout | None = None
    # where a second file was joined to the extract
    joined: JoinedRows | None = None
