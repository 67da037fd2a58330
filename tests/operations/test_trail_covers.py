"""Who writes to the store and changes who gets which link is found, wherever it is changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import polars as pl
import pytest

from flows.extensions.deliveries.delivery import deliver
from flows.extensions.deliveries.receivers import confirm
from flows.operations.audit import accept, verify
from flows.operations.audit_contents import OTHER_ANSWERS
from flows.operations.audit_journal import CHANGED, INSERTED, REMOVED
from flows.operations.audit_links import OTHER_LINKS
from flows.operations.break_decisions import close_break
from flows.operations.purge import purge
from schemas.breaks import CONFLICTING_RESULT, LINK
from tests.night import BANK, Bench, local_bench
from tests.operations.lived import Lived
from tests.operations.retention import YEAR, cleaner, later

Objects = dict[str, bytes]
BY = "anna via worker:1"


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """Everything after two nights, one of them delivered, and corrected results."""
    folder = tmp_path_factory.mktemp("covered")
    bench = replace(local_bench(folder, portal={"rows_per_chunk": 10}), actor=BY)
    bench.submit(bench.drop(25))
    bench.answer()
    bench.ingest()
    deliver(bench.context)
    confirm(bench.context, 1, "received")
    bench.submit(bench.drop(15, "bank-20261121.csv", seed=3))
    bench.answer(fail_share=0.5, seed=2)
    bench.ingest()
    deliver(bench.context)
    return Lived.of(bench)


def found(bench: Bench) -> set[tuple[str, str]]:
    """Return what a proof finds, by key."""
    return {(finding.key, finding.what) for finding in verify(bench.adapters, BANK).findings}


def key_of(objects: Objects, part: str) -> str:
    """Return the first key with this part."""
    return min(key for key in objects if part in key)


def swapped(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the links of the first two that have one swapped."""
    first, second, *_ = rows["url"].is_not_null().arg_true().to_list()
    urls = rows["url"].to_list()
    urls[first], urls[second] = urls[second], urls[first]
    return rows.with_columns(url=pl.Series(urls, dtype=pl.String))


def with_swapped_parquet(content: bytes) -> bytes:
    metadata = pl.read_parquet_metadata(BytesIO(content))
    out = BytesIO()
    kept = {name: text for name, text in metadata.items() if not name.startswith("ARROW")}
    swapped(pl.read_parquet(BytesIO(content))).write_parquet(out, metadata=kept)
    return out.getvalue()


def with_swapped_csv(content: bytes) -> bytes:
    return swapped(pl.read_csv(content, infer_schema=False)).write_csv().encode()


@pytest.mark.slow
def test_two_nights_with_results_and_deliveries_are_proved_whole(lived: Lived) -> None:
    assert set() == lived.found()


@pytest.mark.parametrize(
    ("part", "forge", "difference"),
    [
        ("/report/rows/", with_swapped_parquet, OTHER_LINKS),
        ("/report/links/", with_swapped_parquet, OTHER_LINKS),
        ("/report/links.csv", with_swapped_csv, OTHER_LINKS),
        ("/deliveries/000001/links.parquet", with_swapped_parquet, CHANGED),
        ("/deliveries/000001/links.csv", with_swapped_csv, CHANGED),
        ("/results/", lambda content: content.replace(b",", b", "), CHANGED),
    ],
)
def test_links_of_two_cardholders_that_are_swapped_are_found_where_it_was_done(
    lived: Lived, part: str, forge: Callable[[bytes], bytes], difference: str
) -> None:
    key = key_of(lived.objects, part)
    forged = {**lived.objects, key: forge(lived.objects[key])}

    assert forged != lived.objects
    assert (key, difference) in lived.found(forged)


@pytest.mark.parametrize(
    ("part", "difference"),
    [
        ("/deliveries/000001/links.csv", REMOVED),
    ],
)
def test_what_was_removed_is_found(lived: Lived, part: str, difference: str) -> None:
    key = key_of(lived.objects, part)

    assert (key, difference) in lived.found(
        {one: data for one, data in lived.objects.items() if one != key}
    )


SWAPPED = (
    "UPDATE answer SET url = CASE position WHEN 1 THEN (SELECT url FROM answer WHERE number = 1 "
    "AND position = 2) ELSE (SELECT url FROM answer WHERE number = 1 AND position = 1) END "
    "WHERE number = 1 AND position IN (1, 2)"
)


@pytest.mark.parametrize(
    ("statements", "number", "difference"),
    [
        ([SWAPPED], 1, CHANGED),
        (["UPDATE answer SET row = row + 1 WHERE number = 1 AND position = 1"], 1, CHANGED),
        (["DELETE FROM answer WHERE number = 1"], 1, REMOVED),
        (["DELETE FROM answer WHERE number = 1", "DELETE FROM answered_chunk"], 1, REMOVED),
        (
            [
                "INSERT INTO result_file SELECT issuer, 99, 'f', 'd', key, name, size, version, "
                "decisions, came_at, received, taken_at, named_run, named_chunk, problems, "
                "is_superseded, basis, outcome, told FROM result_file WHERE number = 1",
                "INSERT INTO answered_chunk SELECT issuer, run, chunk, 99, rows "
                "FROM answered_chunk WHERE number = 1",
                "INSERT INTO answer SELECT issuer, 99, position, run, chunk, row, cuid, last_4, "
                "how, outcome, url, has_link, expires_on, expires_form, reasons, message, shape, "
                "content, nth FROM answer WHERE number = 1",
            ],
            99,
            INSERTED,
        ),
    ],
)
def test_what_a_result_file_says_is_found_where_somebody_changed_it(
    lived: Lived, statements: list[str], number: int, difference: str
) -> None:
    run = min(key for key in lived.objects if "/runs/" in key).split("/")[2]

    assert (f"answer/{run}/{number}", difference) in lived.found(None, *statements)


def test_a_result_file_that_is_gone_is_a_finding_until_it_is_accepted_or_its_ledger_is_purged(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    bench.submit(bench.drop(3))
    bench.answer()
    bench.ingest()
    key = key_of(bench.snapshot(), "/results/")
    file, elsewhere = tmp_path / "store" / key, tmp_path / "elsewhere"
    file.rename(elsewhere)

    gone = found(bench)
    accept(bench.context, key, "see ticket 7")
    accepted = found(bench)
    file.write_bytes(elsewhere.read_bytes() + b"another")
    changed = found(bench)
    file.unlink()
    purge(later(bench, YEAR).context, cleaner(bench))
    proof = verify(bench.adapters, BANK)

    assert ({(key, REMOVED)}, set(), {(key, CHANGED)}) == (gone, accepted, changed)
    assert (0, [key]) == (len(proof.findings), [each.key for each in proof.gone])


def test_a_result_file_that_comes_again_with_another_link_is_a_break_and_a_finding_until_decided(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    run = bench.submit(bench.drop(3)).manifest.run
    bench.answer()
    bench.ingest()
    key = key_of(bench.snapshot(), "/results/")
    first, second, *rest = (line.split(b",") for line in bench.content(key).splitlines()[1:])
    first[2], second[2] = second[2], first[2]
    swapped_lines = [bench.content(key).splitlines()[0], *map(b",".join, [first, second, *rest])]

    bench.store.replace(key, [b"\n".join(swapped_lines) + b"\n"])
    [report] = bench.ingest().reports
    open_breaks = [(known["name"], known["rows"]) for known in report.summary["breaks"]]
    before = found(bench)
    close_break(bench.context, run, CONFLICTING_RESULT, "", "as the partner says", LINK)

    assert [(CONFLICTING_RESULT, 2)] == open_breaks
    assert 1 == report.summary["rows"]["linked"]
    assert {(key, OTHER_ANSWERS)} == before
    assert set() == found(bench)
    links = pl.read_csv(bench.report(run, "links.csv"))
    assert {first[2].decode(), second[2].decode()} < set(links["url"])
