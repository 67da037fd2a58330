"""A night whose links live at a running practice service: chunks uploaded to its portal, results
ingested.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

from flows.adapters.gpg_opener import GpgOpener
from flows.extensions.partner_api.client import ServiceClient, open_client
from flows.extensions.partner_api.sessions import Credentials
from flows.runs.keys import keys_of
from flows.runs.retry import Retry
from tests import keys
from tests.night import NOON, Bench, issuer, local_bench, made_once
from tests.service import RunningService, running_service


@dataclass(frozen=True)
class Placed:
    """A run with links, the service they live at, and a client of it."""

    bench: Bench
    run: str
    service: RunningService
    client: ServiceClient

    def later(self, hours: float) -> Bench:
        """Return the bench so many hours after noon."""
        return replace(self.bench, now=lambda: NOON + timedelta(hours=hours))


@contextmanager
def placed(
    folder: Path, rows: int, habits: dict[str, Any] | None = None, **settings: Any
) -> Iterator[Placed]:
    """Run a night of so many cardholders through a service's portal; `settings` are of
    `[service]`.
    """
    told = {"follow_cardholders": True, "requests_per_second": 1e6, **settings}
    with (
        GpgOpener([keys.sound().secret]) as opener,
        running_service(opener=opener, now=NOON, settings=told, **(habits or {})) as service,
    ):
        sent, run = _sent(folder, rows)
        bench = replace(sent, issuer=issuer(service=service.settings.model_dump()))
        upload(bench, run, service)
        bench.ingest()
        retry = Retry(time.monotonic, time.sleep, lambda: 0.0, attempts=2)
        with open_client(
            service.settings, Credentials(**service.client._asdict()), retry
        ) as client:
            yield Placed(bench, run, service, client)


@made_once
def _sent(folder: Path, rows: int) -> tuple[Bench, str]:
    bench = local_bench(folder)
    return bench, bench.submit(bench.drop(rows)).manifest.run


def upload(bench: Bench, run: str, service: RunningService) -> None:
    """Upload the chunks of a run to the service's portal, as a person would, and drop the
    results.
    """
    with httpx.Client(base_url=service.address, timeout=300, trust_env=False) as browser:
        for chunk in bench.manifest(run).chunks:
            content = bench.content(keys_of(run).chunks + chunk.name)
            taken = browser.post("/portal/uploads", params={"name": chunk.name}, content=content)
            result = browser.get(f"/portal/uploads/{taken.raise_for_status().json()['id']}/result")
            bench.drop_result(result.raise_for_status().content, f"{chunk.number}.csv")
