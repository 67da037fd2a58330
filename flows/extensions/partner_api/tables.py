"""The tables of the partner's API: how far links came, as its service and its reports say."""

from typing import Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Date,
    ForeignKeyConstraint,
    Integer,
    PrimaryKeyConstraint,
    Table,
)

from schemas.database import METADATA, TEXT, Moment, column, issuer_column

_DERIVED: Final = {"is_derived": True, "is_entered": False}

PLACEMENT = Table(
    "placement",
    METADATA,
    issuer_column(),
    column("run", TEXT, "the run whose row the link is of"),
    column("row", BigInteger(), "that row"),
    column("holder", TEXT, "what the cardholder is known by", null=True),
    column("last_4", TEXT, "the last four digits of the card", null=True),
    column("twin", Integer(), "its number among cards that look the same", null=True),
    column("expiration", TEXT, "when the card expires, YYMM", null=True),
    column("reissue_check", BigInteger(), "CRC-32 of the reissue number", null=True),
    column("opened", Boolean(), "the link was opened; null: not known", null=True),
    column("opened_at", Moment(), "when a check found that", null=True),
    column("placed", Boolean(), "the card is placed; null: not known", null=True),
    column("placed_at", Moment(), "when a check found that", null=True),
    column("authenticated", Boolean(), "its cardholder signed in to a site", null=True),
    column("under_way", Boolean(), "a job is running", null=True),
    column("failed", TEXT, "the kind of its end, if it failed", null=True),
    column("moved_at", Moment(), "when a check last found something new", null=True),
    PrimaryKeyConstraint("issuer", "run", "row"),
    comment="What the partner's service says of a link: opened, placed or failed.",
    sqlite_with_rowid=False,
    info=_DERIVED,
)

TRANSACTION_REPORT = Table(
    "transaction_report",
    METADATA,
    issuer_column(),
    column("file", TEXT, "digest of its key in the store"),
    column("name", TEXT, "its name, as far as it may be kept"),
    column("version", TEXT, "what was read, and how; empty: it is read again"),
    column("problems", JSON(), "what is wrong with the file as a whole: codes"),
    PrimaryKeyConstraint("issuer", "file"),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    comment="A transaction report of the partner that was read.",
    info={"is_entered": False},
)

REPORTED_ROW = Table(
    "reported_row",
    METADATA,
    issuer_column(),
    column("file", TEXT, "the report"),
    column("position", BigInteger(), "the row, from 1"),
    column("cuid", TEXT, "the cardholder reference; null: not kept, or there is none", null=True),
    column("status", TEXT, "the status, as a code", null=True),
    column("completed_on", Date(), "the day of its end", null=True),
    column("authenticated", Boolean(), "the cardholder signed in to a site", null=True),
    column("running", Boolean(), "a job is running", null=True),
    column("termination_type", TEXT, "how it ended", null=True),
    column("merchant_site", TEXT, "the merchant site", null=True),
    PrimaryKeyConstraint("issuer", "file", "position"),
    comment="What a transaction report says of a cardholder.",
    info={"is_entered": False},
    sqlite_with_rowid=False,
)

READ_CHECK = Table(
    "read_check",
    METADATA,
    issuer_column(),
    column("run", TEXT, "the run whose placements were read"),
    column("mark", TEXT, "of the check; empty: it had not ended"),
    PrimaryKeyConstraint("issuer", "run"),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    comment="What placements were read from.",
    info=_DERIVED,
)
