"""The smaller tables of the issuer's TOML, from `[store]` to `[retention]`.

In every table unknown keys are errors, and values never change after reading.
"""

import re
from datetime import date, time
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

Change = Literal["name", "address", "expiration", "reissue"]

LinkColumn = Literal["cuid", "last_4", "url", "expires_on"]
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})  # hosts that are this machine
DateFormat = Literal["YYYY-MM-DD", "YYYYMMDD", "MM/DD/YYYY", "DD/MM/YYYY", "DD.MM.YYYY"]

Name = Annotated[str, StringConstraints(pattern=r'^[^",\t\r\n=+@-][^",\r\n]{0,63}$')]

# as gpg lists it, however it was typed: in groups, in lower case
Typed = BeforeValidator(
    lambda text: text.replace(" ", "").upper() if isinstance(text, str) else text,
    json_schema_input_type=str,
)
Fingerprint = Annotated[str, Typed, StringConstraints(pattern=r"^[0-9A-F]{40}$")]

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
WEEK: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

Address = Annotated[str, StringConstraints(pattern=r"^(https?://\S+[^/])?$")]


class Settings(BaseModel):
    """One table of the TOML."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def setting(default: Any, meaning: str, **limits: Any) -> Any:
    """Return one key of a table: its default, `...` where it is required, its meaning, and the
    limits of its value.
    """
    return Field(default, description=meaning, **limits)


class StoreSettings(Settings):
    """For a `root` on S3: how objects are written, whose bucket it is, and the tag that says that a
    file is clean.
    """

    kms_key: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9:/_-]{1,256}$")] | None = (
        setting(
            None, "KMS key (id, ARN or `alias/NAME`) that every object is encrypted with: SSE-KMS"
        )
    )
    bucket_key: bool | None = setting(
        None, "with `kms_key`: a bucket key saves KMS calls; unset: as the bucket says"
    )
    owner: str | None = setting(
        None, "AWS account of the bucket; one of any other is refused", pattern="^[0-9]{12}$"
    )
    lock_mode: Literal["GOVERNANCE", "COMPLIANCE"] | None = setting(
        None, "Object Lock of the journal's segments; needs a bucket made with Object Lock"
    )
    lock_days: int | None = setting(
        None, "days that `lock_mode` keeps them from being deleted", ge=1, le=36500
    )
    verdict_tag: (
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9 +=._:/@-]{1,128}$")] | None
    ) = setting(
        None,
        "tag of the malware verdict, such as `GuardDutyMalwareScanStatus`; no dropped file is read "
        "without it",
    )
    verdict_clean: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9 +=._:/@-]{1,256}$")] = (
        setting(
            "NO_THREATS_FOUND",
            "value of that tag on a clean file; a file with any other value is never read",
        )
    )

    @model_validator(mode="after")
    def _in_pairs(self) -> Self:
        if (self.lock_mode is None) != (self.lock_days is None):
            raise ValueError("lock_mode and lock_days need each other")
        if self.bucket_key is not None and self.kms_key is None:
            raise ValueError("bucket_key needs kms_key, the key that it stands for")
        return self


class Portfolio(Settings):
    """With `full_portfolio = true`, new and changed cardholders are sent, and those whose link is
    about to expire.
    """

    changes: tuple[Change, ...] = setting(
        get_args(Change), "which changes of a known card send it again"
    )
    renew_within_days: int = setting(
        14, "replace a link that expires within this many days", ge=0, le=365
    )
    resend_errors: bool = setting(
        False, "`true`: rows the partner refused are sent again every night, even unchanged"
    )


_MOST_DIGITS = 5  # of a text that is kept: none of a card


def _known_text(text: str) -> str:
    if len(re.findall(r"\d", text)) > _MOST_DIGITS:
        raise ValueError(f"a text has at most {_MOST_DIGITS} digits: write {{}} for what varies")
    if not re.search(r"\w.*\w", text.replace("{}", "")):
        raise ValueError("a text has words of its own beside {}")
    return text


class ErrorSettings(Settings):
    """The texts of the partner's errors that hold nothing of a cardholder."""

    texts: tuple[Annotated[str, AfterValidator(_known_text)], ...] = setting(
        (),
        "texts of the partner's errors that are kept as they are; `{}` stands for what varies, of "
        "which only what is harmless is kept",
    )


class LinkSettings(Settings):
    """The columns of `links.csv`, its date format, and the rows of a file."""

    columns: dict[LinkColumn, Name] = setting(
        {name: name for name in get_args(LinkColumn)},
        "columns of `links.csv`, in order, each with its name there",
    )
    date_format: DateFormat = setting("YYYY-MM-DD", "how `expires_on` is written")
    rows_per_file: int | None = setting(
        None, "split into `links-00001.csv`, `links-00002.csv` … of so many rows", ge=1
    )

    @field_validator("columns")
    @classmethod
    def _can_be_sent(cls, columns: dict[LinkColumn, Name]) -> dict[LinkColumn, Name]:
        if not {"cuid", "url"} <= columns.keys():
            raise ValueError("links.csv needs at least cuid and url")
        if len({*columns.values()}) < len(columns):
            raise ValueError("two columns of links.csv have one name")
        return columns

    @property
    def strftime(self) -> str:
        """The date format as strftime writes it."""
        return self.date_format.replace("YYYY", "%Y").replace("MM", "%m").replace("DD", "%d")


class Schedule(Settings):
    """When `nightly` runs, in the issuer's time zone; other days and holidays are skipped, with an
    alert.

    A country that is not known stops no night: `check` says so, and an alert.
    """

    cron: str = setting(
        "30 1 * * *", "when `nightly` runs, in the issuer's time zone", pattern=r"^\S+( \S+){4}$"
    )
    days: tuple[Weekday, ...] = setting(
        WEEK, "business days; other days are skipped, with an alert", min_length=1
    )
    country: str | None = setting(
        None,
        "country whose public holidays, and those of its banks, are skipped as well: two letters. "
        "US: its federal holidays, also on the Friday before; the Federal Reserve works then",
        max_length=40,
    )
    subdivision: str | None = setting(
        None, "its part whose holidays are added, by ISO 3166-2: `NY`", max_length=40
    )
    holidays: tuple[date, ...] = setting((), "further dates that are skipped")
    workdays: tuple[date, ...] = setting(
        (), "business days all the same: a public holiday, or a Saturday, that is worked"
    )
    extract_by: time | None = setting(
        None,
        "time of day by which an extract must have arrived. Unset, it is learned from the last 20 "
        "business days, where extracts came on nearly all; `check` shows it",
    )


class Alerts(Settings):
    """What raises an alert, and where alerts and tables link to."""

    empty_extract: Literal["alert", "allow"] = setting(
        "alert", "`allow`: an extract without rows is nothing unusual"
    )
    ineligible_rate: float = setting(
        0.1, "share of rows that are not eligible above which the last extract is reported", ge=0
    )
    report_url: Address = setting(
        "", "address under which the store can be browsed; reports are linked below it"
    )
    presigned_hours: int = setting(
        12, "hours a link to a report on S3 works, without a server; 0: none", ge=0, le=168
    )


Act = Literal[
    "release",
    "gates",
    "override",
    "resend",
    "link",
    "hold",
    "cancel",
    "dismiss",
    "abandon",
    "close",
    "lost",
    "give-up",
    "keep-link",
    "attribute",
    "link-form",
    "deliver",
    "reseal",
    "purge",
    "erase",
    "accept",
    "settings",
    "mapping",
]


Place = Annotated[str, StringConstraints(pattern=r"^\S+$")]
WitnessKey = Annotated[
    str, StringConstraints(pattern=r"^[^\s+]+\+[0-9a-f]{8}\+[A-Za-z0-9+/]{44}={0,2}$")
]


class Audit(Settings):
    """Who proves the audit trail, and who outside keeps where it ends."""

    kms_key: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9:/_-]{1,256}$")] | None = (
        setting(
            None,
            "HMAC key of AWS KMS (id, ARN or `alias/NAME`) that proves entries; unset: the secret "
            "`CARDLINK_AUDIT_KEY_FILE`, where the worker has one",
        )
    )
    witness: Place | None = setting(
        None,
        "where the witness keeps its checkpoints, as a `root` is written: nobody who writes to the "
        "store may write there",
    )
    witness_key: WitnessKey | None = setting(
        None, "key that its checkpoints are signed with, as `audit witness-key` prints it"
    )
    witness_hours: int = setting(
        26, "hours after which the last checkpoint is stale", ge=1, le=8760
    )

    @model_validator(mode="after")
    def _has_both(self) -> Self:
        if (self.witness is None) != (self.witness_key is None):
            raise ValueError("witness and witness_key go together")
        return self


class Retention(Settings):
    """Days after a run's last result; what is unsent, unanswered or has an open break is kept,
    however old.

    Links have no term of their own: in report, answers and results they go with the ledger, in
    deliveries as late. Result files belong to the operator, like everything that is dropped.
    """

    chunks_days: int = setting(7, "days to keep sealed chunks after the run's last result", ge=0)
    ledger_days: int = setting(
        395, "the same for ledger, answers and report; never shorter than a link lives", ge=63
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.chunks_days > self.ledger_days:
            raise ValueError(
                "chunks_days is more than ledger_days: a chunk cannot be identified without its "
                "ledger"
            )
        return self
