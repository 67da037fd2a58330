"""Settings of what is handed to others: acknowledgements to the issuer, links to their receivers.

Both go to a place, sealed to a key where one is pinned, and are confirmed by a receipt.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from schemas.settings import (
    DateFormat,
    Fingerprint,
    LinkColumn,
    Name,
    Place,
    Settings,
    setting,
)

if TYPE_CHECKING:
    from schemas.issuer import Issuer

CHANGES: Final = ("change", "why")  # columns that a delivery adds
DEFAULT: Final = "default"  # the receiver whose deliveries have no name of their own
AFTER_INGEST: Final = "ingest"
BY_HAND: Final = "by-hand"

DeliveredColumn = Literal[LinkColumn, "change", "why"]
ReceiverName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,40}$")]
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,60}$")]
Cron = Annotated[str, StringConstraints(pattern=r"^\S+( \S+){4}$")]


def _safe_address(address: str) -> str:
    """Return an address that events may be posted to: https, or loopback; ValueError."""
    url = urlsplit(address)
    if "@" in url.netloc:
        raise ValueError("the address holds credentials: they belong in the environment")
    if url.scheme == "https" or _is_loopback(url.hostname or ""):
        return address
    raise ValueError("events are posted by https; http is for loopback addresses alone")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


WebhookAddress = Annotated[
    str,
    StringConstraints(pattern=r"^https?://[^\s/?#]+\S*$"),
    AfterValidator(_safe_address),
]


class Destination(Settings):
    """Where files are handed over, and to which key they are sealed."""

    to: Place | None = setting(
        None,
        "where the files are copied to, as a `root` is written; unset: they stay in the store",
    )
    key_file: str | None = setting(
        None, "public key beside the TOML of whom the files are for: they are sealed to it"
    )
    fingerprint: Fingerprint | None = setting(
        None, "full fingerprint of that key, checked over another channel"
    )
    receipt_within_hours: int | None = setting(
        None,
        "hours within which a receipt is dropped; one that is late raises an alert. Unset: none is "
        "expected",
        ge=1,
        le=720,
    )

    @model_validator(mode="after")
    def _is_pinned(self) -> Self:
        if (self.key_file is None) != (self.fingerprint is None):
            raise ValueError("key_file and fingerprint go together")
        return self


class Acknowledgement(Destination):
    """What the issuer is told of each extract: what became of its rows, as CSV and JSON."""


class Receiver(Destination):
    """A receiver of links, by its name: what is new for it, and what it may no longer use.

    Each has a chain of deliveries of its own. The files of a delivery stand in a folder
    `ISSUER/NAME/000001/` at `to`, or below the issuer's `deliveries/NAME/`. The receiver named
    `default` has the deliveries without a name; it is the only one where there is no such table.
    """

    schedule: Literal["ingest", "by-hand"] | Cron = setting(
        AFTER_INGEST,
        "when links are delivered: after each `ingest`, only `by-hand`, or by a cron in the "
        "issuer's time zone",
    )
    format: Literal["csv", "jsonl", "parquet"] = setting(
        "csv", "how the files are written: CSV, JSON lines or Parquet"
    )
    columns: dict[DeliveredColumn, Name] = setting(
        {},
        "columns of the files, in order, each with its name there; unset: those of `[links]`, then "
        "`change` and `why`",
    )
    date_format: DateFormat | None = setting(
        None, "how `expires_on` is written, but in Parquet; unset: as in `[links]`"
    )
    rows_per_file: int | None = setting(
        None, "split into `links-00001.csv` … of so many rows; unset: as in `[links]`", ge=1
    )
    done_marker: FileName = setting(
        "done.json", "name of the file at `to` that is written last: it lists the others"
    )
    webhook: WebhookAddress | None = setting(
        None,
        "address that an event is posted to once the files are there, as Standard Webhooks has it; "
        "signed with the secret in `CARDLINK_WEBHOOK_SECRET_ISSUER_NAME`",
    )
    prefect_event: bool = setting(
        False, "`true`: `watch` emits the Prefect event `cardlink.links.delivered`"
    )
    confirmed_by: Literal["receipt", "event"] = setting(
        "receipt",
        "what confirms a delivery, beside `deliver --confirm`: a `receipt`, or that its webhook "
        "took the `event`",
    )
    retired: bool = setting(
        False, "`true`: all links it has are withdrawn, and nothing new is delivered"
    )

    @field_validator("columns")
    @classmethod
    def _can_be_applied(cls, columns: dict[DeliveredColumn, Name]) -> dict[DeliveredColumn, Name]:
        if columns and not {"cuid", "url", "change"} <= columns.keys():
            raise ValueError(
                "columns of a delivery need at least cuid, url and change, without which no link "
                "can be withdrawn"
            )
        if len({*columns.values()}) < len(columns):
            raise ValueError("two columns of a delivery have one name")
        return columns

    @model_validator(mode="after")
    def _is_told(self) -> Self:
        if self.confirmed_by == "event" and self.webhook is None:
            raise ValueError('confirmed_by = "event" needs a webhook')
        return self

    @property
    def cron(self) -> str | None:
        """When it is delivered to by a schedule of its own; None where it has none."""
        return self.schedule if self.schedule not in (AFTER_INGEST, BY_HAND) else None


PLAIN: Final = Receiver(schedule=BY_HAND)  # the default receiver, where it has no table


TABLES: dict[str, Any] = {
    "acknowledgement": (Acknowledgement | None, None),  # where the issuer wants one
    "deliveries": (dict[ReceiverName, Receiver], Field(default_factory=dict)),
}


def acknowledging(issuer: Issuer) -> Acknowledgement | None:
    """Return what the issuer wants to be told, None where it wants nothing."""
    return issuer.table(Acknowledgement)


def receivers_in(issuer: Issuer) -> Mapping[str, Receiver]:
    """Return the tables of receivers, by name."""
    tables: Mapping[str, Receiver] = dict(issuer)["deliveries"]
    return tables


def settings_of(issuer: Issuer, receiver: str) -> Receiver:
    """Return the settings of a receiver; without a table those of the default one."""
    return receivers_in(issuer).get(receiver, PLAIN)


def validate(issuer: Issuer) -> None:
    """Raise ValueError where receivers share a place, or a column has a name of theirs."""
    receivers = receivers_in(issuer)
    places = [receiver.to for receiver in receivers.values() if receiver.to]
    if len(set(places)) < len(places):
        raise ValueError("two tables of [deliveries] have one place `to`: give each its own")
    if not {*CHANGES}.isdisjoint(issuer.links.columns.values()):
        raise ValueError("a column of links.csv has the name of a delivery's column: change, why")
