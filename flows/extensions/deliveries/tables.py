"""The tables of deliveries of links and of acknowledgements."""

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    Date,
    ForeignKeyConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
)

from schemas.database import (
    METADATA,
    TEXT,
    Moment,
    column,
    issuer_column,
    look_columns,
    only,
)


def _handed_over() -> list[Column[object]]:
    """Return the columns of what is handed over: its row is made first, then its files."""
    return [
        column("number", Integer(), "1, 2, 3 … of whoever it is for"),
        column("at", Moment(), "when it was made"),
        column("by", TEXT, "who made it, card numbers masked"),
        column("files", JSON(), "SHA-256 of its files, by name"),
        column("done_at", Moment(), "when all of its files were in the store", null=True),
        column("confirmed_at", Moment(), "when it was recorded that it has come", null=True),
        column("confirmed_by", TEXT, "who recorded that", null=True),
        column("confirmed_reason", TEXT, "why: whose receipt", null=True),
        column("sealed_to", TEXT, "fingerprint of the key; null: in clear", null=True),
        column("tries", Integer(), "attempts to bring it that failed since one that did not"),
        column("problem", TEXT, "why the last of them failed", null=True),
        column("failing_since", Moment(), "the first of them", null=True),
        column("tried_at", Moment(), "the last of them", null=True),
        column("not_before", Moment(), "when it is tried again", null=True),
    ]


def _in_order() -> list[ForeignKeyConstraint | CheckConstraint]:
    """Return what cannot be of that: nothing is confirmed before it is complete."""
    confirmed = "confirmed_at IS NOT NULL AND confirmed_by IS NOT NULL"
    return [
        ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
        CheckConstraint("number >= 1", name="number"),
        CheckConstraint(
            "confirmed_at IS NULL AND confirmed_by IS NULL AND confirmed_reason IS NULL OR "
            f"done_at IS NOT NULL AND {confirmed} AND confirmed_reason IS NOT NULL",
            name="confirmed",
        ),
        CheckConstraint(
            "tries = 0 AND problem IS NULL OR tries > 0 AND problem IS NOT NULL "
            "AND failing_since IS NOT NULL AND tried_at IS NOT NULL AND not_before IS NOT NULL",
            name="tries",
        ),
    ]


DELIVERY = Table(
    "delivery",
    METADATA,
    issuer_column(),
    column("receiver", TEXT, "who receives links: a table of [deliveries], or default"),
    *_handed_over(),
    column("after", Integer(), "the confirmed delivery that its changes are since; 0: none"),
    column("new", Integer(), "links that are new"),
    column("replaced", Integer(), "links that take the place of one withdrawn"),
    column("withdrawn", Integer(), "links that are withdrawn"),
    column("living", Integer(), "links that the receiver has after it"),
    column("opened", TEXT, "why it withdraws more than max_withdrawn; else empty"),
    column("taken_at", Moment(), "when its webhook took the event", null=True),
    column("emitted_at", Moment(), "when Prefect was told", null=True),
    PrimaryKeyConstraint("issuer", "receiver", "number"),
    *_in_order(),
    CheckConstraint("after >= 0 AND after < number", name="after"),
    CheckConstraint("new >= 0 AND replaced >= 0 AND withdrawn >= 0 AND living >= 0", name="counts"),
    CheckConstraint(
        "done_at IS NOT NULL OR (taken_at IS NULL AND emitted_at IS NULL)", name="told"
    ),
    comment="A delivery of links to a receiver.",
)

DELIVERY_CHANGE = Table(
    "delivery_change",
    METADATA,
    issuer_column(),
    column("receiver", TEXT, "who receives links"),
    column("delivery", Integer(), "the number of the delivery"),
    column("place", Integer(), "its place in the delivery"),
    column("run", TEXT, "the run whose row the link is of", null=True),
    column("row", BigInteger(), "that row", null=True),
    *look_columns(),
    column("link", BigInteger(), "64 bits of a digest of the link"),
    column("change", TEXT, "new, replaced or withdrawn"),
    column("until", Date(), "last day of the link", null=True),
    PrimaryKeyConstraint("issuer", "receiver", "delivery", "place"),
    CheckConstraint("change IN ('new', 'replaced', 'withdrawn')", name="change"),
    Index(None, "issuer", "cuid"),
    comment="A link that a delivery hands over or withdraws, until retention or an erasure.",
    info={"is_entered": False},  # an erasure has to forget them
    sqlite_with_rowid=False,
)

ACKNOWLEDGEMENT = Table(
    "acknowledgement",
    METADATA,
    issuer_column(),
    *_handed_over(),
    column("run", TEXT, "the run that it tells of; empty: a file without one"),
    column("extract", TEXT, "the key of the file, card numbers masked"),
    column("sha256", TEXT, "SHA-256 of the file"),
    column("status", TEXT, "what became of it: ACCP, PART, PEND or RJCT"),
    column("rows", JSON(), "how many of its rows, by what became of them"),
    column("subject", TEXT, "what it tells of: the run, or the key of the file"),
    column("says", TEXT, "digest of what it says; null: told again since, or closed", null=True),
    PrimaryKeyConstraint("issuer", "number"),
    *_in_order(),
    Index("ix_acknowledgement_run", "issuer", "run", "number"),
    Index(
        "ix_acknowledgement_says",
        "issuer",
        "subject",
        unique=True,
        **only("says IS NOT NULL"),
    ),
    comment="What an issuer was told of an extract, in place of what it was told of it before.",
)
