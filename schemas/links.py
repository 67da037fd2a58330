"""The table `[links]` of the issuer's TOML: how links.csv is written for the system that sends the links."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator

from schemas.settings import Settings

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
