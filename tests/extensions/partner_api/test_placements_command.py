"""`cardlink placements` as an operator runs it: a service that listens, a folder of TOMLs, an exit
code.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flows.cli.main import main
from flows.commands.context import Context
from flows.extensions.partner_api.commands import OtherIssuerError, placements
from flows.extensions.partner_api.follow_links import NoLinksError
from flows.extensions.partner_api.placements import transactions
from flows.extensions.partner_api.service import ServiceSecretsError
from flows.extensions.simulator.service.refusals import Disturbance
from flows.runs.errors import UnknownRunError
from tests import keys
from tests.builders import quick
from tests.night import BANK, Bench, local_bench, made_once
from tests.placed import placed
from tests.service import RunningService

TOML = """
issuer = "bank"
root = "store"
test = true
[limits]
max_reject_rate = 0.5
max_error_rate = 0.5
[portal]
fingerprints = ["{fingerprint}"]
allowed_hosts = ["links.example.com"]
"""


def configure(folder: Path, more: str = "") -> None:
    (folder / "bank.toml").write_text(TOML.format(fingerprint=keys.sound().fingerprint) + more)


def serve(folder: Path, service: RunningService, more: str = "") -> None:
    """Configure an issuer that follows its cardholders at a service."""
    settings = f'[service]\nbase_url = "{service.address}"\nfollow_cardholders = true\n'
    configure(folder, f"{settings}requests_per_second = 1000\n{more}")


def reported(folder: Path, rows: int = 12) -> tuple[Bench, str]:
    """Return a bench without a service whose run has links."""
    configure(folder)
    return _answered(folder, rows)


@made_once
def _answered(folder: Path, rows: int) -> tuple[Bench, str]:
    bench = local_bench(folder)
    run = bench.submit(bench.drop(rows)).manifest.run
    bench.answer()
    bench.ingest()
    return bench, run


def cardlink(folder: Path, service: RunningService, *arguments: str) -> Result:
    """Run the command in an environment that says who we are at the service."""
    who = {
        f"CARDLINK_SERVICE_{name.upper()}": value
        for name, value in service.client._asdict().items()
    }
    return CliRunner(env=who).invoke(main, ["--config", str(folder), *arguments])


@pytest.mark.slow
def test_the_command_follows_links_at_the_service_and_shows_the_funnel(tmp_path: Path) -> None:
    with placed(tmp_path, 8) as night:
        serve(tmp_path, night.service)
        link_id = next(iter(night.service.books.links.links))
        night.service.act(
            lambda books: setattr(
                books.links.open(link_id, books.now), "authenticated_on", books.now
            )
        )
        night.service.act(
            lambda books: books.place(
                link_id, ["shop.example.com"], {"shop.example.com": {"a": "b"}}
            )
        )
        night.service.advance(600)

        done = cardlink(tmp_path, night.service, "--json", "placements", "bank", night.run)
        shown = cardlink(tmp_path, night.service, "placements", "bank")

    facts = json.loads(done.stdout)
    assert (0, 0) == (done.exit_code, shown.exit_code)
    assert [8, 8, 8, 1, 1, 1] == [one["cardholders"] for one in facts["funnel"]["stages"]]
    assert "bank: 1 run, 0 links queried" in shown.stdout
    assert "shop.example.com" in shown.stdout


@pytest.mark.usefixtures("one_at_a_time", "one_try")
@pytest.mark.parametrize(
    ("path", "disturbance", "code", "why", "then"),
    quick(
        1,
        [
            ("/card_links/", Disturbance(403), 2, "refused 403", "CARDLINK_SERVICE_*"),
            ("/card_links/", Disturbance(503), 75, "no response 503", "has recovered"),
            ("/card_links/", Disturbance(200, "<html>"), 2, "unreadable", "Compare [service]"),
            ("/card_links/", Disturbance(404), 2, "no such record", "link_id"),
            ("/session", Disturbance(401), 2, "refused 401", "CARDLINK_SERVICE_*"),
        ],
    ),
)
def test_a_service_that_answers_nothing_is_no_zero_and_is_asked_again_once_it_is_corrected(
    tmp_path: Path, path: str, disturbance: Disturbance, code: int, why: str, then: str
) -> None:
    with placed(tmp_path, 8) as night:
        serve(tmp_path, night.service)
        disturbances = night.service.books.disturbances
        night.service.act(lambda _: disturbances.update({path: disturbance}))
        refused = cardlink(tmp_path, night.service, "placements", "bank")
        night.service.act(lambda _: disturbances.clear())
        corrected = cardlink(tmp_path, night.service, "placements", "bank")

    told = refused.stdout
    assert (code, 0) == (refused.exit_code, corrected.exit_code)
    assert "0%" not in told.replace("100%", "")
    assert re.search(rf"^placed +not known: .*{why}", told, re.MULTILINE)
    assert re.search(rf"^link records: asked [18], answered 0: {why}$", told, re.MULTILINE)
    assert then in told[told.index("The service did not answer") :]
    assert re.search(r"^placed +0 +0 of 8 known \(0%\)", corrected.stdout, re.MULTILINE)


@pytest.mark.slow
def test_one_id_for_all_links_is_refused_with_a_sentence_and_read_for_none(tmp_path: Path) -> None:
    with placed(tmp_path, 4) as night:
        serve(tmp_path, night.service, "link_id = '//(?P<id>[a-z]+)'\n")

        done = cardlink(tmp_path, night.service, "placements", "bank")

    assert 2 == done.exit_code
    assert "link records: asked 0, answered 0: one id for several links" in done.stdout
    assert "the same id is found in the URLs of different links" in done.stdout


@pytest.mark.slow
def test_messages_that_are_all_refused_end_with_a_code_although_the_links_are_known(
    tmp_path: Path,
) -> None:
    with placed(tmp_path, 3) as night:
        serve(tmp_path, night.service)
        disturbance = {"/messages/": Disturbance(403)}
        night.service.act(lambda books: books.disturbances.update(disturbance))

        done = cardlink(tmp_path, night.service, "--json", "placements", "bank")

    facts = json.loads(done.stdout)
    sources = {one["source"]: (one["asked"], one["answered"]) for one in facts["coverage"]}
    assert {"link records": (3, 3), "messages": (3, 0)} == sources
    assert (2, "LinksRefusedError") == (done.exit_code, facts["problem"]["kind"])
    assert [3, 0, None, None] == [one["cardholders"] for one in facts["funnel"]["stages"]][2:]


@pytest.mark.slow
def test_an_issuer_whose_links_nobody_is_asked_about_is_told_what_to_add(tmp_path: Path) -> None:
    reported(tmp_path)

    answer = placements(Context(tmp_path), "bank")

    text = "\n".join(answer.lines)
    assert (2, None) == (answer.exit_code, answer.failure)
    assert "opened                          not known: never asked" in text
    assert "transaction reports below store/bank/transactions/" in text


def test_a_transaction_report_that_does_not_fit_exits_with_4_and_its_next_step(
    tmp_path: Path,
) -> None:
    bench, _ = reported(tmp_path)
    bench.store.replace(
        transactions(BANK) + "t.csv", [b"cuid,status,completed_on\nstranger,SUCCESSFUL,\n"]
    )

    answer = placements(Context(tmp_path), "bank")

    assert 4 == answer.exit_code
    assert "UNKNOWN_TRANSACTION (1 row) t.csv, rows 1" in answer.lines
    assert "the TOML has no [service]: only transaction reports count" in answer.lines


@pytest.mark.slow
def test_a_service_without_leave_to_read_messages_is_told_as_such(tmp_path: Path) -> None:
    with placed(tmp_path, 3, follow_cardholders=False) as night:
        configure(tmp_path, f'[service]\nbase_url = "{night.service.address}"\n')

        done = cardlink(tmp_path, night.service, "placements", "bank")

    assert "[service] follow_cardholders is off: jobs are not queried" in done.stdout
    assert 2 == done.exit_code
    assert "Of none of the 3 links of bank it is known whether a card was placed." in done.stdout


def test_runs_that_cannot_be_looked_at_say_why(tmp_path: Path) -> None:
    bench, run = reported(tmp_path)
    unanswered = bench.submit(bench.drop(5, name="bank-20261121.csv", seed=3)).manifest.run

    refusals = {
        unanswered: NoLinksError,
        run.replace("bank", "other"): OtherIssuerError,
        f"{run}-r7": UnknownRunError,
    }
    for asked, error in refusals.items():
        with pytest.raises(error):
            placements(Context(tmp_path), "bank", asked)


def test_without_credentials_in_the_environment_nothing_is_asked(tmp_path: Path) -> None:
    reported(tmp_path)
    configure(tmp_path, '[service]\nbase_url = "http://127.0.0.1:9"\n')

    with pytest.raises(ServiceSecretsError):
        placements(Context(tmp_path), "bank")
