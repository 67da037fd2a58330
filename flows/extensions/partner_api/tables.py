"""The tables of the partner's API: how far links came, as its service and its reports say."""

from typing import Final

from sqlalchemy import (
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

REPORTED_END = Table(
    "reported_end",
    METADATA,
    issuer_column(),
    column("cuid", TEXT, "the cardholder reference"),
    column("place", Integer(), "the place in the reports"),
    column("reported_opened", Boolean(), "a link was opened", null=True),
    column("reported_placed", Boolean(), "a card is placed", null=True),
    column("completed_on", Date(), "the day of that", null=True),
    column("reported_authenticated", Boolean(), "the cardholder signed in to a site", null=True),
    column("reported_under_way", Boolean(), "a job is running", null=True),
    column("reported_failed", TEXT, "the kind of its end, if it failed", null=True),
    PrimaryKeyConstraint("issuer", "place"),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    comment="What transaction reports say of a cardholder.",
    info=_DERIVED,
)

READ_CHECK = Table(
    "read_check",
    METADATA,
    issuer_column(),
    column("run", TEXT, "the run whose placements were read; empty: the transaction reports"),
    column("mark", TEXT, "of the check, or digest of the reports; empty: it had not ended"),
    PrimaryKeyConstraint("issuer", "run"),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    comment="What placements and reported ends were read from.",
    info=_DERIVED,
)
