"""Rules of time and of precedence in operations: the moment itself and its neighbours, the first and
the last, by the functions that hold them and a few values in memory.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from flows.extensions.alerts import news
from flows.operations import audit_contents
from flows.operations.audit import _Purges
from flows.operations.undecided_work import is_due
from flows.runs.journal import enter
from flows.runs.keys import keys_of
from flows.runs.purges import add_purge
from flows.runs.store import Entry
from flows.submissions.extract_states import ExtractState
from schemas.records import Purged
from tests.memory import MemoryStore
from tests.memory_bench import memory_bench
from tests.night import BANK, DAY, NOON, edges

SECOND = timedelta(seconds=1)
MOMENTS = (NOON - SECOND, NOON, NOON + SECOND)
NEIGHBOURS = tuple(DAY + timedelta(days=days) for days in (-1, 0, 1))


# What the issuer is told
# --------------------------------------------------------------------------------------------------


# Alerts
# --------------------------------------------------------------------------------------------------


def test_a_file_that_answers_a_row_otherwise_is_found_where_its_bytes_are_others() -> None:
    answers = [("linked", "https://links.example/1"), ("linked", "https://links.example/2")]
    files = [
        SimpleNamespace(
            name=name, settled=pl.DataFrame({"row": [1], "state": [state], "url": [url]})
        )
        for name in ("same.csv", "other.csv")
        for state, url in answers
    ]
    files.append(SimpleNamespace(name="again.csv", settled=files[0].settled))
    outcomes = SimpleNamespace(chunks=list, of=lambda _: files)
    run = SimpleNamespace(
        outcomes=outcomes, closed_breaks=(), keys=keys_of("bank-20261120-00000000")
    )
    digests = {"same.csv": "11", "other.csv": "12", "again.csv": "12"}
    entry = cast(Any, None)
    ingested = {
        name: [audit_contents.Ingest(sha256, entry) for sha256 in sha256s]
        for name, sha256s in digests.items()
    }

    found = [*audit_contents._answer_findings(cast(Any, run), ingested)]

    assert ["bank/results/other.csv"] == [finding.key for finding in found]


class _Runs:
    """Runs with a manifest each, and nothing before them."""

    def run(self, run: str) -> Any:
        return SimpleNamespace(manifest=SimpleNamespace(selection=None, profile=run, layout=run))

    def nights_before(self, run: str) -> list[object]:
        return []


def test_departures_are_told_from_the_last_extract_back_to_one_that_is_as_usual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = cast(Any, _Runs())
    changes = {"r1": ["a"], "r2": [], "r3": ["b"], "r4": ["c"]}
    recent = cast(Any, list(changes))
    monkeypatch.setattr(news, "drift_of", lambda manifest, *_: changes[manifest.profile])
    monkeypatch.setattr(news, "column_changes", lambda layout, _: changes[layout])
    context = memory_bench(limits={"drift": "alert"}).context

    drifted = [subject for _, subject, _ in news._of_drift(context, runs, recent)]
    columns = [subject for _, subject, _ in news._of_columns(runs, recent)]

    assert (["r4", "r3"], ["r4"]) == (drifted, columns)


@pytest.mark.parametrize(
    ("name", "due"), [("x.csv", [False, False, True]), ("bank-20261120.csv", [True] * 3)]
)
def test_due_is_what_came_since_a_moment_or_is_of_the_day(name: str, due: list[bool]) -> None:
    extracts = [ExtractState(name, "pending", entry=Entry(name, 1, drop, "v")) for drop in MOMENTS]

    assert due == [is_due(extract, DAY, NOON) for extract in extracts]
    assert [name != "x.csv"] * 2 == [is_due(extracts[0], day, NOON) for day in NEIGHBOURS[:2]]
    assert not is_due(extracts[0], NEIGHBOURS[2], NOON)
    assert [True, True, False] == [news.came_by(extract, NOON) for extract in extracts]


# The journal
# --------------------------------------------------------------------------------------------------


def test_retention_took_what_was_named_up_to_the_last_time_it_removed_its_kind() -> None:
    adapters = edges(MemoryStore())
    kept = {"run": "", "part": "ledger", "by": "anna", "setting": "", "bytes": 0}
    for since in (NOON, NOON - timedelta(days=9)):
        facts = {**kept, "at": NOON, "since": since, "objects": {"deliveries": 1}}
        enter(adapters, BANK, "", partial(add_purge, record=Purged.model_validate(facts)))
    purges = _Purges(adapters, BANK)
    finding = cast(Any, SimpleNamespace(key="bank/deliveries/000001/links.csv"))

    took = [purges.took(finding, moment) for moment in MOMENTS]

    assert [True, True, False] == took
