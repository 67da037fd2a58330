"""The issuer's TOML: one file says where its extracts are, how they are written, how their columns map, and limits."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

import polars as pl
from pydantic import AfterValidator, Field, StringConstraints, model_validator

from schemas import portal
from schemas.partner_api.service import ServiceSettings
from schemas.portal import MAX_ROWS
from schemas.row_settings import Repairs, RuleSettings
from schemas.settings import Alerts, LinkSettings, Portfolio, Retention, Schedule, Settings

Format = Literal["MMYY", "YYMM", "MM/YY", "MM/YYYY", "YYYY-MM", "YYYY-MM-DD", "SURNAME/GIVEN"]

Header = Annotated[str, StringConstraints(min_length=1)]

Fingerprint = Annotated[str, StringConstraints(pattern=r"^[0-9A-F]{40}$", to_upper=True)]


def _portal_column(name: str) -> str:
    if name not in portal.columns():
        raise ValueError(f"the portal has no column {name}; it has {', '.join(portal.columns())}")
    return name


def _pattern(text: str) -> str:
    """Check a regular expression with both engines that will read it."""
    try:
        re.compile(text)
        pl.Series([""]).str.contains(text)
    except (re.error, pl.exceptions.PolarsError) as error:
        raise ValueError("not a regular expression, or one that looks around or back") from error
    return text


Pattern = Annotated[str, AfterValidator(_pattern)]
PortalColumn = Annotated[str, AfterValidator(_portal_column)]


class SourceSettings(Settings):
    """How the extract is written: format, delimiter, encoding, header, comments and trailer."""

    pattern: str = "*"
    format: Literal["csv", "fixed"] = "csv"
    width: int | None = Field(None, ge=1)  # fixed: characters of every line
    delimiter: Literal[",", ";", "\t", "|"] = ","
    encoding: Literal["utf-8", "cp1252", "latin-1", "utf-16"] = "utf-8"
    header_rows: int = Field(1, ge=0)  # lines before the data; the last of them bears the names
    names: tuple[Header, ...] = ()  # the names, where the extract has no header
    comment: str | None = Field(None, min_length=1)  # lines that begin like this are no rows
    trailer: Pattern | None = None  # regular expression of the trailer; its first group is the count
    trailer_field: int | None = Field(None, ge=1)  # or: which field of the trailer holds the count, from 1
    final_newline: bool = False  # true: an extract whose last line has no newline was cut off
    strict: bool = False  # true: a header that no column asks for refuses the extract

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.format == "fixed" and self.width is None:
            raise ValueError("format = 'fixed' needs width, the number of characters of a line")
        if self.format == "csv" and self.header_rows == 0 and len(self.names) < 2:
            raise ValueError("header_rows = 0 needs names, the columns of the extract in order")
        if self.trailer is not None and self.trailer_field is None and re.compile(self.trailer).groups < 1:
            raise ValueError("trailer needs a group around the count, or trailer_field")
        return self


class From(Settings):
    """One portal column made of one source column (or the first found of several), or of fixed positions."""

    source: Header | tuple[Header, ...] | None = Field(None, alias="from")
    at: tuple[int, int] | None = None  # fixed width: first and last character, from 1
    format: Format | None = None  # which part is taken, the portal column says
    pad: int | None = Field(None, ge=1, le=16)  # zeros in front of digits, to this many; before the format

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.source is None) == (self.at is None):
            raise ValueError("give either `from` or `at`")
        if self.at is not None and not 1 <= self.at[0] <= self.at[1]:
            raise ValueError("`at` is [first, last], counted from 1")
        return self


class Constant(Settings):
    """One portal column with the same text in every row."""

    constant: Header


class Except(Settings):
    """A filter by what does not count."""

    exclude: tuple[str, ...] = Field(alias="not", min_length=1)


Columns = dict[PortalColumn, Header | tuple[Header, ...] | From | Constant]  # portal column -> where it comes from
Filter = dict[str, str | tuple[str, ...] | Except]  # source header -> the values of rows that count


class Limits(Settings):
    """The gates a run passes before its commit, and the shares that make a finished night worth a look."""

    max_reject_rate: float = Field(0.05, ge=0, le=1)
    max_row_jump: float = Field(0.5, gt=0)  # share of the median of the last runs
    max_error_rate: float = Field(0.05, ge=0, le=1)


class PortalSettings(Settings):
    """The partner's portal: public key, file form, template and the hosts a link may point to."""

    key_file: str | tuple[str, ...] = "portal.asc"  # several: the portal's key and an escrow key, or a rotation
    fingerprints: tuple[Fingerprint, ...] = ()
    sealed: bool = True  # false: chunks in the clear, for a test issuer and published test cards only
    template: str | None = None
    extension: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(\.[a-z0-9]+)*$")] = "csv.pgp"
    armor: bool = False
    compression: Literal["zip", "none"] = "zip"
    rows_per_chunk: int = Field(MAX_ROWS, ge=1, le=MAX_ROWS)
    allowed_hosts: tuple[str, ...] = Field(min_length=1)
    answer_within_hours: int = Field(48, ge=1)  # from upload to result; a chunk without one is overdue after it

    @model_validator(mode="before")
    @classmethod
    def _plain_extension(cls, given: Any) -> Any:
        """Name unsealed chunks `.csv` where nothing else is said."""
        plain = isinstance(given, dict) and given.get("sealed") is False
        return {"extension": "csv", **given} if plain else given

    @model_validator(mode="after")
    def _pinned(self) -> Self:
        if self.sealed and not self.fingerprints:
            raise ValueError("fingerprints: at least one, the full fingerprint of the portal's key")
        return self


class Issuer(Settings):
    """One issuer: the whole TOML."""

    issuer: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")]
    root: str
    test: bool = False
    full_portfolio: bool = False  # each extract repeats everybody: [portfolio] says who of them is sent
    time_zone: str = "UTC"
    source: SourceSettings = SourceSettings()
    columns: Columns = Field(default_factory=dict)
    filter: Filter = Field(default_factory=dict)
    repairs: Repairs = Repairs()
    rules: RuleSettings = RuleSettings()
    limits: Limits = Limits()
    portfolio: Portfolio = Portfolio()
    portal: PortalSettings
    links: LinkSettings = LinkSettings()
    schedule: Schedule = Schedule()
    alerts: Alerts = Alerts()
    service: ServiceSettings | None = None  # the partner's interface beyond the file, where it is used
    retention: Retention = Retention()

    @model_validator(mode="before")
    @classmethod
    def _without_parts(cls, given: Any) -> Any:
        if isinstance(given, dict) and "scale" in given:
            raise ValueError(
                "[scale] does nothing any more, an extract is always read by one process: delete the table"
            )
        return given

    @model_validator(mode="after")
    def _safe(self) -> Self:
        if "@" in urlsplit(self.root).netloc:
            raise ValueError("root holds credentials: they come from the environment, never from the TOML")
        if not (self.test or self.portal.sealed):
            raise ValueError("portal.sealed = false is for an issuer with test = true only")
        return self
