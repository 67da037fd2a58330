"""Result files are hostile until shown otherwise: bounded, harmless whatever they are named, caught
when they lie.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import resource
from pathlib import Path

import pytest

from flows.adapters.gpg_opener import GpgOpener
from flows.adapters.gpg_sealer import GpgSealer
from flows.results.opening import LIMIT
from flows.runs.keys import results
from flows.runs.sealing import Plain, SealedUnreadableError
from tests import keys
from tests.builders import quick
from tests.night import BANK, NOON, Bench, local_bench

HEAD = "cuid,last_4,url,expiration_date,error\n"
LINK = "https://links.example.com/l/x"
NAMES = (
    "=HYPERLINK(1).csv",
    "+cmd|' C!A0.csv",
    "<script>alert(1).csv",
    "..%2f..%2fetc%2fpasswd.csv",
    "-rf.csv",
    "a'b\"c`d$(e).csv",
    "ünïcode \u202egpj.csv",
)
# names of files that no key can be made of
NO_KEYS = (b"two\nlines.csv", b"a\tb.csv", b"\xff\xfe.csv")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return local_bench(tmp_path)


def submitted(bench: Bench, rows: int = 3) -> tuple[str, list[dict[str, object]]]:
    run = bench.submit(bench.drop(rows)).manifest.run
    return run, bench.ledger(run).to_dicts()


def report_rows(bench: Bench, run: str, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(bench.report(run, name).decode())))


def folder(tmp_path: Path) -> Path:
    path = tmp_path / "store" / results(BANK)
    path.mkdir(parents=True, exist_ok=True)
    return path


def test_a_result_too_large_is_named_and_not_read(bench: Bench, tmp_path: Path) -> None:
    submitted(bench)
    with (folder(tmp_path) / "huge.csv").open("wb") as file:
        file.truncate(40 * LIMIT)  # sparse
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    done = bench.ingest()

    assert "file.content.too_large" in done.breaks[0]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


@pytest.mark.parametrize(
    "bomb",
    [
        gzip.compress(bytes(LIMIT + 1), mtime=0),
        gzip.compress(HEAD.encode() * (LIMIT // 38 + 9), mtime=0),
    ],
)
def test_what_unpacks_beyond_the_limit_is_named(bench: Bench, bomb: bytes) -> None:
    submitted(bench)
    bench.drop_result(bomb, "bomb.csv.gz")

    done = bench.ingest()

    assert "file.content.too_large" in done.breaks[0]


def test_a_name_is_only_a_name(bench: Bench, tmp_path: Path) -> None:
    run, sent = submitted(bench, len(NAMES) + 1)
    for at, (name, row) in enumerate(zip([*NAMES, "well-named.csv"], sent, strict=True)):
        line = f"{row['cuid']},{row['last_4']},{LINK}{at},2027-01-20,\n"
        (folder(tmp_path) / name).write_text(f"{HEAD}{line}ghost,1111,,,no\n")
    outside = set(tmp_path.iterdir())

    bench.ingest()

    linked = {row["cuid"] for row in report_rows(bench, run, "links.csv")}
    page = bench.report(run, "report.html").decode()
    assert {row["cuid"] for row in sent} == linked
    assert "<script" not in page
    assert outside == set(tmp_path.iterdir())


@pytest.mark.parametrize("name", quick(1, list(NO_KEYS)))
def test_a_name_that_is_no_key_is_told_and_stops_nothing(
    bench: Bench, tmp_path: Path, name: bytes
) -> None:
    run, sent = submitted(bench)
    # no Path has such a name
    with open(os.fsencode(folder(tmp_path)) + b"/" + name, "wb") as file:  # noqa: PTH123
        file.write(b"x")
    (folder(tmp_path) / "well-named.csv").write_text(
        f"{HEAD}{sent[1]['cuid']},{sent[1]['last_4']},{LINK},2027-01-20,\n"
    )

    done = bench.ingest()

    assert "file.content.missing" in done.breaks[0]
    assert {sent[1]["cuid"]} == {row["cuid"] for row in report_rows(bench, run, "links.csv")}


def test_texts_of_the_partner_become_neither_formulas_nor_markup(bench: Bench) -> None:
    run, sent = submitted(bench)
    texts = ['=HYPERLINK("http://evil.example","x")', "@SUM(1)", "<img src=x onerror=alert(1)>"]
    table = "".join(
        f'{row["cuid"]},{row["last_4"]},,,"{text.replace(chr(34), chr(34) * 2)}"\n'
        for row, text in zip(sent, texts, strict=True)
    )
    bench.drop_result((HEAD + table).encode())

    bench.ingest()

    cells = [cell for row in report_rows(bench, run, "errors.csv") for cell in row.values()]
    page = bench.report(run, "report.html").decode()
    assert len(cells) > 3
    assert not [cell for cell in cells if cell.startswith(("=", "@", "+", "-"))]
    assert "<img" not in page
    assert "default-src 'none'" in page


NOT_ALLOWED = (
    "http://links.example.com/l/x",
    "https://links.example.com.evil.example/l",
    "https://links.example.com@evil.example/",
    "javascript:alert(1)",
    "https://evil.example/l",
    "https://links.example.com:8443/x",
    "//links.example.com/x",
    "httpſ://links.example.com/x",
    "https://lin\u212as.example.com/x",
)


def test_an_address_that_is_not_allowed_is_a_break_and_no_link(bench: Bench) -> None:
    run, sent = submitted(bench, len(NOT_ALLOWED))
    lines = [
        f"{row['cuid']},{row['last_4']},{url},2027-01-20,"
        for row, url in zip(sent, NOT_ALLOWED, strict=True)
    ]
    bench.drop_result("\n".join([HEAD.strip(), *lines]).encode())

    report = bench.ingest().reports[0]

    assert [("URL_NOT_ALLOWED", len(NOT_ALLOWED))] == [
        (found.name, found.rows) for found in report.breaks
    ]
    assert [] == report_rows(bench, run, "links.csv")


def test_another_cards_last_four_is_a_break_and_no_link(bench: Bench) -> None:
    run, sent = submitted(bench, 1)
    bench.drop_result(f"{HEAD}{sent[0]['cuid']},9999,{LINK},2027-01-20,\n".encode())

    report = bench.ingest().reports[0]

    assert {"LAST4_MISMATCH"} == {found.name for found in report.breaks}
    assert [] == report_rows(bench, run, "links.csv")


def test_a_sealed_result_is_bounded_once_opened() -> None:
    key = keys.sound()
    with GpgSealer(
        [key.public], [key.fingerprint], armor=False, compression="zip", today=NOON.date()
    ) as sealer:
        message = sealer.seal([Plain("a.csv", bytes(4 << 20))])[0].data

    with GpgOpener([key.secret]) as opener, pytest.raises(SealedUnreadableError, match="too_large"):
        opener.open(message, 1 << 20)
