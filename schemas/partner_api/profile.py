"""The tables below `[service]`: how a partner's service names and shapes what the interface leaves
open.

Each default is the interface's own name, or the usual one where the interface shows none. Names of
settings are those of dlt's REST source, where it has one.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import StringConstraints

from schemas.partner_api.access import AuthSettings, FieldPath, SigningSettings
from schemas.partner_api.jobs import ACK_KEY, ACKNOWLEDGED, CredentialRequest
from schemas.settings import Settings, setting

JOBS: Final = "/place_card_on_single_site_jobs"  # interface.md 4: below it, the job record
JOB_MESSAGES: Final = f"/messages{JOBS}"
CARDHOLDER_MESSAGES: Final = "/messages/cardholders"
LINKS: Final = "/card_links"  # below it, the record of a link
ID: Final = "{id}"  # in a path, stands for the id of the record

PathOfOne = Annotated[
    str, StringConstraints(pattern=r"^/[A-Za-z0-9._~/-]*(\?[A-Za-z0-9._~=&-]*)?\{id\}[^\s#{}]*$")
]
# Where a value may be, such as `data.id`; the first that is present counts.
Places = tuple[FieldPath, ...]
Code = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,39}$")]


class PathSettings(Settings):
    """Paths of the endpoints below `base_url`; `{id}` stands for the id of the record."""

    link: PathOfOne = setting(f"{LINKS}/{ID}", "the record of a link")
    job: PathOfOne = setting(f"{JOBS}/{ID}", "the record of a job, and its update")
    job_messages: PathOfOne = setting(f"{JOB_MESSAGES}/{ID}", "messages of a job")
    cardholder_messages: PathOfOne = setting(
        f"{CARDHOLDER_MESSAGES}/{ID}", "messages of a cardholder's jobs"
    )
    credential_requests: PathOfOne = setting(
        f"{JOB_MESSAGES}/{ID}/credential_requests", "pending credential requests of a job"
    )
    credential_responses: PathOfOne = setting(
        f"{JOB_MESSAGES}/{ID}/credential_responses", "answers by message"
    )
    broadcasts: PathOfOne = setting(f"{JOB_MESSAGES}/{ID}/broadcasts", "a broadcast channel")
    registrations: PathOfOne = setting(
        f"{JOB_MESSAGES}/{ID}/broadcasts/registrations", "registration of a broadcast channel"
    )


class LinkFields(Settings):
    """Where the record of a link has its values: names or paths, the first present one counts."""

    data_selector: Places = setting(
        ("card_link",),
        "where the record is in the body; the body itself where it has none of these",
    )
    id: Places = setting(("id", "card_link_id"), "id of the link")
    url: Places = setting(("url", "card_link_url", "link"), "its URL")
    token: Places = setting(("cardholder_long_token",), "token that `link_url` makes a URL of")
    expires: Places = setting(
        ("expiration_date", "expires_on", "expiration", "expires_at"), "when it expires"
    )
    opened: Places = setting(
        ("opened_on", "opened_at", "verified_on"), "when it was opened; null: not yet"
    )
    opened_values: tuple[str, ...] = setting(
        (), "where `opened` holds a state in words: those of a link that was opened"
    )
    card_id: Places = setting(("card.id", "card_id"), "id of its card")
    cardholder_id: Places = setting(
        ("card.cardholder.id", "card.cardholder_id", "cardholder_id"), "id of its cardholder"
    )
    cuid: Places = setting(("card.cardholder.cuid",), "the issuer's reference of its cardholder")


class JobFields(Settings):
    """Where the record of a job has its values: names or paths, the first present one counts."""

    data_selector: Places = setting(
        (), "where the record is in the body; the body itself where it has none of these"
    )
    id: Places = setting(("id",), "id of the job")
    cardholder_id: Places = setting(("cardholder_id",), "id of its cardholder")
    status: Places = setting(("status",), "its status")
    termination_type: Places = setting(("termination_type",), "how it ended; null: it runs")
    percent_complete: Places = setting(("percent_complete",), "percent of the whole placement")
    auth_percent_complete: Places = setting(
        ("auth_percent_complete",), "percent of the authentication"
    )
    job_timeout: Places = setting(("job_timeout",), "time left")
    job_timeout_unit: Literal["seconds", "milliseconds"] = setting("seconds", "its unit")
    status_message: Places = setting(("status_message",), "text for the user")
    merchant_site: Places = setting(
        ("merchant_site", "merchant_site_name", "merchant_site_hostname"), "its merchant site"
    )
    credential_requests: Places = setting(("credential_requests",), "requests that it waits for")


class MessageFields(Settings):
    """Where a message, or a credential request, has its values; the status data as in
    `[service.job]`.
    """

    data_selector: Places = setting(
        ("messages", "credential_requests", "broadcasts", "data", "results", "items"),
        "where the messages are in the body; the body itself where it has none of these",
    )
    type: Places = setting(("type", "request_type"), "its type")
    job_id: Places = setting(("job_id",), "the job it is about")
    message: Places = setting(("message",), "its status data; the message itself where it has none")
    envelope_id: Places = setting(("envelope_id",), "what an answer must name")
    account_link: Places = setting(("account_link",), "the values to collect")
    key_name: Places = setting(("key_name",), "of a value: the name under which it is answered")
    label: Places = setting(("label",), "of a value: the prompt")
    secret: Places = setting(("secret",), "of a value: whether it is typed unseen")


class AcknowledgedRequests(Settings):
    """Credential requests that are acknowledged with `tfa` = `ack`, without a prompt."""

    types: tuple[str, ...] = setting(
        (ACKNOWLEDGED,), "types of requests whose values are all `keys`, or `tfa`"
    )
    keys: tuple[str, ...] = setting(
        (ACKNOWLEDGED,), "key names; a request with no others is acknowledged whatever its type"
    )

    def wants_no_input(self, request: CredentialRequest) -> bool:
        """Return whether a request is of the acknowledgement kind (interface.md 2.5)."""
        keys = {prompt.key_name for prompt in request.account_link}
        has_keys = keys <= set(self.keys)
        has_type = request.kind in self.types and keys <= {*self.keys, ACK_KEY}
        return bool(keys) and (has_keys or has_type)


class Words(Settings):
    """What the partner's own words mean: each with one of the interface's.

    Case, spaces and punctuation do not matter.
    """

    status: dict[str, Code] = setting({}, 'statuses of jobs, such as `LINKED = "UPDATING"`')
    termination_type: dict[str, Code] = setting({}, 'how jobs end, such as `DONE = "BILLABLE"`')
    report: dict[str, Code] = setting(
        {"Card Placed Successfully": "BILLABLE", "Card Placed": "BILLABLE"},
        "statuses of transaction reports",
    )


class ReportColumns(Settings):
    """Columns of transaction reports, the first that is present; case, spaces and punctuation do
    not matter.
    """

    cuid: tuple[str, ...] = setting(("cuid", "cardholder cuid"), "the cardholder's cuid")
    status: tuple[str, ...] = setting(
        ("status", "transaction status", "job status", "termination type"), "the job's status"
    )
    completed_on: tuple[str, ...] = setting(
        ("completed on", "completed", "completed at", "completion date"), "when it ended"
    )
    merchant_site: tuple[str, ...] = setting(
        ("merchant_site_hostname", "merchant site", "merchant site name"), "its merchant site"
    )


class Paginator(Settings):
    """How lists of messages go on over several pages."""

    type: Literal[
        "auto", "single_page", "json_link", "header_link", "cursor", "offset", "page_number"
    ] = setting(
        "auto", "`auto`: a link to the next page is followed, in the header `Link` or in the body"
    )
    next_url_path: Places = setting(
        ("next", "links.next", "_links.next.href", "paging.next", "next_url"),
        "`auto` and `json_link`: where the body has the URL of the next page",
    )
    links_next_key: str = setting(
        "next", "`auto` and `header_link`: its `rel` in the header `Link`"
    )
    cursor_path: FieldPath = setting("cursors.next", "`cursor`: where the body has the next cursor")
    cursor_param: str = setting("cursor", "`cursor`: query parameter that takes it")
    limit: int = setting(100, "`offset`: messages on a page", ge=1)
    limit_param: str = setting("limit", "`offset`: query parameter of `limit`")
    offset_param: str = setting("offset", "`offset`: query parameter of the first message")
    base_page: int = setting(1, "`page_number`: number of the first page", ge=0)
    page_param: str = setting("page", "`page_number`: query parameter of the page")
    total_path: FieldPath | None = setting(
        None,
        "`offset`: where the body has the number of messages, `page_number`: that of pages; "
        "unset: a page without messages is the last",
    )


class Profile(Settings):
    """One partner's names and shapes; without any setting, the interface's own."""

    auth: AuthSettings = AuthSettings()
    signing: SigningSettings = SigningSettings()
    paths: PathSettings = PathSettings()
    link: LinkFields = LinkFields()
    job: JobFields = JobFields()
    message: MessageFields = MessageFields()
    acknowledged: AcknowledgedRequests = AcknowledgedRequests()
    words: Words = Words()
    report: ReportColumns = ReportColumns()
    paginator: Paginator = Paginator()


INTERFACE: Final = Profile()
