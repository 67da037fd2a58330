import csv
import json
from dataclasses import replace
from datetime import date, timedelta
from io import BytesIO, StringIO
from pathlib import Path

import polars as pl
import pytest

from flows.errors import CardlinkError, ExtractError, OperatorError
from flows.extracts.errors import EmptyExtractError
from flows.runs.claim import ClaimedError, Lease, work_on
from flows.runs.keys import keys_of
from flows.runs.sealing import KeyNotPinnedError
from flows.submissions.extract_lookup import ExtractNotFoundError
from flows.submissions.gates import (
    RejectRateError,
    RowJumpError,
    TrailerMismatchError,
    WrongCardsError,
)
from flows.submissions.plan import DuplicateExtractError
from schemas.portal import COUNTRY, CUID, PAN, columns
from tests.builders import portal_rows
from tests.night import NOON, Bench, issuer, local_bench, portal_csv, submitted, uncommit
from tests.planted import set_run


def rows_of(chunks: list[bytes]) -> list[list[str]]:
    return [
        row
        for chunk in chunks
        for row in list(csv.reader(StringIO(chunk.decode(), newline="")))[1:]
    ]


def test_every_good_row_of_an_extract_stands_once_in_a_sealed_chunk_of_at_most_1000(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    extract = bench.drop(2500, bad=0.1)

    manifest = bench.submit(extract).manifest

    chunks = bench.chunks(manifest.run)
    cuids = [row[0] for row in rows_of(chunks)]
    ledger = bench.ledger(manifest.run)
    assert [chunk.rows for chunk in manifest.chunks] == [
        len(chunk.splitlines()) - 1 for chunk in chunks
    ]
    assert max(chunk.rows for chunk in manifest.chunks) <= 1000
    assert sorted(cuids) == sorted(ledger.filter(fate="submitted")["cuid"])
    assert ledger["row"].to_list() == list(range(1, 2501))
    assert manifest.counts.read == 2500 == manifest.counts.submitted + manifest.counts.rejected


def test_a_chunk_has_the_portals_columns_and_no_cvv(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)

    run = bench.submit(bench.drop(10)).manifest.run

    table = csv.DictReader(StringIO(bench.chunks(run)[0].decode(), newline=""))
    assert table.fieldnames == list(columns())
    assert {row["service_card.cvv"] for row in table} == {""}


def test_the_ledger_says_where_every_row_stands_in_its_chunk(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, portal={"rows_per_chunk": 7})

    run = bench.submit(bench.drop(40, bad=0.2)).manifest.run

    sent = bench.ledger(run).filter(fate="submitted")
    chunks = bench.chunks(run)
    for chunk, position, cuid in sent.select("chunk", "position", "cuid").iter_rows():
        assert rows_of([chunks[chunk - 1]])[position - 1][0] == cuid


def test_a_row_without_cuid_gets_one_that_is_the_same_when_the_run_is_repeated(
    tmp_path: Path,
) -> None:
    content = portal_csv(portal_rows({CUID: None}, {CUID: None, PAN: "4111111111111111"}))
    first, second = local_bench(tmp_path / "1"), local_bench(tmp_path / "2")

    made = [
        bench.ledger(bench.submit(bench.drop_bytes(content)).manifest.run)
        for bench in (first, second)
    ]

    assert made[0].equals(made[1])
    assert made[0]["cuid_made"].to_list() == [True, True]
    assert made[0]["cuid"].n_unique() == 2


def test_a_finished_run_again_does_nothing_and_says_so(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    extract = bench.drop(20)
    done = bench.submit(extract)
    before = bench.snapshot()

    again = bench.submit(extract)

    assert again.already
    assert again.manifest == done.manifest
    assert bench.snapshot() == before


def test_what_a_dead_run_published_is_left_and_never_committed(tmp_path: Path) -> None:
    bench, extract, done = submitted(tmp_path, 35, portal={"rows_per_chunk": 10})
    uncommit(tmp_path, done.run)
    left = {key: data for key, data in bench.snapshot().items() if "/chunks/" in key}

    again = bench.submit(extract)

    assert not again.already
    assert {chunk.name for chunk in done.chunks}.isdisjoint(
        chunk.name for chunk in again.manifest.chunks
    )
    assert again.manifest.ledger == done.ledger
    assert left.items() <= bench.snapshot().items()


def test_the_as_of_date_comes_from_the_plan_when_a_run_is_repeated(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    extract = bench.drop(10, name="no-date.csv")
    done = bench.submit(extract, business_date=date(2026, 11, 19)).manifest
    uncommit(tmp_path, done.run)
    later = replace(bench, now=lambda: NOON + timedelta(days=1))

    again = later.submit(extract).manifest

    assert (again.run, again.as_of) == (done.run, date(2026, 11, 19))


def test_a_committed_run_stays_what_it_is_under_changed_settings_which_are_named(
    tmp_path: Path,
) -> None:
    bench, extract, first = submitted(tmp_path, 10)
    changed = replace(bench, issuer=issuer(rules={"luhn": "warn"}, portal={"rows_per_chunk": 5}))

    again = changed.submit(extract)

    assert (True, first) == (again.already, again.manifest)
    assert ("changed since that run: portal.rows_per_chunk, rules.luhn",) == again.remarks


def test_a_run_that_was_never_committed_is_planned_anew_with_the_settings_of_now(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    extract = bench.drop(10)
    first = bench.submit(extract, business_date=date(2026, 11, 19)).manifest
    uncommit(tmp_path, first.run)
    changed = replace(bench, issuer=issuer(portal={"rows_per_chunk": 5}))

    done = changed.submit(extract)

    assert (f"{first.run}-r2", first.as_of, 2) == (
        done.manifest.run,
        done.manifest.as_of,
        len(done.manifest.chunks),
    )
    [remark] = done.remarks
    assert f"run {first.run} was never committed: planned anew" in remark
    assert "portal.rows_per_chunk" in remark


def test_a_new_run_is_made_where_an_operator_gives_a_reason(tmp_path: Path) -> None:
    bench, extract, manifest = submitted(tmp_path, 10)
    first = manifest.run

    second = bench.submit(extract, new_run="the portal lost the upload").manifest.run

    assert second == f"{first}-r2"


def test_the_same_bytes_under_another_name_are_refused(tmp_path: Path) -> None:
    bench, *_ = submitted(tmp_path, 10)
    copy = bench.drop(10, name="copy-20261121.csv")

    with pytest.raises(DuplicateExtractError):
        bench.submit(copy)


def test_other_content_under_the_same_name_is_a_new_run_said_aloud(tmp_path: Path) -> None:
    bench, _, manifest = submitted(tmp_path, 10)
    first = manifest.run

    second = bench.submit(bench.drop(11), opened=["changed-extract"])

    assert second.manifest.run != first
    assert second.remarks == (
        f"bank/extracts/bank-20261120.csv had other content before, in run {first}",
    )


def test_of_two_runs_of_one_extract_the_second_is_told_who_works(tmp_path: Path) -> None:
    bench, extract, manifest = submitted(tmp_path, 10)
    run = manifest.run
    uncommit(tmp_path, run)
    Lease.take(work_on(bench.adapters, run), "another:7", NOON, timedelta(minutes=10))

    with pytest.raises(ClaimedError, match="another:7"):
        bench.submit(extract)

    later = replace(bench, now=lambda: NOON + timedelta(minutes=11))
    assert later.submit(extract).manifest.run == run


def content(rows: int, bad: int = 0, count: int | None = None) -> bytes:
    changes = [{COUNTRY: "Atlantis"} if at < bad else {} for at in range(rows)]
    pans = ["4242424242424242", "4111111111111111", "5555555555554444"]
    cards = [{**change, PAN: pans[at % 3]} for at, change in enumerate(changes)]
    text = portal_csv(portal_rows(*cards))
    return text if count is None else text + f"#TRAILER,{count}\n".encode()


@pytest.mark.parametrize(
    ("changes", "extract", "refused"),
    [
        (
            {"source": {"trailer": r"^#TRAILER,([0-9]+)$"}},
            content(10, count=11),
            TrailerMismatchError,
        ),
        ({}, content(0), EmptyExtractError),
        ({}, content(10, bad=6), RejectRateError),
        ({"test": False}, content(10), WrongCardsError),
    ],
)
def test_a_refused_run_leaves_a_reason_and_no_manifest(
    tmp_path: Path, changes: dict[str, object], extract: bytes, refused: type[CardlinkError]
) -> None:
    bench = local_bench(tmp_path, **changes)
    name = bench.drop_bytes(extract)

    with pytest.raises(CardlinkError) as error:
        bench.submit(name)

    assert type(error.value) is refused
    assert not [*bench.runs.committed()]
    [event] = bench.stored(str(bench.runs.ids[0])).events("refused")
    assert refused.__name__ == event.facts["why"]
    says_next = isinstance(error.value, ExtractError | OperatorError)
    then = error.value.what_next if says_next else None
    assert then == event.facts.get("then")


def test_an_opened_gate_lets_the_run_pass_and_is_recorded(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    name = bench.drop_bytes(content(10, bad=6))
    with pytest.raises(RejectRateError):
        bench.submit(name)

    manifest = bench.submit(name, opened=["reject-rate"]).manifest

    [event] = bench.stored(manifest.run).events("opened")
    assert manifest.counts.rejected == 6
    assert ["reject-rate"] == event.facts["gates"]


def test_a_refused_run_has_its_rejects_listed_for_the_issuer(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)

    with pytest.raises(RejectRateError):
        bench.submit(bench.drop_bytes(content(10, bad=6)))

    listed = next(
        data for key, data in bench.snapshot().items() if key.endswith("report/rejects.csv")
    )
    rejects = pl.read_csv(BytesIO(listed), infer_schema=False)
    assert rejects["row"].to_list() == ["1", "2", "3", "4", "5", "6"]
    assert rejects["reason"].unique().to_list() == ["address.country.unknown"]


def test_the_rejects_of_a_committed_run_are_listed_before_any_answer(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)

    run = bench.submit(bench.drop_bytes(content(10, bad=3))).manifest.run

    rejects = pl.read_csv(BytesIO(bench.report(run, "rejects.csv")), infer_schema=False)
    assert rejects.select("row", "cuid", "column", "reason").rows() == [
        (str(row), f"c-{row}", COUNTRY, "address.country.unknown") for row in (1, 2, 3)
    ]


def test_a_run_that_sends_nothing_has_its_whole_report_at_once(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)

    run = bench.submit(bench.drop_bytes(content(3, bad=3)), opened=["reject-rate"]).manifest.run

    summary = json.loads(bench.report(run, "summary.json"))
    assert (
        summary["rows"]["rejected"],
        summary["rows"]["awaiting"],
        summary["chunks"]["sent"],
    ) == (3, 0, 0)


def test_a_run_that_sends_nothing_and_died_before_its_report_has_it_from_the_next_run(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    run = bench.submit(bench.drop_bytes(content(3, bad=3)), opened=["reject-rate"]).manifest.run
    whole = bench.report(run, "summary.json")
    (tmp_path / "store" / keys_of(run).report("summary.json")).unlink()
    set_run(bench.adapters, run, report_due=True)

    bench.submit(bench.drop(10, "bank-2.csv", seed=2), opened=["row-jump"])

    assert whole == bench.report(run, "summary.json")


@pytest.mark.slow
def test_an_extract_half_the_usual_size_is_refused_once_there_is_a_habit(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    for day in (16, 17, 18):
        bench.submit(bench.drop(40, name=f"bank-202611{day}.csv", seed=day))

    with pytest.raises(RowJumpError):
        bench.submit(bench.drop(19, seed=19))


def test_a_key_that_is_not_the_pinned_one_is_refused_before_anything_is_read(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path, portal={"fingerprints": ["A" * 40]})
    extract = bench.drop(10)
    before = bench.snapshot()

    with pytest.raises(KeyNotPinnedError):
        bench.submit(extract)

    assert bench.snapshot() == before


def test_an_extract_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    bench.drop(10)

    with pytest.raises(ExtractNotFoundError) as error:
        bench.submit("other.csv")

    assert error.value.fields == {
        "name": "other.csv",
        "prefix": "bank/extracts/",
        "available": "bank-20261120.csv",
    }


def test_repeats_of_a_cuid_go_to_a_later_chunk(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    same = [{CUID: "c-1", PAN: "4242424242424242"}, {CUID: "c-1", PAN: "4111111111111111"}]

    manifest = bench.submit(bench.drop_bytes(portal_csv(portal_rows(*same)))).manifest

    assert [chunk.rows for chunk in manifest.chunks] == [1, 1]


def test_a_store_holds_no_card_number_outside_the_extract(tmp_path: Path) -> None:
    bench: Bench = local_bench(tmp_path)
    bench.submit(bench.drop(200, bad=0.3))
    pans = [
        row[1]
        for row in csv.reader(StringIO(bench.content("bank/extracts/bank-20261120.csv").decode()))
        if row
    ]

    rest = [data for key, data in bench.snapshot().items() if "/extracts/" not in key]

    assert [
        pan for pan in pans[1:] if len(pan) > 12 and any(pan.encode() in data for data in rest)
    ] == []
