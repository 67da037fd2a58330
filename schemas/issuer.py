"""The issuer's TOML: its extracts, how they are written, how their columns map, and the limits."""

from math import sqrt
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, create_model, field_validator, model_validator

from flows.extensions import settings_tables, validate
from schemas import portal, settings
from schemas.challenges import Challenge
from schemas.eligible import Eligibility
from schemas.mapping import Columns, PortalColumn, Spec
from schemas.portal_settings import PortalSettings
from schemas.settings import Settings, StoreSettings, setting
from schemas.source import SourceSettings
from schemas.status import Status

T = TypeVar("T", bound=Settings)
ISSUER = r"^[a-z0-9][a-z0-9-]{0,40}$"


Severity = Literal["reject", "warn", "off"]


class RuleSettings(Settings):
    """Severity of the rules that the partner leaves open, and what normalising may fill in or
    cut.
    """

    challenges: tuple[Challenge, ...] = setting(
        (),
        "challenges at a link, as the institution configures them in the portal; what they ask for "
        "must be there: a row without it is rejected, whatever the settings below say. Without "
        "them, the partner asks for CVV and ZIP, and the settings below decide",
    )
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
    link_life_months: int = setting(
        2,
        "how long a link lives, for `expires_soon`; of one that is requested on its own its last "
        "day counts, where that is named",
        ge=0,
        le=24,
    )
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


CHANCE = "and what chance adds to few, three times the square root of what that share is"


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
    max_one_value: dict[PortalColumn, Annotated[float, Field(ge=0, le=1)]] = setting(
        {},
        "largest share of one value among the filled cells of a column; fewer than "
        f"{portal.FEWEST_JUDGED} are not judged. Without it: {portal.CVVS_EQUAL} of the CVV or "
        f"its hash, {portal.MOST_EQUAL} of card number, cuid, names, street, e-mail and phone, in "
        f"a portfolio {portal.COLUMNS[portal.MONTH].most_equal} of the month; any of others",
    )
    max_leavers: float = setting(
        0.1,
        "largest share of the known cards that an extract may leave out of a portfolio or mark as "
        f"deleted; {CHANCE}",
        ge=0,
        le=1,
    )
    max_newcomers: float = setting(
        0.5,
        "largest share of the cards of a portfolio that may come for the first time, but for the "
        f"first extract; {CHANCE}",
        ge=0,
        le=1,
    )
    max_withdrawn: float = setting(
        0.1,
        "largest share of the links of a receiver that a delivery withdraws without a decision, "
        "because their cards left, or the partner's answers no longer say them; links that ended "
        f"or are replaced, forgotten or given up do not count; {CHANCE}",
        ge=0,
        le=1,
    )
    max_error_rate: float = setting(
        0.05, "share of partner errors above which a finished run needs a look", ge=0, le=1
    )
    lost_after_days: int = setting(
        7, "days after its upload from which a chunk without any result can be given up", ge=0
    )


def most_of(share: float, number: int) -> float:
    """Return how many of a number a share allows, with what chance adds: three deviations."""
    usual = share * number
    return usual + 3 * sqrt(usual)


class KernelSettings(Settings):
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
    repairs: Repairs = Repairs()
    rules: RuleSettings = RuleSettings()
    limits: Limits = Limits()
    portfolio: settings.Portfolio = settings.Portfolio()
    resend: Resend = Resend()
    portal: PortalSettings
    errors: settings.ErrorSettings = settings.ErrorSettings()
    links: settings.LinkSettings = settings.LinkSettings()
    schedule: settings.Schedule = settings.Schedule()
    alerts: settings.Alerts = settings.Alerts()
    retention: settings.Retention = settings.Retention()
    audit: settings.Audit = settings.Audit()

    def table(self, kind: type[T]) -> T | None:
        """Return the table of an extension that has this model, None where the TOML has none."""
        tables = (value for _, value in self)
        return next((value for value in tables if isinstance(value, kind)), None)

    @field_validator("time_zone")
    @classmethod
    def _is_known(cls, time_zone: str) -> str:
        try:
            ZoneInfo(time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError("no time zone has this name; one is named as Europe/Berlin") from None
        return time_zone

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

    @model_validator(mode="after")
    def _fits_extensions(self) -> Self:
        validate(self)
        return self


if TYPE_CHECKING:
    Issuer = KernelSettings
else:  # with the tables of the extensions that are there
    Issuer = create_model(
        "Issuer",
        __base__=KernelSettings,
        __module__=__name__,
        __doc__=KernelSettings.__doc__,
        **settings_tables(),
    )


def source_settings() -> type[SourceSettings]:
    """Return the model of [source], with what the extensions that are there bring to it."""
    model: type[SourceSettings] = type(Issuer.model_fields["source"].default)
    return model
