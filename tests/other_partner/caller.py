"""A client in a few lines, written from the interface's document alone: nothing of ours is used
but what plays the cardholder, of whose page the document says nothing.

Who reads its tests beside the document can say which statement fails.
"""

from __future__ import annotations

import copy
import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

import httpx

from flows.extensions.simulator.service.refusals import RefusedRequestError
from tests.service import RunningService, running_service

GOOD: dict[str, Any] = {
    "service": {"app_name": "practice", "app_key": "practice-key"}
    | {"username": "cardlink", "password": "practice"},
    "cardholder": {"cuid": "s-1", "first_name": "Ann", "last_name": "Smith"},
    "address": {"address1": "12 Elm Street", "city": "Boston", "subnational": "MA"}
    | {"postal_code": "02108", "country": "US", "phone_number": "6175550101"},
    "card": {"reference": None, "pan": "4111111111111111", "expiration_month": "12"}
    | {"expiration_year": "36", "name_on_card": "Ann Smith", "nickname": "daily", "cvv": "123"},
    "financial_institution_key": "bank",
}
ROW = {  # of a bulk file, as its table has them
    "cardholder.cuid": "b-1",
    "service_card.pan": "4111111111111111",
    "service_card.expiration_year": "36",
    "service_card.expiration_month": "12",
    "service_card.name_on_card": "Ann Smith",
    "service_card.cvv_hash": "pmWkWSBCL51Bfkhn79xPuKBKHz//H6B+mY6G9/eieuM=",  # of 123
    "service_card.cvv": "",
    "service_card.customer_key": "",
    "service_card.nickname": "daily",
    "service_card.address.address1": "12 Elm Street",
    "service_card.address.address2": "Flat 2",
    "service_card.address.city": "Boston",
    "service_card.address.subnational": "MA",
    "service_card.address.country": "US",
    "service_card.address.postal_code": "02108",
    "service_card.address.email": "ann@example.com",
    "service_card.address.phone_number": "6175550101",
    "service_card.address.first_name": "Ann",
    "service_card.address.last_name": "Smith",
    "service_card.address.is_primary": "TRUE",
}
HEADER = tuple(ROW)
JOB = "/place_card_on_single_site_jobs/"


class Caller:
    """A client in a few lines: a session, and the paths of the document."""

    def __init__(self, service: RunningService) -> None:
        self.service = service
        self.http = httpx.Client(base_url=service.address, trust_env=False)
        token = self.http.post("/session", json=GOOD["service"]).json()["session_token"]
        self.http.headers["Authorization"] = f"Bearer {token}"

    def create(self, **changes: Any) -> httpx.Response:
        """Request a link; a change names a property, None leaves it out."""
        return self.http.post("/card_links", json=changed(self.service.address, changes))

    def job(self, site: str = "shop.example.com") -> int:
        """Let a cardholder choose a site; return the job."""
        (job,) = self.jobs(site)
        return job

    def jobs(self, *sites: str) -> list[int]:
        """Let a cardholder open a link, answer its challenges and choose sites."""
        link = self.create(**{"cardholder.cuid": None}).json()["id"]
        assert self.opens(link, {"CVV": "123", "ZIP Code": "02108"})
        jobs = self.service.act(lambda books: books.place(link, sites, {}))
        self.service.advance(5)
        return [int(job.id) for job in jobs]

    def opens(self, link: str, answers: dict[str, str]) -> bool:
        """Let a cardholder answer the challenges of a link; return whether that was right."""
        with suppress(RefusedRequestError):
            self.service.act(lambda books: books.links.verify(link, answers, books.now))
            return True
        return False

    def upload(self, rows: Sequence[Mapping[str, str]], name: str = "bulk.csv") -> httpx.Response:
        """Upload a bulk file to the portal."""
        out = io.StringIO()
        writer = csv.DictWriter(out, HEADER)
        writer.writeheader()
        writer.writerows(rows)
        return self.http.post("/portal/uploads", params={"name": name}, content=out.getvalue())

    def results(self, rows: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
        """Upload a bulk file and download its result."""
        number = self.upload(rows).json()["id"]
        text = self.http.get(f"/portal/uploads/{number}/result").text
        return list(csv.DictReader(io.StringIO(text)))

    def record(self, job: int, *, hydrated: bool = True) -> dict[str, Any]:
        """Poll a job."""
        value = {"x-service-hydration": '["credential_requests"]'} if hydrated else {}
        record: dict[str, Any] = self.http.get(f"{JOB}{job}", headers=value).json()
        return record

    def messages(self, job: int) -> list[dict[str, Any]]:
        """Read a job's messages."""
        body = self.http.get(f"/messages{JOB}{job}").json()
        elements: list[dict[str, Any]] = body if isinstance(body, list) else body["messages"]
        return elements

    def answer(self, job: int, request: dict[str, Any]) -> httpx.Response:
        """Answer a request as the document says."""
        keys = [prompt["key_name"] for prompt in request["account_link"]]
        is_message = keys == ["tfa_message"]
        values = {"tfa": "ack"} if is_message else dict.fromkeys(keys, "right")
        return self.http.put(
            f"{JOB}{job}",
            headers={"x-service-envelope-id": request["envelope_id"]},
            json={"account": {"account_link": values}},
        )


def changed(address: str, changes: dict[str, Any]) -> dict[str, Any]:
    body = copy.deepcopy(GOOD)
    body["service"]["service_server"] = address
    for path, value in changes.items():
        *outer, name = path.split(".")
        part = body[outer[0]] if outer else body
        part[name] = value
        if value is None and path != "card.reference":
            del part[name]
    return body


@contextmanager
def calling(**habits: Any) -> Iterator[Caller]:
    """Call a practice service with these habits."""
    with running_service(**habits) as service:
        caller = Caller(service)
        with closing(caller.http):
            yield caller
