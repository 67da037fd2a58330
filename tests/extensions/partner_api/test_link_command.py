"""`cardlink link` as somebody uses it for the last few of a night: a row of a run, or fields typed
in at a terminal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner, Result

from flows.cli.main import main
from flows.runs.single_links import prompted_singles
from schemas.portal import PAN, PHONE
from tests import keys
from tests.builders import portal_rows
from tests.cli.terminal import on_terminal
from tests.night import BANK, Bench, local_bench, made_once, portal_csv
from tests.service import RunningService, running_service

TOML = """
issuer = "bank"
root = "store"
test = true
[portal]
fingerprints = ["{fingerprint}"]
allowed_hosts = ["links.example.com"]
[service]
base_url = "{address}"
fi_key = "practice-bank"
requests_per_second = 1000
"""
TYPED = [
    ("Cuid", "c-9"),
    ("First name", "Ada"),
    ("Last name", "Byron"),
    ("Name on the card", "Ada Byron"),
    ("Card number", "5555555555554444"),
    ("Expiration month", "11"),
    ("Expiration year", "29"),
    ("CVV", "737"),
    ("Street address", "1 Main St"),
    ("Apartment", ""),
    ("City", "Boston"),
    ("State or province", "MA"),
    ("ZIP or postal code", "02108"),
    ("Country", ""),
    ("Phone number", "6175550100"),
    ("E-mail", ""),
]


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    with running_service() as running:
        yield running


@pytest.fixture
def bench(tmp_path: Path, service: RunningService) -> Bench:
    toml = TOML.format(fingerprint=keys.sound().fingerprint, address=service.address)
    (tmp_path / "bank.toml").write_text(toml)
    return local_bench(tmp_path)


def who(service: RunningService) -> dict[str, str]:
    return {
        f"CARDLINK_SERVICE_{name.upper()}": value
        for name, value in service.client._asdict().items()
    }


def cardlink(folder: Path, service: RunningService, *arguments: str, typed: str = "") -> Result:
    return CliRunner(env=who(service)).invoke(
        main, ["--config", str(folder), *arguments], input=typed
    )


def left_over(bench: Bench) -> str:
    """Return a run whose one row the partner refused."""
    assert bench.folder is not None
    return _left_over(bench.folder)[1]


@made_once
def _left_over(folder: Path) -> tuple[Bench, str]:
    bench = local_bench(folder)
    run = bench.submit(
        bench.drop_bytes(portal_csv(portal_rows({PHONE: "6175550100"})))
    ).manifest.run
    bench.drop_result(
        b"cuid,last_4,url,expiration_date,error\n"
        b',,,,"{""cuid"": ""c-1"", ""errors"": [""busy""]}"\n'
    )
    bench.ingest()
    return bench, run


@pytest.mark.slow
def test_a_row_gets_its_link_on_stdout_and_the_record_is_named(
    tmp_path: Path, bench: Bench, service: RunningService
) -> None:
    run = left_over(bench)

    done = cardlink(tmp_path, service, "link", run, "1")

    (kept,) = bench.stored(run).single_link_attempts
    assert done.exit_code == 0
    assert kept.answered is not None
    *lines, settings = done.stdout.splitlines()
    assert settings.startswith("bank: its settings are recorded")
    assert lines == [
        kept.answered.url,
        f"c-1: expires on {kept.answered.expires_on}",
        f"recorded: {run}/000000001-1",
        "send the URL to this cardholder and to nobody else",
    ]


def test_the_end_of_a_link_is_as_the_command_says_else_as_the_toml_does(
    tmp_path: Path, bench: Bench, service: RunningService
) -> None:
    run = left_over(bench)
    toml = tmp_path / "bank.toml"
    toml.write_text(toml.read_text() + 'link_expires = "30d"\n')

    of_the_toml = cardlink(tmp_path, service, "--json", "link", run, "1")
    of_the_command = cardlink(
        tmp_path, service, "--json", "link", run, "1", "--expires", "2031-01-31", "--override", "x"
    )

    first, _ = bench.stored(run).single_link_attempts
    assert [f"{first.asked.at.date() + timedelta(days=30)}", "2031-01-31"] == [
        json.loads(done.stdout)["expires_on"] for done in (of_the_toml, of_the_command)
    ]


@pytest.mark.slow
def test_a_link_is_renewed_by_the_reference_of_its_card_and_without_the_number(
    tmp_path: Path, bench: Bench, service: RunningService
) -> None:
    run = left_over(bench)
    first = cardlink(tmp_path, service, "link", run, "1")

    renewed = cardlink(
        tmp_path, service, "link", run, "1", "--by-reference", "--override", "it was lost"
    )

    before, after = (
        service.books.links.links[done.stdout.splitlines()[0].rpartition("/")[2]]
        for done in (first, renewed)
    )
    assert before.card_id == after.card_id
    assert before.url != after.url
    assert [False, True] == [
        single.asked.by_reference for single in bench.stored(run).single_link_attempts
    ]


def test_a_card_that_the_partner_does_not_have_is_not_named_by_reference(
    tmp_path: Path, bench: Bench, service: RunningService
) -> None:
    run = left_over(bench)

    unlinked = cardlink(tmp_path, service, "link", run, "1", "--by-reference")
    typed = cardlink(tmp_path, service, "link", BANK, "--prompt", "--by-reference")

    assert (2, 2) == (unlinked.exit_code, typed.exit_code)
    assert f"row 1 of {run} has no link" in unlinked.stderr
    assert "what is typed in is no card of a link" in typed.stderr


@pytest.mark.parametrize(
    ("expires", "problem"),
    [
        ("2026-02-30", "no day of the calendar"),
        ("2020-01-31", "a day gone by"),
        ("soon", "no date such as 2027-01-31"),
        ("0d", "no date such as 2027-01-31"),
    ],
)
def test_what_is_no_end_of_a_link_is_told_before_anything_is_requested(
    tmp_path: Path, bench: Bench, service: RunningService, expires: str, problem: str
) -> None:
    run = left_over(bench)

    done = cardlink(tmp_path, service, "link", run, "1", "--expires", expires)

    assert 2 == done.exit_code
    assert problem in done.stderr
    assert "60d, 3mo" in done.stderr
    assert not bench.stored(run).single_link_attempts


def test_a_row_that_has_its_link_now_is_refused_and_a_reason_overrides(
    tmp_path: Path, bench: Bench, service: RunningService
) -> None:
    run = left_over(bench)
    cardlink(tmp_path, service, "link", run, "1")

    refused = cardlink(tmp_path, service, "link", run, "1")
    forced = cardlink(
        tmp_path, service, "--json", "link", run, "1", "--override", "lost by the cardholder"
    )

    facts = json.loads(forced.stdout)
    assert (refused.exit_code, forced.exit_code) == (2, 0)
    assert "has a link" in refused.stderr
    assert (facts["outcome"], facts["attempt"][-6:]) == ("linked", "0001-2")
    assert [one.asked.override for one in bench.stored(run).single_link_attempts] == [
        "",
        "lost by the cardholder",
    ]


def test_fields_are_typed_in_at_a_terminal_and_card_number_and_cvv_are_not_shown(
    tmp_path: Path, bench: Bench, service: RunningService
) -> None:
    seen = on_terminal(tmp_path, who(service), ["link", "bank", "--prompt"], TYPED)

    (kept,) = prompted_singles(bench.adapters, BANK)
    assert seen.code == 0
    assert kept.answered is not None
    assert seen.stdout.startswith(f"{kept.answered.url}\nc-9: expires on ")
    assert "Byron" in seen.terminal
    # a link's key and a digest of the settings have any three digits
    texts = (seen.terminal + seen.stdout).replace(str(kept.answered.url), "")
    shown = re.sub("(?=[0-9]*[a-f])[0-9a-f]{12,}", "", texts)
    # nor is it told from the time of a record where it is a part of that
    assert re.findall(r"(?<![0-9])(?:5555555555554444|737)(?![0-9])", shown) == []
    assert b"5555555555554444" not in b"".join(bench.snapshot().values())


def test_a_mistake_in_what_was_typed_is_told_by_its_code(
    tmp_path: Path, bench: Bench, service: RunningService
) -> None:
    wrong = [text if label != "Card number" else "5555555555554445" for label, text in TYPED]

    done = cardlink(tmp_path, service, "link", "bank", "--prompt", typed="\n".join(wrong) + "\n")

    assert done.exit_code == 2
    assert "card.pan.luhn" in done.stderr
    assert "5555" not in done.stdout + done.stderr
    assert bench.snapshot() == {}


class Echoing(BaseHTTPRequestHandler):
    """A service that lets anybody in and refuses every link, repeating what it was sent."""

    def do_POST(self) -> None:
        """Answer a login with a session, and anything else with its own body in words."""
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        link = "card" in sent
        card, who = (
            sent.get("card", {}),
            next((one for one in sent.values() if isinstance(one, dict) and "password" in one), {}),
        )
        words = (
            f"wrong: {card.get('cvv')!r} for {card.get('pan')} by {who.get('password')} "
            "\x1b[2J\u202e"
        )
        answer = json.dumps(
            {"errors": [{"property": "cvv", "message": words, "value": card.get("cvv")}]}
            if link
            else {"session_token": "s-1"}
        )
        self.send_response(422 if link else 200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def test_a_refusal_that_repeats_cvv_number_and_password_leaves_none_of_them(
    tmp_path: Path, service: RunningService, caplog: pytest.LogCaptureFixture
) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echoing)
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    (tmp_path / "bank.toml").write_text(
        TOML.format(fingerprint=keys.sound().fingerprint, address=address)
    )
    bench = local_bench(tmp_path)
    secrets = {**who(service), "CARDLINK_SERVICE_PASSWORD": "s3cret-w0rd&<7>"}
    runner = CliRunner(env=secrets)
    config = ["--config", str(tmp_path)]

    done = runner.invoke(
        main,
        [*config, "link", "bank", "--prompt"],
        input="\n".join(text for _, text in TYPED) + "\n",
    )
    traced = runner.invoke(main, [*config, "trace", "c-9"])
    server.shutdown()
    server.server_close()

    assert done.exit_code == 3, done.output
    (kept,) = prompted_singles(bench.adapters, BANK)
    stored = b"".join(bench.snapshot().values()).decode()
    shown = done.output + traced.output + caplog.text
    # digests, moments, and the names of processes have any three digits
    digests = re.compile(
        '[0-9a-fA-F]{40,64}|[0-9]{8}T[0-9]{12}-[0-9a-f]{8}|record 1, [0-9a-f]{12}|"process":"[^"]*"'
    )
    seen = digests.sub("", stored + shown)
    assert kept.answered is not None
    assert kept.answered.message.startswith("wrong: '[3 digits]' for [16 digits] [2 letters] [")
    assert [word for word in ("737", "5555555555554444", "s3cret", "w0rd") if word in seen] == []
    assert not {"\x1b", "\u202e"} & set(traced.output + kept.answered.message)


def test_the_prompts_can_be_left(tmp_path: Path, bench: Bench, service: RunningService) -> None:
    done = cardlink(tmp_path, service, "link", "bank", "--prompt", typed="c-9\nAda\n")

    assert done.exit_code == 75
    assert "Cancelled; no request was sent." in done.stderr
    assert bench.snapshot() == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ("bank",),
        ("bank-20261120-00000000", "1", "--prompt"),
        ("bank-20261120-00000000", "1", "--errors"),
        ("bank", "--errors", "--rows", "rows.csv"),
    ],
)
def test_one_way_is_named(
    tmp_path: Path, bench: Bench, service: RunningService, arguments: tuple[str, ...]
) -> None:
    done = cardlink(tmp_path, service, "link", *arguments)

    assert done.exit_code == 2
    assert 'link "RUN" "ROW"`, `cardlink --config' in done.stderr


def test_a_refused_card_is_told_with_the_partners_codes(
    tmp_path: Path, service: RunningService
) -> None:
    toml = TOML.format(fingerprint=keys.sound().fingerprint, address=service.address)
    (tmp_path / "bank.toml").write_text(toml + 'names.request.service = ["another"]\n')
    bench = local_bench(tmp_path)
    run = left_over(bench)

    done = cardlink(tmp_path, service, "link", run, "1")

    assert done.exit_code == 3
    assert done.stdout.startswith("c-1: no link (")
    assert [one.state for one in bench.stored(run).single_link_attempts] == ["refused"]
    assert PAN not in done.stdout


@pytest.mark.slow
def test_many_rows_are_rehearsed_requested_over_http_and_in_the_balance(
    tmp_path: Path, bench: Bench, service: RunningService
) -> None:
    run = left_over(bench)
    rows = tmp_path / "rows.csv"
    rows.write_text(f"{run},1\n")

    rehearsed = cardlink(tmp_path, service, "link", run, "--errors", "--dry-run")
    done = cardlink(tmp_path, service, "link", "bank", "--rows", str(rows))
    repeated = cardlink(tmp_path, service, "--json", "link", "bank", "--rows", str(rows))

    (kept,) = bench.stored(run).single_link_attempts
    assert (0, 0, 0) == (rehearsed.exit_code, done.exit_code, repeated.exit_code)
    assert f"nothing was requested: {run}: 1 row = 1 to be requested" in rehearsed.stdout
    assert "bank: 1 row = 1 linked\n" in done.stdout
    assert "deliver bank" in done.stderr
    assert kept.answered is not None
    assert str(kept.answered.url) not in done.stdout
    assert {"rows": 1, "linked": 1, "linked before": 1} == json.loads(repeated.stdout)["balance"]


def test_a_service_that_lets_nobody_in_ends_the_command_with_every_row_left(
    tmp_path: Path, bench: Bench, service: RunningService
) -> None:
    run = left_over(bench)
    unknown = {**who(service), "CARDLINK_SERVICE_PASSWORD": "another"}

    done = CliRunner(env=unknown).invoke(main, ["--config", str(tmp_path), "link", run, "--errors"])

    assert 2 == done.exit_code
    assert "1 row = 1 not requested" in done.stdout
    assert "rejected our credentials" in done.stdout
    assert ["unsent"] == [single.state for single in bench.stored(run).single_link_attempts]


@pytest.mark.parametrize(("last_day", "exit_code"), [("2029-11-30", 0), ("2029-12-01", 2)])
def test_a_card_has_to_outlive_the_link_that_is_requested_not_the_usual_one(
    tmp_path: Path, bench: Bench, service: RunningService, last_day: str, exit_code: int
) -> None:
    run = left_over(bench)  # of a card that ends in November 2029
    toml = tmp_path / "bank.toml"
    toml.write_text(toml.read_text() + '\n[rules]\nexpires_soon = "reject"\n')

    done = cardlink(tmp_path, service, "link", run, "1", "--expires", last_day)

    assert (exit_code, exit_code == 2) == (
        done.exit_code,
        "card.expiration.soon" in done.stdout + done.stderr,
    )


@pytest.mark.slow
def test_many_links_say_until_when_they_are_requested(
    tmp_path: Path, bench: Bench, service: RunningService
) -> None:
    run = left_over(bench)

    tried = cardlink(
        tmp_path, service, "link", run, "--errors", "--expires", "2031-01-31", "--dry-run"
    )
    done = cardlink(tmp_path, service, "link", run, "--errors", "--expires", "2031-01-31")

    assert "each is requested until 2031-01-31" in tried.stdout
    assert "each is requested until 2031-01-31" in done.stdout
    assert (0, 0) == (tried.exit_code, done.exit_code)
    assert date(2031, 1, 31) == service.books.links.links[_link_id(bench, run)].expires


def _link_id(bench: Bench, run: str) -> str:
    """Return the id of the single link of a run."""
    (single,) = bench.stored(run).single_link_attempts
    assert single.answered is not None
    assert single.answered.link_id is not None
    return single.answered.link_id
