"""Clients of the practice service, requests of published test cards, and a server that misbehaves
on the wire.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from flows.extensions.partner_api.client import ServiceClient, open_client
from flows.extensions.partner_api.link_requests import checked_request
from flows.extensions.partner_api.service_objects import CardLinkRequest
from flows.extensions.partner_api.sessions import Credentials
from flows.extensions.partner_api.settings import ServiceSettings
from flows.runs.retry import Retry
from tests.service import RunningService

CREDENTIALS = Credentials("practice", "practice-key", "cardlink", "practice")
CARD = {
    "reference": None,
    "pan": "4242424242424242",
    "expiration_month": "11",
    "expiration_year": "29",
    "name_on_card": "Ada Byron",
    "nickname": "Card ending in 4242",
    "cvv": "123",
}
ADDRESS = {
    "address1": "1 Main St",
    "city": "Boston",
    "subnational": "MA",
    "postal_code": "02108",
    "country": "US",
    "phone_number": "6175550100",
}
CARDHOLDER = {"cuid": "c-1", "first_name": "Ada", "last_name": "Byron"}


def request(**objects: Any) -> CardLinkRequest:
    """Return a good request with some of its objects replaced."""
    return checked_request({"cardholder": CARDHOLDER, "address": ADDRESS, "card": CARD, **objects})


def settings_for(address: str, **changes: Any) -> ServiceSettings:
    """Return settings for a server of a test: no pause between requests."""
    plain = {"base_url": address, "fi_key": "practice-bank", "requests_per_second": 1e6, **changes}
    return ServiceSettings.model_validate(plain)


def client_at(
    address: str, *, tries: int = 4, timeout: float = 30, **changes: Any
) -> AbstractContextManager[ServiceClient]:
    """Open a client that tries again without waiting."""
    settings = settings_for(address, **changes)
    retry = Retry(time.monotonic, lambda _: None, random.random, attempts=tries)
    return open_client(settings, CREDENTIALS, retry, timeout=timeout)


def client_of(service: RunningService) -> AbstractContextManager[ServiceClient]:
    """Open a client of the practice service as it is configured."""
    spoken = service.settings.model_dump(exclude={"base_url", "fi_key", "requests_per_second"})
    return client_at(service.address, **spoken)


def started_job(
    service: RunningService, client: ServiceClient, site: str = "shop.example.com"
) -> str:
    """Let a cardholder come through a link to a job at a site; return its id."""
    link = client.create_link(request())
    link_id = getattr(link, "id", None)
    assert isinstance(link_id, str)
    service.act(
        lambda books: books.links.verify(link_id, {"CVV": "123", "ZIP Code": "02108"}, books.now)
    )
    (job,) = service.act(lambda books: books.place(link_id, [site], {}))
    return str(job.id)


HANG_UP = b""  # the request is read, and the line goes dead


@dataclass
class Script:
    """Raw answers in order, the last one again and again; and what was asked, method and path."""

    answers: list[bytes]
    asked: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)

    def next(self, head: str) -> bytes:
        """Return the answer of one request."""
        self.heads.append(head)
        self.asked.append(" ".join(head.split(" ")[:2]))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def http(status: int, body: str = "{}", *headers: str) -> bytes:
    """Return an HTTP answer."""
    head = [
        f"HTTP/1.1 {status} Told",
        "Content-Type: application/json",
        f"Content-Length: {len(body.encode())}",
    ]
    return "\r\n".join([*head, "Connection: close", *headers, "", body]).encode()


LET_IN = http(200, '{"session_token": "t-1"}')


@contextmanager
def scripted(*answers: bytes) -> Iterator[tuple[str, Script]]:
    """Run a server on loopback that gives these answers, whatever it is asked; yield its address
    and its script.
    """
    script = Script(list(answers))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=[listener, script], daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", script
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(300)


def _serve(listener: socket.socket, script: Script) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # the test is over
            return
        with connection:
            answer = script.next(_read(connection))
            connection.sendall(answer)


def _read(connection: socket.socket) -> str:
    """Read one request whole, and return its head."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [
        line.split(b":")[1]
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length")
    ]
    while lengths and len(body) < int(lengths[0]):
        body += connection.recv(65536)
    return head.decode("latin-1")
