"""The client of an issuer's `[service]`, with its credentials from the environment, and whether it
can be used: credentials, login, clock, and one record read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from flows.errors import CardlinkError
from flows.extensions.partner_api.client import ServiceClient, open_client
from flows.extensions.partner_api.responses import USUAL, Limits
from flows.extensions.partner_api.run_links import newest_link
from flows.extensions.partner_api.service import (
    NoServiceError,
    NoSuchRecordError,
    ServiceSecretsError,
    StrangeAnswerError,
)
from flows.extensions.partner_api.sessions import LOGIN, Credentials
from flows.extensions.partner_api.settings import ServiceSettings
from flows.extensions.partner_api.transport import READ_SECONDS
from flows.redaction import hiding
from flows.runs.context import IssuerContext
from flows.runs.retry import Retry
from flows.runs.stored_runs import StoredRuns
from flows.wiring import begin_process, secret
from schemas.issuer import Issuer

TRIES: Final = 4  # attempts of a request that is safe to repeat
_NAMES: Final = ("app_name", "app_key", "username", "password")


@contextmanager
def service_client(
    issuer: Issuer,
    *,
    tries: int | None = None,
    limits: Limits = USUAL,
    timeout: float = READ_SECONDS,
) -> Iterator[ServiceClient]:
    """Open the client of an issuer's [service].

    `tries`: attempts of a request that is safe to repeat, else TRIES; `limits`: of what is read of
    a response; `timeout`: seconds until it begins.

    Raises NoServiceError, ServiceSecretsError, NoSuchPluginError, FileUnreadableError.
    """
    begin_process()
    settings = issuer.table(ServiceSettings)
    if settings is None:
        raise NoServiceError(issuer=issuer.issuer)
    variables = {name: f"CARDLINK_SERVICE_{name.upper()}" for name in _NAMES}
    secrets = {name: secret(variable) for name, variable in variables.items()}
    missing = [variables[name] for name, value in secrets.items() if not value]
    if missing:
        raise ServiceSecretsError(names=", ".join(missing))
    retry = Retry(attempts=tries or TRIES)
    with (
        hiding(secrets["app_key"], secrets["password"]),
        open_client(settings, Credentials(**secrets), retry, limits, timeout) as client,
    ):
        yield client


def checks(context: IssuerContext) -> Iterator[tuple[str, str | CardlinkError]]:
    """Try the partner's service: credentials, login, clock, one record."""
    try:
        for line in check_service(context):
            yield "service", line
    except CardlinkError as error:
        yield "service", error


LONGEST_WAIT: Final = 5.0  # seconds to connect, until a response comes, and until it is whole
LARGEST_OFFSET: Final = 60.0  # seconds between two clocks
NOBODY: Final = "cardlink-check"  # an id that no link has


def check_service(context: IssuerContext) -> Iterator[str]:
    """Yield what is fine; raise what is not. Nothing is changed, and no message is read.

    It ends within a minute, also where the service does not respond: nothing is retried.
    """
    settings = context.issuer.table(ServiceSettings)
    if settings is None:
        return
    limits = Limits(seconds=LONGEST_WAIT)
    with service_client(context.issuer, tries=1, limits=limits, timeout=LONGEST_WAIT) as client:
        yield _read_one(client, context, settings)
        yield _clock_line(client.clock_offset)


def _read_one(client: ServiceClient, context: IssuerContext, settings: ServiceSettings) -> str:
    """Log in and read the record of a link; without any link only the login is tried."""
    runs = StoredRuns(context.adapters, context.issuer.issuer)
    link = newest_link(list(runs.with_ledger()), settings)
    if link is None or link.link_id is None:
        _log_in(client)
        why = "no link is known yet" if link is None else "no id is found in a link's URL"
        return f"{settings.base_url}: the login is accepted; no record was read, since {why}"
    record = client.card_link(link.link_id)
    has_cardholder = "names its cardholder" if record.cardholder_id else "names no cardholder"
    says_opened = "says" if record.opened is not None else "does not say"
    return (
        f"{settings.base_url}: the login is accepted; the record of row {link.row} of {link.run} "
        f"{has_cardholder} and {says_opened} whether the link was opened"
    )


def _log_in(client: ServiceClient) -> None:
    """Ask for a link that nobody has: what the service says of it does not matter, its login does.

    Raises what the login raises.
    """
    try:
        client.card_link(NOBODY)
    except NoSuchRecordError:
        pass
    except StrangeAnswerError as error:
        if error.fields["place"] == LOGIN:
            raise


def _clock_line(offset: float | None) -> str:
    if offset is None:
        return "the service does not say what time it is"
    if abs(offset) <= LARGEST_OFFSET:
        return "the service's clock agrees with this machine's"
    direction = "ahead of" if offset > 0 else "behind"
    return (
        f"a doubt: the service's clock is {abs(offset):,.0f} seconds {direction} this machine's; "
        "it may refuse what is signed with a time"
    )
