"""The issuer's TOML: where its extracts are, how they are written, how their columns map, and the limits."""

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

import polars as pl
from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from schemas.mapping import Columns, Filter, Header, PortalColumn, Spec
from schemas.partner_api.service import ServiceSettings
from schemas.portal import MAX_ROWS
from schemas.settings import Alerts, FourEyes, LinkSettings, Portfolio, Retention, Schedule, Settings, StoreSettings

ISSUER = r"^[a-z0-9][a-z0-9-]{0,40}$"


Typed = BeforeValidator(  # as gpg lists it, however it was typed: in groups, in lower case
    lambda text: text.replace(" ", "").upper() if isinstance(text, str) else text, json_schema_input_type=str
)
Fingerprint = Annotated[str, Typed, StringConstraints(pattern=r"^[0-9A-F]{40}$")]

_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"(\*\.({_LABEL}\.)+|({_LABEL}\.)+)[a-z]([a-z0-9-]{{0,61}}[a-z0-9])")


def _host(text: str) -> str:
    if len(text) > 253 or not _HOST.fullmatch(text.lower()):
        raise ValueError("no host name such as links.example.com, or *.example.com for its subdomains")
    return text.lower()


def _pattern(text: str) -> str:
    """Check a regular expression with both engines that will use it."""
    try:
        re.compile(text)
        pl.Series([""]).str.contains(text)
    except (re.error, pl.exceptions.PolarsError) as error:
        raise ValueError("not a regular expression, or one with lookaround or backreferences") from error
    return text


Pattern = Annotated[str, AfterValidator(_pattern)]

# Settings of [source] that prove an extract whole; they never change which rows it has, or how they are written.
PROOFS = frozenset({
    "final_newline", "hash_total", "hash_total_digits", "sidecar", "done_marker", "min_age_minutes", "sequence",
    "sequence_in"
})  # fmt: skip


class SourceSettings(Settings):
    """How the extract is written: format, delimiter, encoding, header, comments, trailer; and what proves it whole."""

    pattern: str = Field("*", description="names of files that are extracts, as a shell pattern")
    format: Literal["csv", "fixed"] = Field("csv", description="delimited text, or fields at fixed positions")
    width: int | None = Field(None, ge=1, description="fixed format: characters per line")
    delimiter: Literal[",", ";", "\t", "|"] = Field(",", description="field separator")
    encoding: Literal["utf-8", "cp1252", "latin-1", "utf-16"] = Field(
        "utf-8", description="character encoding; it is never guessed"
    )
    quoting: Literal["doubled", "excel", "backslash"] = Field(
        "doubled",
        description='how a cell with quotes is written: `""` in double quotes; `excel`: also `="02108"`, which is the '
        'text 02108; `backslash`: `\\"` and `\\,` and `\\N` for nothing, as MySQL writes them',
    )
    header_rows: int = Field(1, ge=0, description="lines before the data; the last of them holds the column names")
    names: tuple[Header, ...] = Field((), description="column names, where the extract has no header")
    comment: str | None = Field(None, min_length=1, description="lines that begin with this text are not rows")
    trailer: Pattern | None = Field(
        None, description="regular expression of the trailer line; its first group is the row count"
    )
    final_newline: bool = Field(
        True, description="an extract whose last line does not end in a newline was cut off; `false`: it is written so"
    )
    hash_total: Header | tuple[int, int] | None = Field(
        None,
        description="column whose numbers, digits only, add up to the hash total, the second group of `trailer`; "
        "fixed format: first and last character of the field, from 1",
    )
    hash_total_digits: int = Field(12, ge=1, le=18, description="low-order digits of the sum that are compared")
    sidecar: Literal["sha256", "ctl"] | None = Field(
        None,
        description="file beside each extract that proves it: `NAME.sha256` as sha256sum writes it, or `NAME.ctl` "
        "with `key=value` lines (count, bytes, sha256, date); without it an extract waits",
    )
    done_marker: Annotated[str, StringConstraints(pattern=r"^\.[A-Za-z0-9._-]{1,20}$")] | None = Field(
        None, description="ending of the marker file, such as `.done`; an extract waits until `NAME.done` exists"
    )
    min_age_minutes: int = Field(
        0, ge=0, le=1440, description="an extract waits until it has not been modified for this long"
    )
    sequence: Pattern | None = Field(
        None, description="regular expression whose group is the extract's sequence number: each follows the last"
    )
    sequence_in: Literal["name", "header"] = Field(
        "name", description="where `sequence` is found: in the file name, or in the lines before the data"
    )
    same_name: Literal["hold", "replace"] = Field(
        "hold",
        description="a file with the name of a committed extract and other content: `hold` it until somebody decides, "
        "or take it as the next extract, where every file has the same name",
    )
    strict: bool = Field(False, description="`true`: a source column that nothing uses refuses the extract")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.format == "fixed" and self.width is None:
            raise ValueError("format = 'fixed' needs width, the number of characters of a line")
        if self.format == "csv" and self.header_rows == 0 and len(self.names) < 2:
            raise ValueError("header_rows = 0 needs names, the columns of the extract in order")
        groups = re.compile(self.trailer or "").groups
        if self.trailer is not None and groups < 1:
            raise ValueError("trailer needs a group around the count")
        if self.sequence is not None and re.compile(self.sequence).groups != 1:
            raise ValueError("sequence needs exactly one group, around the number")
        if (place := self.hash_total) is not None and groups < 2:
            raise ValueError("hash_total needs a trailer with a second group")
        fixed = isinstance(place, tuple) and place[0] <= place[1]
        if place is not None and (isinstance(place, str), fixed) != (self.format == "csv", self.format == "fixed"):
            raise ValueError("hash_total is a column; in fixed format [first, last], counted from 1")
        return self


Severity = Literal["reject", "warn", "off"]


class RuleSettings(Settings):
    """Severity of the rules that the partner leaves open, and what normalising may fill in or cut."""

    luhn: Severity = Field(
        "reject", description="check digit of the card number (the partner's own published sample number fails it)"
    )
    cvv_missing: Severity = Field(
        "warn", description="no CVV and no hash: the link may not open, since it asks the cardholder for CVV and ZIP"
    )
    address_mismatch: Severity = Field(
        "reject", description="a postal code outside its state: a wrong ZIP makes a valid link that nobody can open"
    )
    expires_soon: Severity = Field("warn", description="a card that expires before its link does")
    email: Severity = Field("warn", description="format of the e-mail address; plays no part when the link is opened")
    phone: Severity = Field("warn", description="format of the phone number")
    name_on_card: Severity = Field("warn", description="a missing name on the card, or one with digits")
    other_cuid: Severity = Field("warn", description="one card under two cuids: a joint account, or a mix-up")
    card_in_text: Severity = Field("reject", description="a card number in a text column, where others would read it")
    too_long: Severity = Field("reject", description="a text with more characters than `max_length` allows")
    max_length: dict[PortalColumn, Annotated[int, Field(ge=1)]] = Field(
        default_factory=dict, description="most characters, by portal column; 254 where it is not named"
    )
    invisible: Severity = Field("warn", description="invisible characters, and those that change the direction of text")
    garbled: Severity = Field(
        "warn", description="text that lost characters (U+FFFD), or was read in the wrong encoding (JosÃ© for José)"
    )
    link_life_months: int = Field(2, ge=0, le=24, description="how long a link lives, for `expires_soon`")
    fill_name_on_card: bool = Field(True, description="take first and last name where the name on the card is empty")
    keep_zip_plus_4: bool = Field(False, description="`false`: ZIP+4 is cut to the five digits a cardholder knows")
    # "Null" and "Test" with one capital are family names; these spellings come from programs.
    placeholders: tuple[str, ...] = Field(
        ("NULL", "null", "(null)", "N/A", "n/a", "#N/A", "TEST", "test"),
        description="exact texts that count as a placeholder in a required column",
    )

    def __hash__(self) -> int:
        """Return the hash of all settings; a table has none of its own."""
        return hash(self.model_dump_json())


class Repairs(Settings):
    """Repairs of whole columns: each is decided by all rows of the extract, and counted in the report."""

    zip_zeros: bool = Field(
        True,
        description="put back leading zeros of ZIP codes (2108 becomes 02108) where no ZIP of the column kept its zero",
    )
    cvv_zeros: bool = Field(
        True, description="put back leading zeros of CVVs (7 becomes 007) where no CVV of the column kept its zero"
    )
    expiration_order: bool = Field(True, description="read MMYY as YYMM where only the other order fits every value")
    refuse_excel: bool = Field(
        True, description="refuse card numbers that went through a spreadsheet (4.11E+15, or every number ends in 0)"
    )


class Resend(Settings):
    """What happens to a row whose card another run of the issuer has linked or awaits; a portfolio suppresses it."""

    seen_before: Literal["suppress", "refuse", "send"] = Field(
        "suppress",
        description="a card that has or awaits a link: `suppress` its row, `refuse` the extract, or `send` it again",
    )
    reissue_column: Spec | None = Field(
        None,
        description="source column that changes when a card is issued again, such as its sequence number: with another "
        "value it is another card",
    )


class Limits(Settings):
    """Gates that a run must pass before its commit, and the error rate above which a finished run needs a look."""

    max_reject_rate: float = Field(
        0.05, ge=0, le=1, description="share of rejected rows above which nothing is committed"
    )
    max_row_jump: float = Field(
        0.5,
        gt=0,
        description="distance from the median row count of the last runs above which nothing is committed; 0.5 is half",
    )
    max_seen_before: float = Field(
        1.0, ge=0, le=1, description="share of rows that already have or await a link above which nothing is committed"
    )
    max_drift: float = Field(
        0.1, gt=0, le=1, description="distance of a column's shares from the last ten extracts above which it departs"
    )
    drift: Literal["alert", "refuse"] = Field("alert", description="a column departs: raise an alert, or do not commit")
    max_error_rate: float = Field(
        0.05, ge=0, le=1, description="share of partner errors above which a finished run needs a look"
    )


class PortalSettings(Settings):
    """The partner's portal: its public key, the form of chunks, and the hosts a link may point to."""

    key_file: str | tuple[str, ...] = Field(
        "portal.asc",
        description="the portal's public key, beside the TOML; several files for an escrow key or a key rotation",
    )
    fingerprints: tuple[Fingerprint, ...] = Field(
        (), description="full fingerprints of the keys, compared with the partner by another channel"
    )
    key_curves: tuple[Literal["Curve25519", "P-256", "P-384", "P-521"], ...] = Field(
        ("Curve25519",), description="elliptic curves that a key may use, beside RSA of 2048 bits or more"
    )
    sealed: bool = Field(
        True, description="`false`: chunks in the clear; for a test issuer and published test cards only"
    )
    template: str | None = Field(
        None, description="the blank template downloaded from the portal, where its header names or their order differ"
    )
    extension: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(\.[a-z0-9]+)*$")] = Field(
        "csv.pgp", description="file extension of chunks; `csv` where `sealed = false`"
    )
    armor: bool = Field(False, description="write ASCII-armored messages")
    compression: Literal["zip", "none"] = Field("zip", description="compression inside the OpenPGP message")
    rows_per_chunk: int = Field(
        MAX_ROWS, ge=1, le=MAX_ROWS, description="rows of a chunk; the portal takes at most 1000"
    )
    allowed_hosts: tuple[Annotated[str, AfterValidator(_host)], ...] = Field(
        min_length=1,
        description="hosts a card link may point to; a link to any other is a break. Names as they stand in links, so "
        "`xn--` for other alphabets; no address and no port; `*.example.com`: its subdomains",
    )
    answer_within_hours: int = Field(
        48, ge=1, description="from upload to result; a chunk without a result is overdue after it"
    )
    link_within_hours: int = Field(
        72, ge=1, description="from an extract's drop to the links of its rows; reports show the share within it"
    )

    @model_validator(mode="before")
    @classmethod
    def _plain_extension(cls, given: Any) -> Any:
        """Name unsealed chunks `.csv` unless an extension is given."""
        plain = isinstance(given, dict) and given.get("sealed") is False
        return {"extension": "csv", **given} if plain else given

    @model_validator(mode="after")
    def _pinned(self) -> Self:
        if self.sealed and not self.fingerprints:
            raise ValueError("fingerprints: at least one, the full fingerprint of the portal's key")
        return self


class Issuer(Settings):
    """One issuer: the whole TOML."""

    issuer: Annotated[str, StringConstraints(pattern=ISSUER)] = Field(
        description="name of the issuer: lower case, digits, hyphens; the TOML file has the same name"
    )
    root: str = Field(description="`s3://bucket/prefix`, or a directory relative to the TOML")
    test: bool = Field(
        False, description="`true`: test cards only, and a real card refuses the run; `false`: the other way round"
    )
    full_portfolio: bool = Field(
        False, description="`true`: every extract repeats all cardholders, and `[portfolio]` decides who is sent"
    )
    time_zone: str = Field(
        "UTC",
        description="time zone of the schedule, and of the business date where the extract's name does not give it",
    )
    store: StoreSettings = StoreSettings()
    source: SourceSettings = SourceSettings()
    columns: Columns = Field(default_factory=dict)
    filter: Filter = Field(default_factory=dict, description="rows that count: source column = the values they have")
    repairs: Repairs = Repairs()
    rules: RuleSettings = RuleSettings()
    limits: Limits = Limits()
    portfolio: Portfolio = Portfolio()
    resend: Resend = Resend()
    portal: PortalSettings
    links: LinkSettings = LinkSettings()
    schedule: Schedule = Schedule()
    alerts: Alerts = Alerts()
    service: ServiceSettings | None = None  # the partner's API, where it is used
    retention: Retention = Retention()
    four_eyes: FourEyes = FourEyes()

    @model_validator(mode="after")
    def _safe(self) -> Self:
        if "@" in urlsplit(self.root).netloc:
            raise ValueError("root contains credentials: they belong in the environment, never in the TOML")
        if self.store != StoreSettings() and urlsplit(self.root).scheme != "s3":
            raise ValueError("[store] is for a root on S3, and root is a directory: delete the table")
        if not (self.test or self.portal.sealed):
            raise ValueError("portal.sealed = false is for an issuer with test = true only")
        return self
