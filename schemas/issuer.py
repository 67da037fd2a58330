"""The issuer's TOML: one file says where its extracts lie, how its columns map, its portal settings and limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, model_validator

from schemas.links import LinkSettings
from schemas.portal import MAX_ROWS
from schemas.portfolio import Portfolio
from schemas.retention import Retention
from schemas.row_settings import Repairs, RuleSettings
from schemas.schedule import Alerts, Schedule
from schemas.service import ServiceSettings
from schemas.settings import Settings
from schemas.source import Columns, Filter, SourceSettings

Fingerprint = Annotated[str, StringConstraints(pattern=r"^[0-9A-F]{40}$", to_upper=True)]


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
