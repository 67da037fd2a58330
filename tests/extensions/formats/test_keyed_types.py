"""Record types in one file joined by key: every row with its parts, wherever they are."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from flows.errors import CardlinkError
from flows.extensions.formats.forms import TypeMissingError
from flows.extensions.formats.joined import JoinedRows
from flows.extensions.formats.settings import FormatSettings
from flows.extracts.errors import TrailerError
from flows.extracts.rows import open_rows
from schemas.manifest import JoinedRows as Tally
from tests.extensions.formats import mainframe
from tests.extensions.formats.two_files import whole
from tests.night import local_bench

Record = tuple[str, ...]
SPANS: dict[str, dict[str, tuple[int, int]]] = {
    "01": {"TYPE": (1, 2), "CUST": (3, 8), "CARD": (9, 24), "NAME": (25, 34)},
    "02": {"TYPE": (1, 2), "CUST": (3, 8), "STREET": (9, 28)},
    "03": {"TYPE": (1, 2), "CUST": (3, 8), "NAME": (9, 13)},
}
KEYED: dict[str, Any] = {
    "segment_field": "TYPE",
    "segment_key": "CUST",
    "segment_optional": "03",
    "header_rows": 0,
}
COPYBOOK = """\
       01  CARD-RECORD.
           05  TYPE         PIC X(2).
           05  CUST         PIC X(6).
           05  CARD         PIC 9(16) COMP-3.
           05  NAME         PIC X(10).
       01  ADDRESS-RECORD.
           05  TYPE         PIC X(2).
           05  CUST         PIC X(6).
           05  STREET       PIC X(20).
       01  MAIL-RECORD.
           05  TYPE         PIC X(2).
           05  CUST         PIC X(6).
           05  NAME         PIC X(5).
"""
SOURCES: dict[str, dict[str, Any]] = {
    "delimited": KEYED
    | {"delimiter": "|", "segments": {kind: list(spans) for kind, spans in SPANS.items()}},
    "fixed": KEYED | {"format": "fixed", "segments": SPANS},
    "copybook": KEYED
    | {
        "encoding": "cp037",
        "record_format": "FB",
        "copybook": COPYBOOK,
        "segments": {"01": "CARD-RECORD", "02": "ADDRESS-RECORD", "03": "MAIL-RECORD"},
        "segment_key": {
            kind: f"{name}-RECORD.CUST"
            for kind, name in (("01", "CARD"), ("02", "ADDRESS"), ("03", "MAIL"))
        },
        "header_rows": 1,
    },
}


def bank(count: int, chance: random.Random) -> list[Record]:
    """Return the records of a file in any order: cards, addresses, mails of some."""
    records: list[Record] = []
    for number in range(count):
        cust = f"C{number:05d}"
        records.append(("01", cust, mainframe.card_number(number), f"ANN {number % 7}"))
        records.append(("02", cust, f"{number} ELM STREET"))
        if chance.random() < 0.3:
            records.append(("03", cust, f"M{number % 9}"))
    chance.shuffle(records)
    return records


def delimited(records: Sequence[Record]) -> bytes:
    return "".join("|".join(record) + "\n" for record in records).encode()


def fixed(records: Sequence[Record]) -> bytes:
    return "".join(map(_fixed_line, records)).encode()


def _fixed_line(record: Record) -> str:
    spans = SPANS.get(record[0], SPANS["02"]).values()
    cells = [
        cell.ljust(last - first + 1) for cell, (first, last) in zip(record, spans, strict=False)
    ]
    return "".join(cells) + "\n"


def packed(records: Sequence[Record]) -> bytes:
    return mainframe.FILES["FB"]([_packed(record).ljust(28, b"\x40") for record in records])


def _packed(record: Record) -> bytes:
    kind, cust, *cells = record
    data = mainframe.text(kind, 2) + mainframe.text(cust, 6)
    if kind == "01":
        return data + mainframe.packed(int(cells[0]), 16) + mainframe.text(cells[1], 10)
    return data + mainframe.text(cells[0], 20 if kind == "02" else 5)


WRITERS: dict[str, Callable[[Sequence[Record]], bytes]] = {
    "delimited": delimited,
    "fixed": fixed,
    "copybook": packed,
}


def oracle(records: Sequence[Record]) -> list[tuple[int, Record | str]]:
    """Join records one by one, as slowly as can be."""
    parts: dict[tuple[str, str], set[Record]] = {}
    for kind, cust, *cells in records:
        if cust.strip():
            parts.setdefault((kind, cust), set()).add(tuple(cells))
    expected: list[tuple[int, Record | str]] = []
    for record in records:
        row = len(expected) + 1
        if record[0] == "01":
            expected.append((row, _joined(record, parts)))
        elif record[0] not in SPANS:
            expected.append((row, "segment.type.unknown"))
    return expected


def _joined(record: Record, parts: dict[tuple[str, str], set[Record]]) -> Record | str:
    cells = record
    for kind in ("02", "03"):
        own = parts.get((kind, record[1]), set())
        if len(own) > 1:
            return "segment.key.ambiguous"
        if not own and kind == "02":
            return "segment.key.missing"
        cells = (*cells, kind, *(next(iter(own)) if own else ("",)))
    return _without_kinds(cells, has_mail=bool(parts.get(("03", record[1]))))


def _without_kinds(cells: Record, *, has_mail: bool) -> Record:
    """Return cells as they are read: a part that is lacking has no type either."""
    return cells if has_mail else (*cells[:-2], "", "")


def read(
    layout: str, records: Sequence[Record], block: int = 1 << 20, **changes: Any
) -> JoinedRows:
    source = FormatSettings.model_validate(SOURCES[layout] | changes)
    rows = open_rows(BytesIO(WRITERS[layout](records)), source, "cards.txt", block=block)
    assert isinstance(rows, JoinedRows)
    return rows


@pytest.mark.parametrize("layout", SOURCES)
@pytest.mark.parametrize("block", [90, 1500, 1 << 20])
def test_every_row_has_its_parts_in_every_layout_and_block_size(layout: str, block: int) -> None:
    records = bank(60, random.Random(block))

    rows = read(layout, records, block)

    assert oracle(records) == whole(list(rows))
    assert (60, len(records)) == (rows.height, rows.lines)


@pytest.mark.parametrize("layout", SOURCES)
def test_names_that_are_taken_have_their_type_and_the_key_stands_once(layout: str) -> None:
    header = read(layout, bank(3, random.Random(1))).header

    plain = ("TYPE", "CUST", "CARD", "NAME", "02.TYPE", "STREET", "03.TYPE", "03.NAME")
    assert plain == tuple(
        name.replace("CARD-RECORD.", "")
        .replace("ADDRESS-RECORD", "02")
        .replace("MAIL-RECORD", "03")
        for name in header
    )


@pytest.mark.parametrize("layout", SOURCES)
def test_what_no_row_needs_is_counted_and_what_a_row_lacks_is_named(layout: str) -> None:
    records = [
        *(("02", "C1", "1 ELM"), ("01", "C1", "4" * 16, "ANN"), ("02", "C9", "9 ELM")),
        *(("01", "C2", "4" * 16, "LI"), ("02", "C1", "1 ELM"), ("03", "C3", "M")),
        *(
            ("01", "C3", "4" * 16, "BO"),
            ("02", "C3", "3 ELM"),
            ("02", "C3", "OTHER"),
            ("07", "C1", "X"),
        ),
    ]

    rows = read(layout, records)
    blocks = list(rows)

    [alone] = [block.alone for block in blocks if block.alone is not None]
    key = "CARD-RECORD.CUST" if layout == "copybook" else "CUST"
    assert oracle(records) == whole(blocks)
    assert [f"no 02 record with its {key}", f"2 02 records with its {key}"] == alone[
        "found"
    ].to_list()
    assert Tally(read=6, used=4, unused=2, refused=0) == rows.tally


@pytest.mark.parametrize("layout", SOURCES)
def test_a_file_without_any_record_of_a_type_that_rows_need_is_refused(layout: str) -> None:
    with pytest.raises(TypeMissingError, match="no record of type 02"):
        list(read(layout, [("01", "C1", "4" * 16, "ANN")]))


@pytest.mark.parametrize("layout", ["delimited", "fixed"])
@pytest.mark.parametrize("by_key", [True, False])
def test_a_trailer_may_count_all_records(layout: str, by_key: bool) -> None:
    records = sorted(bank(20, random.Random(1)), key=lambda record: record[1::-1])
    key = {} if by_key else {"segment_key": (), "segment_optional": ()}
    counts = {"trailer": "^99[|]?([0-9]+)", "trailer_counts": "records"}
    source = FormatSettings.model_validate(SOURCES[layout] | key | counts)
    content = WRITERS[layout](records)

    rows = open_rows(BytesIO(content + f"99{len(records):06d}\n".encode()), source, "cards.txt")
    assert (20, None) == (sum(block.rows.height for block in rows), rows.trailer_count)
    assert {"trailer": 1, "parts": len(records) - 20} == rows.set_aside
    assert len(records) + 1 == rows.lines

    wrong = open_rows(BytesIO(content + b"99000020\n"), source, "cards.txt")
    with pytest.raises(TrailerError, match=f"counts 20 records, and {len(records)} were read"):
        list(wrong)


@pytest.mark.parametrize("layout", ["delimited", "fixed"])
def test_a_file_joined_by_key_may_have_a_header_record(layout: str) -> None:
    records = bank(20, random.Random(1))
    header = {"comment": "^00", "header_record": "^00[|]?([0-9]+)"}
    source = FormatSettings.model_validate(SOURCES[layout] | header)
    content = b"00000020\n" + WRITERS[layout](records)

    rows = open_rows(BytesIO(content), source, "cards.txt")

    assert 20 == sum(block.rows.height for block in rows)


def test_fixed_text_in_any_encoding_is_cut_by_characters() -> None:
    records = [("01", "C1", "4" * 16, "JOSÉ"), ("02", "C1", "1 CALLE ÑANDÚ")]
    content = fixed(records)

    for encoding in ("utf-8", "cp1252"):
        source = FormatSettings.model_validate(SOURCES["fixed"] | {"encoding": encoding})
        data = BytesIO(content.decode().encode(encoding))
        assert oracle(records) == whole(list(open_rows(data, source, "cards.txt")))


@pytest.mark.parametrize("block", [90, 1 << 20])
def test_fixed_text_is_joined_by_order_too(block: int) -> None:
    chance = random.Random(1)
    people = [bank(1, chance) for _ in range(40)]
    records = [record for person in people for record in sorted(person)]
    by_order = {"segment_key": (), "segment_optional": ()}
    source = FormatSettings.model_validate(SOURCES["fixed"] | by_order)

    rows = open_rows(BytesIO(fixed(records)), source, "cards.txt", block=block)

    expected = []
    for number, person in enumerate(people, 1):
        card, address, *mail = sorted(person)
        mails = mail[0] if mail else ("", "", "")
        expected.append((number, (*card, *address, *mails)))
    assert expected == whole(list(rows))
    assert ("TYPE", "CUST", "CARD", "NAME", "02.TYPE", "02.CUST", "STREET") == rows.header[:7]


def test_columns_of_plain_fixed_text_may_have_names() -> None:
    names = {"CUST": (1, 6), "CARD": (7, 22)}
    source = FormatSettings.model_validate(
        {"format": "fixed", "width": 24, "header_rows": 0, "names": names}
    )

    rows = open_rows(BytesIO(b"C1    4000000000000002  \n"), source, "cards.txt")

    assert [(1, ("C1", "4000000000000002"))] == whole(list(rows))


@pytest.mark.parametrize(
    ("layout", "changes", "problem"),
    [
        ("delimited", {"segment_key": "NO"}, "type 01 has no column NO"),
        ("delimited", {"segment_key": {"01": "CUST", "02": "CUST"}}, "column of type 03, too"),
        ("delimited", {"segment_key": {"01": "CUST", "02": "CUST", "04": "X"}}, "of type 03, too"),
        (
            "delimited",
            {"segment_key": {"01": ["CUST", "CARD"], "02": "CUST", "03": "CUST"}},
            "as many columns",
        ),
        ("delimited", {"segment_optional": "01"}, "other than the rows'"),
        ("delimited", {"segment_optional": "09"}, "other than the rows'"),
        ("delimited", {"segment_key": ()}, "segment_optional needs segment_key"),
        ("delimited", {"format": "fixed"}, "first and last character"),
        ("delimited", {"segments": SPANS}, "for format = 'fixed'"),
        ("fixed", {"width": 20}, "ends at 24, and a line has 20"),
        ("fixed", {"segments": SPANS | {"03": {"TYPE": (2, 3), "CUST": (4, 9)}}}, "same place"),
    ],
)
def test_types_that_cannot_be_joined_are_refused(
    layout: str, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        FormatSettings.model_validate(SOURCES[layout] | changes)


def test_what_is_put_aside_is_on_disk_in_a_file_without_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    rows = read("delimited", bank(50, random.Random(1)), 200)
    assert 50 == sum(block.rows.height for block in rows)

    assert [] == list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_night_of_types_by_key_is_sent_and_balanced(tmp_path: Path) -> None:
    source = SOURCES["fixed"] | {
        "segments": {
            "01": SPANS["01"] | {"EXP": (35, 38), "LAST": (39, 48)},
            "02": SPANS["02"] | {"CITY": (29, 38), "STATE": (39, 40), "ZIP": (41, 45)},
        },
        "segment_optional": (),
    }
    columns = {
        "cardholder.cuid": "CUST",
        "service_card.pan": "CARD",
        "service_card.expiration_month": {"from": "EXP", "format": "MMYY"},
        "service_card.expiration_year": {"from": "EXP", "format": "MMYY"},
        "service_card.address.first_name": "NAME",
        "service_card.address.last_name": "LAST",
        "service_card.address.address1": "STREET",
        "service_card.address.city": "CITY",
        "service_card.address.subnational": "STATE",
        "service_card.address.postal_code": "ZIP",
        "service_card.address.country": {"constant": "US"},
        "service_card.address.is_primary": {"constant": "TRUE"},
    }
    bench = local_bench(tmp_path, source=source, columns=columns, limits={"max_reject_rate": 0.5})
    lines = [
        f"02C{n:<5}{n + 1} Elm Street       "[:28].ljust(28) + "Boston    MA02108" for n in (2, 0)
    ]
    lines += [f"01C{n:<5}{mainframe.card_number(n)}Ann       1236Smith     " for n in range(3)]
    bench.drop_bytes("".join(f"{line}\n" for line in lines).encode(), "cards.txt")

    run = bench.submit("cards.txt").manifest.run
    bench.answer()
    bench.ingest()

    rejected = bench.ledger(run).filter(fate="rejected")
    assert [(2, 4, "C1", ["|segment.key.missing"])] == (
        rejected.select("row", "line", "cuid", "reasons").rows()
    )
    summary = bench.report(run, "summary.json").decode()
    assert "records of other types = used + unused + refused" in summary


@pytest.mark.slow
@pytest.mark.parametrize("layout", SOURCES)
def test_four_hundred_mutations_are_joined_as_the_oracle_joins_them(layout: str) -> None:
    chance = random.Random(36)
    differences = []
    for number in range(400):
        records = bank(15, chance)
        for _ in range(chance.choice([1, 2, 4])):
            place = chance.randrange(len(records))
            kind, cust, *cells = records[place]
            match chance.randrange(5):
                case 0:
                    del records[place]
                case 1:
                    records.append((kind, f"C{chance.randrange(18):05d}", *cells))
                case 2:
                    records[place] = (kind, "", *cells)
                case 3:
                    records.insert(chance.randrange(len(records)), records[place])
                case 4 if kind == "02":
                    records[place] = ("09", cust, *cells)
        block = chance.choice([60, 300, 1 << 20])
        try:
            joined = whole(list(read(layout, records, block)))
        except CardlinkError:
            continue
        if joined != oracle(records):
            differences.append(number)

    assert [] == differences
