"""The JSON bodies of the service (interface.md 2, 4), for requests and its OpenAPI description."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

Filled = Annotated[str, StringConstraints(min_length=1)]
JOBS = "/place_card_on_single_site_jobs"  # interface.md 4: below it, the job record
JOB_MESSAGES = f"/messages{JOBS}"
CARDHOLDER_MESSAGES = "/messages/cardholders"
FI_KEY = "financial_institution_key"
LINKS = "/card_links"  # below it, the record of a link


class Spoken(BaseModel):
    """How the service speaks: by these settings of an issuer's `[service]`, else as the interface
    does.
    """

    prefix: str = "service"
    fi_key: str = ""
    names: dict[str, tuple[str, ...]] = {}

    @property
    def login(self) -> str:
        """The path of the login."""
        return self.name("path.login", "/session")

    @property
    def create_link(self) -> str:
        """The path at which a link is requested."""
        return self.name("path.create_link", LINKS)

    @property
    def job_hydration(self) -> str:
        """The value of the hydration header when a job is read."""
        return self.name("request.job_hydration", '["credential_requests"]')

    def name(self, name: str, usual: str) -> str:
        """Return what a property is called."""
        return self.names.get(name, (usual,))[0]

    @property
    def access_key(self) -> str:
        """The header that holds a broadcast channel's access key (interface.md 5)."""
        return f"{self.prefix}-messaging-access-key"

    def header(self, name: str) -> str:
        """Return one of the headers that begin with the prefix (interface.md 4)."""
        return f"x-{self.prefix}-{name}"


class Fault(BaseModel):
    """One thing wrong: what kind, in words, and of which entity and property; never a value."""

    name: str
    message: str
    entity_name: str
    property_name: str


class Faults(BaseModel):
    """The body of every refusal."""

    errors: list[Fault] = Field(alias="_errors")


class Login(BaseModel):
    """Who logs in."""

    app_name: str
    app_key: str
    username: str
    password: str


class ServiceObject(Login):
    """The service (interface.md 2.8): five strings, all required."""

    service_server: str


class CardholderObject(BaseModel):
    """The cardholder (interface.md 2.8)."""

    cuid: str | None = None
    first_name: Filled
    last_name: Filled
    email: str | None = None


class ExpirationObject(BaseModel):
    """The day a link expires (interface.md 2.8); what is left out is as two months from now."""

    month: Annotated[str, StringConstraints(pattern=r"^(0[1-9]|1[0-2])$")] | None = None
    day: Annotated[str, StringConstraints(pattern=r"^(0?[1-9]|[12][0-9]|3[01])$")] | None = None
    year: Annotated[str, StringConstraints(pattern=r"^20[0-9]{2}$")] | None = None


class AddressObject(BaseModel):
    """The billing address (interface.md 2.8)."""

    address1: Filled
    address2: str | None = None
    city: Filled
    subnational: Filled
    postal_code: Filled
    country: Filled
    phone_number: Filled
    is_primary: bool | None = None
    email: str | None = None


class CardReference(BaseModel):
    """A card the service knows already, by its id."""

    id: int


class CardObject(BaseModel):
    """The card (interface.md 2.8); without a reference all but the CVV are required."""

    reference: CardReference | None
    pan: str | None = None
    expiration_month: str | None = None
    expiration_year: str | None = None
    name_on_card: str | None = None
    nickname: str | None = None
    cvv: str | None = None


def link_request(settings: Spoken) -> type[BaseModel]:
    """Return the on-demand request (interface.md 2.8) under the property names of the settings."""
    fields: dict[str, Any] = {
        "service": (ServiceObject, Field(alias=settings.name("request.service", "service"))),
        "cardholder": (CardholderObject, ...),
        "expiration": (ExpirationObject | None, None),
        "address": (AddressObject, ...),
        "card": (CardObject, ...),
        "fi_key": (Filled, Field(alias=settings.name("request.fi_key", FI_KEY))),
        "safe_key": (str | None, Field(None, alias=settings.name("request.safe_key", "safe_key"))),
    }
    return create_model("LinkRequest", __doc__="A card link on demand.", **fields)


class CardholderRecord(BaseModel):
    """A hydrated cardholder."""

    id: int
    cuid: str
    first_name: str
    last_name: str
    email: str


class CardRecord(BaseModel):
    """A hydrated card: never its number."""

    id: int
    cardholder_id: int
    nickname: str
    name_on_card: str
    last_4: str
    expiration_month: str
    expiration_year: str
    cardholder: CardholderRecord | None = None


class LinkRecord(BaseModel):
    """A card link record (interface.md 2.9)."""

    id: str
    url: str
    cardholder_long_token: str
    cardholder_id: int
    card_id: int
    created_on: str
    expiration_date: str
    opened_on: str | None
    authenticated_on: str | None
    card: CardRecord | None = None


class Descriptor(BaseModel):
    """A property descriptor (interface.md 2.4)."""

    key_name: str
    label: str
    secret: bool


class Status(BaseModel):
    """The status data of a message (interface.md 2.1)."""

    status: str
    percent_complete: int
    auth_percent_complete: int
    job_timeout: int
    status_message: str
    termination_type: str | None = None


class Envelope(BaseModel):
    """A message: a job status, or a credential request (interface.md 2.1, 2.4)."""

    type: str
    job_id: int | str
    envelope_id: str | None = None
    account_link: list[Descriptor] | None = None
    message: Status


class FlatRequest(Status):
    """A credential request as GET .../credential_requests returns it: the status data beside the
    rest.
    """

    type: str
    job_id: int | str
    envelope_id: str
    account_link: list[Descriptor]


class JobRecord(BaseModel):
    """A job record (interface.md 2.2)."""

    id: int
    cardholder_id: int
    card_id: int
    account_id: int
    type: str
    merchant_site: str
    status: str
    percent_complete: int
    auth_percent_complete: int
    termination_type: str | None
    status_message: str
    created_on: str
    last_updated_on: str
    credential_requests: list[Envelope] | None = None


class Account(BaseModel):
    """The account of a job update; values by key name."""

    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)

    account_link: dict[str, str] = Field(default_factory=dict, repr=False)


class JobUpdate(BaseModel):
    """An update of a job's account (interface.md 4)."""

    account: Account


class CredentialResponse(BaseModel):
    """The not recommended answer by message (interface.md 4)."""

    job_id: int
    envelope_id: str
    account_link: dict[str, str] = Field(repr=False)


class AccessKey(BaseModel):
    """What a registration returns."""

    access_key: str


class Verification(BaseModel):
    """A cardholder's answers by challenge name: CVV, ZIP Code, PAN Last 4, PAN Last 5, Expiration
    Date (MM/YY).
    """

    answers: dict[str, str] = Field(repr=False)


class Page(BaseModel):
    """The verification page: what is asked, and which sites can be chosen afterwards."""

    challenges: list[str]
    merchant_sites: list[str]
    expiration_date: str


class Choice(BaseModel):
    """The merchant sites a cardholder chose; credentials by site where they were typed in at
    once.
    """

    merchant_sites: list[str] = Field(min_length=1)
    credentials: dict[str, dict[str, str]] = Field(default_factory=dict, repr=False)


class Uploaded(BaseModel):
    """An upload that was taken."""

    id: int
    rows: int


class NamedUpload(Uploaded):
    """An upload that was taken, and its name."""

    name: str


Share = Annotated[float, Field(ge=0, le=1)]


class Evening(BaseModel):
    """How cardholders act who have not opened their links yet: shares of those who came so far."""

    seed: int = 0
    open: Share = 0.8
    forget: Share = 0.1
    second: Share = 0.2
    wrong: Share = 0.1
    silent: Share = 0.05
    merchant_sites: list[str] = Field(default_factory=list)  # none: all
    until_ended: bool = True
