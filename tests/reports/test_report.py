from io import BytesIO
from pathlib import Path

import openpyxl
import polars as pl
import pytest

from flows.extensions.simulator.answer import Habits
from flows.reports import reconciled
from flows.reports.rebuild import rebuild
from flows.runs.identity import digest
from flows.runs.keys import keys_of
from schemas.manifest import LedgerPart
from schemas.tables import Refusals, Rejects
from tests.night import Bench, local_bench, made_once
from tests.planted import set_run

FILES = ("links.csv", "errors.csv", "rejects.csv", "chunks.csv")


@made_once
def answered(folder: Path, /, habits: Habits | None = None, **portal: object) -> tuple[Bench, str]:
    bench = local_bench(folder, portal={"rows_per_chunk": 20})
    run = bench.submit(bench.drop(300, bad=0.1)).manifest.run
    bench.answer(habits, **portal)
    bench.ingest()
    return bench, run


def cut_ledger(bench: Bench, folder: Path, run: str, parts: int) -> None:
    """Write the ledger anew in several parts, whole chunks each, as a long extract gives them."""
    keys = keys_of(run)
    records = bench.ledger(run)
    manifest = bench.manifest(run)
    last = len(manifest.chunks)
    ledger = []
    for number in range(parts):
        in_part = ((pl.col("chunk").fill_null(1) - 1) * parts // last) == number
        out = BytesIO()
        records.filter(in_part).write_parquet(out)
        name = f"cut-{number + 1:05d}.parquet"
        bench.store.create(keys.ledger + name, out.getvalue())
        ledger.append(
            LedgerPart(
                name=name, rows=records.filter(in_part).height, sha256=digest(out.getvalue())
            )
        )
    cut = manifest.model_copy(update={"ledger": tuple(ledger)})
    set_run(bench.adapters, run, manifest=cut.model_dump(mode="json"))


@pytest.mark.slow
def test_a_ledger_in_many_parts_gives_the_report_of_a_ledger_in_one(tmp_path: Path) -> None:
    habits = Habits(halves=0.4, twice=0.4, swapped=True)
    bench, run = answered(tmp_path, habits, fail_share=0.2, shuffle=True, error_shape="mixed")
    whole = rebuild(bench.context, bench.stored(run))
    before = {name: sorted(bench.report(run, name).splitlines()) for name in FILES}
    cut_ledger(bench, tmp_path, run, parts=4)

    cut = rebuild(bench.context, bench.stored(run))

    assert before == {name: sorted(bench.report(run, name).splitlines()) for name in FILES}
    assert whole == cut


@pytest.mark.slow
def test_chunks_reconciled_a_few_at_a_time_give_the_report_of_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    habits = Habits(halves=0.4, twice=0.4, swapped=True, foreign=True)
    bench, run = answered(tmp_path, habits, fail_share=0.2, shuffle=True, error_shape="mixed")
    whole = rebuild(bench.context, bench.stored(run))
    before = {name: bench.report(run, name) for name in FILES}
    monkeypatch.setattr(reconciled, "CHUNKS", 3)

    few = rebuild(bench.context, bench.stored(run))

    assert before == {name: bench.report(run, name) for name in FILES}
    assert whole == few


def test_the_tables_of_a_report_keep_to_their_schemas(tmp_path: Path) -> None:
    bench, run = answered(tmp_path, fail_share=0.2)

    types = {"errors.csv": Refusals, "rejects.csv": Rejects}
    for name, model in types.items():
        dtypes = model.dtypes()
        model.validate(pl.read_csv(BytesIO(bench.report(run, name)), schema_overrides=dtypes))
    head = bench.report(run, "chunks.csv").partition(b"\n")[0].decode()
    assert "chunk,name,bytes,sha256,sent,answers,linked,error,awaiting,state,results" == head


def test_the_reasons_counted_from_the_ledger_are_those_of_the_commit(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)

    report = rebuild(bench.context, bench.stored(run))

    counted = {reason["code"]: reason["rows"] for reason in report.summary["reasons"]["submit"]}
    assert bench.manifest(run).reasons == counted


def test_page_and_workbook_lie_beside_the_summary_and_say_the_same(tmp_path: Path) -> None:
    bench, run = answered(tmp_path, fail_share=0.2)

    report = rebuild(bench.context, bench.stored(run))

    page = bench.report(run, "report.html").decode()
    book = openpyxl.load_workbook(BytesIO(bench.report(run, "report.xlsx")))
    facts = {
        name.value: fact.value
        for name, fact in zip(book["Run"]["A"], book["Run"]["B"], strict=True)
    }
    for name in ("read", "linked", "error", "rejected"):
        number = report.summary["rows"][name]
        assert f">{number:,}<" in page
        assert facts[f"rows {name}"] == number


def test_a_report_rebuilt_is_the_same_page_and_workbook_byte_for_byte(tmp_path: Path) -> None:
    bench, run = answered(tmp_path, fail_share=0.2)
    before = [bench.report(run, name) for name in ("report.html", "report.xlsx")]

    rebuild(bench.context, bench.stored(run))

    assert before == [bench.report(run, name) for name in ("report.html", "report.xlsx")]


@pytest.mark.slow
def test_the_trend_ends_with_the_run_of_the_report(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    later = bench.submit(bench.drop(20, name="bank-20261121.csv", seed=1)).manifest.run

    rebuild(bench.context, bench.stored(run))
    rebuild(bench.context, bench.stored(later))

    pages = [bench.report(shown, "report.html").decode() for shown in (run, later)]
    assert ["The last 1 run<", "The last 2 runs<"] == [
        next(word for word in ("The last 1 run<", "The last 2 runs<") if word in page)
        for page in pages
    ]
