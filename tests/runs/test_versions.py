"""Documents of other versions: what an older or a newer cardlink wrote, read and left alone by this
one.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pydantic import Field

from flows.operations.retention import state_of
from flows.reports.rebuild import rebuild
from flows.runs import versions
from flows.runs.frames import from_parquet
from flows.runs.identity import canonical
from flows.runs.keys import keys_of
from flows.runs.store import ConflictError, StoreBusyError
from flows.runs.stored_run import StoredRun
from flows.runs.versions import NewerDocumentError, parsed
from schemas import tables
from schemas.manifest import FACTS, Counts, Document, version
from tests.night import Bench, local_bench
from tests.storms import FailingStore

COUNTS = {
    "lines": 3,
    "read": 2,
    "submitted": 2,
    "rejected": 0,
    "duplicate": 0,
    "suppressed": 0,
    "trailer": None,
}
NEWER = {"format": 9, "witness": "unknown to us"}


class Ticket(Document):
    """A document in its second version, which has a field more."""

    format: int = version(2)
    run: str
    counts: Counts
    colour: str = Field("", exclude_if=lambda colour: not colour)


def ticket(**facts: Any) -> bytes:
    return canonical({"run": "r", "counts": COUNTS, **facts})


def busy(bench: Bench, ending: str) -> Bench:
    """Return the bench with a store that fails where a key with that in it is created."""
    trouble = StoreBusyError(place="x", code="503")
    return replace(
        bench,
        store=FailingStore(
            bench.store, lambda does, key: trouble if does == "create" and ending in key else None
        ),
    )


def rewrite(folder: Path, pattern: str, **facts: object) -> bytes:
    """Make the one document of that name one of a newer version; return its bytes."""
    [path] = (folder / "store").glob(pattern)
    path.write_bytes(canonical({**json.loads(path.read_bytes()), **facts}))
    return path.read_bytes()


def sent(bench: Bench) -> Counter[str]:
    """Count how often each cardholder was sent."""
    return Counter(
        cuid
        for run in bench.runs.manifests()
        for cuid in bench.ledger(run.run).filter(fate="submitted")["cuid"]
    )


def test_a_document_of_an_earlier_version_has_that_version_and_keeps_its_bytes() -> None:
    first, second = (
        parsed(ticket(), "t", Ticket),
        parsed(ticket(format=2, colour="red"), "t", Ticket),
    )

    assert [1, 2, 2] == [
        first.format,
        second.format,
        Ticket(run="r", counts=Counts(**COUNTS)).format,
    ]
    assert [ticket(), ticket(format=2, colour="red")] == [canonical(first), canonical(second)]
    assert not first.newer


def test_a_newer_document_is_read_as_far_as_it_is_known_and_its_other_fields_are_kept_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    versions._name_newer.cache_clear()  # once in a process, which may run this test again
    with caplog.at_level(logging.WARNING, "cardlink"):
        found = parsed(
            ticket(format=3, shape="round", counts={**COUNTS, "late": 1}), "bank/t.json", Ticket
        )
        parsed(ticket(format=3, shape="round", counts={**COUNTS, "late": 1}), "bank/t.json", Ticket)

    assert (True, 3, {"shape": "round"}, {"late": 1}) == (
        found.newer,
        found.format,
        found.model_extra,
        found.counts.model_extra,
    )
    assert [
        "bank/t.json was written by a newer cardlink, "
        "with fields that this one does not know: counts.late, shape; upgrade this machine."
    ] == caplog.messages


@pytest.mark.parametrize(
    ("facts", "error"),
    [
        ({"shape": "round"}, ConflictError),
        ({"format": 2, "shape": "round"}, ConflictError),
        ({"format": "3", "shape": "round"}, ConflictError),
        ({"format": 3, "run": None}, NewerDocumentError),
    ],
)
def test_an_unknown_field_of_our_version_is_tampering_and_a_newer_one_that_lacks_ours_is_refused(
    facts: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error) as refused:
        parsed(ticket(**facts), "t", Ticket)

    assert "round" not in str(refused.value)


def test_a_parquet_file_names_its_version_and_a_newer_one_without_our_columns_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = tables.parquet(pl.DataFrame({"row": [1], "fate": ["submitted"]}))
    monkeypatch.setattr(tables, "FORMAT", tables.FORMAT + 1)
    second = tables.parquet(pl.DataFrame({"row": [1], "hue": ["red"]}))

    assert ["row"] == from_parquet(second, "p", ["row"], None).columns
    assert [None] == from_parquet(first, "p", ["reissue_check"], None)["reissue_check"].to_list()
    with pytest.raises(NewerDocumentError, match=f"format {tables.FORMAT}"):
        from_parquet(second, "p", ["row", "fate"], None)


def test_a_run_that_a_newer_version_has_begun_is_left_alone_and_other_extracts_are_submitted(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    extract = bench.drop(20)
    with pytest.raises(StoreBusyError):
        busy(bench, "/claims/").submit(extract)
    plan = rewrite(tmp_path, "bank/runs/*/plan.json", **NEWER)
    begun = str(json.loads(plan)["run"])

    with pytest.raises(NewerDocumentError, match=r"plan\.json was written by a newer cardlink"):
        bench.submit(extract)
    other = bench.submit(bench.drop(10, "bank-20261121.csv", seed=1))

    assert 10 == other.manifest.counts.submitted
    assert plan == bench.content(keys_of(begun).plan)


def test_a_commit_of_a_newer_version_is_finished_by_it_and_its_cards_rest_meanwhile(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    whole = bench.drop(25, "bank-20261121.csv")
    lines = bench.content(f"bank/extracts/{whole}").splitlines(keepends=True)
    with pytest.raises(StoreBusyError):
        busy(bench, "manifest.json").submit(bench.drop_bytes(b"".join(lines[:21])))
    link = rewrite(tmp_path, "bank/commits/000001.json", **NEWER)

    later = bench.submit(whole).manifest
    alone = [run.run for run in bench.runs.manifests()]
    [folder] = (tmp_path / "store/bank/runs").glob("*20261120*")
    (folder / "manifest.json").write_bytes(link)  # the newer one goes on

    assert [later.run] == alone
    assert (5, 20) == (later.counts.submitted, later.counts.suppressed)
    assert {1} == {*sent(bench).values()}
    assert 25 == sum(sent(bench).values())


def test_a_run_of_a_newer_version_is_reported_and_not_purged_and_its_own_report_is_not_written_over(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    run = bench.submit(bench.drop(20)).manifest.run
    bench.answer()
    rewrite(tmp_path, "bank/runs/*/manifest.json", **NEWER)
    bench.ingest()

    report, keys = rebuild(bench.context, bench.stored(run)), keys_of(run)
    state = state_of(bench.context, StoredRun(bench.store, keys), list(bench.store.keys(keys.base)))
    newer = {**NEWER, "format": FACTS + 1}
    summary = rewrite(tmp_path, "bank/runs/*/report/summary.json", **newer)
    with pytest.raises(NewerDocumentError, match=r"summary\.json"):
        rebuild(bench.context, bench.stored(run))

    assert 20 == report.summary["rows"]["read"]
    assert "written by a newer cardlink" in state.open
    assert summary == bench.report(run, "summary.json")
