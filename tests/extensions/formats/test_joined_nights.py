"""A night of two files: sent complete, or not yet, or refused; never half, and never twice."""

from __future__ import annotations

import csv
import io
import random
import tempfile
from pathlib import Path
from typing import IO, Any, NoReturn

import polars as pl
import pytest

from flows.extracts.delivery import ExtractWaitsError
from flows.runs.store import StoreBusyError
from flows.submissions.changed_extract import ChangedExtractError
from flows.submissions.extract_states import extract_states, unsubmitted
from flows.submissions.rehearsal import rehearse
from flows.submissions.submit import Request
from schemas.manifest import JoinedRows
from tests.again import again
from tests.extensions.formats import two_files
from tests.extensions.formats.two_files import cards, cards_file, places, places_file
from tests.night import Bench, local_bench

CARDS = "cards-20261120.csv"
PLACES = "places-20261120.csv"


def bank(folder: Path, **tables: Any) -> Bench:
    tables |= {"source": two_files.SOURCE, "columns": two_files.COLUMNS}
    return local_bench(folder, **tables, limits={"max_reject_rate": 0.2})


def dropped(bench: Bench, count: int = 20) -> None:
    bench.drop_bytes(cards_file(cards(count)), CARDS)
    bench.drop_bytes(places_file(places(count, random.Random(1))[1:]), PLACES)


def test_both_files_are_sent_together_and_who_has_no_address_is_rejected(tmp_path: Path) -> None:
    bench = bank(tmp_path)
    dropped(bench)

    manifest = bench.submit(CARDS).manifest

    rows = [
        row
        for chunk in bench.chunks(manifest.run)
        for row in csv.DictReader(io.StringIO(chunk.decode()))
    ]
    [lost] = {f"C{n:05d}" for n in range(20)} - {row["cardholder.cuid"] for row in rows}
    number = int(lost[1:])
    rejected = bench.ledger(manifest.run).filter(fate="rejected")
    assert JoinedRows(read=19, used=19, unused=0, refused=0) == manifest.joined
    assert [f"{int(row['cardholder.cuid'][1:]) + 1} Elm Street" for row in rows] == [
        row["service_card.address.address1"] for row in rows
    ]
    assert [(number + 1, number + 2, ["|join.row.missing"])] == (
        rejected.select("row", "line", "reasons").rows()
    )


def test_a_row_without_an_address_is_named_by_its_cuid_and_one_that_is_deleted_needs_none(
    tmp_path: Path,
) -> None:
    rows = cards(20)
    closed, numbered = rows[3], rows[4]
    rows[3] = (*closed[:-1], "closed")
    rows[4] = (numbered[1], *numbered[1:])  # a card number for a cuid
    lacking = {"C00002", "C00003", "C00004"}
    addresses = [place for place in places(20, random.Random(1)) if place[0] not in lacking]
    bench = bank(tmp_path, status={"NOTE": {"send": "x", "delete": "closed"}})
    bench.drop_bytes(cards_file(rows), CARDS)
    bench.drop_bytes(places_file(addresses), PLACES)

    run = bench.submit(CARDS).manifest.run

    records = bench.ledger(run).filter(pl.col("fate") != "submitted")
    assert [
        (3, "C00002", rows[2][1][-4:], "rejected", ["|join.row.missing"]),
        (4, "C00003", closed[1][-4:], "suppressed", ["|card.row.deleted"]),
        (5, None, numbered[1][-4:], "rejected", ["|join.row.missing"]),
    ] == records.select("row", "cuid", "last_4", "fate", "reasons").sort("row").rows()


def test_the_rows_of_the_second_file_are_an_equation_of_the_balance(tmp_path: Path) -> None:
    bench = bank(tmp_path)
    dropped(bench)

    run = bench.submit(CARDS).manifest.run
    bench.answer()
    bench.ingest()

    summary = bench.report(run, "summary.json").decode()
    assert "rows of the second file = used + unused + refused" in summary


def test_an_extract_waits_for_its_second_file_and_the_second_file_is_none_itself(
    tmp_path: Path,
) -> None:
    bench = bank(tmp_path)
    bench.drop_bytes(cards_file(cards(5)), CARDS)

    [extract] = unsubmitted(bench.context)
    with pytest.raises(ExtractWaitsError):
        bench.submit(CARDS)

    assert extract.key.endswith(CARDS)
    assert extract.waits == f"there is no bank/extracts/{PLACES}"
    bench.drop_bytes(places_file(places(5, random.Random(1))), PLACES)
    assert [("pending", ""), ("ignored", "")] == [
        (extract.state, extract.waits) for extract in extract_states(bench.context)
    ]


def test_the_same_two_files_are_sent_once_and_another_second_file_is_held(tmp_path: Path) -> None:
    bench = bank(tmp_path)
    dropped(bench)
    bench.submit(CARDS)

    assert bench.submit(CARDS).already
    assert [] == unsubmitted(bench.context)
    bench.drop_bytes(places_file(places(20, random.Random(2))), PLACES)
    assert ["committed", "held back", "ignored"] == sorted(
        extract.state for extract in extract_states(bench.context)
    )
    with pytest.raises(ChangedExtractError):
        bench.submit(CARDS)


def test_a_dry_run_joins_as_the_run_does(tmp_path: Path) -> None:
    bench = bank(tmp_path)
    dropped(bench)

    checked = rehearse(bench.context, Request(CARDS))

    assert (19, 1) == (checked.counts.submitted, checked.counts.rejected)


@pytest.mark.slow
def test_rows_that_the_partner_refused_go_out_again_with_their_addresses(tmp_path: Path) -> None:
    bench = bank(tmp_path)
    dropped(bench)
    run = bench.submit(CARDS).manifest.run
    bench.answer(fail_share=0.5, seed=3)
    bench.ingest()

    repeated = again(bench, run).manifest

    [chunk] = bench.chunks(repeated.run)
    rows = list(csv.DictReader(io.StringIO(chunk.decode())))
    assert len(rows) == repeated.counts.submitted > 0
    assert all(
        f"{int(row['cardholder.cuid'][1:]) + 1} Elm Street" == row["service_card.address.address1"]
        for row in rows
    )


def test_an_error_in_a_row_leaves_no_file_of_waiting_rows_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bank(tmp_path)
    dropped(bench)
    opened: list[IO[bytes]] = []

    def unnamed() -> IO[bytes]:
        opened.append(tempfile.TemporaryFile(buffering=0))  # noqa: SIM115  the reader closes it
        return opened[-1]

    def failed(*_: object) -> NoReturn:
        raise StoreBusyError(place="the store", code="test")

    monkeypatch.setattr("flows.extensions.formats.spill._unnamed_file", unnamed)
    monkeypatch.setattr("flows.submissions.rows.Route.normalise", failed)

    with pytest.raises(StoreBusyError):  # the error is held, and with it the frames it passed
        bench.submit(CARDS)

    assert opened
    assert all(file.closed for file in opened)
