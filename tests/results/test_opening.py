"""A file that cannot be used says what it looks like and what to do; each limit refuses the whole
file.
"""

from __future__ import annotations

import gzip
import io
import shutil
import zipfile
from contextlib import nullcontext
from pathlib import Path

import pytest
from polars.exceptions import PanicException

from flows.adapters.gpg_opener import GpgOpener
from flows.adapters.gpg_sealer import GpgSealer
from flows.reports.ingestion import Ingested, ingest
from flows.results import attribution, opening
from flows.results.error_text import LONGEST, parse_error
from flows.results.problems import describe
from flows.runs.sealing import Plain
from tests import keys
from tests.builders import quick
from tests.night import NOON, Bench, local_bench
from tests.results.outcomes import read_result

HEAD = "cuid,last_4,url,expiration_date,error\n"


def workbook(member: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(member, "x")
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it has no rows"),
        (b"hello,world\n1,2\n", "it does not have the header of a result"),
        (b"<html><body>Please <a>log in</a></body></html>", "it looks like a login page"),
        (
            b"<!DOCTYPE html><title>Session expired</title>" + b"x" * 200_000,
            "it looks like a login page",
        ),
        (b"<html><p>Out of order</p></html>", "it looks like a web page or XML"),
        (workbook("result.csv"), "it looks like a ZIP archive"),
        (workbook("xl/workbook.xml"), "it looks like an Excel workbook"),
        (b"%PDF-1.7\n", "it looks like a PDF"),
        (b'[{"cuid":"c-1"}]', "it looks like JSON"),
        (b"\0\1\2\3" * 900, "it looks like binary data"),
        (
            gzip.compress(gzip.compress(HEAD.encode(), mtime=0), mtime=0),
            "it looks like compressed twice",
        ),
        (b"cardholder.cuid,service_card.pan\n1,2\n", "it looks like an extract"),
        (gzip.compress(HEAD.encode() * 50, mtime=0)[:-20], "its gzip data is cut off or damaged"),
        (f"{HEAD}c-1,1111,https://li".encode(), "it ends in the middle of a row"),
    ],
)
def test_a_file_that_is_no_result_says_what_it_looks_like_and_what_to_do(
    content: bytes, words: str
) -> None:
    wrong, then = describe(read_result(content, "r.csv").problems)

    assert words in wrong
    assert then.endswith(".")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (gzip.compress(bytes(opening.LIMIT + 1), 1), opening.TOO_LARGE),
        (bytes(opening.LIMIT + 1), opening.TOO_LARGE),
        (gzip.compress(b"") * (opening.MEMBERS + 1), opening.GZIP_MEMBERS),
        (HEAD.encode() + b"\n" * opening.LINES, opening.LINES_MANY),
        (HEAD.encode() + b"\r\n" * (opening.LINES + 1), opening.LINES_MANY),
        (f'{HEAD},,,,"{"x" * opening.LINE}"\n'.encode(), opening.LINE_LONG),
        (
            f"{HEAD}c-1,1111,https://links.example/{'x' * opening.CELL},,\n".encode(),
            opening.CELL_LONG,
        ),
        (f"cuid,url,error{',x' * opening.COLUMNS}\n".encode(), opening.COLUMNS_MANY),
        (f"{HEAD}{',' * opening.COLUMNS}\n".encode(), opening.COLUMNS_MANY),
        (HEAD.encode() + (b"," * 999 + b"\n") * (opening.CELLS // 999 + 1), opening.WORK),
        (f"{HEAD}{',x' * opening.COLUMNS}".encode(), opening.COLUMNS_MANY),
        # each line opens a quote that swallows all others
        ((HEAD + 'a",",x\n' * 20_000).encode(), opening.WORK),
        (
            HEAD.encode() + b"".join(b",,,,%d%s\n" % (at, b"x" * LONGEST) for at in range(450)),
            opening.WORK,
        ),
    ],
)
def test_a_file_beyond_a_limit_is_refused_whole(content: bytes, problem: str) -> None:
    read = read_result(content, "r.csv")

    assert (problem in read.problems, read.rows.is_empty()) == (True, True)


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(b"") * (opening.MEMBERS - 1)
        + gzip.compress(f"{HEAD}c-1,1111,,,no\n".encode()),
        f'{HEAD}c-1,1111,,,"{"x" * (opening.LINE - 30)}"\n'.encode(),
        f"{HEAD}c-1,1111,{'x' * opening.CELL},,\n".encode(),
        f"cuid,url,error{',x' * (opening.COLUMNS - 3)}\nc-1,,no\n".encode(),
        (f"c-0,1111,,,{'x' * 140_000}\n" * 3 + f"{HEAD}c-1,1111,,,no\n").encode(),
    ],
)
def test_a_file_at_a_limit_is_read(content: bytes) -> None:
    read = read_result(content, "r.csv")

    assert ["c-1"] == read.rows["cuid"].to_list()


@pytest.mark.parametrize("text", ["\\" * LONGEST, '\\"' * (LONGEST // 2), "\\'" * (LONGEST // 2)])
def test_backslashes_in_an_error_do_not_make_it_slow(text: str) -> None:
    assert parse_error(text).reasons


def drop_good(bench: Bench, name: str) -> str:
    """Drop a good result for a new run; return the run."""
    run = bench.submit(bench.drop(3, seed=len(name))).manifest.run
    table = [
        f"{row['cuid']},{row['last_4']},https://links.example.com/{row['row']},2027-01-20,"
        for row in bench.ledger(run).to_dicts()
    ]
    bench.drop_result((HEAD + "\n".join(table) + "\n").encode(), name)
    return run


@pytest.mark.parametrize(
    "kind", quick(1, [PanicException, RuntimeError, MemoryError, RecursionError])
)
def test_a_file_whose_reading_fails_unforeseen_is_a_break_and_the_others_are_ingested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    def fails(text: str, known: tuple[str, ...] = ()) -> object:
        if text == "boom":
            raise kind("4242424242424242")
        return parse_error(text, known)

    bench = local_bench(tmp_path)
    drop_good(bench, "good.csv")
    bench.drop_result(f"{HEAD},,,,boom\n".encode(), "bad.csv")
    monkeypatch.setattr(attribution, "parse_error", fails)  # nothing known makes it fail

    done = bench.ingest()

    assert {"linked": 3} == {
        name: rows for name, rows in done.reports[0].summary["rows"].items() if name == "linked"
    }
    assert [True] == [
        f"it could not be read (file.reading.failed {kind.__name__} at test_opening.py" in told
        for told in done.breaks
    ]
    assert "4242" not in done.breaks[0]
    assert 0 == len(bench.ingest().breaks)


def sealed(content: bytes, name: str = "r.csv") -> bytes:
    """Return a message for our key."""
    key = keys.sound()
    with GpgSealer(
        [key.public], [key.fingerprint], armor=False, compression="zip", today=NOON.date()
    ) as sealer:
        return sealer.seal([Plain(name, content)])[0].data


def ingest_with(bench: Bench, secret: bytes) -> Ingested:
    """Ingest with a private key."""
    with GpgOpener([secret]) as opener:
        return ingest(
            bench.context._replace(
                opener=lambda: nullcontext(opener), opener_key=lambda: str(hash(secret))
            )
        )


def test_an_encrypted_result_waits_for_its_key_and_is_ingested_once_that_is_there(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    drop_good(bench, "good.csv")
    bench.drop_result(sealed(bench.content("bank/results/good.csv")), "good.csv")

    without, again, other, ours = (
        bench.ingest(),
        bench.ingest(),
        ingest_with(bench, keys.lasting(400).secret),
        ingest_with(bench, keys.sound().secret),
    )

    assert "it looks like an OpenPGP message" in without.breaks[0]
    assert () == again.breaks
    assert "it is encrypted for another key" in other.breaks[0]
    assert ((), 0, 3) == (ours.breaks, ours.open_files, ours.reports[0].summary["rows"]["linked"])


def test_a_message_opens_although_the_agent_failed_once(tmp_path: Path) -> None:
    gpg = tmp_path / "gpg"
    status = "[GNUPG:] ERROR pkdecrypt_failed 16777419"
    fails = f"mkdir {tmp_path}/failed 2>/dev/null && echo '{status}' >&2 && exit 2"
    gpg.write_text(
        f'#!/bin/sh\ncase "$*" in *--decrypt*) {fails};; esac\nexec {shutil.which("gpg")} "$@"\n'
    )
    gpg.chmod(0o700)

    with GpgOpener([keys.sound().secret], gpg=str(gpg)) as opener:
        assert b"x" == opener.open(sealed(b"x"), 100)

    assert (tmp_path / "failed").is_dir()


@pytest.mark.slow
def test_a_message_that_opens_to_too_much_is_a_break_and_the_others_are_ingested(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    drop_good(bench, "good.csv")
    bench.drop_result(sealed(bytes(opening.LIMIT + 1)), "bomb.pgp")
    bench.drop_result(sealed(b"x")[:-9], "cut.pgp")

    done = ingest_with(bench, keys.sound().secret)

    assert 3 == done.reports[0].summary["rows"]["linked"]
    assert ["it opens to more than", "not a complete encrypted message"] == [
        next(
            words
            for words in ("it opens to more than", "not a complete encrypted message")
            if words in told
        )
        for told in done.breaks
    ]


@pytest.mark.slow
def test_a_file_that_the_store_does_not_give_out_is_a_break_and_read_each_time(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    drop_good(bench, "good.csv")
    long = tmp_path / "store/bank/results" / ("x" * 230)
    long.write_bytes(b"x")

    first, second = bench.ingest(), bench.ingest()
    long.rename(long.with_name("short.csv"))
    third = bench.ingest()

    assert 3 == first.reports[0].summary["rows"]["linked"]
    assert "its name is not a valid key" in first.breaks[0]
    assert ((), 1) == (second.breaks, second.open_files)
    assert "it does not have the header of a result" in third.breaks[0]
