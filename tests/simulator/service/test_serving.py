"""`cardlink practice`: loopback only, its address on stdout, a clean end, and a clock that can
hurry.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from flows.extensions.simulator.service.books import Client
from flows.extensions.simulator.service.serving import (
    NotLoopbackError,
    PortTakenError,
    address,
    listen,
)
from tests import keys
from tests.leftovers import ended
from tests.simulator.uploads import answers, people, upload_csv

ROOT = Path(__file__).parents[3]
TOML = """
issuer = "bank"
root = "store"
test = true
[portal]
fingerprints = ["{fingerprint}"]
allowed_hosts = ["cards.example.org"]
"""


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    (tmp_path / "bank.toml").write_text(TOML.format(fingerprint=keys.sound().fingerprint))
    (tmp_path / "practice").mkdir()
    (tmp_path / "practice" / "portal-secret.asc").write_bytes(keys.sound().secret)
    (tmp_path / "practice" / "portal.fingerprint").write_text(keys.sound().fingerprint)
    return tmp_path


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    command = [
        sys.executable,
        "-c",
        "from flows.cli.__main__ import run; run()",
        "practice",
        "bank",
        *options,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with ended(process):
        assert process.stdout
        with httpx.Client(
            base_url=process.stdout.readline().strip(), timeout=300, trust_env=False
        ) as http:
            yield process, http


@pytest.mark.parametrize(
    "how", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_served_portal_takes_a_night_gives_its_links_and_ends_cleanly(
    bank: Path, how: signal.Signals
) -> None:
    with serving(bank, "--fail", "0") as (process, http):
        http.post(
            "/portal/uploads", params={"name": "a.csv"}, content=upload_csv(people(3))
        ).raise_for_status()
        links = answers(http.get("/portal/uploads/1/result").content)
        process.send_signal(how)
        out, talk = process.communicate(timeout=300)

    assert {"https://cards.example.org/l/"} == {
        one["url"].rpartition("/")[0] + "/" for one in links
    }
    assert 0 == process.returncode
    assert "ended: 3 links, 0 opened, 0 authenticated, 0 jobs\n" == out
    assert "[service]" in talk
    assert "4242" not in out + talk


@pytest.mark.slow
def test_a_served_portal_refuses_what_is_not_sealed_for_its_key(bank: Path) -> None:
    with serving(bank) as (_, http):
        answer = http.post("/portal/uploads", params={"name": "a.csv.pgp"}, content=b"\x84sealed")

    assert 422 == answer.status_code


@pytest.mark.slow
def test_the_clock_of_a_served_service_can_hurry(bank: Path) -> None:
    with serving(bank, "--fail", "0", "--speed", "1000000") as (_, http):
        token = http.post("/session", json=Client()._asdict()).json()["session_token"]
        late = http.get("/card_links/x", headers={"Authorization": f"Bearer {token}"})

    assert 401 == late.status_code  # a session of fifteen minutes is over at once


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.com", "", "::"])
def test_any_address_but_loopback_is_refused(host: str) -> None:
    with pytest.raises(NotLoopbackError) as caught:
        listen(host=host)

    assert {"host": host} == caught.value.fields


def test_a_port_that_is_taken_is_refused() -> None:
    with listen() as taken:
        port = int(address(taken).rpartition(":")[2])

        with pytest.raises(PortTakenError) as caught:
            listen(port)

    assert {"port": port} == caught.value.fields
