"""A column that comes or goes is reported once: by the run, by a check, and as an alert."""

from io import BytesIO
from pathlib import Path

import pytest

from flows.extensions.simulator.extract import write_sample
from flows.runs.stored_runs import Night
from flows.submissions.column_changes import column_changes
from flows.submissions.rehearsal import rehearse
from flows.submissions.row_scope import Inspection
from flows.submissions.submit import Request
from schemas import portal
from schemas.manifest import Layout
from tests.late import told
from tests.night import DAY, Bench, local_bench


def night(*header: str) -> Night:
    return Night(DAY, 10, None, header)


@pytest.mark.parametrize(
    ("header", "nights", "changes"),
    [
        (("a", "b"), [("a", "b")], []),
        (("b", "a"), [("a", "b")], []),
        (("a", "b", "c"), [("a", "b")], ["new columns: c"]),
        (("a",), [("a", "b"), ("a", "c")], ["columns that are gone: c"]),
        (("a", "x"), [("a", "b"), ()], ["new columns: x", "columns that are gone: b"]),
        (("a",), [], []),
        ((), [("a",)], []),
    ],
)
def test_a_header_is_compared_with_that_of_the_last_extract(
    header: tuple[str, ...], nights: list[tuple[str, ...]], changes: list[str]
) -> None:
    layout = Layout(columns={}, size=2, header=header)

    assert changes == column_changes(layout, [night(*names) for names in nights])


def _sample(seed: int) -> bytes:
    content = BytesIO()
    write_sample(content, 5, seed=seed, as_of=DAY)
    return content.getvalue()


def drop(bench: Bench, day: int, *extra: str) -> str:
    header, *lines = _sample(day).splitlines()
    wide = [header.decode() + "".join(f",{name}" for name in extra)]
    wide += [line.decode() + ",x" * len(extra) for line in lines]
    text = "".join(f"{line}\n" for line in wide)
    return bench.drop_bytes(text.encode(), f"bank-202611{day:02d}.csv")


def alerts(bench: Bench) -> list[tuple[str, bool]]:
    return [
        (matter.text.partition(" has ")[2].removesuffix("."), is_late)
        for matter, is_late in told(bench.context)
        if matter.kind == "changed columns"
    ]


def test_a_new_column_is_told_once_by_run_check_and_alert(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, columns={name: name for name in portal.columns()})
    first = bench.submit(drop(bench, 1))

    checked = rehearse(bench.context, Request(drop(bench, 2, "SEGMENT")), Inspection())
    changed = bench.submit("bank-20261102.csv")
    opened = alerts(bench)
    next_night = bench.submit(drop(bench, 3, "SEGMENT"))
    closed = alerts(bench)

    told = "new columns: SEGMENT"
    assert ("bank/extracts/bank-20261102.csv has " + told,) == changed.remarks
    assert ((told,), (), ()) == (checked.columns, first.remarks, next_night.remarks)
    assert ([(told, True)], (told, False)) == (opened, closed[-1])
