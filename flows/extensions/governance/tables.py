"""The tables of governance: the settings in force, and what was requested of a second person."""

from sqlalchemy import (
    JSON,
    CheckConstraint,
    ForeignKeyConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
)

from schemas.database import METADATA, TEXT, Moment, column, issuer_column

SETTINGS_IN_FORCE = Table(
    "settings_in_force",
    METADATA,
    issuer_column(),
    column("number", Integer(), "its number, from 1; the last is in force"),
    column("entry", Integer(), "number of its journal entry"),
    column("at", Moment(), "since when"),
    column("by", TEXT, "whose command recorded it"),
    column("reason", TEXT, "why"),
    column("what", TEXT, "found by the first command, changed in the TOML, or agreed to"),
    column("settings", JSON(), "the settings of the TOML by dotted name, without a secret"),
    PrimaryKeyConstraint("issuer", "number"),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    CheckConstraint("number >= 1", name="number"),
    CheckConstraint("what IN ('found', 'changed', 'agreed')", name="what"),
    CheckConstraint("what <> 'found' OR number = 1", name="found"),
    comment="The settings that were in force for an issuer, one after another.",
)

REQUEST = Table(
    "request",
    METADATA,
    issuer_column(),
    column("number", TEXT, "its number: the start of the digest of all that is requested"),
    column("at", Moment(), "when it was requested"),
    column("by", TEXT, "by which process"),
    column("actor", TEXT, "by which person"),
    column("reason", TEXT, "why, in that person's words"),
    column("act", TEXT, "the act that needs two persons, as [four_eyes] names it"),
    column("until", Moment(), "when it expires"),
    column("line", TEXT, "the command; null where a cardholder of it is forgotten", null=True),
    column("parameters", JSON(none_as_null=True), "its parameters; null likewise", null=True),
    column("would", JSON(none_as_null=True), "what its dry run says; null likewise", null=True),
    column("files", JSON(), "versions of the files it names by key; digests of others by name"),
    column("settings", Integer(), "number of the settings in force; 0: none were recorded"),
    column("signature", TEXT, "of that person, where keys of persons are pinned", null=True),
    column("entry", Integer(), "number of its journal entry"),
    column("state", TEXT, "made, carried out, given back as its command failed, ended"),
    column("since", Moment(), "since when it is in that state"),
    column("second", TEXT, "the person who carried it out last", null=True),
    column("second_by", TEXT, "by which process", null=True),
    column("second_signature", TEXT, "of that person, as above", null=True),
    PrimaryKeyConstraint("issuer", "number"),
    ForeignKeyConstraint(["issuer"], ["issuer.issuer"]),
    CheckConstraint("state IN ('made', 'carried out', 'given back', 'ended')", name="state"),
    CheckConstraint("(state = 'made') = (second IS NULL)", name="second"),
    CheckConstraint("second <> actor", name="two"),
    CheckConstraint(
        "(line IS NULL) = (parameters IS NULL) AND (line IS NULL) = (would IS NULL)", name="whole"
    ),
    CheckConstraint("until > at", name="until"),
    Index(None, "issuer", "until"),
    comment="What one person requested, for a second person to carry out.",
)
