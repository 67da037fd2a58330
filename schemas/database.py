"""The tables of the database: what is known of an issuer's runs, cards and links.

Every table leads with the issuer. Texts compare by their bytes. Times are UTC, days the issuer's
own. No table has a card number, a CVV, or a hash of either.

What an act wrote is in its journal entry, and the store has the journal in segments: of these, and
of a backup, a lost database is rebuilt (`flows/operations/recovery.py`). What is
derived (`DERIVED`) is made anew by the next command.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Dialect,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)
from sqlalchemy.types import TypeEngine

from flows.extensions import import_tables

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


# compared byte by byte everywhere, as SQLite and polars compare
TEXT = Text().with_variant(Text(collation="C"), "postgresql")


class Moment(TypeDecorator[datetime]):
    """A time in UTC: what is given must have a zone, and what is read has UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the same time in UTC, as every database is given it."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the time with its zone, which SQLite does not keep."""
        if value is None:
            return None
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


def column(name: str, kind: TypeEngine[Any], comment: str, *, null: bool = False) -> Column[object]:
    """Return a column with what it means; texts compare by their bytes in every database."""
    return Column(name, kind, nullable=null, comment=comment)


def issuer_column() -> Column[object]:
    """Return the column that each table has first."""
    return column("issuer", TEXT, "the issuer, as its TOML file is named")


def _exactly_where(state: str, *names: str) -> list[CheckConstraint]:
    """Return constraints: a run has these columns in that state, and in no other."""
    return [
        CheckConstraint(f"(state = '{state}') = ({name} IS NOT NULL)", name=f"{state}_{name}")
        for name in names
    ]


def only(condition: str) -> dict[str, Any]:
    """Return the arguments by which an index has these rows alone, in each database."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


def look_columns() -> list[Column[object]]:
    """Return the columns of how a card looks to people: nothing of its number but four digits."""
    return [
        column("cuid", TEXT, "the cardholder reference, as it was sent", null=True),
        column("last_4", TEXT, "the last four digits of the card", null=True),
        column("expiration", TEXT, "when the card expires, YYMM", null=True),
    ]


ISSUER = Table(
    "issuer",
    METADATA,
    issuer_column(),
    column("incarnation", TEXT, "the journal's name in the store; null: none stored", null=True),
    column("stored", Integer(), "number of the last entry that a segment has", null=True),
    PrimaryKeyConstraint("issuer"),
    comment="An issuer: whoever changes something of it locks its row.",
)

JOURNAL = Table(
    "journal",
    METADATA,
    issuer_column(),
    column("number", Integer(), "its number, from 1, without a gap"),
    column("at", Moment(), "when it was done"),
    column("by", TEXT, "who did it: a person or a process, card numbers masked"),
    column("what", TEXT, "what was done, in a word or two"),
    column("run", TEXT, "the run that it was done to", null=True),
    column("reason", TEXT, "why, in the words of who did it"),
    column("facts", JSON(), "what else is to be known of it"),
    column("changes", JSON(), "the rows that it wrote: table, key, values; null: deleted"),
    column("before", TEXT, "digest of the entry before it, empty in the first"),
    column("digest", TEXT, "SHA-256 of all this"),
    column("proof", TEXT, "a keyed digest of the same, empty where there is no key"),
    column("proved_by", TEXT, "the name of that key"),
    PrimaryKeyConstraint("issuer", "number"),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    CheckConstraint("number >= 1", name="number"),
    Index(None, "issuer", "run", "number"),
    comment="Who did what, when: one chain for an issuer, an entry in the transaction of each act.",
)

DECISION = Table(
    "decision",
    METADATA,
    issuer_column(),
    column("number", Integer(), "its number among the issuer's decisions, from 1"),
    column("kind", TEXT, "what is decided about: an extract, cards, a break, …"),
    column("subject", TEXT, "the run, the file or the like; empty where the kind has one only"),
    column("stands", TEXT, "what of the subject it decides, once at a time", null=True),
    column("at", Moment(), "when it was decided"),
    column("by", TEXT, "who decided it"),
    column("reason", TEXT, "why, in that person's words"),
    column("facts", JSON(), "what was decided: the fields of a record of `schemas/records.py`"),
    PrimaryKeyConstraint("issuer", "number"),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    CheckConstraint("number >= 1", name="number"),
    Index(None, "issuer", "kind", "subject", "number"),
    Index("ix_decision_stands", "issuer", "kind", "subject", "stands", unique=True),
    comment="What a person decided: as it was, but for `stands`, which a later decision empties.",
)

PERSON = Table(
    "person",
    METADATA,
    issuer_column(),
    column("person", TEXT, "our name for a cardholder, by chance"),
    column("holder", TEXT, "what the cardholder is known by"),
    PrimaryKeyConstraint("issuer", "person"),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    Index(None, "issuer", "holder", unique=True),
    comment="Whom decisions are about; not in the journal, and deleted by an erasure.",
)

PURGE = Table(
    "purge",
    METADATA,
    issuer_column(),
    column("number", Integer(), "its number among the issuer's purges, from 1"),
    column("run", TEXT, "the run; null: links of no run", null=True),
    column("part", TEXT, "chunks, or ledger with all that names cardholders"),
    column("at", Moment(), "when it began"),
    column("by", TEXT, "whose command purged it"),
    column("since", Moment(), "the last answer or activity, from which its term counts"),
    column("setting", TEXT, "the setting that says how long it is kept"),
    column("objects", JSON(), "how many objects went, by folder"),
    column("bytes", BigInteger(), "their size"),
    column("verdict", TEXT, "the verdict of the run's last report"),
    column("rows", JSON(), "the figures of that report"),
    column("removed", JSON(none_as_null=True), "who left the book, counts by state", null=True),
    PrimaryKeyConstraint("issuer", "number"),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    CheckConstraint("number >= 1", name="number"),
    CheckConstraint("part IN ('chunks', 'ledger')", name="part"),
    Index(None, "issuer", "run", "part", unique=True),
    comment="What retention has removed: a part of a run once, and links of no run.",
)

SINGLE_LINK = Table(
    "single_link",
    METADATA,
    issuer_column(),
    column("id", TEXT, "its name: run, row and number of the attempt, or when it was typed in"),
    column("run", TEXT, "the run whose row it is for; null: its fields were typed in", null=True),
    column("row", BigInteger(), "that row", null=True),
    column("attempt", Integer(), "which request for the row, from 1", null=True),
    *look_columns(),
    column("asked_at", Moment(), "when it was about to be requested"),
    column("asked_by", TEXT, "who requested it"),
    column("override", TEXT, "why, although the card has or awaits a link; empty: it had none"),
    column("link_until", Date(), "the last day that was requested", null=True),
    column("by_reference", Boolean(), "by the partner's reference of the card, without its number"),
    column("answered_at", Moment(), "when its outcome was known; null: it is not", null=True),
    column("outcome", TEXT, "linked, refused or unsent", null=True),
    column("expires_on", Date(), "last day of the link", null=True),
    column("reasons", JSON(), "codes of a refusal", null=True),
    column("link", TEXT, "SHA-256 of its URL", null=True),
    column("link_id", TEXT, "the partner's id of the link", null=True),
    column("url", TEXT, "the link: a personal secret", null=True),
    column(
        "expires_form", TEXT, "how the partner wrote its end, where it could not be read", null=True
    ),
    column("message", TEXT, "the partner's words, masked", null=True),
    PrimaryKeyConstraint("issuer", "id"),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    CheckConstraint(
        '(run IS NULL) = ("row" IS NULL) AND (run IS NULL) = (attempt IS NULL)', name="row"
    ),
    CheckConstraint("(answered_at IS NULL) = (outcome IS NULL)", name="answered"),
    CheckConstraint("outcome IN ('linked', 'refused', 'unsent')", name="outcome"),
    CheckConstraint("(link IS NULL) = (outcome IS NULL OR outcome <> 'linked')", name="link"),
    Index(None, "issuer", "run", "row", "attempt", unique=True),
    Index(None, "issuer", "cuid"),
    comment="A link requested on its own: a row before it is sent, and its answer. "
    "What names the cardholder is not in the journal.",
)

MATTER = Table(
    "matter",
    METADATA,
    issuer_column(),
    column("number", Integer(), "its number among the issuer's matters, from 1"),
    column("kind", TEXT, "its kind (`flows/reports/work_kinds.py`)"),
    column("subject", TEXT, "what it is about: run, chunk, place, file or day; empty: one a kind"),
    column("run", TEXT, "the run that it is about", null=True),
    column("since", Moment(), "since when it holds"),
    column("text", TEXT, "what is the matter, as it was when it was seen first, or to be late"),
    column(
        "late",
        Moment(),
        "when it was seen to be past its time, of which people are told",
        null=True,
    ),
    column("told", Moment(), "when people were told of that", null=True),
    column("ended", Moment(), "when it was seen to be over; null: it holds", null=True),
    column("shown", JSON(none_as_null=True), "what of it a person was shown last", null=True),
    column("end_told", Moment(), "when people were told that it is over", null=True),
    PrimaryKeyConstraint("issuer", "number"),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    CheckConstraint("number >= 1", name="number"),
    CheckConstraint("told IS NULL OR late IS NOT NULL", name="told"),
    CheckConstraint("end_told IS NULL OR ended IS NOT NULL AND told IS NOT NULL", name="end_told"),
    Index("ix_matter_open", "issuer", "kind", "subject", unique=True, **only("ended IS NULL")),
    Index(
        "ix_matter_untold",
        "issuer",
        **only("late IS NOT NULL AND (told IS NULL OR ended IS NOT NULL AND end_told IS NULL)"),
    ),
    Index("ix_matter_late", "issuer", "kind", **only("late IS NOT NULL")),
    comment="What somebody has to do or to know, until it is over; what holds is derived.",
)

WATERMARK = Table(
    "watermark",
    METADATA,
    issuer_column(),
    column("version", Integer(), "raised by every write of what is derived of this issuer"),
    column("code", TEXT, "the code that derived it; another code derives it anew"),
    column("turn", Integer(), "turn of the last run that was read"),
    column("newest", Date(), "business date of the latest whole extract"),
    column("journal", Integer(), "number of the last entry read in the journal"),
    column("removed", JSON(), "whom retention removed: counts by state"),
    PrimaryKeyConstraint("issuer"),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    CheckConstraint("turn >= 0 AND journal >= 0", name="counts"),
    comment="How far an issuer's store was read for what is derived of it.",
)

RUN = Table(
    "run",
    METADATA,
    issuer_column(),
    column("run", TEXT, "its id: issuer, business date, start of the SHA-256 of what it sends"),
    column("number", Integer(), "its number among the issuer's runs, as they were planned"),
    column("source_key", TEXT, "the extract: its key in the store"),
    column("source_version", TEXT, "the extract: which write of it"),
    column("source_size", BigInteger(), "the extract: bytes"),
    column("source_sha256", TEXT, "the extract: SHA-256 of its bytes"),
    column("as_of", Date(), "business date"),
    column("selection", TEXT, "digest of the rows that it sends; empty: of all rows"),
    column("repeats", TEXT, "the run whose rows it sends again", null=True),
    column("reason", TEXT, "why an extract that had a run gets another, or rows are sent again"),
    column("plan", JSON(), "what it consists of: Plan of `schemas/manifest.py`"),
    column("planned_at", Moment(), "when it was planned"),
    column("state", TEXT, "planned, replaced, abandoned or committed"),
    column("replaced_by", TEXT, "the run that stands in its place", null=True),
    column("abandoned_at", Moment(), "when it was abandoned", null=True),
    column("abandoned_by", TEXT, "who abandoned it", null=True),
    column("abandoned_why", TEXT, "why, in that person's words", null=True),
    column("turn", Integer(), "its number among the issuer's commits", null=True),
    column("committed_at", Moment(), "when it was committed", null=True),
    column("dropped_at", Moment(), "when its extract had been dropped, if known", null=True),
    column("sequence", BigInteger(), "the number that its extract has, if any", null=True),
    column("manifest", JSON(none_as_null=True), "what it committed: Manifest", null=True),
    column("report_due", Boolean(), "it sent nothing, and lacks the report that no result brings"),
    PrimaryKeyConstraint("issuer", "run"),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    CheckConstraint("state IN ('planned', 'replaced', 'abandoned', 'committed')", name="state"),
    CheckConstraint("(selection <> '') = (repeats IS NOT NULL)", name="selection"),
    CheckConstraint("(state = 'replaced') = (replaced_by IS NOT NULL)", name="replaced"),
    *_exactly_where("abandoned", "abandoned_at", "abandoned_by", "abandoned_why"),
    *_exactly_where("committed", "turn", "committed_at", "manifest"),
    CheckConstraint("turn >= 1", name="turn"),
    CheckConstraint("state = 'committed' OR NOT report_due", name="report_due"),
    Index(None, "issuer", "number", unique=True),
    Index(None, "issuer", "turn", unique=True),
    Index(None, "issuer", "as_of"),
    Index(None, "issuer", "source_sha256"),
    Index(None, "issuer", "source_key"),
    Index("ix_run_repeats", "issuer", "repeats", **only("repeats IS NOT NULL")),
    Index("ix_run_report_due", "issuer", **only("report_due")),
    Index("ix_run_begun", "issuer", **only("state = 'planned'")),
    comment="A run: one extract's way, from its plan to its commit. Never deleted.",
)

CHUNK = Table(
    "chunk",
    METADATA,
    issuer_column(),
    column("run", TEXT, "the run"),
    column("number", Integer(), "its number in the run, from 1"),
    column("name", TEXT, "the name under which it is uploaded, and stored"),
    column("rows", Integer(), "its rows"),
    column("bytes", BigInteger(), "bytes as it was sealed for the commit"),
    column("sha256", TEXT, "SHA-256 of these bytes"),
    column("state", TEXT, "waiting, held, uploaded or cancelled; that it is answered is derived"),
    column("since", Moment(), "since when it is in that state"),
    column("by", TEXT, "who brought it there, card numbers masked"),
    column("reason", TEXT, "why, in that person's words; empty where nobody is asked"),
    column("expected", Moment(), "from when its result is expected"),
    PrimaryKeyConstraint("issuer", "run", "number"),
    ForeignKeyConstraint(["issuer", "run"], ["run.issuer", "run.run"]),
    CheckConstraint("number >= 1 AND rows >= 1", name="counts"),
    CheckConstraint("state IN ('waiting', 'held', 'uploaded', 'cancelled')", name="state"),
    CheckConstraint("state NOT IN ('held', 'cancelled') OR reason <> ''", name="reason"),
    Index(None, "issuer", "name", unique=True),
    comment="A chunk of a committed run. What was sealed and never committed has no row.",
)

LEASE = Table(
    "lease",
    METADATA,
    issuer_column(),
    column("subject", TEXT, "what is worked on: a run, or the links of the issuer"),
    column("epoch", Integer(), "raised whenever somebody takes it"),
    column("holder", TEXT, "who took it"),
    column("process", TEXT, "the process that did; empty where that is not known"),
    column("since", Moment(), "when it was taken"),
    column("renewed", Moment(), "when it was taken or renewed last"),
    column("until", Moment(), "when it runs out; not after `renewed`: it was given back"),
    PrimaryKeyConstraint("issuer", "subject"),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    CheckConstraint("epoch >= 1", name="epoch"),
    comment="Who works on something: of two processes one works and the other is refused.",
)

READ_RUN = Table(
    "read_run",
    METADATA,
    issuer_column(),
    column("run", TEXT, "a committed run"),
    column("turn", Integer(), "number of its commit; null: it has no attempts", null=True),
    column("content", Integer(), "turn of the extract of its rows; -1: unknown", null=True),
    column("objects", TEXT, "digest of what its attempts were read from", null=True),
    column("has_twins", Boolean(), "it has cards that look the same"),
    column("is_renewal", Boolean(), "its links replace others that end"),
    column("extract_day", Date(), "business date of a whole extract", null=True),
    column("is_full", Boolean(), "the extract is a full portfolio: who is not in it left"),
    column("closes", Boolean(), "some of its rows are marked as deleted"),
    column("excludes", Boolean(), "[status] leaves some of its rows out"),
    column("has_departures", Boolean(), "who left by its extract is in the departures"),
    column("judged", TEXT, "whole or purged, as it was judged; null: not yet", null=True),
    column(
        "figures", JSON(none_as_null=True), "its figures, once nothing about it is open", null=True
    ),
    PrimaryKeyConstraint("issuer", "run"),
    ForeignKeyConstraint(["issuer", "run"], ["run.issuer", "run.run"]),
    CheckConstraint("judged IN ('whole', 'purged')", name="judged"),
    Index(None, "issuer", "turn", unique=True),
    comment="What was read of a committed run: what its attempts have in common, its figures.",
)

ATTEMPT = Table(
    "attempt",
    METADATA,
    issuer_column(),
    column("turn", Integer(), "number of the run's commit"),
    column("place", Integer(), "its place among the run's attempts: what was sent comes last"),
    column("content", Integer(), "turn of the extract whose row it is; -1: unknown"),
    column("run", TEXT, "the run"),
    column("as_of", Date(), "business date of the run"),
    column("row", BigInteger(), "the row of the extract or template", null=True),
    column("chunk", BigInteger(), "the number of its chunk", null=True),
    column("origin", BigInteger(), "the row that it repeats, perhaps corrected", null=True),
    column("renewal", Boolean(), "sent because a link was about to end"),
    *look_columns(),
    column("holder", TEXT, "what its cardholder is known by; null: the row names none", null=True),
    column("twin", Integer(), "its number among cards that look the same"),
    column("name_check", BigInteger(), "CRC-32 of the name", null=True),
    column("address_check", BigInteger(), "CRC-32 of the address", null=True),
    column("reissue_check", BigInteger(), "CRC-32 of the reissue number", null=True),
    column("state", TEXT, "linked, error, awaiting, rejected, cancelled, changed, reverted"),
    column("reason", TEXT, "first code of the refusal, ours or the partner's", null=True),
    column("trouble", TEXT, "the break of an answer that settled nothing", null=True),
    column("decided", Boolean(), "an error by an operator's decision", null=True),
    column("expires_on", Date(), "last day of its link", null=True),
    column("wait", TEXT, "waiting, held, uploaded, answered or single", null=True),
    column("since", Moment(), "since when it waits, or when its answer came", null=True),
    column("channel", TEXT, "file or single: by which it was sent or answered", null=True),
    column("tries", Integer(), "1, or 0 of a row that only tells a change"),
    column("sendings", Integer(), "1 where it was sent"),
    PrimaryKeyConstraint("issuer", "turn", "place"),
    Index(None, "issuer", "holder"),
    Index(None, "issuer", "cuid"),
    comment="An attempt to get a card its link: a row that was sent, refused, or tells a change.",
    sqlite_with_rowid=False,
)

DEPARTURE = Table(
    "departure",
    METADATA,
    issuer_column(),
    column("holder", TEXT, "what the cardholder is known by"),
    column("last_4", TEXT, "the last four digits of the card", null=True),
    column("since", Date(), "business date of the extract by which it left", null=True),
    column("closed", Boolean(), "an extract since then marks it as deleted"),
    column("excluded", Date(), "since when [status] leaves it out", null=True),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    CheckConstraint("since IS NOT NULL OR excluded IS NOT NULL", name="told"),
    Index(None, "issuer", "holder"),
    comment="A card that the issuer's extracts do not name any more, delete, or leave out.",
)

LEDGER_ROW = Table(
    "ledger_row",
    METADATA,
    issuer_column(),
    column("run", TEXT, "the run"),
    column("row", BigInteger(), "the row of its extract"),
    column("cuid", TEXT, "the cardholder reference in that row"),
    column("link", BigInteger(), "64 bits of a digest of its link; null without one", null=True),
    PrimaryKeyConstraint("issuer", "run", "row"),
    Index(None, "issuer", "cuid"),
    comment="Whose rows a small run has about which nothing is open, and which links.",
    sqlite_with_rowid=False,
)

RESULT_FILE = Table(
    "result_file",
    METADATA,
    issuer_column(),
    column("number", Integer(), "number of its ingest, from 1: the later answer counts"),
    column("file", TEXT, "digest of its key in the store"),
    column("digest", TEXT, "SHA-256 of its content, as it was read"),
    column("key", TEXT, "its key in the store, as far as it may be kept"),
    column("name", TEXT, "its name, as far as it may be kept"),
    column("size", BigInteger(), "its bytes, as it is stored"),
    column("version", TEXT, "which write of it was read"),
    column("decisions", Integer(), "how many decisions about it were known"),
    column("came_at", Moment(), "when it was dropped"),
    column("received", Date(), "the issuer's day of that", null=True),
    column("taken_at", Moment(), "when it was ingested"),
    column("named_run", TEXT, "the run that its name gives, if it was sent", null=True),
    column("named_chunk", Integer(), "the chunk that its name gives", null=True),
    column("problems", JSON(), "what is wrong with the file as a whole: codes"),
    column("is_superseded", Boolean(), "it came again with other content"),
    column("basis", TEXT, "digest of what it waits for; empty: of no end; null: done", null=True),
    column("outcome", TEXT, "digest of what came of its rows, where that may change"),
    column("told", TEXT, "what was told of it; empty where the report of its run says all"),
    PrimaryKeyConstraint("issuer", "number"),
    UniqueConstraint("issuer", "file", "digest", name="uq_result_file_content"),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    CheckConstraint("number >= 1", name="number"),
    Index(
        "ix_result_file_newest",
        *("issuer", "file"),
        unique=True,
        sqlite_where=text("NOT is_superseded"),
        postgresql_where=text("NOT is_superseded"),
    ),
    comment="A content of a result file that was ingested, and what it waits for.",
)

ANSWERED_CHUNK = Table(
    "answered_chunk",
    METADATA,
    issuer_column(),
    column("run", TEXT, "the run"),
    column("chunk", Integer(), "the number of its chunk"),
    column("number", Integer(), "the result file"),
    column("rows", Integer(), "how many rows of the file are about the chunk"),
    PrimaryKeyConstraint("issuer", "run", "chunk", "number"),
    ForeignKeyConstraint(["issuer", "number"], ["result_file.issuer", "result_file.number"]),
    Index(None, "issuer", "number"),
    comment="A chunk that a result file answers, wholly or in part.",
)

ANSWER = Table(
    "answer",
    METADATA,
    issuer_column(),
    column("number", Integer(), "the result file"),
    column("position", BigInteger(), "the data row of the file, from 1"),
    column("run", TEXT, "the run; of a row without a chunk one that its file answers"),
    column("chunk", Integer(), "the chunk that it answers", null=True),
    column("row", BigInteger(), "the row that was sent; null: it answers none", null=True),
    column("cuid", TEXT, "the cardholder reference where it answers no row", null=True),
    column("last_4", TEXT, "the last four digits of the card, in such a row", null=True),
    column("how", TEXT, "by what it was attributed; null: by nothing", null=True),
    column("outcome", TEXT, "linked, error, or the break that it is"),
    column("url", TEXT, "the link, which is personal: views for analysts leave it out", null=True),
    column("has_link", Boolean(), "the row had a link that is not kept", null=True),
    column("expires_on", Date(), "last day of the link", null=True),
    column("expires_form", TEXT, "how it was written, where it could not be read", null=True),
    column("reasons", TEXT, "codes of the error, a line each", null=True),
    column("message", TEXT, "the error, masked", null=True),
    column("shape", TEXT, "the same without ids and numbers", null=True),
    column("content", BigInteger(), "XXH3 of the row without card numbers", null=True),
    column("nth", BigInteger(), "its number among equal rows of the file; null: 0", null=True),
    PrimaryKeyConstraint("issuer", "number", "position"),
    comment="What the partner said: a row of a result file.",
    sqlite_with_rowid=False,
)

# whose rows are too many for the journal, which has their digests
INGESTED = (ANSWER, ANSWERED_CHUNK, RESULT_FILE)
DERIVED = (LEDGER_ROW, DEPARTURE, ATTEMPT, READ_RUN, WATERMARK)

import_tables()
