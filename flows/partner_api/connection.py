"""The client of an issuer's `[service]`, with its credentials from the environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from flows.partner_api.client import ServiceClient, open_client
from flows.partner_api.response_body import USUAL, Limits
from flows.partner_api.service import NoServiceError, ServiceSecretsError
from flows.partner_api.sessions import Credentials
from flows.redaction import hiding
from flows.runs.retry import Retry
from flows.wiring import begin_process, secret
from schemas.issuer import Issuer

SIGNING_KEY: Final = "CARDLINK_SERVICE_SIGNING_KEY"
_NAMES: Final = ("app_name", "app_key", "username", "password")


@contextmanager
def service_client(
    issuer: Issuer, *, tries: int | None = None, limits: Limits = USUAL
) -> Iterator[ServiceClient]:
    """Open the client of an issuer's [service].

    `tries`: attempts instead of those it sets; `limits`: of what is read of a response.

    Raises NoServiceError, ServiceSecretsError, NoSuchPluginError, FileUnreadableError.
    """
    begin_process()
    settings = issuer.service
    if settings is None:
        raise NoServiceError(issuer=issuer.issuer)
    variables = {name: f"CARDLINK_SERVICE_{name.upper()}" for name in _NAMES}
    if settings.signing.key == "environment":
        variables["signing_key"] = SIGNING_KEY
    secrets = {name: secret(variable) for name, variable in variables.items()}
    missing = [variables[name] for name, value in secrets.items() if not value]
    if missing:
        raise ServiceSecretsError(names=", ".join(missing))
    retry = Retry(attempts=tries or settings.tries)
    with (
        hiding(secrets["app_key"], secrets["password"]),
        open_client(settings, Credentials(**secrets), retry, limits) as client,
    ):
        yield client
