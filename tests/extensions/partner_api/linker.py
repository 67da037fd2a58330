"""What the tests of single links share: a service that answers as it is told, and nights whose rows
ask it for one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flows.adapters.local import LocalStore
from flows.extensions.partner_api.service_objects import CardLink, CardLinkRequest, Refusal
from schemas.portal import PAN, PHONE
from tests.builders import GOOD, portal_rows
from tests.night import Bench, issuer, local_bench, made_once, portal_csv

SERVICE = {"base_url": "https://service.example.com", "fi_key": "practice-bank"}
REACHED = {PHONE: "6175550100"}
TYPED = {**GOOD, **REACHED}
PANS = (
    "4242424242424242",
    "4111111111111111",
    "5555555555554444",
    "2223003122003222",
    "6011111111111117",
)
URL = "https://links.example.com/l/abc"


class Linker:
    """A service that answers as it is told, and remembers what it was asked."""

    def __init__(self, told: CardLink | Refusal | Exception | None = None) -> None:
        self._told = told or CardLink.model_validate(
            {"id": "abc", "url": URL, "expiration_date": "2027-01-02"}
        )
        self.asked: list[CardLinkRequest] = []
        self.before: Callable[[], object] = lambda: None

    def create_link(self, request: CardLinkRequest) -> CardLink | Refusal:
        self.before()
        self.asked.append(request)
        if isinstance(self._told, Exception):
            raise self._told
        return self._told


def night(bench: Bench, *changes: dict[str, str | None]) -> str:
    """Submit these rows, each with another test card; return the run."""
    folder = _new_folder(bench)
    return _night(folder, *changes) if folder else _submitted(bench, *changes)


@made_once
def _night(folder: Path, *changes: dict[str, str | None]) -> str:
    return _submitted(local_bench(folder, service=SERVICE), *changes)


def _submitted(bench: Bench, *changes: dict[str, str | None]) -> str:
    rows = [{PAN: pan, **REACHED, **change} for pan, change in zip(PANS, changes, strict=False)]
    return bench.submit(bench.drop_bytes(portal_csv(portal_rows(*rows)))).manifest.run


def _new_folder(bench: Bench) -> Path | None:
    """Return the folder of a bench where nothing is stored yet, with no settings but the usual."""
    is_usual = isinstance(bench.store, LocalStore) and bench.issuer == issuer(service=SERVICE)
    is_new = is_usual and next(iter(bench.store.keys("")), None) is None
    return bench.folder if is_new else None


def answered(bench: Bench, run: str, *lines: str) -> None:
    head = "cuid,last_4,url,expiration_date,error"
    bench.drop_result("\n".join([head, *lines]).encode(), f"{run}-00001.csv")
    bench.ingest()


def left_over(bench: Bench) -> str:
    """Return a run of two rows of which the partner linked the first and refused the second."""
    folder = _new_folder(bench)
    return _left_over(folder) if folder else _refused(bench)


@made_once
def _left_over(folder: Path) -> str:
    return _refused(local_bench(folder, service=SERVICE))


def _refused(bench: Bench) -> str:
    run = night(bench, {}, {})
    error = '"{""cuid"": ""c-2"", ""errors"": [""address: try again""]}"'
    answered(bench, run, f"c-1,4242,{URL}/1,2027-01-20,", f",,,,{error}")
    return run
