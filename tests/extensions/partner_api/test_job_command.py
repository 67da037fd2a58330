"""`cardlink job follow` as a support person sees it: a real terminal, a service that listens."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from flows.cli.main import main
from flows.cli.terminal import ask
from flows.commands.context import Terminal
from flows.extensions.partner_api.service_objects import CredentialRequest
from flows.extensions.partner_api.terminal import Watcher
from flows.redaction import shown
from tests.cli.terminal import CTRL_C, on_terminal
from tests.extensions.partner_api.service_clients import client_of, started_job
from tests.service import RunningService, running_service

TOML = """
issuer = "bank"
root = "store"
test = true
[portal]
fingerprints = ["0123456789ABCDEF0123456789ABCDEF01234567"]
allowed_hosts = ["links.example.com"]
[service]
base_url = "{address}"
fi_key = "practice-bank"
requests_per_second = 1000
follow_every_seconds = 0.05
"""


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    with running_service() as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path, service: RunningService) -> Path:
    (tmp_path / "bank.toml").write_text(TOML.format(address=service.address))
    return tmp_path


def who(service: RunningService) -> dict[str, str]:
    return {
        f"CARDLINK_SERVICE_{name.upper()}": value
        for name, value in service.client._asdict().items()
    }


def job_at(service: RunningService, site: str) -> str:
    with client_of(service) as client:
        return started_job(service, client, site)


@contextmanager
def time_passing(service: RunningService, *, but_while_asked: str = "") -> Iterator[None]:
    """Let the service's time pass, three seconds every twentieth of one; not while that job waits
    for somebody.
    """
    done = threading.Event()

    def pass_on() -> None:
        while not done.wait(0.05):
            if not (
                but_while_asked
                and service.act(lambda books: books.job(int(but_while_asked)).request)
            ):
                service.advance(3)

    thread = threading.Thread(target=pass_on)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_job_is_followed_on_a_terminal_and_what_is_secret_is_never_shown(
    folder: Path, service: RunningService
) -> None:
    job = job_at(service, "market.example.com")
    talk = [
        ("User name: ", "ada"),
        ("Password: ", "hush-word"),
        ("Code sent to the phone ending in 00: ", "hush-code"),
        ("Name of your first pet: ", "hush-pet"),
        ("Street you grew up in: ", "hush-street"),
    ]

    with time_passing(service, but_while_asked=job):
        seen = on_terminal(folder, who(service), ["job", "follow", "bank", job], talk)

    assert seen.code == 0
    assert (
        seen.stdout == f"job {job}: SUCCESSFUL, BILLABLE\nThe card is placed with the merchant.\n"
    )
    assert "User name: ada" in seen.terminal
    assert "hush" not in seen.terminal
    assert re.search(
        r"AUTH  authentication \d+%  whole job \d+%  \d:\d\d left  The site checks", seen.terminal
    )
    assert "UPDATING  authentication 100%" in seen.terminal
    assert "(authenticated: the cardholder may leave)" in seen.terminal
    assert [path for path in folder.rglob("*") if path.is_file()] == [folder / "bank.toml"]


def test_ctrl_c_leaves_the_job_running_and_says_how_to_go_on(
    folder: Path, service: RunningService
) -> None:
    job = job_at(service, "shop.example.com")

    seen = on_terminal(
        folder, who(service), ["job", "follow", "bank", job], [("User name: ", CTRL_C)]
    )

    assert seen.code == 75
    assert f"Stopped following job {job} of bank. The job continues" in seen.terminal
    assert f"To follow it again: cardlink job follow bank {job}" in seen.terminal
    assert service.act(lambda books: books.job(int(job)).status) == "PENDING"


@pytest.mark.slow
def test_ctrl_c_between_two_looks_says_the_same(folder: Path, service: RunningService) -> None:
    job = job_at(service, "idle.example.com")

    seen = on_terminal(
        folder, who(service), ["job", "follow", "bank", job], [("REQUESTED", CTRL_C)]
    )

    assert seen.code == 75
    assert "The job continues" in seen.terminal


@pytest.mark.slow
def test_the_warning_comes_while_somebody_types(folder: Path, service: RunningService) -> None:
    job = job_at(service, "shop.example.com")
    service.advance(359)  # of 420 seconds: the initial five minutes and what the question added

    talk = [("left before this job times out", "ada"), ("Password: ", "right")]
    with time_passing(service, but_while_asked=job):
        seen = on_terminal(folder, who(service), ["job", "follow", "bank", job], talk)

    assert seen.code == 0


def test_a_prompt_ends_when_the_job_does(folder: Path, service: RunningService) -> None:
    job = job_at(service, "shop.example.com")

    talk = [("User name: ", lambda: service.advance(1000))]
    seen = on_terminal(folder, who(service), ["job", "follow", "bank", job], talk)

    assert 3 == seen.code
    assert seen.stdout.startswith(f"job {job}: TIMEOUT_TFA, USER_DATA_FAILURE\n")
    assert "The job has ended; nothing more is sent." in seen.terminal


@pytest.mark.parametrize(
    ("way", "site"),
    [
        ([], "again.example.com"),
        (["--poll"], "music.example.com"),
        (["--post-answers"], "shop.example.com"),
    ],
)
def test_one_json_object_tells_the_end(
    folder: Path, service: RunningService, way: list[str], site: str
) -> None:
    job = job_at(service, site)
    typed = "".join(f"{one}\n" for one in ("ada@example.com", "hush-word", "hush-pin"))

    with time_passing(service):
        done = CliRunner(env=who(service)).invoke(
            main,
            ["--config", str(folder), "--json", "job", "follow", "bank", job, *way],
            input=typed,
        )

    facts = json.loads(done.stdout)
    end = service.act(lambda books: books.job(int(job)).site.end)
    assert (facts["job_id"], facts["status"], facts["termination_type"]) == (
        job,
        end.status,
        end.termination_type,
    )
    assert facts["exit_code"] == done.exit_code == (0 if end.termination_type == "BILLABLE" else 3)
    assert "hush" not in done.stdout + done.stderr
    assert ("--post-answers" in way) == ("the partner does not recommend" in done.stderr)


@pytest.mark.slow
def test_a_job_that_is_watched_asks_nothing_and_ends_as_it_ends(
    folder: Path, service: RunningService
) -> None:
    job = job_at(service, "shop.example.com")  # and nobody answers it

    with time_passing(service):
        done = CliRunner(env=who(service)).invoke(
            main, ["--config", str(folder), "job", "watch", "bank", job]
        )

    assert 3 == done.exit_code
    assert done.stdout.startswith(f"job {job}: TIMEOUT_TFA, USER_DATA_FAILURE\n")
    assert "whoever follows it is asked" in done.stderr


@pytest.mark.slow
def test_ctrl_c_ends_a_watch_and_says_how_to_go_on(folder: Path, service: RunningService) -> None:
    job = job_at(service, "idle.example.com")

    seen = on_terminal(folder, who(service), ["job", "watch", "bank", job], [("REQUESTED", CTRL_C)])

    assert 75 == seen.code
    assert f"To watch it again: cardlink job watch bank {job}" in seen.terminal


def test_who_we_are_is_asked_for_by_name_and_a_file_may_say_it(
    folder: Path, service: RunningService
) -> None:
    (folder / "password").write_text("practice\n")
    job = job_at(service, "shop.example.com")
    service.advance(1000)
    environment = {**who(service), "CARDLINK_SERVICE_PASSWORD": ""}

    missing = CliRunner(env=environment).invoke(
        main, ["--config", str(folder), "job", "follow", "bank", job]
    )
    found = CliRunner(
        env={**environment, "CARDLINK_SERVICE_PASSWORD_FILE": str(folder / "password")}
    ).invoke(main, ["--config", str(folder), "job", "follow", "bank", job])

    assert missing.exit_code == 2
    assert "not in the environment: CARDLINK_SERVICE_PASSWORD." in missing.stderr
    assert found.stdout.startswith(
        f"job {job}: TIMEOUT_TFA, USER_DATA_FAILURE\nThe cardholder's input"
    )


def test_a_foreign_text_cannot_steer_the_terminal_or_show_a_card() -> None:
    text = shown("\x1b[2Jcard 4242 4242 4242 4242\r\n\u202eok")

    assert text == r"\u001b[2Jcard [masked]\u000d\u000a\u202eok"


def test_a_value_that_is_not_secret_is_asked_for_under_its_key_where_there_is_no_label() -> None:
    request = CredentialRequest.model_validate(
        {"envelope_id": "e-1", "account_link": [{"key_name": "pin", "secret": False}]}
    )

    runner = CliRunner()
    with runner.isolation(input="7\n"):
        given = Watcher(Terminal(attended=True, ask=ask)).collect(request, lambda: False)

    assert given == {"pin": "7"}
