"""The form of the partner's links, as an operator learns, confirms and changes it by what is shown."""

from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from flows.extensions.simulator.link_styles import STYLES
from flows.runs.decisions import FORM, decisions
from flows.runs.journal import entries
from schemas.records import FormDecision
from tests.builders import quick
from tests.cli.test_mend import bank as bank  # the fixture
from tests.cli.test_mend import cardlink, told
from tests.night import Bench

WHY = ("--reason", "their support confirmed it")
HEX = "https://links.example.com/l/{hex:24}"
UUID = "https://links.example.com/l/{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}"


def night(bank: Bench, links: str, day: int = 20, rows: int = 120) -> str:
    """Submit a night and let the portal answer with links of a style; return the run."""
    run = bank.submit(bank.drop(rows, f"bank-202611{day}.csv", seed=day)).manifest.run
    bank.answer(links=links)
    return run


def shown(folder: Path) -> list[str]:
    """Return what `check` shows of the form of links."""
    lines = cardlink(folder, "check", "bank").stdout.splitlines()
    return [line.split(None, 2)[2] for line in lines if line.startswith("links")]


def pasted(folder: Path, line: str) -> Any:
    """Run a command as it is shown, with a reason."""
    return told(folder, *shlex.split(line.replace("WHY", "they said so").strip("`"))[1:])


def work(folder: Path) -> dict[str, dict[str, Any]]:
    return {line["kind"]: line for line in told(folder, "worklist", "bank")["worklist"]}


def decided(bank: Bench) -> list[FormDecision]:
    return decisions(bank.adapters, "bank", FORM, FormDecision)


def report(bank: Bench, run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bank.report(run, "summary.json"))
    return found


def test_a_form_is_learned_shown_and_confirmed_once(bank: Bench, tmp_path: Path) -> None:
    before = shown(tmp_path)
    night(bank, "hex24")
    bank.ingest()
    learned = shown(tmp_path)
    line = work(tmp_path)["link forms to confirm"]

    [choice] = line["decisions"]
    done = pasted(tmp_path, choice["command"])

    assert [] == before
    assert [True] == [text.startswith(f"120 links have the form {HEX}") for text in learned]
    assert choice["does"].partition(" link-form ")[2] in learned[0]
    assert ("partner", 120) == (line["who"], line["rows"])
    assert f"{choice['does']} --dry-run" == line["first"]
    assert ("confirmed", HEX, 120) == (done["what"], done["form"], done["links"])
    assert "link forms to confirm" not in work(tmp_path)
    assert ["120 of the last 120 links have it"] == [
        text.rpartition("; ")[2] for text in shown(tmp_path)
    ]
    [record] = decided(bank)
    assert ("they said so", "confirmed") == (record.reason, record.what)
    assert 1 == [entry.what for entry in entries(bank.adapters, "bank")].count(
        "link form confirmed"
    )


@pytest.mark.slow
@pytest.mark.parametrize("links", quick(2, [*STYLES]))
def test_links_of_every_style_count_before_and_after_their_form_is_confirmed(
    bank: Bench, tmp_path: Path, links: str
) -> None:
    first = night(bank, links)
    bank.ingest()
    [form] = [form["form"] for form in told(tmp_path, "check", "bank")["links"]]
    cardlink(tmp_path, "link-form", "bank", form, *WHY)
    second = night(bank, links, day=21)
    bank.ingest()

    assert [("balanced", 120)] * 2 == [
        (report(bank, run)["verdict"], report(bank, run)["rows"]["linked"])
        for run in (first, second)
    ]


@pytest.mark.slow
def test_the_partner_changes_its_links_and_their_rows_count_once_the_new_form_is_confirmed(
    bank: Bench, tmp_path: Path
) -> None:
    cardlink(tmp_path, "link-form", "bank", HEX, *WHY)
    run = night(bank, "uuid")
    bank.ingest()
    broken = report(bank, run)
    again = bank.ingest()
    departing = shown(tmp_path)[-1]
    line = work(tmp_path)["link forms to confirm"]

    pasted(tmp_path, line["decisions"][0]["command"])
    cardlink(tmp_path, "ingest", "bank")

    assert [("LINK_FORM", 10)] * 12 == [
        (found["name"], found["rows"]) for found in broken["breaks"]
    ]
    assert "link-form" in broken["breaks"][0]["then"]
    assert (0, broken["rows"]["linked"]) == (again.files, 0)
    assert departing.startswith("50 links have no confirmed form, but ")
    assert ("balanced", 120) == (
        report(bank, run)["verdict"],
        report(bank, run)["rows"]["linked"],
    )
    assert {HEX, UUID} == {form["form"] for form in told(tmp_path, "check", "bank")["links"]}


@pytest.mark.slow
def test_a_form_that_is_taken_back_counts_no_more(bank: Bench, tmp_path: Path) -> None:
    cardlink(tmp_path, "link-form", "bank", HEX, *WHY)
    cardlink(tmp_path, "link-form", "bank", UUID, *WHY)
    undone = cardlink(tmp_path, "link-form", "bank", HEX, "--undo", *WHY)
    run = night(bank, "hex24", rows=10)

    bank.ingest()

    assert 0 == undone.exit_code
    assert ["LINK_FORM"] == [found["name"] for found in report(bank, run)["breaks"]]


def test_a_dry_run_and_a_form_that_stands_already_record_nothing(
    bank: Bench, tmp_path: Path
) -> None:
    tried = cardlink(tmp_path, "link-form", "bank", HEX, *WHY, "--dry-run")
    cardlink(tmp_path, "link-form", "bank", HEX, *WHY)
    cardlink(tmp_path, "link-form", "bank", HEX, "--reason", "once more")

    assert tried.stdout.startswith(f"dry run, nothing was changed: {HEX}: confirmed")
    assert 1 == len(decided(bank))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("https://links.example.com/l/0f8fad5bd9cb469f", "nothing in it differs"),
        ("https://evil.example/l/{hex:24}", "allowed_hosts"),
        ("https://links.example.com/l/{hexes:24}", "cannot be read"),
        ("https://links.example.com/4111111111111111/{hex:24}", "cannot be read"),
    ],
)
def test_what_is_no_form_is_refused_and_not_repeated(
    bank: Bench, tmp_path: Path, text: str, why: str
) -> None:
    done = cardlink(tmp_path, "link-form", "bank", text, *WHY)

    assert (2, True) == (done.exit_code, why in done.stderr)
    assert text not in done.stderr
    assert [] == decided(bank)


def test_what_is_not_confirmed_cannot_be_taken_back(bank: Bench, tmp_path: Path) -> None:
    done = cardlink(tmp_path, "link-form", "bank", HEX, "--undo", *WHY)

    assert (2, True) == (done.exit_code, "no confirmed form that is the same" in done.stderr)


@pytest.mark.slow
def test_a_file_cut_within_its_last_url_counts_that_row_once_the_whole_file_comes(
    bank: Bench, tmp_path: Path
) -> None:
    run = bank.submit(bank.drop(10)).manifest.run
    bank.answer(links="hex24")
    [key] = [key for key in bank.snapshot() if "/results/" in key]
    rows = list(csv.DictReader(io.StringIO(bank.content(key).decode())))
    out = io.StringIO()
    writer = csv.DictWriter(out, ["cuid", "last_4", "expiration_date", "error", "url"])
    writer.writeheader()
    writer.writerows(rows)
    whole = out.getvalue().encode()
    name = key.rpartition("/")[2]

    bank.drop_result(whole[:-7], name)
    bank.ingest()
    cut = report(bank, run)
    bank.drop_result(whole, name)
    bank.ingest()

    assert [("LINK_CUT", 1)] == [(found["name"], found["rows"]) for found in cut["breaks"]]
    assert 9 == cut["rows"]["linked"]
    assert ("balanced", 10) == (report(bank, run)["verdict"], report(bank, run)["rows"]["linked"])


def test_a_link_is_shown_as_it_is_whatever_digits_its_key_has(bank: Bench, tmp_path: Path) -> None:
    run = bank.submit(bank.drop(10)).manifest.run
    rows = bank.ledger(run).filter(fate="submitted").to_dicts()
    url = "https://links.example.com/l/4539578763621486"  # passes the check of a card's digits
    lines = [
        f"{row['cuid']},{row['last_4']},{url[:-1]}{number},2099-01-01,\n"
        for number, row in enumerate(rows)
    ]
    bank.drop_result(f"cuid,last_4,url,expiration_date,error\n{''.join(lines)}".encode())
    bank.ingest()

    traced = cardlink(tmp_path, "trace", rows[6]["cuid"], "--url")

    assert f"link: {url}" in traced.stdout
