"""What a check of links costs: links of a portfolio at a practice service, of which few move.

`python -m tests.bench.following --links 20000` sends a night of so many cards, lets a practice
service in a process of its own answer it, checks all links once, and then four times a day, while
two per cent of them move a day. CPU is of the checks alone. What a check may query is what `--rate`
requests a second allow in its time; they are sent as fast as they can be, unless `--in-real-time`,
which concerns all checks but the first.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from flows.extensions.partner_api.client import ServiceClient, open_client
from flows.extensions.partner_api.follow_links import follow_links
from flows.extensions.partner_api.sessions import Credentials
from flows.extensions.partner_api.settings import ServiceSettings
from flows.extensions.simulator.answer_at_service import answer_at_service
from flows.extensions.simulator.portal import Behaviour
from flows.extensions.simulator.service.books import Client
from flows.extensions.simulator.service_portal import ServicePortal
from flows.runs.retry import Retry
from tests import keys
from tests.leftovers import ended
from tests.night import BANK, NOON, Bench, issuer, local_bench

LOOKS_A_DAY: Final = 4
HEAD: Final = "   day  queried  waiting  requests    wall s   CPU s  opened  truly opened"
_START: Final = "from flows.cli.__main__ import run; run()"


class Plan(NamedTuple):
    """What is measured; `movement` is the share of links that move a day.

    `quiet_days`: how long the links were there before the second check, untouched.
    """

    links: int
    days: float
    movement: float
    rate: float
    quiet_days: float
    in_real_time: bool = False


class Look(NamedTuple):
    """One check: links queried and left to the next one, seconds, and opened links by then."""

    day: float
    queried: int
    waiting: int
    requests: int
    wall: float
    cpu: float
    opened: int
    truly_opened: int


def looks(folder: Path, plan: Plan) -> Iterator[Look]:
    """Yield the checks of some days, the first of links that nobody was asked about."""
    with practice_service(folder) as base_url:
        bench = sent(folder, plan, base_url)
        yield look(bench, plan, base_url, 0, of_all=True)
        for number in range(1, int(plan.days * LOOKS_A_DAY) + 1):
            move(base_url, plan.movement / LOOKS_A_DAY, number)
            yield look(bench, plan, base_url, plan.quiet_days + number / LOOKS_A_DAY)


@contextmanager
def practice_service(folder: Path) -> Iterator[str]:
    """Serve the practice service in a process of its own; yield its address."""
    practice = folder / "practice"
    practice.mkdir()
    (practice / "portal-secret.asc").write_bytes(keys.sound().secret)
    (practice / "portal.fingerprint").write_text(keys.sound().fingerprint)
    process = subprocess.Popen(
        [sys.executable, "-c", _START, "practice", "--dir", str(practice), "--fail", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with ended(process):
        assert process.stdout
        yield process.stdout.readline().strip()


def sent(folder: Path, plan: Plan, base_url: str) -> Bench:
    """Return a bench whose night of so many cards is answered by the service and ingested."""
    service = {"base_url": base_url, "follow_cardholders": True, "requests_per_second": plan.rate}
    bench = local_bench(folder)
    bench.submit(bench.drop(plan.links))
    with httpx.Client(base_url=base_url, timeout=300, trust_env=False) as http:
        answer_at_service(bench.adapters, BANK, ServicePortal(http), Behaviour())
    bench.ingest()
    return replace(bench, issuer=issuer(service=service))


def move(base_url: str, share: float, seed: int) -> None:
    """Let a share of the cardholders who did nothing yet act, until their jobs have ended."""
    evening = {"seed": seed, "open": share}
    httpx.post(f"{base_url}/__people", json=evening, timeout=300, trust_env=False)


def look(bench: Bench, plan: Plan, base_url: str, day: float, *, of_all: bool = False) -> Look:
    """Check the links as the scheduled flow does, so many days after they were made."""
    later = replace(bench, now=lambda: NOON + timedelta(days=day))
    began = time.monotonic()
    spent = cpu_seconds()
    with client_of(later, in_real_time=plan.in_real_time and not of_all) as client:
        facts = follow_links(later.context, client, recheck=of_all)
    cpu = cpu_seconds() - spent
    wall = time.monotonic() - began
    books = httpx.get(f"{base_url}/__books", timeout=300, trust_env=False).json()
    stages = {stage["stage"]: stage for stage in facts["funnel"]["stages"]}
    return Look(
        day,
        queried=facts["looked"]["asked"],
        waiting=facts["looked"]["waiting"],
        requests=sum(source["asked"] for source in facts["coverage"]),
        wall=wall,
        cpu=cpu,
        opened=stages["opened"]["cardholders"],
        truly_opened=books["opened"],
    )


@contextmanager
def client_of(bench: Bench, *, in_real_time: bool) -> Iterator[ServiceClient]:
    """Open a client of the bench's service."""
    settings = bench.issuer.table(ServiceSettings)
    assert settings is not None
    if not in_real_time:
        settings = settings.model_copy(update={"requests_per_second": 1e6})
    credentials = Credentials(**Client()._asdict())
    with open_client(settings, credentials, Retry(attempts=2)) as client:
        yield client


def cpu_seconds() -> float:
    """Return the CPU seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def line_of(check: Look) -> str:
    """Return a check as a line below HEAD."""
    return (
        f"{check.day:6.2f}{check.queried:9,}{check.waiting:9,}{check.requests:10,}"
        f"{check.wall:10.1f}{check.cpu:8.1f}{check.opened:8,}{check.truly_opened:14,}"
    )


def _arguments() -> Plan:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--links", type=int, default=20_000)
    parser.add_argument("--days", type=float, default=3)
    parser.add_argument("--movement", type=float, default=0.02)
    parser.add_argument("--rate", type=float, default=10)
    parser.add_argument("--quiet-days", type=float, default=0)
    parser.add_argument("--in-real-time", action="store_true")
    return Plan(**vars(parser.parse_args()))


def main() -> None:
    """Measure, and print each check as it is done."""
    plan = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="cardlink-following-"))
    try:
        print(HEAD)
        for check in looks(folder, plan):
            print(line_of(check), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
