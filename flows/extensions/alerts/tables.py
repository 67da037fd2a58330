"""The tables of what people are told: notices, and how far they came."""

from sqlalchemy import (
    JSON,
    CheckConstraint,
    ForeignKeyConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
)

from schemas.database import METADATA, TEXT, Moment, column, issuer_column, only

NOTICE = Table(
    "notice",
    METADATA,
    issuer_column(),
    column("number", Integer(), "its number among the issuer's notices, from 1"),
    column("kind", TEXT, "alert, over, night or morning"),
    column("at", Moment(), "when it was written"),
    column("title", TEXT, "its title"),
    column("text", TEXT, "its text, card numbers masked"),
    column("said", JSON(none_as_null=True), "of a summary: what it says of each run", null=True),
    column("done", Moment(), "when nothing of it was left to send", null=True),
    PrimaryKeyConstraint("issuer", "number"),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    CheckConstraint("kind IN ('alert', 'over', 'night', 'morning')", name="kind"),
    CheckConstraint("(said IS NULL) = (kind IN ('alert', 'over'))", name="said"),
    Index(None, "issuer", "kind", "number"),
    Index("ix_notice_open", "issuer", **only("done IS NULL")),
    info={"is_entered": False},
    comment="What people are told, written once and then sent to each channel that wants it.",
)

SENDING = Table(
    "sending",
    METADATA,
    issuer_column(),
    column("number", Integer(), "the notice"),
    column("channel", TEXT, "the channel"),
    column("attempts", Integer(), "how often somebody began to send it"),
    column("first", Moment(), "the first of them"),
    column("last", Moment(), "the last of them"),
    column("sent", Moment(), "when the channel took it", null=True),
    PrimaryKeyConstraint("issuer", "number", "channel"),
    ForeignKeyConstraint(["issuer", "number"], ["notice.issuer", "notice.number"]),
    CheckConstraint("attempts >= 1", name="attempts"),
    info={"is_entered": False},
    comment="What was sent of a notice on a channel.",
)

CHANNEL_TROUBLE = Table(
    "channel_trouble",
    METADATA,
    issuer_column(),
    column("channel", TEXT, "the channel, or the switch outside"),
    column("trouble", TEXT, "why, without any secret"),
    PrimaryKeyConstraint("issuer", "channel"),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    info={"is_entered": False},
    comment="A channel that took nothing when it was last tried.",
)
