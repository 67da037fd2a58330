"""The tables `[schedule]` and `[alerts]` of the issuer's TOML: when the night is, and what somebody is told about."""

from __future__ import annotations

from datetime import date, time
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from schemas.settings import Settings

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
WEEK: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

Cron = Annotated[str, StringConstraints(pattern=r"^\S+( \S+){4}$")]
Address = Annotated[str, StringConstraints(pattern=r"^(https?://\S+[^/])?$")]


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
