"""A partner's service written from the interface alone, with the liberties that it leaves.

Own paths, query keys, names, envelopes, cursors, milliseconds and words; sessions that end, requests
that are signed; 202, 409 and 429 with a date. It knows nothing of the client.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PERIOD = 25  # requests of a session before it ends
BUSY = 9  # every so many requests it wants a pause


@dataclass
class Holder:
    """A cardholder with a link, and what became of it."""

    ref: str
    external_id: str
    key: str
    opened: str | None = None
    job: str = ""
    inbox: list[dict[str, Any]] = field(default_factory=list)
    reads_until_made: int = 0


@dataclass
class Books:
    """What the service knows; handlers run in threads."""

    holders: dict[str, Holder] = field(default_factory=dict)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    sessions: dict[str, list[Any]] = field(default_factory=dict)  # id: secret, requests left
    nonces: set[str] = field(default_factory=set)
    creations: dict[str, str] = field(default_factory=dict)  # idempotency key: holder
    counts: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, external_id: str, key: str, reads_until_made: int = 0) -> Holder:
        """Give a cardholder a link with this key."""
        ref = f"H{len(self.holders) + 1}"
        holder = Holder(ref, external_id, key, reads_until_made=reads_until_made)
        self.holders[key] = holder
        return holder

    def start(self, holder: Holder, state: str, outcome: str | None, **more: Any) -> str:
        """Let a cardholder open the link and start a job; its state is in their inbox."""
        job = f"J{len(self.jobs) + 1}"
        holder.opened = "2026-11-20T12:00:00Z"
        holder.job = job
        self.jobs[job] = {"state": state, "outcome": outcome, "pending": [], **more}
        for step in ("Started", state):
            holder.inbox.append({"kind": "state", "job": {"ref": job}, "body": {"state": step}})
        return job


class RefusedError(Exception):
    """A status, and a body that says why."""

    def __init__(self, status: int, fault: str, **headers: str) -> None:
        super().__init__(fault)
        self.status = status
        self.fault = fault
        self.headers = headers


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    books: Books

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer a reading request."""
        self._answer()

    do_POST = do_PUT = do_GET

    def _answer(self) -> None:
        self.content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(url.query).items()}
        self.segments = url.path.strip("/").split("/")
        headers: dict[str, str] = {}
        with self.books.lock:
            self.books.counts["requests"] += 1
            try:
                status, body, headers = self._routed()
            except RefusedError as error:
                self.books.counts[error.fault] += 1
                status, body, headers = error.status, {"fault": error.fault}, error.headers
        content = json.dumps(body).encode()
        self.send_response(status)
        names = {"Content-Type": "application/json", "Content-Length": str(len(content)), **headers}
        for name, value in names.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def _routed(self) -> tuple[int, object, dict[str, str]]:
        if self.segments == ["v2", "auth", "begin"]:
            return 200, self._begun(), {}
        self._admit()
        if self.books.counts["requests"] % BUSY == 0:
            until = format_datetime(datetime.now(UTC) + timedelta(seconds=1), usegmt=True)
            raise RefusedError(429, "busy", Retry_After=until)
        match self.command, self.segments:
            case "POST", ["v2", "links"]:
                return self._created()
            case "GET", ["v2", "links"]:
                return 200, self._link(), {}
            case "GET", ["v2", "inbox"]:
                return 200, self._inbox(), {}
            case "GET", ["v2", "jobs", job]:
                return 200, {"result": self._job(job)}, {}
            case "GET", ["v2", "jobs", job, "inbox"]:
                return 200, self._page([], ""), {}
            case "PUT", ["v2", "jobs", job]:
                return 200, {"result": self._answered(job)}, {}
        raise RefusedError(404, "no such place")

    def _begun(self) -> object:
        form = {name: values[0] for name, values in parse_qs(self.content.decode()).items()}
        if form != {"client": "practice", "user": "cardlink", "word": "practice"}:
            raise RefusedError(401, "unknown client")
        session, secret = secrets.token_hex(8), secrets.token_bytes(32)
        self.books.sessions[session] = [secret, PERIOD]
        key = {"id": session, "secret": base64.b64encode(secret).decode()}
        return {"result": {"session": key}}

    def _admit(self) -> None:
        """Let in who signs with the key of a session that has not ended, each time anew."""
        session = self.books.sessions.get(self.headers.get("X-Session", ""))
        if session is None or session[1] <= 0:
            raise RefusedError(401, "session ended")
        session[1] -= 1
        parts = dict(
            part.split("=", 1) for part in self.headers.get("X-Sign", "").split(";") if "=" in part
        )
        digest = hashlib.sha256(self.content).hexdigest()
        moment = parts.get("ts", "")
        text = f"{moment}|{parts.get('once')}|{self.command}|{self.path}|{digest}"
        signature = hmac.digest(session[0], text.encode(), "sha512").hex()
        if not hmac.compare_digest(signature, parts.get("sig", "")):
            raise RefusedError(401, "bad signature")
        if abs(datetime.now(UTC).timestamp() - int(moment) / 1000) > 300:
            raise RefusedError(401, "stale signature")
        if parts["once"] in self.books.nonces:
            raise RefusedError(401, "signature used before")
        self.books.nonces.add(parts["once"])

    def _created(self) -> tuple[int, object, dict[str, str]]:
        """Accept the creation of a link; the first request of a key conflicts with itself."""
        if self.headers.get("X-Institution") != "bank":
            raise RefusedError(403, "unknown institution")
        key = self.headers["X-Request-Key"]
        if key not in self.books.creations:
            cuid = json.loads(self.content)["cardholder"]["cuid"]
            holder = self.books.add(cuid, secrets.token_hex(8), reads_until_made=1)
            self.books.creations[key] = holder.key
            raise RefusedError(409, "in progress")
        return 202, {"result": None}, {"Location": f"/v2/links/{self.books.creations[key]}"}

    def _link(self) -> object:
        holder = self.books.holders.get(self.query.get("key", ""))
        if holder is None:
            raise RefusedError(404, "no such link")
        if holder.reads_until_made > 0:
            holder.reads_until_made -= 1
            raise RefusedError(404, "not made yet")
        record = {
            "linkKey": holder.key,
            "href": f"https://links.example.com/verify?lang=en&key={holder.key}",
            "validUntil": "2027-01-20",
            "firstOpenedAt": holder.opened,
            "holder": {"ref": holder.ref, "externalId": holder.external_id},
        }
        return {"result": {"link": record}}

    def _inbox(self) -> object:
        """Return a page of a cardholder's inbox, one message each; each is given once."""
        ref = self.query.get("holder")
        holder = next(one for one in self.books.holders.values() if one.ref == ref)
        taken = [holder.inbox.pop(0)] if holder.inbox else []
        return self._page(taken, str(len(holder.inbox)) if holder.inbox else "")

    def _page(self, entries: Sequence[object], cursor: str) -> object:
        return {"result": {"entries": entries}, "meta": {"cursor": cursor or None}}

    def _job(self, ref: str) -> dict[str, Any]:
        job = self.books.jobs.get(ref)
        if job is None:
            raise RefusedError(404, "no such job")
        return {
            "jobRef": ref,
            "status": 200,  # of this answer, not of the job
            "progress": {"total": 100 if job["outcome"] else 50, "login": 100},
            "remaining": 298_000,
            "site": {"host": "shop.example.com"},
            **job,
        }

    def _answered(self, ref: str) -> dict[str, Any]:
        job = self.books.jobs[ref]
        envelopes = [request["envelope"] for request in job["pending"]]
        if self.headers.get("x-partner-envelope-id") not in envelopes:
            raise RefusedError(409, "no such request")
        answers = json.loads(self.content)["account"]["account_link"]
        if answers != {"tfa": "ack"}:
            raise RefusedError(422, "nothing to type here")
        job.update(pending=[], state="Done", outcome="Card placed")
        return self._job(ref)


@contextmanager
def liberal_partner() -> Iterator[tuple[str, Books]]:
    """Serve on loopback; yield the address and the books."""
    books = Books()
    handler = type("PartnersHandler", (Handler,), {"books": books})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", books
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)


def settings(address: str) -> dict[str, Any]:
    """Return the table `[service]` of this partner: all that differs from the interface's own."""
    return {
        "base_url": address,
        "prefix": "partner",
        "fi_key": "bank",
        "keys_in": "header",
        "link_id": "?key",
        "follow_cardholders": True,
        "auth": {
            "token": "X-Session: {token}",
            "login_encoding": "form",
        },
        "signing": {
            "type": "hmac",
            "key_encoding": "base64",
            "algorithm": "hmac-sha512",
            "canonical": "{timestamp_ms}|{nonce}|{method}|{target}|{body_sha256}",
            "headers": {
                "X-Sign": "ts={timestamp_ms};once={nonce};sig={signature}",
                "X-Timestamp": "{timestamp_ms}",
                "X-Nonce": "{nonce}",
            },
        },
        "names": {
            "path": {
                "login": "/v2/auth/begin",
                "create_link": "/v2/links",
                "link": "/v2/links?key={id}",
                "job": "/v2/jobs/{id}",
                "job_messages": "/v2/jobs/{id}/inbox",
                "cardholder_messages": "/v2/inbox?holder={id}",
            },
            "login": {
                "session_token": ["result.session.id"],
                "session_key": ["result.session.secret"],
                "credentials": {
                    "app_name": ["client"],
                    "app_key": [],
                    "username": ["user"],
                    "password": ["word"],
                },
            },
            "request": {"fi_key": ["X-Institution"], "idempotency_key": "X-Request-Key"},
            "link": {
                "record": ["result.link"],
                "id": ["linkKey"],
                "url": ["href"],
                "expiration_date": ["validUntil"],
                "opened_on": ["firstOpenedAt"],
                "cardholder_id": ["holder.ref"],
                "cuid": ["holder.externalId"],
            },
            "job": {
                "record": ["result"],
                "id": ["jobRef"],
                "status": ["state"],
                "termination_type": ["outcome"],
                "percent_complete": ["progress.total"],
                "auth_percent_complete": ["progress.login"],
                "job_timeout": [],
                "job_timeout_ms": ["remaining"],
                "merchant_site": ["site.host"],
                "credential_requests": ["pending"],
            },
            "message": {
                "list": ["result.entries"],
                "type": ["kind"],
                "job_id": ["job.ref"],
                "message": ["body"],
                "envelope_id": ["envelope"],
                "account_link": ["fields"],
                "key_name": ["name"],
                "label": ["caption"],
                "secret": ["masked"],
                "acknowledged": ["push"],
            },
            "page": {"cursor": ["meta.cursor"], "query": "from={cursor}"},
        },
        "words": {
            "status": {"Started": "AUTH", "Linked": "UPDATING", "Done": "SUCCESSFUL"},
            "termination_type": {"Card placed": "BILLABLE", "Wrong input": "USER_DATA_FAILURE"},
        },
    }
