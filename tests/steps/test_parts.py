from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from flows.core.extract.extract_errors import TrailerError
from flows.core.storage.store_errors import ObjectDamagedError
from flows.simulator.extract import write_sample
from flows.steps.edges import IssuerEdges
from flows.steps.night import cut as cutting
from flows.steps.night import parts
from flows.steps.night.cut import PartStream, cut, read_once
from flows.steps.night.making import Made
from flows.steps.night.parts import Look, Place, Seen, Threads
from flows.steps.night.plan import find_extract
from flows.steps.night.submit import Request, submit
from flows.steps.runs import keys_of
from schemas.source import SourceSettings
from tests.night import DAY, Bench, local_bench

SMALL = 1 << 14  # bytes of a block to cut at, so that small extracts have parts
PARTS = {"parts": 4, "least_part_mib": 4}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "CUT_BLOCK", SMALL)
    monkeypatch.setattr(cutting, "MIB", 1 << 10)


def extract(rows: int, *, bad: float = 0.1, seed: int = 0) -> bytes:
    out = BytesIO()
    write_sample(out, rows, bad=bad, seed=seed, as_of=DAY)
    return out.getvalue()


def with_repeats(content: bytes, times: int, seed: int = 1) -> bytes:
    """Return an extract whose lines are repeated here and there, far apart."""
    header, *lines = content.splitlines(keepends=True)
    chance = random.Random(seed)
    for _ in range(times):
        lines.insert(chance.randrange(len(lines)), chance.choice(lines))
    return b"".join([header, *lines])


def both(tmp_path: Path, content: bytes, **changes: object) -> tuple[Bench, Bench]:
    """Return two benches with the same extract: one reads it in one pass, one in parts."""
    whole = local_bench(tmp_path / "whole", **changes)
    cut_up = local_bench(tmp_path / "parts", **changes, scale=PARTS)
    for bench in (whole, cut_up):
        bench.drop_bytes(content)
    return whole, cut_up


def fates(bench: Bench, run: str) -> pl.DataFrame:
    return bench.ledger(run).drop("chunk", "position")


@pytest.mark.parametrize("rows_per_chunk", [7, 1000])
def test_an_extract_in_parts_gives_every_row_the_fate_a_single_pass_gives_it(
    tmp_path: Path, rows_per_chunk: int
) -> None:
    whole, cut_up = both(tmp_path, with_repeats(extract(900), 40), portal={"rows_per_chunk": rows_per_chunk})

    one, four = whole.submit("bank-20261120.csv").manifest, cut_up.submit("bank-20261120.csv").manifest

    assert one.counts == four.counts
    assert (one.reasons, one.repairs, one.run) == (four.reasons, four.repairs, four.run)
    assert_frame_equal(fates(whole, one.run), fates(cut_up, four.run))
    assert list(range(1, len(four.chunks) + 1)) == [chunk.number for chunk in four.chunks]
    assert sent(whole, one.run) == sent(cut_up, four.run)


def sent(bench: Bench, run: str) -> list[str]:
    """Return every line the portal gets, in any order."""
    return sorted(line for chunk in bench.chunks(run) for line in chunk.decode().splitlines()[1:])


def test_quoted_newlines_and_damaged_lines_at_the_cuts_change_nothing(tmp_path: Path) -> None:
    header, *lines = extract(600, bad=0).splitlines(keepends=True)
    chance = random.Random(3)
    for at, line in enumerate(lines):
        fields = line.split(b",")
        match chance.randrange(6):
            case 0:
                fields[9] = b'"1 Main St\nApt 5"'
            case 1:
                fields[9] = b'5" Main St'
            case 2:
                fields = fields[:-3]
        lines[at] = b",".join(fields).rstrip(b"\n") + b"\n"
    whole, cut_up = both(tmp_path, b"".join([header, *lines]), limits={"max_reject_rate": 1.0})

    one, four = whole.submit("bank-20261120.csv").manifest, cut_up.submit("bank-20261120.csv").manifest

    assert one.counts == four.counts
    assert_frame_equal(fates(whole, one.run), fates(cut_up, four.run))


def test_a_trailer_is_held_against_the_rows_of_all_parts(tmp_path: Path) -> None:
    content = extract(500, bad=0) + b"TRL|500\n"
    source = {"trailer": r"^TRL\|(\d+)$"}
    _, cut_up = both(tmp_path, content, source=source)

    manifest = cut_up.submit("bank-20261120.csv").manifest

    assert (500, 500) == (manifest.counts.trailer, manifest.counts.read)


def test_data_after_a_trailer_in_an_earlier_part_refuse_the_extract(tmp_path: Path) -> None:
    header, *lines = extract(600, bad=0).splitlines(keepends=True)
    content = b"".join([header, *lines[:100], b"TRL|600\n", *lines[100:], b"TRL|600\n"])
    _, cut_up = both(tmp_path, content, source={"trailer": r"^TRL\|(\d+)$"})

    with pytest.raises(TrailerError):
        cut_up.submit("bank-20261120.csv")


def test_what_the_workers_exchanged_is_emptied(tmp_path: Path) -> None:
    _, cut_up = both(tmp_path, extract(600))

    run = cut_up.submit("bank-20261120.csv").manifest.run

    left = list(cut_up.store.keys(keys_of(run).exchanged))
    assert left
    assert {0} == {entry.size for entry in left}


def test_every_byte_of_the_data_is_in_exactly_one_part(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, scale=PARTS)
    entry = find_extract(bench.edges, bench.drop_bytes(extract(800)))

    ways = cut(bench.store, entry, read_once(bench.store, entry), SourceSettings(), bench.issuer.scale)

    assert ways is not None
    assert 4 == len(ways.parts)
    content = bench.content(entry.key)
    streams = [PartStream(bench.store, entry, ways, number).read() for number in range(len(ways.parts))]
    assert content == streams[0] + b"".join(stream[ways.head :] for stream in streams[1:])
    assert [content[: part.start].count(b"\n") for part in ways.parts] == [part.line for part in ways.parts]


def test_a_byte_that_changed_on_its_way_is_noticed_in_a_part(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, scale=PARTS)
    entry = find_extract(bench.edges, bench.drop_bytes(extract(800)))
    ways = cut(bench.store, entry, read_once(bench.store, entry), SourceSettings(), bench.issuer.scale)
    assert ways is not None
    other = ways.model_copy(update={"blocks": (*ways.blocks[:-1], ways.blocks[-1] ^ 1)})

    with pytest.raises(ObjectDamagedError):
        PartStream(bench.store, entry, other, 3).read()


@pytest.mark.parametrize(
    ("content", "settings"),
    [
        (b"\x1f\x8b" + bytes(1 << 18), {}),
        (extract(800).decode().encode("utf-16"), {"encoding": "utf-16"}),
        (extract(20), {}),
    ],
    ids=["compressed", "UTF-16", "small"],
)
def test_what_has_no_lines_at_known_bytes_or_is_small_stays_in_one_part(
    tmp_path: Path, content: bytes, settings: dict[str, str]
) -> None:
    bench = local_bench(tmp_path, scale=PARTS)
    entry = find_extract(bench.edges, bench.drop_bytes(content))

    ways = cut(bench.store, entry, read_once(bench.store, entry), SourceSettings(**settings), bench.issuer.scale)

    assert ways is None


class WorkerDied(Exception):
    """A worker that is no more."""


@dataclass
class DyingCrew:
    """A crew of which one dies while it seals its part, after publishing some of it."""

    edges: IssuerEdges
    sealed: list[int] = field(default_factory=list)

    def look(self, tasks: Sequence[Look]) -> Iterator[Seen]:
        return Threads(self.edges).look(tasks)

    def seal(self, tasks: Sequence[tuple[Look, Place]]) -> Iterator[Made]:
        for task, place in tasks[:2]:
            self.sealed.append(task.number)
            yield parts.seal(self.edges, task, place)
        raise WorkerDied


def test_a_run_whose_worker_died_is_finished_by_the_same_command_with_what_stands(tmp_path: Path) -> None:
    whole, cut_up = both(tmp_path, with_repeats(extract(700), 20))
    with pytest.raises(WorkerDied):
        submit(cut_up.edges, Request("bank-20261120.csv"), crew=DyingCrew(cut_up.edges))
    standing = {key: data for key, data in cut_up.snapshot().items() if "/chunks/" in key}

    run = cut_up.submit("bank-20261120.csv").manifest.run

    assert standing
    assert standing == {key: data for key, data in cut_up.snapshot().items() if key in standing}
    assert sent(whole, whole.submit("bank-20261120.csv").manifest.run) == sent(cut_up, run)


def test_a_plan_that_was_cut_stays_cut_whatever_the_settings_say_later(tmp_path: Path) -> None:
    _, cut_up = both(tmp_path, extract(700))
    with pytest.raises(WorkerDied):
        submit(cut_up.edges, Request("bank-20261120.csv"), crew=DyingCrew(cut_up.edges))
    later = Bench(cut_up.store, local_bench(tmp_path / "other").issuer)

    run = later.submit("bank-20261120.csv").manifest.run

    assert {"part-0001-00001.parquet", "part-0004-00001.parquet"} <= {part.name for part in later.manifest(run).ledger}
