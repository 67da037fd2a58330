"""A client, a person at the portal and a cardholder in one: what the tests of the practice service
do over HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

import httpx

from flows.extensions.partner_api.profile import CARDHOLDER_MESSAGES, JOB_MESSAGES, JOBS
from flows.extensions.simulator.service.sites import ACK
from schemas import portal
from tests.service import RunningService
from tests.simulator.uploads import answers, paper_seal, people, upload_csv

POLL = {"x-service-hydration": '["credential_requests"]'}
_SERIAL = count(1)


class ClaimHolder(NamedTuple):
    """A link and what its cardholder knows."""

    id: str
    url: str
    row: Mapping[str, str]

    @property
    def known(self) -> dict[str, str]:
        """The right answer of every challenge."""
        pan = self.row[portal.PAN]
        return {
            "CVV": self.row[portal.CVV],
            "ZIP Code": self.row[portal.POSTAL_CODE],
            "PAN Last 4": pan[-4:],
            "PAN Last 5": pan[-5:],
            "Expiration Date": f"{self.row[portal.MONTH]}/{self.row[portal.YEAR]}",
        }


class Visit:
    """Requests to one running service, logged in; every link is of a cardholder of its own."""

    def __init__(self, service: RunningService, http: httpx.Client) -> None:
        self.service, self.http = service, http
        self.log_in()

    def log_in(self) -> None:
        spoken = self.service.settings
        answer = self.http.post(
            spoken.path("login"), json=self.service.client._asdict()
        ).raise_for_status()
        self.http.headers["Authorization"] = (
            f"Bearer {answer.json()[spoken.name('login.session_token')]}"
        )

    def upload(self, content: bytes, name: str = "night-00001.csv.pgp") -> httpx.Response:
        return self.http.post("/portal/uploads", params={"name": name}, content=content)

    def results(self, upload: httpx.Response) -> list[dict[str, str]]:
        number = upload.raise_for_status().json()["id"]
        return answers(self.http.get(f"/portal/uploads/{number}/result").raise_for_status().content)

    def link(self, **changes: str) -> ClaimHolder:
        """Get a link through a bulk file; `changes` are of the row, by the last part of a column's
        name.
        """
        (row,) = people(1)
        row |= {portal.CUID: f"visitor-{next(_SERIAL)}", portal.CVV: "007", portal.CVV_HASH: ""}
        row |= {
            name: changes[name.rpartition(".")[2]]
            for name in row
            if name.rpartition(".")[2] in changes
        }
        (result,) = self.results(self.upload(paper_seal(upload_csv([row]))))
        return ClaimHolder(result["url"].rpartition("/")[2], result["url"], row)

    def verified(self, **changes: str) -> ClaimHolder:
        """Get a link and answer its challenges."""
        held = self.link(**changes)
        self.http.post(f"/l/{held.id}/challenges", json={"answers": held.known}).raise_for_status()
        return held

    def place(
        self, held: ClaimHolder, *sites: str, credentials: bool = False
    ) -> list[dict[str, Any]]:
        """Choose sites at a verified link; return the job records."""
        given = (
            {site: {"username": "u", "email": "e", "password": "p"} for site in sites}
            if credentials
            else {}
        )
        choice = {"merchant_sites": sites, "credentials": given}
        started: list[dict[str, Any]] = (
            self.http.post(f"/l/{held.id}/placements", json=choice).raise_for_status().json()
        )
        return started

    def job(self, site: str = "shop.example.com", *, credentials: bool = False) -> int:
        """Start a job of a new cardholder; return its id."""
        (record,) = self.place(self.verified(), site, credentials=credentials)
        return int(record["id"])

    def record(self, job: int, *, poll: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = (
            self.http.get(f"{JOBS}/{job}", headers=POLL if poll else {}).raise_for_status().json()
        )
        return found

    def messages(self, job: int) -> list[dict[str, Any]]:
        return self._read(f"{JOB_MESSAGES}/{job}")

    def cardholder_messages(self, cardholder: int) -> list[dict[str, Any]]:
        return self._read(f"{CARDHOLDER_MESSAGES}/{cardholder}")

    def requests(self, job: int) -> list[dict[str, Any]]:
        return self._read(f"{JOB_MESSAGES}/{job}/credential_requests")

    def register(self, job: int) -> str:
        found = self.http.get(f"{JOB_MESSAGES}/{job}/broadcasts/registrations").raise_for_status()
        return str(found.json()["access_key"])

    def broadcasts(self, job: int, access_key: str) -> list[dict[str, Any]]:
        return self._read(
            f"{JOB_MESSAGES}/{job}/broadcasts", {"service-messaging-access-key": access_key}
        )

    def waiting(self, job: int) -> dict[str, Any]:
        """Return the one credential request a job waits for."""
        (request,) = self.record(job, poll=True)["credential_requests"]
        found: dict[str, Any] = request
        return found

    def put(self, job: int, envelope: str | None, given: Mapping[str, str]) -> httpx.Response:
        headers = {} if envelope is None else {"x-service-envelope-id": envelope}
        return self.http.put(
            f"{JOBS}/{job}", headers=headers, json={"account": {"account_link": given}}
        )

    def answer(self, job: int, value: str = "known") -> dict[str, Any]:
        """Answer what a job waits for; return the updated record."""
        request = self.waiting(job)
        keys = [field["key_name"] for field in request["account_link"]]
        given = {"tfa": ACK} if keys == ["tfa_message"] else dict.fromkeys(keys, value)
        updated: dict[str, Any] = (
            self.put(job, request["envelope_id"], given).raise_for_status().json()
        )
        return updated

    def to_the_end(self, job: int, value: str = "known") -> dict[str, Any]:
        """Answer everything a job asks and let time pass until it has ended; return its record."""
        while (record := self.record(job, poll=True))["termination_type"] is None:
            if record["credential_requests"]:
                self.answer(job, value)
            self.service.advance(20)
        return record

    def _read(self, path: str, headers: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.http.get(path, headers=headers).raise_for_status().json()
        return found


@contextmanager
def visiting(service: RunningService) -> Iterator[Visit]:
    """Visit a service."""
    # plain HTTP: no certificates are read
    with httpx.Client(base_url=service.address, timeout=300, trust_env=False, verify=False) as http:
        yield Visit(service, http)


def refusal(response: httpx.Response) -> tuple[int, list[tuple[str, str]]]:
    """Return status and (entity, property) of what a refusal names."""
    named = [(one["entity_name"], one["property_name"]) for one in response.json()["_errors"]]
    return response.status_code, named
