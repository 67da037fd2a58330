"""Each sentence of reports, trace, reconcile and the worklist is shown in the situation it speaks
of, and all occur.
"""

from __future__ import annotations

import ast
import html
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flows.reports import advice, cardholder, verdicts, worklist
from flows.runs.outbox import move
from flows.wiring import open_store
from schemas.breaks import KINDS
from tests import keys
from tests.builders import quick
from tests.cli.test_mend import cardlink, pin
from tests.copies import copy_folder
from tests.night import Bench, issuer, kept_folder
from tests.operations.test_decide import HEAD, LINE, WHY, answer

UNREACHED = {  # held to their situations by tests of their own in test_trace.py
    "was requested as a single link, with unknown outcome",
    "ask the partner before requesting it again",
    "was not requested: the service did not accept the request",
    "is a duplicate in its extract",
}
ERROR = ',,,,"{text}"\n'


class Night(NamedTuple):
    """A run of two chunks in a store that the command line reads."""

    bank: Bench
    folder: Path
    run: str

    def cardlink(self, *words: str) -> str:
        return cardlink(self.folder, *words).output.replace(f" --config {self.folder}", "")

    def error(self, row: int, message: str) -> str:
        """Return the result row of a refused row."""
        cuid = self.bank.ledger(self.run).row(row - 1, named=True)["cuid"]
        return ERROR.format(text=json.dumps({"cuid": cuid, "errors": [message]}).replace('"', '""'))

    def text(self) -> str:
        """Return what the report, trace, reconcile and the worklist say now."""
        cuids = self.bank.ledger(self.run)["cuid"].drop_nulls().to_list()
        refused = self.bank.ledger(self.run).filter(fate="rejected")["cuid"].drop_nulls().head(1)
        traced = [self.cardlink("trace", cuid) for cuid in dict.fromkeys((cuids[9], *refused))]
        shown = [
            self.cardlink(*words.split())
            for words in (f"report {self.run}", "reconcile bank", "worklist bank")
        ]
        page = html.unescape(self.bank.report(self.run, "report.html").decode())
        lists = [
            self.bank.report(self.run, f"{name}.csv").decode() for name in ("awaiting", "questions")
        ]
        return "\n".join([*traced, *shown, page, *lists])


def untouched(night: Night) -> None:
    """The chunks wait for their upload."""


def held(night: Night) -> None:
    night.cardlink("outbox", "hold", night.run, "1", "2", *WHY)


def cancelled(night: Night) -> None:
    night.cardlink("outbox", "cancel", night.run, "1", "2", *WHY)


def uploaded(night: Night) -> None:
    night.cardlink("outbox", "uploaded", night.run)


def short(night: Night) -> None:
    answer(night.bank, night.run, 1, rows=9)
    night.cardlink("ingest", "bank")


def lost(night: Night) -> None:
    short(night)
    night.cardlink(
        "mend", "close", night.run, "RESULT_SHORT", "--rows", "1", "--decision", "lost", *WHY
    )


def expired(night: Night) -> None:
    ended = LINE.format(**night.bank.ledger(night.run).row(9, named=True)).replace("2099", "2020")
    answer(night.bank, night.run, 1, rows=9, tail=ended)
    answer(night.bank, night.run, 2)
    night.cardlink("ingest", "bank")


def refused(night: Night) -> None:
    rows = [("city is required", 8), ("Service unavailable", 9), ("card type is not supported", 10)]
    answer(
        night.bank, night.run, 1, rows=7, tail="".join(night.error(row, text) for text, row in rows)
    )
    answer(night.bank, night.run, 2)
    night.cardlink("ingest", "bank")


def ending(night: Night) -> None:
    soon = (datetime.now(UTC).date() + timedelta(days=3)).isoformat()
    for chunk in (1, 2):
        answer(night.bank, night.run, chunk)
    for name in list(night.bank.store.keys("bank/results/")):
        night.bank.store.replace(
            name.key, [night.bank.content(name.key).replace(b"2099-01-01", soon.encode())]
        )
    night.cardlink("ingest", "bank")


def answered(night: Night) -> None:
    for chunk in (1, 2):
        answer(night.bank, night.run, chunk)
    night.cardlink("ingest", "bank")


def twice(night: Night) -> None:
    answered(night)
    night.cardlink("resubmit", night.run, "--row", "1", "--override", "the customer lost it", *WHY)


# The situation, what is said of it, and what is not.
SITUATIONS: dict[Callable[[Night], None], tuple[tuple[str, ...], tuple[str, ...]]] = {
    untouched: (
        ("waits for its upload", "chunks to upload", "Upload 2 chunks if not done yet"),
        ("results overdue",),
    ),
    held: (("is on hold with its chunk", "chunks on hold"), ("chunks to upload",)),
    cancelled: (("was not sent: its chunk was cancelled",), ("chunks to upload", "chunks on hold")),
    uploaded: (("was uploaded and has no answer yet", "results awaited"), ("chunks to upload",)),
    short: (
        ("has no answer in its chunk's result", "break RESULT_SHORT: 1 (cardlink worklist bank)"),
        ("Nothing to do",),
    ),
    lost: (
        ("has no usable answer, as an operator decided", "rows decided lost, to send again"),
        ("break RESULT",),
    ),
    expired: (
        ("a link had already expired when its result arrived", "decide that it expired"),
        ("overdue",),
    ),
    refused: (
        (
            "was refused by the partner",
            "rows to correct",
            "errors to send again",
            "errors to ask about",
        ),
        ("rows decided lost",),
    ),
    ending: (
        ("their links expire within 7 days", "links to renew", "it expires soon"),
        ("results awaited",),
    ),
    twice: (("Look at 1 card with a link or a wait in more than one run",), ()),
    answered: (
        ("no row sent waits for an answer", "has a link until 2099-01-01"),
        ("still wait", "worklist bank"),
    ),
}


def a_night(folder: Path, moment: datetime | None = None, bad: float = 0.0) -> Night:
    store, run = _submitted(moment, bad)
    copy_folder(store.parent, folder)
    return Night(_bank(folder, moment), folder, run)


@cache
def _submitted(moment: datetime | None, bad: float) -> tuple[Path, str]:
    (folder := kept_folder("night-")).joinpath("store").mkdir()
    bank = _bank(folder, moment)
    return folder / "store", bank.submit(bank.drop(20, bad=bad)).manifest.run


def _bank(folder: Path, moment: datetime | None) -> Bench:
    pin(folder, keys.sound())
    return Bench(
        open_store(issuer(), folder),
        issuer(portal={"rows_per_chunk": 10}),
        now=lambda: moment or datetime.now(UTC),
    )


def _in(situation: Callable[[Night], None], folder: Path) -> Night:
    night = a_night(folder)
    situation(night)
    return night


def _uploaded(moment: datetime, folder: Path) -> Night:
    night = a_night(folder, moment)
    move(night.bank.context.adapters, night.run, "uploaded")
    return night


LONG_AGO = datetime(2026, 11, 1, tzinfo=UTC)
NIGHTS: dict[str, Callable[[Path], Night]] = {
    **{situation.__name__: partial(_in, situation) for situation in SITUATIONS},
    "overdue": partial(_uploaded, LONG_AGO),
    "overdue since yesterday": partial(_uploaded, datetime.now(UTC) - timedelta(days=3)),
    "rejects": partial(a_night, bad=0.3),
}


class Texts(dict[str, str]):
    """What is said of each night, once it is asked for."""

    def __init__(self, folder: Callable[[str], Path]) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, name: str) -> str:
        self[name] = NIGHTS[name](self._folder(name.replace(" ", "-"))).text()
        return self[name]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Texts:
    return Texts(tmp_path_factory.mktemp)


@pytest.mark.parametrize("situation", quick(4, list(SITUATIONS)))
def test_a_situation_has_the_sentences_that_are_true_of_it(
    texts: Texts, situation: Callable[[Night], None]
) -> None:
    true, untrue = SITUATIONS[situation]

    text = texts[situation.__name__]

    assert [sentence for sentence in true if sentence not in text] == []
    assert [sentence for sentence in untrue if sentence in text] == []


def test_an_overdue_result_is_said_to_be_overdue(texts: Texts) -> None:
    text = texts["overdue"]

    assert "results overdue" in text
    assert "They are overdue: answers are expected within" in text


def templates() -> Iterator[str]:
    """Yield the pattern of every sentence in the code that makes them: three words or more, and no
    docstring.
    """
    tables = {
        verdicts: {"OF_A_RUN"},
        advice: {
            "advice",
            "_about_breaks",
            "_about_waiting_chunks",
            "_about_refusals",
            "_about_links",
            "across_advice",
        },
        worklist: {"_chunk", "_breaks"},
        cardholder: {"_WAITS", "_WORDS"},
    }
    for module in tables:
        tree = ast.parse(Path(str(module.__file__)).read_text())
        for part in tree.body:
            named = getattr(part, "name", None) or next(iter(getattr(part, "targets", [])), None)
            name = named if isinstance(named, str) else getattr(named, "id", "")
            if name in tables[module]:
                yield from _texts(part)


def _texts(part: ast.AST) -> Iterator[str]:
    if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant):  # a docstring
        return
    if isinstance(part, ast.JoinedStr | ast.Constant):
        values = part.values if isinstance(part, ast.JoinedStr) else [part]
        pieces = [
            re.escape(str(value.value)) if isinstance(value, ast.Constant) else ".+"
            for value in values
        ]
        pattern = re.sub(r"\\\{.*?\\\}", ".+", "".join(pieces))
        if len(pattern.replace("\\ ", " ").split()) >= 3:
            yield pattern
        return
    for child in ast.iter_child_nodes(part):
        yield from _texts(child)


@pytest.mark.slow
def test_every_sentence_of_the_code_is_said_in_some_situation(texts: Texts) -> None:
    everything = "\n".join(texts[name] for name in NIGHTS)

    unsaid = {pattern for pattern in templates() if not re.search(pattern, everything)}

    assert {re.sub(r"\\(.)", r"\1", pattern) for pattern in unsaid} - UNREACHED == set()


LINKS = "https://links.example.com"


def line(sent: dict[str, Any], **other: str) -> str:
    """Return the result row of a sent row, with other cells than the portal would give."""
    cells = {
        "cuid": sent["cuid"],
        "last_4": sent["last_4"],
        "url": f"{LINKS}/{sent['row']}",
        "ends": "2099-01-01",
        "error": "",
    }
    return ",".join({**cells, **other}.values()) + "\n"


def lines(rows: list[dict[str, Any]]) -> list[str]:
    return [line(row) for row in rows]


def cut(rows: list[dict[str, Any]]) -> bytes:
    """Return a result file that ends within its last link."""
    cells = [f"{row['cuid']},{row['last_4']},,{LINKS}/{row['row']}" for row in rows]
    return "\n".join(["cuid,last_4,error,url", *cells])[:-1].encode()


# What is wrong with the result of a chunk, by the break that it is; a chunk has ten rows.
WRONG: dict[str, Callable[[list[dict[str, Any]]], list[str]]] = {
    "RESULT_SHORT": lambda rows: lines(rows[:8]),
    "RESULT_LONG": lambda rows: [*lines(rows), line(rows[0])],
    "UNKNOWN_CUID": lambda rows: [*lines(rows), line(rows[0], cuid="stranger")],
    "LAST4_MISMATCH": lambda rows: [line(rows[0], last_4="0000"), *lines(rows[1:])],
    "URL_AND_ERROR": lambda rows: [line(rows[0], error="odd"), *lines(rows[1:])],
    "NEITHER_URL_NOR_ERROR": lambda rows: [line(rows[0], url="", ends=""), *lines(rows[1:])],
    "UNATTRIBUTED_ERROR": lambda rows: [",,,,oops\n", ",,,,oops\n", *lines(rows[:1:-1])],
    "UNNAMED_ROW": lambda rows: [
        line(rows[0], cuid=""),
        line(rows[1], cuid=""),
        *lines(rows[:1:-1]),
    ],
    "URL_NOT_ALLOWED": lambda rows: [line(rows[0], url="https://evil.example/1"), *lines(rows[1:])],
    "LINK_FORM": lambda rows: [line(rows[0], url=f"{LINKS}/a/b?c=d"), *lines(rows[1:])],
    "LINK_SHOWS_CARD": lambda rows: [line(rows[0], url=f"{LINKS}/?cvv=123"), *lines(rows[1:])],
    "LINK_CUT": lines,  # and the file is cut
    "EXPIRY_UNREADABLE": lambda rows: [line(rows[0], ends="next year"), *lines(rows[1:])],
    "LINK_EXPIRED": lambda rows: [line(rows[0], ends="2020-01-01"), *lines(rows[1:])],
    "RESULT_FOR_CANCELLED": lines,
    "DAMAGED_FILE": lambda _: [],
    "CONFLICTING_RESULT": lines,
    "DUPLICATE_RESULT": lines,
    "STRANGE_NAME": lines,
}
APART = {"MISNAMED_FILE", "MERGED_FILE", "FOREIGN_FILE"}  # about a file as a whole, and two chunks
# of transaction reports: tests/extensions/partner_api; beside a whole file: tests/results/test_reconcile.py
ELSEWHERE = {
    "UNKNOWN_TRANSACTION",
    "DAMAGED_TRANSACTIONS",
    "UNREADABLE_TRANSACTIONS",
    "DAMAGED_COPY",
}
AGAIN = (
    "RESULT_SHORT",
    "DAMAGED_FILE",
    "LINK_CUT",
)  # what ends when the result is downloaded again


class WrongResults(NamedTuple):
    """A run of a chunk for each kind of break (two for a kind about two chunks)."""

    bank: Bench
    folder: Path
    run: str
    kinds: dict[int, str]  # by chunk
    chunks: dict[str, int]  # by kind, its last

    def sent(self, chunk: int) -> list[dict[str, Any]]:
        """Return the rows of a chunk as they were sent."""
        return self.bank.ledger(self.run).filter(chunk=chunk).sort("position").to_dicts()

    def drop(self, name: str, rows: list[str]) -> None:
        """Drop a result file."""
        content = (HEAD + "".join(rows)).encode()
        self.bank.store.replace(f"bank/results/{name}.csv", [content])

    def name_of(self, kind: str) -> str:
        """Return the name of the chunk that has a kind of break."""
        return f"{self.run}-{self.chunks[kind]:05d}"

    def kinds_at(self, place: str) -> set[str]:
        """Return what is wrong with the chunks that a place names."""
        return {self.kinds[int(chunk)] for chunk in re.findall(r"chunk (\d+)", place)}

    def ingest(self) -> str:
        """Ingest what was dropped; return what was shown."""
        return str(cardlink(self.folder, "ingest", "bank").output)

    def breaks(self) -> list[dict[str, Any]]:
        """Return the breaks of the run's report."""
        summary = json.loads(self.bank.report(self.run, "summary.json"))
        breaks: list[dict[str, Any]] = summary["breaks"]
        return breaks


def wrong_results(folder: Path) -> WrongResults:
    """Drop a result that is wrong in its way for each kind of break."""
    (folder / "store").mkdir()
    pin(folder, keys.sound())
    bank = Bench(
        open_store(issuer(), folder),
        issuer(portal={"rows_per_chunk": 10}),
        now=lambda: datetime.now(UTC),
    )
    run = bank.submit(bank.drop(10 * (len(WRONG) + 5))).manifest.run
    kinds = dict(enumerate([*WRONG, *["MISNAMED_FILE"] * 2, *["MERGED_FILE"] * 2], 1))
    chunks = {kind: chunk for chunk, kind in kinds.items()}
    wrong = WrongResults(bank, folder, run, kinds, chunks)
    cardlink(folder, "outbox", "cancel", run, str(chunks["RESULT_FOR_CANCELLED"]), *WHY)
    for kind, rows in WRONG.items():
        name = "bank-20261101-aaaaaaaa-00001" if kind == "STRANGE_NAME" else wrong.name_of(kind)
        wrong.drop(name, rows(wrong.sent(chunks[kind])))
    other_links = [
        line(row, url=f"{LINKS}/x{row['row']}") for row in wrong.sent(chunks["CONFLICTING_RESULT"])
    ]
    wrong.drop("other", other_links)
    wrong.drop("copy", lines(wrong.sent(chunks["DUPLICATE_RESULT"]))[::-1])
    misnamed = chunks["MISNAMED_FILE"]
    wrong.drop(f"{run}-{misnamed:05d}", lines(wrong.sent(misnamed - 1)))
    wrong.drop(f"{run}-{misnamed - 1:05d}", lines(wrong.sent(misnamed)))
    merged = chunks["MERGED_FILE"]
    wrong.drop("merged", lines([*wrong.sent(merged - 1), *wrong.sent(merged)]))
    name = f"bank/results/{wrong.name_of('LINK_CUT')}.csv"
    bank.store.replace(name, [cut(wrong.sent(chunks["LINK_CUT"]))])
    page = "<!DOCTYPE html><html><body>Your session has expired</body></html>"
    bank.store.replace(f"bank/results/{wrong.name_of('DAMAGED_FILE')}.csv", [page.encode()])
    wrong.drop("foreign", [line(wrong.sent(1)[0], cuid="nobody")])
    return wrong


def about_lost_rows(wrong: WrongResults) -> list[str]:
    """Return what is said of files with rows that belong to no sent row."""
    nobody = "no run of this issuer sent them"
    files = (
        ("foreign", "FOREIGN_FILE", "1 of 1", nobody),
        (wrong.name_of("UNKNOWN_CUID"), "UNKNOWN_CUID", "1 of 11", nobody),
        *(
            (wrong.name_of(kind), kind, rows, KINDS[kind].meaning.rstrip("."))
            for kind, rows in (("RESULT_LONG", "1 of 11"), ("UNNAMED_ROW", "2 of 10"))
        ),
    )
    return [
        f"{name}.csv: {rows} rows belong to no sent row ({why}). {KINDS[kind].then}"
        for name, kind, rows, why in files
    ]


def test_each_kind_of_break_is_tried_here_or_named_as_tried_elsewhere() -> None:
    assert set(KINDS) == set(WRONG) | APART | ELSEWHERE


@pytest.mark.slow
def test_each_kind_of_break_is_reported_where_it_happened_with_what_to_do_until_that_is_done(
    tmp_path: Path,
) -> None:
    wrong = wrong_results(tmp_path)

    shown = wrong.ingest()
    breaks = wrong.breaks()
    page = html.unescape(wrong.bank.report(wrong.run, "report.html").decode())

    kinds = {run_break["name"] for run_break in breaks}
    assert {*WRONG, "MISNAMED_FILE", "MERGED_FILE"} - {"DAMAGED_FILE"} == kinds
    assert {name: str(KINDS[name].then) for name in kinds} == {
        run_break["name"]: run_break["then"] for run_break in breaks
    }
    assert [] == [name for name in kinds if str(KINDS[name].then) not in shown + page]
    assert [] == [sentence for sentence in about_lost_rows(wrong) if sentence not in shown]
    assert f"{wrong.name_of('DAMAGED_FILE')}.csv: " in shown
    elsewhere = [
        run_break
        for run_break in breaks
        if not wrong.kinds_at(run_break["place"]) <= {run_break["name"]}
    ]
    assert [] == elsewhere, shown

    for kind in AGAIN:
        wrong.drop(wrong.name_of(kind), lines(wrong.sent(wrong.chunks[kind])))
    wrong.ingest()
    left = {run_break["name"] for run_break in wrong.breaks()}

    assert set(WRONG) - set(AGAIN) <= left
    assert not left & set(AGAIN)
