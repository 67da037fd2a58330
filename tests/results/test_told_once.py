"""A file with open breaks is reported once, and read again only once something it depends on has
changed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flows.operations.break_decisions import close_break
from flows.operations.history import history
from tests.night import BANK, Bench, issuer, local_bench, made_once

HEAD = "cuid,last_4,url,expiration_date,error\n"
LINK = "https://links.example.com/l"


@made_once
def night(folder: Path, rows: int = 4) -> tuple[Bench, str, list[str]]:
    """Return a submitted night, its run, and a line of a link for each of its rows."""
    bench = local_bench(folder)
    run = bench.submit(bench.drop(rows)).manifest.run
    return bench, run, lines_of(bench, run)


def lines_of(bench: Bench, run: str, host: str = LINK) -> list[str]:
    return [
        f"{row['cuid']},{row['last_4']},{host}{row['row']},2027-01-20,\n"
        for row in bench.ledger(run).to_dicts()
    ]


def file(*lines: str) -> bytes:
    return "".join([HEAD, *lines]).encode()


def answered(bench: Bench, run: str) -> int:
    return [event.what for event in history(bench.adapters, run)].count("answered")


def test_a_file_with_an_unplaceable_row_is_reported_once_and_writes_nothing_more(
    tmp_path: Path,
) -> None:
    bench, run, lines = night(tmp_path)
    bench.drop_result(file(*lines, "ghost,1111,,,no\n"))
    first = bench.ingest()
    before = bench.snapshot()

    second, third = bench.ingest(), bench.ingest()

    assert (1, 5, 1, 1, 1) == (
        first.files,
        first.rows,
        len(first.breaks),
        len(first.reports),
        first.open_files,
    )
    assert (0, 0, (), (), 1, 0) == second == third
    assert before == bench.snapshot()
    assert 1 == answered(bench, run)


def test_a_commit_that_changes_nothing_for_it_makes_it_read_again_but_not_reported(
    tmp_path: Path,
) -> None:
    bench, run, lines = night(tmp_path)
    bench.drop_result(file(*lines, "ghost,1111,,,no\n"))
    bench.ingest()
    bench.submit(bench.drop(6, name="bank-20261121.csv", seed=8))

    after = bench.ingest()

    assert (0, (), (), 1) == (after.files, after.breaks, after.reports, after.open_files)
    assert 1 == answered(bench, run)


def test_a_row_is_placed_once_its_run_is_committed(tmp_path: Path) -> None:
    bench, run, lines = night(tmp_path)
    late = replace(bench)
    later = late.submit(late.drop(6, name="bank-20261121.csv", seed=8)).manifest.run
    manifest = tmp_path / "store" / BANK / "runs" / later / "manifest.json"
    content = manifest.read_bytes()
    manifest.unlink()  # killed between taking its turn and its commit
    bench.drop_result(file(*lines, *lines_of_content(late, later, content, manifest)))
    early = bench.ingest(), bench.ingest()
    manifest.write_bytes(content)

    placed = bench.ingest()

    assert [(1, 1), (0, 0)] == [(one.files, len(one.breaks)) for one in early]
    assert ((), 0) == (placed.breaks, placed.open_files)
    assert {run: 4, later: 6} == {
        one.summary["run"]: one.summary["rows"]["linked"] for one in placed.reports
    }
    assert 0 == bench.ingest().files


def lines_of_content(bench: Bench, run: str, content: bytes, manifest: Path) -> list[str]:
    """Return the lines of a run whose manifest is away for the moment."""
    manifest.write_bytes(content)
    lines = lines_of(bench, run)
    manifest.unlink()
    return lines


def test_links_to_a_host_that_is_allowed_later_are_taken_once_it_is(tmp_path: Path) -> None:
    bench, run, _ = night(tmp_path)
    bench.drop_result(file(*lines_of(bench, run, "https://eu.example.com/")))
    first, second = bench.ingest(), bench.ingest()
    allowed = issuer(portal={"allowed_hosts": ["links.example.com", "eu.example.com"]})

    after = replace(bench, issuer=allowed).ingest()

    assert [(1, "out of balance")] == [
        (first.files, one.summary["verdict"]) for one in first.reports
    ]
    assert (0, 0, (), (), 0, 0) == second
    assert [(4, "balanced")] == [
        (one.summary["rows"]["linked"], one.summary["verdict"]) for one in after.reports
    ]
    assert 0 == bench.ingest().files


def test_a_file_that_is_replaced_is_new(tmp_path: Path) -> None:
    bench, _, lines = night(tmp_path)
    bench.drop_result(b"<html>log in</html>")
    first = bench.ingest()
    bench.drop_result(file(*lines))

    second = bench.ingest()

    assert "it looks like a login page" in first.breaks[0]
    assert (1, (), 0) == (second.files, second.breaks, second.open_files)


def test_a_file_that_is_removed_is_no_longer_open(tmp_path: Path) -> None:
    bench, _, _ = night(tmp_path)
    bench.drop_result(b"<html>log in</html>")
    bench.ingest()
    (tmp_path / "store" / BANK / "results" / "result.csv").unlink()

    assert (0, 0, (), (), 0, 0) == bench.ingest()


def test_a_file_whose_breaks_were_closed_is_not_open_any_more(tmp_path: Path) -> None:
    bench, run, lines = night(tmp_path)
    bench.drop_result(file(*lines, "ghost,1111,,,no\n"))
    before = bench.ingest()
    for one in before.reports[0].breaks:
        close_break(bench.context, run, one.name, one.place, "the partner knows of it")

    assert [1, 0] == [before.open_files, bench.ingest().open_files]


def test_fifty_broken_files_cost_an_idle_ingest_no_reading(tmp_path: Path) -> None:
    bench, _, lines = night(tmp_path)
    for at in range(50):
        bench.drop_result(
            file(*lines, f"ghost-{at},1111,,,no\n") if at % 2 else b"<html></html>", f"{at}.csv"
        )
    first = bench.ingest()
    opened: list[str] = []

    # the real store, which notes what is opened
    class Watched(type(bench.store)):  # type: ignore[misc]
        def open(self, key: str, pin: object = None) -> object:
            opened.append(key)
            return super().open(key, pin)

    idle = replace(bench, store=Watched(tmp_path / "store")).ingest()

    assert (50, 50) == (len(first.breaks), first.open_files)
    assert (0, (), 50) == (idle.files, idle.breaks, idle.open_files)
    assert [] == [key for key in opened if "/results/" in key]
