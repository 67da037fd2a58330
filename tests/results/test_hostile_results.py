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


@pytest.mark.parametrize("name", NO_KEYS)
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
    "https://linKs.example.com/x",
    *(
        f"{LINK}/{shown}"
        for shown in (
            "4111111111111111",
            "12/4111111111111111",
            "994111111111111111",
            "41111111111111110",
            "?q=7&n=4111111111111111",
            "4111/1111/1111/1111",
            "411/1111/1111/11111",
            "4111/1111/1111/11110",
            "4111%2D1111%2D1111%2D1111",
            "id4111111111111111z",
            "%34%31%31%31%31%31%31%31%31%31%31%31%31%31%31%31",
            "pmWkWSBCL51Bfkhn79xPuKBKHz//H6B+mY6G9/eieuM=",
            "pmWkWSBCL51Bfkhn79xPuKBKHz__H6B-mY6G9_eieuM",
            "pmWkWSBCL51Bfkhn79xPuKBKHz%2F%2FH6B%2BmY6G9%2FeieuM%3D",
            "a665a45920422f9d417e4867efdc4fb8a04a1f3fff1fa07e998e86f7f7a27ae3",
            "A665A45920422F9D417E4867EFDC4FB8A04A1F3FFF1FA07E998E86F7F7A27AE3",
            "?cvv=668",
        )
    ),
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


TAILS = (
    "Zk3JpQx0b1vYtR7mN8sWq2LhCdEfGaUo-_12345abcd",
    "0ABCDEF0-5D1F-4C3B-9A7E-123456789012",
    "2026/11/20/8412",
    "12?cid=1234",
    "f" + "1234567890" * 3 + "a",
)


def test_an_address_with_an_identifier_is_a_link(bench: Bench) -> None:
    run, sent = submitted(bench, len(TAILS))
    lines = [
        f"{row['cuid']},{row['last_4']},{LINK}/{tail},2027-01-20,"
        for row, tail in zip(sent, TAILS, strict=True)
    ]
    bench.drop_result("\n".join([HEAD.strip(), *lines]).encode())

    bench.ingest()

    assert [f"{LINK}/{tail}" for tail in TAILS] == [
        row["url"] for row in report_rows(bench, run, "links.csv")
    ]


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
