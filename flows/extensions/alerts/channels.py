"""Channels to people: mail by SMTP, whatever Apprise speaks, and plain webhooks.

Addresses are secrets, and so is what a foreign library says of them: an error names the channel,
the kind of trouble and a code, never an address or a server's text.
"""

import hashlib
import logging
import smtplib
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any
from urllib.parse import (
    SplitResult,
    parse_qs,
    parse_qsl,
    unquote,
    urlencode,
    urlsplit,
    urlunsplit,
)

import httpx

from flows.extensions.alerts.notices import Channel, ChannelError
from schemas.settings import LOOPBACK

SECONDS = 10.0  # for a server to answer
PORTS = {"smtp": 587, "smtps": 465}


def open_channels(addresses: Mapping[str, str]) -> list[Channel]:
    """Return the channels at these addresses, by their names."""
    return [open_channel(name, address) for name, address in addresses.items()]


def open_channel(name: str, address: str) -> Channel:
    """Return the channel at an address; one that cannot be used says so when it is."""
    scheme = address.partition("://")[0].lower()
    if scheme in PORTS:
        return MailChannel(name, address)
    if is_webhook(address):
        return WebhookChannel(name, address)
    return AppriseChannel(name, address)


def is_webhook(address: str) -> bool:
    """Return whether an address is of a plain webhook, and of no chat that Apprise knows."""
    scheme = address.partition("://")[0].lower()
    return scheme == "http" or (scheme == "https" and not _is_known_chat(address))


def apprise_url(address: str) -> str:
    """Return an address as Apprise writes it: mail is `mailto://` or `mailtos://` there."""
    url = urlsplit(address)
    if url.scheme not in PORTS:
        return address
    query = dict(parse_qsl(url.query))
    mode = "ssl" if url.scheme == "smtps" else "starttls"
    is_plain = query.pop("starttls", "") == "no"
    query |= {} if is_plain else {"mode": mode}
    netloc = url.netloc if url.port else f"{url.netloc}:{PORTS[url.scheme]}"
    scheme = "mailto" if is_plain else "mailtos"
    host = {"smtp": url.hostname or ""}
    return urlunsplit((scheme, netloc, "", urlencode(query | host), ""))


class MailChannel:
    """Mail over `smtp://` (STARTTLS) or `smtps://` (TLS from the first byte).

    `smtp://USER:PASSWORD@HOST:PORT/?from=ADDRESS&to=ADDRESS,ADDRESS`; `starttls=no` is for a relay
    on this machine. Certificates are verified.
    """

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self._address = address

    def send(self, notice_id: str, title: str, text: str) -> None:
        """Send a mail; its Message-ID is made from the notice's id."""
        with self._problems(), self._server() as (server, url):
            sender, receivers = self._people(url)
            message = EmailMessage()
            message["Subject"] = title
            message["From"] = sender
            message["To"] = ", ".join(receivers)
            message["Date"] = formatdate()
            message["Message-ID"] = f"<{_short(notice_id)}@{sender.rpartition('@')[2]}>"
            message.set_content(text)
            refused = server.send_message(message, sender, receivers)
            if refused:
                raise self._error(f"{len(refused)} of {len(receivers)} receivers are refused")

    def check(self) -> str:
        """Log in, and ask whether sender and receivers would be taken; no mail is sent."""
        with self._problems(), self._server() as (server, url):
            sender, receivers = self._people(url)
            server.ehlo_or_helo_if_needed()
            for code, _ in (server.mail(sender), *map(server.rcpt, receivers)):
                if code >= 400:
                    raise self._error(f"sender or receiver is refused (SMTP {code})")
            server.rset()
        return "the mail server takes sender and receivers"

    def _people(self, url: SplitResult) -> tuple[str, list[str]]:
        query = parse_qs(url.query)
        receivers = list(filter(None, ",".join(query.get("to", ())).split(",")))
        sender = (query.get("from") or [unquote(url.username or "")])[0]
        if "@" not in sender or not receivers:
            raise self._error("its address names no ?from= or no &to=")
        return sender, receivers

    @contextmanager
    def _server(self) -> Iterator[tuple[smtplib.SMTP, SplitResult]]:
        url = urlsplit(self._address)
        host = url.hostname or ""
        port = url.port or PORTS[url.scheme]
        tls = ssl.create_default_context()
        if url.scheme == "smtps":
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=SECONDS, context=tls)
        else:
            server = smtplib.SMTP(host, port, timeout=SECONDS)
        with server:
            if url.scheme == "smtp":
                self._secure(server, url, tls)
            if url.username and url.password:
                server.login(unquote(url.username), unquote(url.password))
            yield server, url

    def _secure(self, server: smtplib.SMTP, url: SplitResult, tls: ssl.SSLContext) -> None:
        if parse_qs(url.query).get("starttls") != ["no"]:
            server.starttls(context=tls)
        elif url.hostname not in LOOPBACK:
            raise self._error("starttls=no is for a relay on this machine alone")

    @contextmanager
    def _problems(self) -> Iterator[None]:
        """Turn what goes wrong into a ChannelError without its text."""
        try:
            yield
            return
        except smtplib.SMTPResponseException as error:
            trouble = f"{type(error).__name__}, SMTP {error.smtp_code}"
        except (smtplib.SMTPException, OSError, ValueError) as error:
            trouble = _kind(error)
        raise self._error(trouble)

    def _error(self, trouble: str) -> ChannelError:
        return ChannelError(channel=self.name, trouble=trouble)


class WebhookChannel:
    """A URL to which each notice is posted as JSON: `id`, `subject`, `text`."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self._address = address

    def send(self, notice_id: str, title: str, text: str) -> None:
        """Post it; `Idempotency-Key` and `id` are the same when it is posted again."""
        fact = {"id": notice_id, "subject": title, "text": text}
        headers = {"Idempotency-Key": _short(notice_id)}
        _request(self.name, "POST", self._address, json=fact, headers=headers)

    def check(self) -> str:
        """Connect to its server; nothing is posted."""
        _connect(self.name, self._address)
        return "its server can be reached; whether it takes a post is not tried"


class AppriseChannel:
    """Any service that Apprise speaks, by its URL: Teams, Slack, PagerDuty, SendGrid and others."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self._address = address

    def send(self, notice_id: str, title: str, text: str) -> None:
        """Send it; a service has no place for the id."""
        with _silenced("apprise"):
            is_sent = self._service().notify(body=text, title=title)
        if not is_sent:
            raise ChannelError(channel=self.name, trouble="the service did not take the notice")

    def check(self) -> str:
        """Read its URL; Apprise can try a service only by sending."""
        return f"{self._service().service_name}: the address is complete; nothing was sent"

    def _service(self) -> Any:
        from apprise import Apprise, AppriseAsset  # 0.5 s, and few commands send

        asset = AppriseAsset(app_id="cardlink", app_desc="cardlink", secure_logging=True)
        with _silenced("apprise"):
            service = Apprise.instantiate(self._address, asset=asset, suppress_exceptions=True)
        if service is None:
            raise ChannelError(channel=self.name, trouble="its address is none that is known")
        return service


def ping(address: str) -> None:
    """Tell a switch outside that all is well; it alerts when that stops. ChannelError."""
    _request("heartbeat", "GET", address)


def check_ping(address: str) -> str:
    """Connect to the switch without pinging it. ChannelError."""
    _connect("heartbeat", address)
    return "its server can be reached; it is pinged after each good watch"


def _is_known_chat(address: str) -> bool:
    """Return whether Apprise knows the web address of a chat as its own."""
    from apprise import Apprise

    with _silenced("apprise"):
        return Apprise.instantiate(address, suppress_exceptions=True) is not None


def _request(name: str, method: str, address: str, **content: Any) -> None:
    trouble = ""
    try:
        with _silenced("httpx"), _silenced("httpcore"):
            response = httpx.request(method, address, timeout=SECONDS, **content)
        if not response.is_success:
            trouble = f"HTTP {response.status_code}"
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        trouble = type(error).__name__
    if trouble:
        raise ChannelError(channel=name, trouble=trouble)


def _connect(name: str, address: str) -> None:
    trouble = ""
    try:
        url = urlsplit(address)
        port = url.port or (443 if url.scheme == "https" else 80)
        with socket.create_connection((url.hostname or "", port), timeout=SECONDS):
            return
    except (OSError, ValueError) as error:
        trouble = _kind(error)
    raise ChannelError(channel=name, trouble=trouble)


@contextmanager
def _silenced(logger: str) -> Iterator[None]:
    """Keep a library from logging an address."""
    log = logging.getLogger(logger)
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


def _kind(error: Exception) -> str:
    """Return what kind of trouble it is, without a text that may name an address."""
    return type(error).__name__


def _short(notice_id: str) -> str:
    return hashlib.sha256(notice_id.encode()).hexdigest()[:32]
