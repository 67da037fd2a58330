"""The lists of a run's report: each sent row is in the one that says what it has or lacks."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from flows.reports import lists
from flows.reports.rebuild import rebuild
from flows.results.breaks import BROKEN_ROW, NO_BROKEN
from flows.runs.chunks import OutboxChunk, State
from schemas.breaks import CONFLICTING_RESULT, RESULT_SHORT
from schemas.manifest import ManifestChunk
from schemas.portal import PAN
from schemas.tables import Awaiting, Refusals
from tests.again import PANS, of_rows
from tests.builders import portal_rows
from tests.night import NOON, Bench, local_bench, portal_csv

HEAD = "cuid,last_4,url,expiration_date,error\n"


def link(row: dict[str, Any]) -> str:
    return f"{row['cuid']},{row['last_4']},https://links.example.com/l/{row['row']},2027-01-20,\n"


def refusal(row: dict[str, Any]) -> str:
    text = json.dumps({"cuid": row["cuid"], "errors": ["city is required"]}).replace('"', '""')
    return f',,,,"{text}"\n'


def chunk(number: int, state: State, since: datetime) -> OutboxChunk:
    """Return a chunk of a run of bank's that is in a state since then."""
    named = ManifestChunk(number=number, name=f"c{number}", rows=1, bytes=1, sha256="")
    return OutboxChunk("bank-20261120-01234567", named, state, since, since)


def listed(bench: Bench, run: str, name: str) -> pl.DataFrame:
    return pl.read_csv(bench.report(run, f"{name}.csv"))


def test_each_row_is_in_the_list_of_what_it_has_or_lacks(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, portal={"rows_per_chunk": 4})
    run = bench.submit(bench.drop(8)).manifest.run
    sent = bench.ledger(run).sort("chunk", "position").rows(named=True)
    lines = [link(sent[0]), refusal(sent[1]), link(sent[2])]
    bench.drop_result((HEAD + "".join(lines)).encode(), "a.csv")

    bench.ingest()

    errors, awaiting = listed(bench, run, "errors"), listed(bench, run, "awaiting")
    assert [sent[1]["row"]] == errors["row"].to_list()
    assert sorted(row["row"] for row in sent[3:]) == sorted(awaiting["row"])
    assert 2 == listed(bench, run, "links").height
    assert ([*Refusals.dtypes()], [*Awaiting.dtypes()]) == (errors.columns, awaiting.columns)


def test_rows_held_back_are_listed_but_for_a_portfolio_where_they_are_most(tmp_path: Path) -> None:
    bench, _ = of_rows(tmp_path, {}, {})
    rows = portal_rows(*({PAN: pan} for pan in PANS[:3]))
    run = bench.stored(bench.submit(bench.drop_bytes(portal_csv(rows), "b.csv")).manifest.run)
    key = run.keys.report("suppressed.csv")
    bench.store.delete(key)  # type: ignore[attr-defined]  # a directory, which deletes too
    portfolio = bench.issuer.model_copy(update={"full_portfolio": True})

    rebuild(replace(bench, issuer=portfolio).context, run)
    of_portfolio = key in bench.snapshot()
    rebuild(bench.context, run)

    assert not of_portfolio
    assert [1, 2] == sorted(listed(bench, run.id, "suppressed")["row"])


def broken(*rows: dict[str, object]) -> pl.DataFrame:
    return pl.DataFrame(rows, BROKEN_ROW)


def test_open_breaks_are_listed_by_kind_chunk_and_row() -> None:
    rows = [(RESULT_SHORT, 1, 2), (CONFLICTING_RESULT, 2, 9), (RESULT_SHORT, 1, 1)]
    rows = [*rows, (CONFLICTING_RESULT, 1, 8)]

    listed = lists.breaks(
        broken(*({"kind": kind, "chunk": chunk, "row": row} for kind, chunk, row in rows)), []
    )

    assert sorted(rows) == listed.select("break", "chunk", "row").rows()


def test_the_partner_is_asked_about_a_chunk_without_a_result_once_it_is_overdue_after_its_upload() -> (
    None
):
    now = datetime(2026, 11, 22, 12, tzinfo=UTC)
    chunks: list[tuple[State, int]] = [("uploaded", 48), ("uploaded", 49), ("waiting", 99)]
    items = [
        chunk(number, state, now - timedelta(hours=hours))
        for number, (state, hours) in enumerate(chunks, start=1)
    ]
    awaited = pl.DataFrame({"chunk": [1, 2, 3], "cuid": ["a", "b", "c"], "last_4": ["1", "2", "3"]})

    asked = lists.questions(NO_BROKEN, awaited, items, now, timedelta(hours=48))

    assert [("c2", "b", "2")] == asked.select("chunk", "cuid", "last_4").rows()


def test_a_row_that_waits_is_listed_with_what_its_chunk_waits_for_and_the_command_for_that() -> (
    None
):
    kinds = {"row": pl.UInt32, "cuid": pl.String, "last_4": pl.String, "chunk": pl.UInt32}
    rows = [(2, "b", "2", 1, None), (1, "a", "1", 2, None)]
    waiting = pl.DataFrame(rows, {**kinds, "trouble": pl.String}, orient="row")
    items = [chunk(1, "uploaded", NOON), chunk(2, "waiting", NOON)]

    (told,) = lists.awaiting([waiting], items)

    upload, ingest = told["action"]
    assert "cardlink upload bank-20261120-01234567 2" in upload
    assert "cardlink ingest bank" in ingest
