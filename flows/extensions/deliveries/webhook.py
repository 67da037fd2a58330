"""A webhook of a receiver: events posted to it, signed as Standard Webhooks has it.

https://www.standardwebhooks.com: the headers `webhook-id`, `webhook-timestamp` (seconds since 1970)
and `webhook-signature`, which has `v1,` and the HMAC-SHA256 of `id.timestamp.body`, in base64, for
each secret; so a secret is changed without a moment at which no signature fits.
"""

import base64
import binascii
import hmac
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import NamedTuple, Protocol, Self

import httpx

from flows.errors import OperatorError
from flows.extensions.deliveries.settings import settings_of
from flows.runs.context import IssuerContext
from flows.wiring import secret

PREFIX = "whsec_"
SHORTEST = 24  # bytes of a secret
TIMEOUT = httpx.Timeout(10.0)
LONGEST_WAIT = timedelta(days=1)  # that a receiver may ask for


class Answer(NamedTuple):
    """What came of an event: whether it was taken, else why not, and from when it may be repeated
    where the receiver says so.
    """

    is_taken: bool
    problem: str = ""
    not_before: datetime | None = None


class Announcer(Protocol):
    """Tells a receiver of links that files are there."""

    def announce(self, event_id: str, body: bytes) -> Answer:
        """Post an event; the same id stands for the same event."""


class WebhookSecretError(OperatorError):
    """The secret of a receiver's webhook is missing, or not as Standard Webhooks writes it."""

    message = "{variable} {problem}. No event was posted."
    next_step = (
        "Agree on one with the receiver, such as `echo whsec_$(openssl rand -base64 32)` prints, "
        "and give it to the worker as {variable}, or as the file {variable}_FILE names; two, with "
        "a space between, while it is changed."
    )


class Webhook:
    """Posts events to one address, signed with each secret."""

    def __init__(self, address: str, secrets: Sequence[bytes], now: Callable[[], datetime]) -> None:
        self._address = address
        self._secrets = secrets
        self._now = now

    @classmethod
    def of(cls, address: str, variable: str, text: str, now: Callable[[], datetime]) -> Self:
        """Return the webhook at an address; `text`: its secrets. WebhookSecretError."""
        secrets = [_secret(variable, word) for word in text.split()]
        if not secrets:
            raise WebhookSecretError(variable=variable, problem="is not set")
        return cls(address, secrets, now)

    def announce(self, event_id: str, body: bytes) -> Answer:
        """Post an event once; any answer from 200 to 299 has taken it.

        Nothing that the receiver answers is shown but its number.
        """
        timestamp = str(int(self._now().timestamp()))
        signatures = [signature(key, event_id, timestamp, body) for key in self._secrets]
        headers = {
            "content-type": "application/json",
            "webhook-id": event_id,
            "webhook-timestamp": timestamp,
            "webhook-signature": " ".join(signatures),
        }
        client = httpx.Client(timeout=TIMEOUT, follow_redirects=False)
        try:
            # its body is never read: it may be of any size
            with (
                client,
                client.stream("POST", self._address, content=body, headers=headers) as answer,
            ):
                return self._answer(answer)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return Answer(is_taken=False, problem=f"the webhook cannot be reached ({_kind(error)})")

    def _answer(self, answer: httpx.Response) -> Answer:
        if answer.is_success:
            return Answer(is_taken=True)
        problem = f"the webhook answered {answer.status_code}"
        wait = answer.headers.get("retry-after", "")
        return Answer(is_taken=False, problem=problem, not_before=self._moment(wait))

    def _moment(self, text: str) -> datetime | None:
        """Return from when the receiver wants to be asked again: seconds, or a date."""
        now = self._now()
        if text.isascii() and text.isdecimal() and len(text) < 10:
            return now + min(timedelta(seconds=int(text)), LONGEST_WAIT)
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        return min(moment.replace(tzinfo=moment.tzinfo or UTC), now + LONGEST_WAIT)


def announcer_of(context: IssuerContext, receiver: str) -> Announcer | None:
    """Return who posts a receiver's events, with its secret; None where it has no webhook."""
    settings = settings_of(context.issuer, receiver)
    if settings.webhook is None:
        return None
    named = f"{context.issuer.issuer}_{receiver}".upper().replace("-", "_")
    variable = f"CARDLINK_WEBHOOK_SECRET_{named}"
    return Webhook.of(settings.webhook, variable, secret(variable), context.adapters.now)


def signature(secret: bytes, event_id: str, timestamp: str, body: bytes) -> str:
    """Return the signature of an event, version 1 of Standard Webhooks."""
    signed = b".".join([event_id.encode(), timestamp.encode(), body])
    return "v1," + base64.b64encode(hmac.digest(secret, signed, "sha256")).decode()


def _secret(variable: str, word: str) -> bytes:
    if not word.startswith(PREFIX):
        raise WebhookSecretError(variable=variable, problem=f"does not begin with {PREFIX}")
    try:
        secret = base64.b64decode(word.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        secret = b""
    if len(secret) < SHORTEST:
        problem = f"is not {SHORTEST} bytes or more in base64 after {PREFIX}"
        raise WebhookSecretError(variable=variable, problem=problem)
    return secret


def _kind(error: Exception) -> str:
    return type(error).__name__
