"""The smaller tables of the issuer's TOML: `[portfolio]`, `[links]`, `[schedule]`, `[alerts]`, `[retention]`.

In every table unknown keys are errors, and values never change after reading.
"""

from __future__ import annotations

from datetime import date, time
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

Change = Literal["name", "address", "expiration"]

LinkColumn = Literal["cuid", "last_4", "url", "expires_on"]
DateFormat = Literal["YYYY-MM-DD", "YYYYMMDD", "MM/DD/YYYY", "DD/MM/YYYY", "DD.MM.YYYY"]

STRFTIME: dict[DateFormat, str] = {
    "YYYY-MM-DD": "%Y-%m-%d",
    "YYYYMMDD": "%Y%m%d",
    "MM/DD/YYYY": "%m/%d/%Y",
    "DD/MM/YYYY": "%d/%m/%Y",
    "DD.MM.YYYY": "%d.%m.%Y",
}

OWN_NAMES: dict[LinkColumn, str] = {"cuid": "cuid", "last_4": "last_4", "url": "url", "expires_on": "expires_on"}

Name = Annotated[str, StringConstraints(pattern=r'^[^",\t\r\n=+@-][^",\r\n]{0,63}$')]

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
WEEK: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

Cron = Annotated[str, StringConstraints(pattern=r"^\S+( \S+){4}$")]
Address = Annotated[str, StringConstraints(pattern=r"^(https?://\S+[^/])?$")]


class Settings(BaseModel):
    """One table of the TOML."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Portfolio(Settings):
    """With `full_portfolio = true` the new, the changed and those whose link is about to expire are sent."""

    changes: tuple[Change, ...] = ("name", "address", "expiration")  # what of a card known counts as a change
    renew_within_days: int = Field(14, ge=0, le=365)  # a link that ends within so many days is made anew
    resend_errors: bool = False  # true: what the partner refused goes again every night, unchanged as it is


class LinkSettings(Settings):
    """Columns of links.csv with their names there, in this order; its date format; how many rows a file may have."""

    columns: dict[LinkColumn, Name] = Field(default_factory=lambda: dict(OWN_NAMES))
    date_format: DateFormat = "YYYY-MM-DD"
    rows_per_file: int | None = Field(None, ge=1)  # set: links-00001.csv, links-00002.csv … instead of links.csv

    @field_validator("columns")
    @classmethod
    def _can_be_sent(cls, columns: dict[LinkColumn, Name]) -> dict[LinkColumn, Name]:
        if not {"cuid", "url"} <= columns.keys():
            raise ValueError("links.csv needs at least cuid and url")
        if len(set(columns.values())) < len(columns):
            raise ValueError("two columns of links.csv have one name")
        return columns

    @property
    def strftime(self) -> str:
        """The date format as strftime writes it."""
        return STRFTIME[self.date_format]


class Schedule(Settings):
    """When the night is, in the issuer's time zone; a day that is not in `days`, or a holiday, is skipped and told."""

    cron: Cron = "30 1 * * *"
    days: tuple[Weekday, ...] = Field(WEEK, min_length=1)
    holidays: tuple[date, ...] = ()
    extract_by: time | None = None  # the hour by which an extract must be there; none: nobody waits for one


class Alerts(Settings):
    """What somebody is told about, beyond what always is."""

    empty_extract: Literal["alert", "allow"] = "alert"  # an extract without a row
    report_url: Address = ""  # where the store is browsed: reports are linked below it


class Retention(Settings):
    """Days after a run's last answer; what is unsent, unanswered or has an open break stays, however old.

    Links have no term of their own: they lie in the report, the outcomes and the result files alike, and go with
    the ledger. The result files are the operator's, like everything that is dropped.
    """

    chunks_days: int = Field(7, ge=0)  # sealed chunks: the portal has them, and the source makes them again
    ledger_days: int = Field(395, ge=63)  # ledger, outcomes, report: no shorter than a link lives (interface.md 8)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.chunks_days > self.ledger_days:
            raise ValueError("chunks_days is more than ledger_days: a chunk cannot be told apart without its ledger")
        return self
