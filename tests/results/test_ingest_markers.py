"""Marks of result files that are taken up: one object for many files, beside those older versions
left.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.adapters.local import LocalStore
from flows.results.markers import MarkSpoiledError, marker_key, read_markers, write_markers
from flows.runs.keys import ingested, results
from flows.runs.store import Entry
from tests.builders import quick
from tests.night import BANK, Bench, local_bench, made_once


@made_once
def night(folder: Path) -> Bench:
    bench = local_bench(folder, portal={"rows_per_chunk": 10})
    bench.submit(bench.drop(30))
    bench.answer(fail_share=0.2, seed=5)
    return bench


def entries(bench: Bench) -> dict[str, Entry]:
    return {marker_key(entry, 0): entry for entry in bench.store.keys(results(BANK))}


def test_an_ingest_leaves_one_mark_object_for_all_its_files_and_none_where_it_took_up_none(
    tmp_path: Path,
) -> None:
    bench = night(tmp_path)

    taken = [bench.ingest().files, bench.ingest().files]

    assert [3, 0] == taken
    assert 1 == len(list(bench.store.keys(ingested(BANK))))
    assert set(entries(bench)) == read_markers(bench.store, BANK)


def test_a_mark_is_of_a_file_as_it_is_and_of_what_was_decided_about_it(tmp_path: Path) -> None:
    entry = next(iter(entries(night(tmp_path)).values()))

    others = [
        marker_key(entry, 1),
        marker_key(entry._replace(size=entry.size + 1), 0),
        marker_key(entry._replace(version="other"), 0),
    ]

    assert marker_key(entry, 0) == marker_key(entry, 0)
    assert 4 == len({marker_key(entry, 0), *others})


def test_no_file_leaves_no_object(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)

    write_markers(store, BANK, {})

    assert [] == list(store.keys(""))


@pytest.mark.parametrize("spoiled", quick(2, [b"", b"\xff", b"{", b"5", b'"abc"', b'["abc"]']))
def test_a_spoiled_mark_is_named_and_moved_away_costs_only_taking_its_files_up_again(
    tmp_path: Path, spoiled: bytes
) -> None:
    bench = night(tmp_path)
    (run,) = bench.ingest().reports
    [marker] = bench.store.keys(ingested(BANK))
    links = bench.report(run.summary["run"], "links.csv")
    bench.store.replace(marker.key, [spoiled])

    with pytest.raises(MarkSpoiledError, match="files-"):
        bench.ingest()

    bench.store.delete(marker.key)  # type: ignore[attr-defined]  # a directory, which deletes too
    assert 3 == bench.ingest().files
    assert links == bench.report(run.summary["run"], "links.csv")
