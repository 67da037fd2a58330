"""The tables of the partner's API: how far links came, as its service and its reports say."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Date,
    ForeignKeyConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
)

from schemas.database import METADATA, TEXT, Moment, column, issuer_column

_NOT_ENTERED = {"is_entered": False}  # an erasure has to forget them

SERVICE_MESSAGE = Table(
    "service_message",
    METADATA,
    issuer_column(),
    column("run", TEXT, "the run whose row the link is of"),
    column("row", BigInteger(), "that row"),
    column("number", Integer(), "its number among the messages of the row, from 1"),
    column("at", Moment(), "when it came"),
    column("content", JSON(), "the messages of one response, as far as they may be kept"),
    column("reading", TEXT, "digest of the settings it was read with; empty: not counted in yet"),
    PrimaryKeyConstraint("issuer", "run", "row", "number"),
    ForeignKeyConstraint(["issuer", "run"], ["run.issuer", "run.run"]),
    CheckConstraint("number >= 1", name="number"),
    Index(None, "issuer", "reading"),
    comment="Messages of a link's cardholder, which the service gives once: stored, then used.",
    info=_NOT_ENTERED,
)

PLACEMENT = Table(
    "placement",
    METADATA,
    issuer_column(),
    column("run", TEXT, "the run whose row the link is of"),
    column("row", BigInteger(), "that row"),
    column("cardholder_id", TEXT, "the cardholder's id at the service", null=True),
    column("opened", Boolean(), "the link was opened; null: not known", null=True),
    column("opened_at", Moment(), "when a check first found that", null=True),
    column("authenticated", Boolean(), "its cardholder signed in to a site", null=True),
    column("running", Boolean(), "a job runs and none placed the card; null: unknown", null=True),
    column("termination_type", TEXT, "how the job ended that counts", null=True),
    column("placed_at", Moment(), "when a check first found the card placed", null=True),
    column("merchant_site", TEXT, "the merchant site of the job that counts", null=True),
    column("jobs", JSON(), "the jobs that are known, as they were last"),
    column("open_jobs", Integer(), "how many of them run, or were known by messages alone"),
    column("lost", Integer(), "responses with messages that did not arrive"),
    column("unread", Integer(), "responses with messages that could not be read"),
    column("trouble", TEXT, "why the last check did not learn whether it was opened", null=True),
    column("jobs_trouble", TEXT, "the same for its jobs", null=True),
    column("seen_at", Moment(), "the last check that learned something", null=True),
    column("moved_at", Moment(), "when a check last found something new", null=True),
    column("messages_at", Moment(), "the last check that read its messages", null=True),
    PrimaryKeyConstraint("issuer", "run", "row"),
    ForeignKeyConstraint(["issuer", "run"], ["run.issuer", "run.run"]),
    CheckConstraint("open_jobs >= 0 AND lost >= 0 AND unread >= 0", name="counts"),
    CheckConstraint(
        "placed_at IS NULL OR (opened AND termination_type = 'BILLABLE')", name="placed"
    ),
    comment="What the partner's service said of a link, and when it was asked.",
    info=_NOT_ENTERED,
    sqlite_with_rowid=False,
)

FUNNEL = Table(
    "funnel",
    METADATA,
    issuer_column(),
    column("facts", JSON(), "cardholders by stage, from link to placed card"),
    PrimaryKeyConstraint("issuer"),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    comment="The funnel over an issuer's runs, as the last check of all links counted it.",
    info=_NOT_ENTERED,
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
    info=_NOT_ENTERED,
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
    info=_NOT_ENTERED,
    sqlite_with_rowid=False,
)
