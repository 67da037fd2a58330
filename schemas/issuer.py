"""The issuer's TOML: its extracts, how they are written, how their columns map, and the limits."""

import re
from functools import cached_property
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

import polars as pl
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from schemas import settings
from schemas.code_pages import EbcdicPage
from schemas.eligible import Eligibility
from schemas.join import NAMED_FOR_THE_PAIR, JoinSettings
from schemas.mapping import Columns, Filter, Header, PortalColumn, Spec
from schemas.partner_api.service import ServiceSettings
from schemas.portal_settings import PortalSettings
from schemas.record_layout import Layout, read_layout
from schemas.settings import Settings, StoreSettings, setting
from schemas.status import Status

ISSUER = r"^[a-z0-9][a-z0-9-]{0,40}$"


def _pattern(text: str) -> str:
    """Check a regular expression with both engines that will use it."""
    try:
        re.compile(text)
        pl.Series([""]).str.contains(text)
    except (re.error, pl.exceptions.PolarsError) as error:
        raise ValueError(
            "not a regular expression, or one with lookaround or backreferences"
        ) from error
    return text


Pattern = Annotated[str, AfterValidator(_pattern)]

# Settings of [source] that prove an extract whole; they never change which rows it has, or how they
# are written.
PROOFS = frozenset(
    {
        "final_newline",
        "hash_total",
        "hash_total_digits",
        "sidecar",
        "done_marker",
        "min_age_minutes",
        "sequence",
        "sequence_in",
    }
)

# Settings of [source] that came later; a run made before has the digest of settings without them.
FORMATS = frozenset(
    {
        "record_format",
        "record_length",
        "copybook",
        "short_records",
        "join",
        "segment_field",
        "segments",
        "segment_row",
        "sheet",
    }
)


class SourceSettings(Settings):
    """How the extract is written: format, delimiter, encoding, header, comments, trailer; and what
    proves it whole.
    """

    pattern: str = setting("*", "names of files that are extracts, as a shell pattern")
    format: Literal["csv", "fixed", "xlsx"] = setting(
        "csv",
        "delimited text, fields at fixed positions, or an Excel workbook (with the extra "
        "`cardlink[excel]`), whose dates are read as YYYY-MM-DD",
    )
    sheet: str | None = setting(None, "xlsx: the sheet, where the workbook has several")
    width: int | None = setting(None, "fixed format: characters per line", ge=1)
    delimiter: Literal[",", ";", "\t", "|"] = setting(",", "field separator")
    encoding: Literal["utf-8", "cp1252", "latin-1", "utf-16"] | EbcdicPage = setting(
        "utf-8",
        "character encoding; never guessed. `cp037`, `cp500`, `cp1140`, `cp273` and so on are code "
        "pages of EBCDIC",
    )
    record_format: Literal["F", "FB", "V", "VB"] | None = setting(
        None,
        "records without line ends: `F`, `FB` of `record_length` bytes; `V` each behind a record "
        "descriptor word, `VB` in blocks behind a block descriptor word too",
    )
    record_length: int | None = setting(
        None, "`F` and `FB`: bytes of a record; with a copybook, which says it, to compare", ge=1
    )
    copybook: str | None = setting(
        None,
        "COBOL copybook beside the TOML that describes the records; its fields are the columns. "
        "Beyond PIC X and 9: COMP, COMP-3, COMP-5, OCCURS, REDEFINES",
    )
    short_records: bool = setting(
        False, "lines in fixed format, and records, may lack the blanks at their end"
    )
    quoting: Literal["doubled", "excel", "backslash"] = setting(
        "doubled",
        'how a cell with quotes is written: `""` in double quotes; `excel`: also `="02108"`, which '
        'is the text 02108; `backslash`: `\\"` and `\\,` and `\\N` for nothing, as MySQL writes '
        "them",
    )
    header_rows: int = setting(
        1, "lines before the data; the last of them holds the column names", ge=0
    )
    names: tuple[Header, ...] = setting((), "column names, where the extract has no header")
    segment_field: Header | None = setting(
        None, "column that says of which type a record is, where a file has several types (01, 02)"
    )
    segments: dict[str, str | tuple[Header, ...]] = setting(
        {},
        "the types in the order of the file: what `segment_field` says = the names of its columns, "
        "or with a copybook its group or record",
    )
    segment_row: str | None = setting(
        None,
        "the type whose records are rows; default: the first. Types before it hold for all rows up "
        "to the next of them, types after it belong to the row before",
    )
    comment: str | None = setting(
        None, "lines that begin with this text are not rows", min_length=1
    )
    trailer: Pattern | None = setting(
        None, "regular expression of the trailer line; its first group is the row count"
    )
    final_newline: bool = setting(
        True, "an extract without a final newline was cut off; `false`: it is written so"
    )
    hash_total: Header | tuple[int, int] | None = setting(
        None,
        "column whose numbers, digits only, add up to the hash total, the second group of "
        "`trailer`; fixed format: first and last character of the field, from 1",
    )
    hash_total_digits: int = setting(
        12, "low-order digits of the sum that are compared", ge=1, le=18
    )
    sidecar: Literal["sha256", "ctl"] | None = setting(
        None,
        "file beside each extract that proves it: `NAME.sha256` as sha256sum writes it, or "
        "`NAME.ctl` with `key=value` lines (count, bytes, sha256, date); without it an extract "
        "waits",
    )
    done_marker: Annotated[str, StringConstraints(pattern=r"^\.[A-Za-z0-9._-]{1,20}$")] | None = (
        setting(
            None,
            "ending of the marker file, such as `.done`; an extract waits until `NAME.done` exists",
        )
    )
    min_age_minutes: int = setting(
        0, "an extract waits until it has not been modified for this long", ge=0, le=1440
    )
    sequence: Pattern | None = setting(
        None, "regular expression, its group the sequence number: each follows the last"
    )
    sequence_in: Literal["name", "header"] = setting(
        "name", "where `sequence` is: in the file name, or above the data"
    )
    same_name: Literal["hold", "replace"] = setting(
        "hold",
        "the name of a committed extract, other content: `hold` it for a decision; `replace`: it "
        "is the next extract",
    )
    strict: bool = setting(False, "`true`: a source column that nothing uses refuses the extract")
    join: JoinSettings | None = None  # a second file, where there is one

    @property
    def row_segment(self) -> str:
        """The type whose records are rows; only where a file has several."""
        return self.segment_row or next(iter(self.segments))

    @property
    def segment_columns(self) -> dict[str, tuple[str, ...]]:
        """The columns of each type with its own names; only where there is no copybook."""
        return {kind: tuple(names) for kind, names in self.segments.items()}

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns, where no line of the extract has them.

        Of several types those of the rows, then those of the others. A name that is taken has its
        type before it, as in 02.CUST.
        """
        if not self.segments:
            return self.names
        columns = self.segment_columns
        names = list(columns.pop(self.row_segment))
        for kind, others in columns.items():
            names += [f"{kind}.{name}" if name in names else name for name in others]
        return tuple(names)

    @cached_property
    def second_file(self) -> "SourceSettings":
        """How the second file is written; only where there is one."""
        written = self.join.model_dump(exclude=NAMED_FOR_THE_PAIR) if self.join else {}
        return SourceSettings.model_validate(written)

    @cached_property
    def layout(self) -> Layout:
        """The fields of a record by the copybook; only where there is one."""
        groups = [str(group) for group in self.segments.values()]
        return read_layout(self.copybook or "", groups)

    @property
    def record_size(self) -> int:
        """The bytes of a record of format F or FB."""
        return self.layout.size if self.copybook else self.record_length or 0

    @model_validator(mode="after")
    def _describes_types(self) -> Self:
        if bool(self.segments) != bool(self.segment_field):
            raise ValueError("segment_field and segments belong together: set both")
        if not self.segments:
            return self
        if len(self.segments) < 2 or self.row_segment not in self.segments:
            raise ValueError("segments needs two types or more, and segment_row one of them")
        if self.copybook is not None:
            self._describes_groups()
            return self
        if self.format != "csv" or self.header_rows:
            raise ValueError(
                "record types without a copybook are read with a delimiter and header_rows = 0 "
                "(describe fixed positions by a copybook)"
            )
        places = {names.index(self.segment_field) for names in self._columns_of_types()}
        if len(places) != 1:
            raise ValueError("segment_field needs the same place in each type")
        return self

    def _describes_groups(self) -> None:
        if not all(isinstance(group, str) for group in self.segments.values()):
            raise ValueError("with a copybook, segments needs its group or record for each type")
        if "\n" in (self.copybook or "") and not self.layout.named(self.segment_field or ""):
            raise ValueError(f"segment_field: the copybook has no field {self.segment_field}")

    def _columns_of_types(self) -> list[tuple[str, ...]]:
        columns = list(self.segment_columns.values())
        if any(isinstance(names, str) for names in self.segments.values()):
            raise ValueError("without a copybook, segments needs the column names of each type")
        if any(self.segment_field not in names for names in columns):
            raise ValueError("segment_field is to be a column of each type")
        return columns

    @model_validator(mode="after")
    def _describes_records(self) -> Self:
        if self.copybook is None:
            if self.record_format in ("F", "FB") and self.record_length is None:
                raise ValueError(f"record_format = '{self.record_format}' needs record_length")
            if self.record_format in ("F", "FB") and self.format != "fixed":
                raise ValueError("records without a copybook are text: set format = 'fixed'")
            return self
        if self.record_format is None:
            raise ValueError("copybook needs record_format: F, FB, V or VB")
        if "\n" not in self.copybook:  # the name of a file that was not read yet
            return self
        if self.encoding == "utf-16":
            raise ValueError("a copybook counts bytes, and in utf-16 a character has two")
        size = self.layout.size
        if self.record_length not in (None, size):
            raise ValueError(
                f"record_length = {self.record_length}, but the copybook describes {size} bytes"
            )
        return self

    @model_validator(mode="after")
    def _describes_the_pair(self) -> Self:
        if self.join is None:
            return self
        for pattern in (self.pattern, self.join.pattern):
            if pattern.count("*") != 1 or set(pattern) & set("?[]"):
                raise ValueError(
                    f"two files are joined by what `*` stands for in the name of each: {pattern!r} "
                    "needs one `*` and no other wildcard, such as cards-*.csv"
                )
        if self.pattern == self.join.pattern:
            raise ValueError("the extract and its second file need different patterns")
        self.second_file  # noqa: B018  what is wrong in it is an error of the settings
        return self

    @model_validator(mode="after")
    def _describes_lines(self) -> Self:
        if self.copybook is not None:
            return self
        if self.format == "fixed" and self.width is None:
            raise ValueError("format = 'fixed' needs width, the number of characters of a line")
        if self.segments:
            return self
        if self.format != "fixed" and self.header_rows == 0 and len(self.names) < 2:
            raise ValueError("header_rows = 0 needs names, the columns of the extract in order")
        return self

    @model_validator(mode="after")
    def _groups_hold_what_is_read(self) -> Self:
        groups = re.compile(self.trailer or "").groups
        if self.trailer is not None and groups < 1:
            raise ValueError("trailer needs a group around the count")
        if self.sequence is not None and re.compile(self.sequence).groups != 1:
            raise ValueError("sequence needs exactly one group, around the number")
        if self.hash_total is not None and groups < 2:
            raise ValueError("hash_total needs a trailer with a second group")
        return self

    @model_validator(mode="after")
    def _places_the_hash_total(self) -> Self:
        match self.hash_total:
            case None:
                fits = True
            case str():
                fits = self.format != "fixed"
            case first, last:
                fits = self.format == "fixed" and first <= last
        if not fits:
            raise ValueError(
                "hash_total is a column; in fixed format [first, last], counted from 1"
            )
        return self


Severity = Literal["reject", "warn", "off"]


class RuleSettings(Settings):
    """Severity of the rules that the partner leaves open, and what normalising may fill in or
    cut.
    """

    luhn: Severity = setting(
        "reject", "check digit of the card number (the partner's own sample number fails it)"
    )
    cvv_missing: Severity = setting(
        "warn", "no CVV and no hash: the link may not open, since it asks for CVV and ZIP"
    )
    address_mismatch: Severity = setting(
        "reject", "a postal code of another state: nobody could open the link"
    )
    expires_soon: Severity = setting("warn", "a card that expires before its link does")
    email: Severity = setting(
        "warn", "format of the e-mail address; plays no part when the link is opened"
    )
    phone: Severity = setting("warn", "format of the phone number")
    name_on_card: Severity = setting("warn", "a missing name on the card, or one with digits")
    other_cuid: Severity = setting("warn", "one card under two cuids: a joint account, or a mix-up")
    card_in_text: Severity = setting(
        "reject", "a card number in a text column, where others would read it"
    )
    too_long: Severity = setting("reject", "a text with more characters than `max_length` allows")
    max_length: dict[PortalColumn, Annotated[int, Field(ge=1)]] = setting(
        {}, "most characters by column; others: 254"
    )
    invisible: Severity = setting(
        "warn", "invisible characters, and those that change the direction of text"
    )
    garbled: Severity = setting(
        "warn", "text that lost letters (U+FFFD), or in a wrong encoding (JosÃ© for José)"
    )
    lost_letters: Severity = setting(
        "warn", "`?` in place of letters (Garc?a); by all rows, which column lost some is decided"
    )
    cuid_direction: Severity = setting(
        "reject", "a cuid with characters that change the direction of text; links.csv keeps them"
    )
    cuid_formula: Severity = setting(
        "warn", "a cuid that a spreadsheet may run as a formula (= + - @); links.csv keeps it"
    )
    link_life_months: int = setting(2, "how long a link lives, for `expires_soon`", ge=0, le=24)
    fill_name_on_card: bool = setting(
        True, "take first and last name where the name on the card is empty"
    )
    keep_zip_plus_4: bool = setting(
        False, "`false`: ZIP+4 is cut to the five digits a cardholder knows"
    )
    # "Null" and "Test" with one capital are family names; these spellings come from programs.
    placeholders: tuple[str, ...] = setting(
        ("NULL", "null", "(null)", "N/A", "n/a", "#N/A", "TEST", "test"),
        "exact texts that count as a placeholder in a required column",
    )

    def __hash__(self) -> int:
        """Return the hash of all settings; a table has none of its own."""
        return hash(self.model_dump_json())


class Repairs(Settings):
    """Repairs of whole columns: each is decided by all rows of the extract, and counted in the
    report.
    """

    zip_zeros: bool = setting(
        True, "put back leading zeros of ZIPs (2108 becomes 02108) where no ZIP kept its zero"
    )
    cvv_zeros: bool = setting(
        True, "put back leading zeros of CVVs (7 becomes 007) where no CVV kept its zero"
    )
    expiration_order: bool = setting(
        True, "read MMYY as YYMM where only the other order fits every value"
    )
    refuse_excel: bool = setting(
        True, "refuse card numbers that a spreadsheet changed (4.11E+15, or all end in 0)"
    )


class Resend(Settings):
    """What happens to a row whose card another run of the issuer has linked or awaits; a portfolio
    suppresses it.
    """

    seen_before: Literal["suppress", "refuse", "send"] = setting(
        "suppress",
        "a card that has or awaits a link: `suppress` its row, `refuse` the extract, or `send` it "
        "again",
    )
    changed: Literal["ask", "send", "hold"] = setting(
        "ask",
        "a card with a link whose name or address has changed: `ask` on the worklist, `send` it "
        "for a new link, or `hold` its row; in a full portfolio `[portfolio] changes` decides",
    )
    reissue_column: Spec | None = setting(
        None,
        "source column that changes when a card is issued again, such as its sequence number: the "
        "new issue is sent again",
    )


class Limits(Settings):
    """Gates that a run must pass before its commit, and the error rate above which a finished run
    needs a look.
    """

    max_reject_rate: float = setting(
        0.05, "share of rejected rows above which nothing is committed", ge=0, le=1
    )
    max_ineligible_rate: float = setting(
        0.5, "share of rows that are not eligible above which nothing is committed", ge=0, le=1
    )
    max_row_jump: float = setting(
        0.5,
        "largest distance from the median row count of the last runs; 0.5 is half; from 1 on no "
        "extract is too small",
        gt=0,
    )
    max_row_fall: float | None = setting(
        None,
        "largest share by which rows may fall below that median. Without it, it is learned: a "
        "portfolio may have a tenth fewer rows than its smallest of the last runs, another extract "
        "a quarter, or as far below as they vary; what chance explains is allowed",
        ge=0,
        le=1,
    )
    max_seen_before: float = setting(
        1.0, "largest share of rows that already have or await a link", ge=0, le=1
    )
    max_drift: float = setting(
        0.1, "largest distance of a column's shares from the last ten extracts", gt=0, le=1
    )
    drift: Literal["alert", "refuse"] = setting(
        "alert", "a column departs: raise an alert, or do not commit"
    )
    max_error_rate: float = setting(
        0.05, "share of partner errors above which a finished run needs a look", ge=0, le=1
    )
    lost_after_days: int = setting(
        7, "days after its upload from which a chunk without any result can be given up", ge=0
    )


class Issuer(Settings):
    """One issuer: the whole TOML."""

    issuer: str = setting(
        ..., "name of the issuer, and of its TOML: lower case, digits, hyphens", pattern=ISSUER
    )
    root: str = setting(..., "`s3://bucket/prefix`, or a directory relative to the TOML")
    test: bool = setting(
        False, "`true`: test cards only, a real card refuses the run; `false`: the other way round"
    )
    full_portfolio: bool = setting(
        False, "`true`: extracts repeat all cardholders; `[portfolio]` decides who is sent"
    )
    time_zone: str = setting(
        "UTC", "time zone of the schedule, and of the business date where no name gives it"
    )
    store: StoreSettings = StoreSettings()
    source: SourceSettings = SourceSettings()
    columns: Columns = Field(default_factory=dict)
    status: Status = setting({}, "which rows count: source column = what its values decide")
    eligible: Eligibility = Eligibility()
    filter: Filter = setting({}, "older spelling of `[status]`: the values of rows that count")
    deleted: Filter = setting({}, "older spelling of `[status]`: the values that close a card")
    repairs: Repairs = Repairs()
    rules: RuleSettings = RuleSettings()
    limits: Limits = Limits()
    portfolio: settings.Portfolio = settings.Portfolio()
    resend: Resend = Resend()
    portal: PortalSettings
    links: settings.LinkSettings = settings.LinkSettings()
    schedule: settings.Schedule = settings.Schedule()
    alerts: settings.Alerts = settings.Alerts()
    service: ServiceSettings | None = None  # the partner's API, where it is used
    retention: settings.Retention = settings.Retention()
    four_eyes: settings.FourEyes = settings.FourEyes()
    audit: settings.Audit = settings.Audit()

    @model_validator(mode="after")
    def _safe(self) -> Self:
        if "@" in urlsplit(self.root).netloc:
            raise ValueError(
                "root contains credentials: they belong in the environment, never in the TOML"
            )
        if self.store != StoreSettings() and urlsplit(self.root).scheme != "s3":
            raise ValueError(
                "[store] is for a root on S3, and root is a directory: delete the table"
            )
        if "changes" in self.portfolio.model_fields_set and not self.full_portfolio:
            raise ValueError(
                "[portfolio] changes is for full_portfolio = true only: delete it, and say what is "
                "done about a changed name or address with [resend] changed"
            )
        if not (self.test or self.portal.sealed):
            raise ValueError("portal.sealed = false is for an issuer with test = true only")
        return self
