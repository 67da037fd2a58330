"""A command for several issuers: each is reported, and the worst exit code counts."""

from __future__ import annotations

import csv
import shlex
from pathlib import Path
from typing import Any

import pytest

from flows.commands.context import Context
from flows.commands.worklist import worklist
from schemas.portal import CITY, PAN
from tests import keys
from tests.again import PANS
from tests.builders import portal_rows
from tests.cli.test_mend import cardlink, decided, told
from tests.cli.test_reconcile import bank
from tests.night import Bench, made_once, portal_csv

BOTH = "bank,zebra"


@pytest.fixture
def banks(tmp_path: Path) -> Path:
    """Two issuers with a run each, all of whose rows the partner refused."""
    refused(tmp_path)
    return tmp_path


@made_once
def refused(folder: Path, /) -> tuple[Bench, ...]:
    """Return the two issuers' benches."""
    benches = tuple(bank(folder, name) for name in ("bank", "zebra"))
    for bench in benches:
        bench.answer(fail_share=1.0, seed=3)
        bench.ingest()
    return benches


def together(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the lines of the worklist that are about both issuers, by kind."""
    listed = worklist(Context(folder)).facts["together"]
    return {line["kind"]: line for line in listed if line["issuer"] == BOTH}


@pytest.mark.slow
def test_lines_of_a_kind_are_one_over_issuers_and_their_commands_lead_to_an_empty_list(
    banks: Path,
) -> None:
    cardlink(banks, "ingest", BOTH)  # of a copied store, it reads the files once more
    lines = together(banks)
    last = [line["decisions"][-1] for line in lines.values()]

    for choice in last:
        words = shlex.split(choice["command"].replace("WHY", "closed"))[1:]
        assert 0 == cardlink(banks, *words).exit_code

    assert lines
    assert {"give up"} == {choice["decision"] for choice in last}
    assert all(line["rows"] > 1 for line in lines.values())
    assert {} == together(banks)
    assert "nothing to do" in cardlink(banks, "worklist").stdout


@pytest.mark.slow
def test_the_first_steps_of_such_lines_can_be_pasted(banks: Path) -> None:
    lines = together(banks)
    file = str(banks / "ask.csv")
    steps = {
        kind: line["first"].replace("FILE", file).replace("WHY", "later")
        for kind, line in lines.items()
    }

    done = {kind: cardlink(banks, *shlex.split(step)[1:]) for kind, step in steps.items()}

    assert {} == {kind: each.output for kind, each in done.items() if each.exit_code}


def test_each_issuer_is_reported_and_the_worst_exit_code_counts(banks: Path) -> None:
    done = cardlink(banks, "deliver", f"{BOTH},nobody")
    facts = told(banks, "deliver", BOTH)

    assert 2 == done.exit_code
    assert "bank: nothing new" in done.stdout
    assert "zebra: nothing new" in done.stdout
    assert "nobody: " in done.stdout
    assert ["bank", "zebra"] == [each["issuer"] for each in facts["issuers"]]


def test_the_next_step_takes_the_same_issuers(banks: Path) -> None:
    done = cardlink(banks, "ingest", BOTH)

    assert f"next: cardlink --config {banks} worklist {BOTH}\n" == done.stderr


def test_what_needs_a_second_person_is_requested_for_each_issuer(banks: Path) -> None:
    for name in ("bank", "zebra"):
        with (banks / f"{name}.toml").open("a") as toml:
            toml.write('[four_eyes]\nacts = ["give-up"]\n')

    done = decided(banks, "mend", "give-up", BOTH, "--code", "card", "--reason", "closed")

    assert 3 == done.exit_code
    assert 2 == done.stdout.count("a second person must carry it out")


@pytest.mark.slow
def test_one_template_corrects_the_rows_of_both_issuers(tmp_path: Path) -> None:
    (tmp_path / "portal.asc").write_bytes(keys.sound().public)
    for name in ("bank", "zebra"):
        bench = bank(tmp_path, name)
        content = portal_csv(portal_rows({PAN: PANS[0], CITY: None}, {PAN: PANS[1]}))
        bench.submit(bench.drop_bytes(content, f"{name}-20261122.csv"))
    file = tmp_path / "wrong.csv"
    cardlink(tmp_path, "corrections", BOTH, "--to", str(file))
    lines = list(csv.DictReader(file.read_text("utf-8-sig").splitlines()))
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(lines[0]))
        writer.writeheader()
        writer.writerows(line | {"column": CITY, "correction": "Salem"} for line in lines)

    done = told(tmp_path, "resubmit", BOTH, "--corrections", str(file), "--reason", "they called")

    sent = {facts["issuer"]: facts["runs"][0]["counts"]["submitted"] for facts in done["issuers"]}
    assert {"bank": 1, "zebra": 1} == sent


def test_what_is_fetched_of_both_issuers_into_one_folder_is_recorded_as_uploaded_at_once(
    tmp_path: Path,
) -> None:
    for name in ("bank", "zebra"):
        bank(tmp_path, name)
    folder = str(tmp_path / "out")

    shown = told(tmp_path, "upload", BOTH, "--to", folder)
    done = cardlink(tmp_path, *shlex.split(shown["next"])[3:])

    states = [
        chunk["state"]
        for name in ("bank", "zebra")
        for chunk in told(tmp_path, "upload", name)["chunks"]
    ]
    assert 0 == done.exit_code
    assert ["uploaded", "uploaded"] == states
