"""Extracts of a mainframe: every field is what an oracle apart from the product wrote, or refused."""

from __future__ import annotations

import random
from io import BytesIO
from pathlib import Path

import polars as pl
import pytest

from flows.configuration import load_issuer
from flows.errors import CardlinkError
from flows.extensions.formats.fields import NUMBER
from flows.extensions.formats.framing import RecordFormatError
from flows.extensions.formats.record_layout import read_layout
from flows.extensions.formats.settings import FormatSettings
from flows.extracts import grammar
from flows.extracts.errors import EncodingError, TruncatedError
from flows.extracts.reader import Block
from flows.extracts.rows import open_rows
from flows.submissions.rehearsal import rehearse
from flows.submissions.submit import Request
from schemas.issuer import Issuer
from tests.extensions.formats import mainframe
from tests.extensions.formats.mainframe import Piece
from tests.extracts.test_guess import REST
from tests.night import DAY, local_bench

SIZE = 176  # bytes of a record


def people(count: int, seed: int = 1) -> list[list[Piece]]:
    chance = random.Random(seed)
    return [mainframe.person(number, chance) for number in range(count)]


def read(data: bytes, block: int = 1 << 22, **settings: object) -> Block:
    """Read all blocks of an extract, as one."""
    source = FormatSettings.model_validate(mainframe.SOURCE | settings)
    blocks = list(open_rows(BytesIO(data), source, "cards.dat", block=block))
    return Block(
        pl.concat(each.rows for each in blocks), pl.concat(each.refused for each in blocks)
    )


@pytest.mark.parametrize("record_format", ["F", "FB", "V", "VB"])
@pytest.mark.parametrize("block", [500, 1 << 22])
def test_every_field_is_what_was_written_in_every_format_and_block_size(
    record_format: str, block: int
) -> None:
    persons = people(200)
    data = mainframe.FILES[record_format]([mainframe.record(each) for each in persons])

    rows, refused, _ = read(data, block, record_format=record_format)

    assert [mainframe.texts(each) for each in persons] == rows.drop("row", "line").to_dicts()
    assert refused.is_empty()
    assert list(range(1, 201)) == rows["line"].to_list()


@pytest.mark.parametrize(
    ("start", "data", "field", "code"),
    [
        (10, b"\xaa", "CARD-NUMBER", NUMBER),  # no digits
        (18, b"\x41", "CARD-NUMBER", NUMBER),  # no sign
        (19, b"\xc1", "EXPIRY-MMYY", NUMBER),
        (26, b"\x25", "FIRST-NAME", grammar.CONTROL),
        (153, b"\x7f\xff\xff\xff", "ZIP", NUMBER),  # more digits than PIC has
    ],
)
def test_what_is_damaged_refuses_its_record_with_byte_and_field_and_no_other(
    start: int, data: bytes, field: str, code: str
) -> None:
    records = [bytearray(mainframe.record(each)) for each in people(5)]
    records[2][start : start + len(data)] = data

    rows, refused, _ = read(b"".join(records))

    place = read_layout(mainframe.COPYBOOK).named(field)
    assert place is not None
    byte = 2 * SIZE + place.start + 1
    assert [(3, 3, code, f"{field}, at byte {byte:,}")] == refused.rows()
    assert [1, 2, 4, 5] == rows["row"].to_list()


@pytest.mark.parametrize("record_format", ["FB", "VB", "V"])
def test_a_file_that_is_cut_within_a_record_is_refused(record_format: str) -> None:
    data = mainframe.FILES[record_format]([mainframe.record(each) for each in people(10)])

    for cut in (1, 5, SIZE - 1, SIZE + 7):
        with pytest.raises(TruncatedError) as refused:
            read(data[:-cut], record_format=record_format)
        assert "record " in str(refused.value)


def test_a_wrong_descriptor_word_refuses_the_file_with_record_and_byte() -> None:
    data = bytearray(mainframe.variable([mainframe.record(each) for each in people(10)]))
    data[3 * (SIZE + 4) + 2] = 9

    with pytest.raises(RecordFormatError) as refused:
        read(bytes(data), record_format="V")

    assert f"record 4, at byte {3 * (SIZE + 4) + 1:,}" in str(refused.value)


def test_fields_that_nobody_filled_are_empty() -> None:
    record = bytearray(mainframe.record(people(1)[0]))
    record[10:19] = bytes(9)  # COMP-3
    record[19:23] = b"\x40" * 4  # digits
    record[26:46] = bytes(20)  # characters

    rows, refused, _ = read(bytes(record))

    assert refused.is_empty()
    filled = rows.select("CARD-NUMBER", "EXPIRY-MMYY", "FIRST-NAME").row(0)
    assert (None, None, None) == filled


def test_text_in_ascii_is_no_ebcdic() -> None:
    with pytest.raises(EncodingError):
        read(b"C00000001 4000000000000002 " * 44)


@pytest.mark.parametrize(
    ("copybook", "problem"),
    [
        ("01 A.\n 05 B.", "line 2, B: it has neither a picture nor items below it"),
        ("COPY CARDS.", "line 1, CARDS: write what it copies in its place"),
        ("01 A.\n 05 N PIC G(4).", "line 2, N: PIC G(4) is not supported"),
        ("01 A.\n 05 N PIC 9(19) COMP.", "line 2, N: it has 19 digits; the limit is 18"),
        ("01 A.\n 05 B REDEFINES C PIC X.", "line 2, B: it redefines C, which is not before it"),
    ],
)
def test_a_copybook_that_cannot_be_read_is_refused_with_its_line(
    copybook: str, problem: str
) -> None:
    with pytest.raises(ValueError, match="line") as refused:
        read_layout(copybook)

    assert problem in str(refused.value)


def test_groups_occurrences_and_other_views_of_bytes_are_placed() -> None:
    layout = read_layout(
        "01 R.\n"
        "  05 KIND PIC X.\n"
        "  05 BODY.\n"
        "     10 AMOUNT PIC S9(3)V99 COMP-3 OCCURS 3 TIMES.\n"
        "  05 TEXT-VIEW REDEFINES BODY PIC X(9).\n"
        "  05 LAST-ONE PIC 9(9) COMP-5.\n"
    )

    places = {field.name: (field.start, field.size, field.shared) for field in layout.fields}
    assert 14 == layout.size
    assert places == {
        "KIND": (0, 1, False),
        "AMOUNT(1)": (1, 3, True),
        "AMOUNT(2)": (4, 3, True),
        "AMOUNT(3)": (7, 3, True),
        "TEXT-VIEW": (1, 9, True),
        "LAST-ONE": (10, 4, False),
    }


def test_header_and_trailer_records_are_told_by_their_text() -> None:
    records = [mainframe.record(each) for each in people(3)]
    header = "HDR20261120".ljust(SIZE).encode("cp037")
    trailer = "TRL000000003".ljust(SIZE).encode("cp037")
    source = FormatSettings.model_validate(
        mainframe.SOURCE | {"comment": "HDR", "trailer": "^TRL([0-9]{9})"}
    )

    extract = open_rows(BytesIO(b"".join([header, *records, trailer])), source, "cards.dat")
    rows = pl.concat(block.rows for block in extract)

    assert (3, 3, ["HDR20261120"]) == (rows.height, extract.trailer_count, extract.before)
    assert (5, {"comment": 1, "trailer": 1}) == (extract.lines, extract.set_aside)
    assert [2, 3, 4] == rows["line"].to_list()


@pytest.mark.parametrize("page", ["cp037", "cp273", "cp500", "cp1047", "cp1141", "cp1147"])
def test_lines_of_ebcdic_are_read_as_lines_of_text(page: str) -> None:
    text = "CUST;NAME;CITY\nC1;MÜLLER;KÖLN\nC2;GARCÍA;LEÓN\n"
    source = FormatSettings.model_validate({"delimiter": ";", "encoding": page})

    rows = [block.rows for block in open_rows(BytesIO(_ebcdic(text, page)), source, "cards.txt")]

    assert [("C1", "MÜLLER", "KÖLN"), ("C2", "GARCÍA", "LEÓN")] == (
        pl.concat(rows).drop("row", "line").rows()
    )


def _ebcdic(text: str, page: str) -> bytes:
    import ebcdic  # noqa: F401  registers code pages

    return b"\x15".join(line.encode(page) for line in text.split("\n"))


def test_text_of_one_length_without_line_ends_is_read_by_position() -> None:
    records = ["C1ANN  ", "C2LI   ", "C3JOSÉ "]
    source = FormatSettings.model_validate(
        {
            "format": "fixed",
            "width": 7,
            "encoding": "cp500",
            "record_format": "F",
            "record_length": 7,
            "header_rows": 0,
        }
    )

    data = "".join(records).encode("cp500")
    rows = pl.concat(block.rows for block in open_rows(BytesIO(data), source, "cards.txt"))

    assert records == rows["record"].to_list()


def test_lines_that_lack_the_blanks_at_their_end_are_taken_where_the_settings_say_so() -> None:
    data = b"C1ANN  \nC2LI\n"
    source = {"format": "fixed", "width": 7, "header_rows": 0}

    heights = []
    for short in (False, True):
        settings = FormatSettings.model_validate(source | {"short_records": short})
        blocks = open_rows(BytesIO(data), settings, "cards.txt", proven=True)
        heights.append(sum(block.rows.height for block in blocks))

    assert [1, 2] == heights


def test_the_copybook_is_a_file_beside_the_toml(tmp_path: Path) -> None:
    (tmp_path / "cards.cpy").write_text(mainframe.COPYBOOK)
    (tmp_path / "bank.toml").write_text(TOML)

    issuer = load_issuer(tmp_path, "bank")

    assert isinstance(issuer.source, FormatSettings)
    assert SIZE == issuer.source.record_size
    (tmp_path / "bank.toml").write_text(TOML.replace("176", "180"))
    with pytest.raises(CardlinkError, match="the copybook describes 176 bytes"):
        load_issuer(tmp_path, "bank")


TOML = """
issuer = "bank"
root = "store"
test = true
[source]
encoding = "cp037"
record_format = "FB"
record_length = 176
copybook = "cards.cpy"
[portal]
key_file = "portal.asc"
fingerprints = ["0000000000000000000000000000000000000000"]
allowed_hosts = ["links.example.com"]
"""


def test_rows_of_records_pass_the_route_and_a_damaged_one_is_rejected(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    told = {"columns": mainframe.COLUMNS, "source": mainframe.SOURCE}
    written = Issuer.model_validate(REST | told)
    update = {"source": written.source, "columns": written.columns}
    context = bench.context._replace(issuer=bench.context.issuer.model_copy(update=update))
    records = [bytearray(mainframe.record(each)) for each in people(20)]
    records[4][18] = 0x41

    key = bench.drop_bytes(b"".join(records))
    checked = rehearse(context, Request(key, DAY))

    codes = {reason.code: reason.rows for reason in checked.found}
    assert 20 == checked.counts.read
    assert 1 == codes[NUMBER]
    assert checked.counts.submitted >= 15


def test_a_file_in_ebcdic_is_named_as_such_where_the_settings_have_another_encoding() -> None:
    data = b"".join(mainframe.record(each) for each in people(30))

    with pytest.raises(EncodingError, match="it looks like EBCDIC"):
        list(open_rows(BytesIO(data), FormatSettings(), "cards.dat"))


@pytest.mark.slow
def test_a_thousand_mutations_give_what_the_oracle_reads_or_are_refused() -> None:
    chance = random.Random(36)
    persons = people(20, seed=36)
    records = [mainframe.record(each) for each in persons]
    differences = []
    for number in range(1000):
        place = chance.randrange(SIZE - 4)  # FILLER is nobody's
        length = chance.choice([1, 1, 1, 2, 5, 20])
        noise = bytes(chance.choice([chance.randrange(256), 0x40, 0, 0xF5]) for _ in range(length))
        victim = chance.randrange(20)
        mutated = bytearray(records[victim])
        mutated[place : place + length] = noise
        mutated = mutated[:SIZE]
        data = b"".join([*records[:victim], bytes(mutated), *records[victim + 1 :]])
        expected = mainframe.oracle(bytes(mutated), persons[victim])
        rows, refused, _ = read(data)
        got = rows.filter(row=victim + 1).drop("row", "line").to_dicts()
        if got != ([] if expected is None else [expected]) or rows.height + refused.height != 20:
            differences.append(number)

    assert [] == differences
