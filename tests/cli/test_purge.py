"""`cardlink purge` and `cardlink trace` as an operator meets them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from flows.adapters.local import LocalStore
from flows.cli.main import main
from flows.commands.context import Context
from flows.commands.purge import purge
from flows.commands.trace import trace
from flows.database.connection import Database
from flows.reports.cardholder_trace import CardGivenError
from schemas.expressions import PUBLISHED
from schemas.portal import CUID, PAN
from tests import keys
from tests.builders import portal_rows, quick
from tests.night import Bench, made_once, portal_csv

TOML = """
issuer = "{name}"
root = "store"
test = true
[limits]
max_reject_rate = 0.5
max_error_rate = 0.5
[retention]
chunks_days = {chunks_days}
[portal]
fingerprints = ["{fingerprint}"]
allowed_hosts = ["links.example.com"]
"""


def banks(folder: Path, /, name: str = "bank", *, chunks_days: int = 0) -> tuple[Bench, str]:
    """Return a bench whose issuer is configured in `folder`, and its one run, sent and answered
    days ago.
    """
    toml = TOML.format(name=name, fingerprint=keys.sound().fingerprint, chunks_days=chunks_days)
    (folder / f"{name}.toml").write_text(toml)
    (folder / "store").mkdir(exist_ok=True)
    then = datetime.now(UTC) - timedelta(days=3)
    database = Database(folder / "cardlink.db")
    bench = Bench(LocalStore(folder / "store"), now=lambda: then, database=database)
    bench = replace(bench, issuer=bench.issuer.model_copy(update={"issuer": name}))
    run = bench.submit(bench.drop(20, "bank-20261101.csv")).manifest.run
    bench.answer()
    bench.ingest()
    return bench, run


bank = made_once(banks)  # alone in its folder


def test_a_dry_run_shows_what_goes_and_what_stays_and_says_how_to_do_it(tmp_path: Path) -> None:
    bench, run = bank(tmp_path)
    before = bench.snapshot()

    answer = purge(Context(tmp_path), "bank", dry_run=True)

    assert (0, "cardlink purge bank", before) == (
        answer.exit_code,
        str(answer.next_step),
        bench.snapshot(),
    )
    assert answer.lines[0].startswith("bank: 1 object")
    assert any(
        line.startswith(f"{run}  chunks") and line.endswith("chunks_days = 0")
        for line in answer.lines
    )
    assert any(line.startswith("kept for their age: ledger of 1 run") for line in answer.lines)
    assert [f"bank/runs/{run}/chunks/{run}-00001.csv.pgp"] == answer.facts["issuers"][0]["lots"][0][
        "keys"
    ]


@pytest.mark.slow
def test_without_an_issuer_all_are_purged_and_then_nothing_is_left_to_do(tmp_path: Path) -> None:
    first, _ = banks(tmp_path)
    banks(tmp_path, "other")
    banks(tmp_path, "young", chunks_days=30)

    done, again = (purge(Context(tmp_path)) for _ in range(2))

    assert [["chunks"], ["chunks"], []] == [
        [lot["part"] for lot in one["lots"]] for one in done.facts["issuers"]
    ]
    assert [[], [], []] == [one["lots"] for one in again.facts["issuers"]]
    assert [key.split("/")[0] for key in first.snapshot() if key.endswith(".pgp")] == ["young"]


def test_what_is_not_ours_is_shown(tmp_path: Path) -> None:
    bench, run = bank(tmp_path)
    bench.store.create(f"bank/runs/{run}/copy of {PUBLISHED[0]}.csv", b"x")

    answer = purge(Context(tmp_path), "bank", dry_run=True)

    assert f"unknown, left alone: bank/runs/{run}/copy of [masked].csv" in answer.lines


def test_a_cardholder_is_traced_over_all_issuers_and_told_what_to_do_next(tmp_path: Path) -> None:
    bench, run = banks(tmp_path)
    banks(tmp_path, "other")
    cuid = bench.ledger(run)["cuid"][0]

    everywhere, here = (trace(Context(tmp_path), cuid, issuer=issuer) for issuer in ("", "bank"))
    shown = trace(Context(tmp_path), cuid, issuer="bank", url=True)

    assert ["bank", "other"] == sorted(one["issuer"] for one in everywhere.facts["attempts"])
    assert [run] == [one["run"] for one in here.facts["attempts"]]
    assert here.lines[-2].startswith("now: card ..")
    assert here.lines[-1].endswith(f"by {run} row 1, through a file; attempts: 1, sent: 1")
    assert [False, True] == [any("https://" in line for line in one.lines) for one in (here, shown)]


@pytest.mark.slow
def test_nights_in_a_row_that_sent_nothing_are_one_line(tmp_path: Path) -> None:
    bench, run = bank(tmp_path)
    daily = bench.issuer.model_copy(update={"full_portfolio": True})
    toml = tmp_path / "bank.toml"
    toml.write_text(toml.read_text().replace("test = true", "test = true\nfull_portfolio = true"))
    content = bench.content("bank/extracts/bank-20261101.csv")
    for day in (2, 3, 4):
        again = replace(bench, issuer=daily)
        again.submit(again.drop_bytes(content + b"\n" * day, f"bank-202611{day:02}.csv"))
    cuid = bench.ledger(run)["cuid"][0]

    answer = trace(Context(tmp_path), cuid, issuer="bank")

    assert ["linked", *["suppressed"] * 3] == [one["state"] for one in answer.facts["attempts"]]
    assert 1 == sum("3 runs to" in line and "card.link.standing" in line for line in answer.lines)
    assert "has a link until" in answer.lines[-2]


def test_a_cuid_that_nobody_has_is_not_found_and_a_card_number_is_refused(tmp_path: Path) -> None:
    bank(tmp_path)

    answer = trace(Context(tmp_path), "nobody")

    assert (2, ["no run with a ledger has this cuid"]) == (answer.exit_code, answer.lines)
    with pytest.raises(CardGivenError):
        trace(Context(tmp_path), PUBLISHED[0])


@pytest.mark.parametrize(
    "cuid",
    quick(2, ["1" + PUBLISHED[0][:-1], "7" * 19, "20261120-77098123-00001", "4242 4242 4242 4241"]),
)
def test_any_cuid_that_a_ledger_can_hold_is_found(tmp_path: Path, cuid: str) -> None:
    bench, _ = bank(tmp_path)
    of_another_card = {CUID: cuid, PAN: "5555555555554444"}
    bench.submit(bench.drop_bytes(portal_csv(portal_rows(of_another_card))))

    answer = trace(Context(tmp_path), cuid)

    assert ["awaiting"] == [one["state"] for one in answer.facts["attempts"]]


@pytest.mark.parametrize(
    "cuid",
    quick(
        2,
        [
            "4111111111111111-01",
            "4111-1111-1111-1111/1",
            "0004111111111111111",
            "CIF4111111111111111",
        ],
    ),
)
def test_a_card_number_within_a_cuid_is_in_no_ledger_report_or_message(
    tmp_path: Path, cuid: str
) -> None:
    bench, _ = bank(tmp_path)
    bench.submit(
        bench.drop_bytes(portal_csv(portal_rows({}, {CUID: cuid, PAN: PUBLISHED[1]})), "bank-1.csv")
    )

    shown = CliRunner().invoke(main, ["--config", str(tmp_path), "trace", cuid])

    kept = b"".join(content for key, content in bench.snapshot().items() if "/extracts/" not in key)
    assert "cuid" in shown.output
    assert [] == [
        digits
        for digits in ("4111111111111111", "4111-1111")
        if digits.encode() in kept + shown.output.encode()
    ]


def test_the_name_of_a_result_cannot_steer_the_terminal(tmp_path: Path) -> None:
    bench, _ = bank(tmp_path)
    bench.drop_result(b"no result", "a\u202egpj\u009b2J 4111%2D1111%2D1111%2D1111.csv")

    done = CliRunner().invoke(main, ["--config", str(tmp_path), "ingest", "bank"])

    assert "a[1 character]gpj[1 character][1 digit]" in done.output
    assert not {"\u202e", "\u009b"} & set(done.output)
