import csv
import io
import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.errors import ExtractError
from flows.extracts.errors import HeaderError
from flows.extracts.header import header_names
from flows.extracts.line_kinds import Kind
from flows.extracts.reader import Block, Extract
from schemas.source import SourceSettings
from tests.builders import quick
from tests.extracts import damaged


def read(
    data: bytes, settings: SourceSettings | None = None, block: int = 16 << 20
) -> tuple[Extract, Block]:
    """Read all blocks of an extract as one."""
    settings = settings or SourceSettings()
    extract = Extract(io.BytesIO(data), settings, "a.csv", block=block)
    blocks = list(extract)
    assert extract.lines == extract.height + sum(extract.set_aside.values())
    return extract, Block(pl.concat(b.rows for b in blocks), pl.concat(b.refused for b in blocks))


def test_there_are_at_least_sixty_kinds_of_damage() -> None:
    kinds = {case.kind for case in damaged.every_kind()}

    assert len(kinds) == len(damaged.every_kind())
    assert len(kinds) >= 60


def test_a_folder_of_damaged_files_gives_the_verdicts_that_lie_beside_them(tmp_path: Path) -> None:
    paths = damaged.write(tmp_path)

    for path in paths:
        beside = json.loads(path.with_suffix(".json").read_text())
        try:
            _, block = read(path.read_bytes(), SourceSettings.model_validate(beside["settings"]))
            refused = [list(place) for place in block.refused.select("line", "code").iter_rows()]
            found = {"accepted": block.rows.height, "refused": refused, "error": None}
        except ExtractError as error:
            found = {"accepted": 0, "refused": [], "error": type(error).__name__}

        assert beside["verdict"] == found, beside["kind"]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("id,PHONE, PHONE ", ("id", "PHONE_1", "PHONE_2")),
        ("id,PHONE,Phone", ("id", "PHONE", "Phone")),
        ("a,a,a_1,a", ("a_2", "a_3", "a_1", "a_4")),
        ("a,,column_2", ("a", "column_2_1", "column_2_2")),
        ("line,line_,row", ("line__1", "line__2", "row_")),
    ],
)
def test_a_name_that_is_there_twice_is_numbered_each_time(
    line: str, names: tuple[str, ...]
) -> None:
    assert names == header_names(line, SourceSettings(), "a.csv")


def test_a_cell_more_is_refused_also_where_lines_end_in_a_delimiter() -> None:
    closed = [f"{line}," for line in damaged.THREE]
    stray = damaged.row(4, "12 Main St, Apt 4") + ","

    _, block = read(damaged.lines(*closed, stray))

    assert (3, [(5, "line.fields.too_many")]) == (
        block.rows.height,
        block.refused.select("line", "code").rows(),
    )


def test_a_column_that_the_header_does_not_name_refuses_the_extract_where_it_has_cells() -> None:
    with pytest.raises(HeaderError, match="none of the lines after it has as many"):
        read(damaged.lines(f"{damaged.row(1)},x", f"{damaged.row(2)},", f"{damaged.row(3)},y"))


@pytest.mark.parametrize("size", [40, 16 << 20])
def test_commas_alone_are_blank_behind_the_last_row_and_refused_before_it(size: int) -> None:
    commas = "," * (damaged.FIELDS - 1)
    first, second, third = damaged.THREE

    extract, block = read(damaged.lines(first, commas, second, third, commas, commas), block=size)

    assert [(3, "line.fields.empty")] == block.refused.select("line", "code").rows()
    assert (7, 3) == (extract.lines, block.rows.height)
    assert {"header": 1, "blank": 2} == extract.set_aside


@pytest.mark.parametrize(
    "case", [*damaged.line_kinds(), *damaged.sound_kinds()], ids=lambda case: case.kind
)
def test_a_damaged_line_is_refused_with_its_number_and_the_others_go_on(
    case: damaged.Damaged,
) -> None:
    _, block = read(case.data, case.settings)

    assert case.refused == tuple(block.refused.select("line", "code").iter_rows())
    assert case.accepted == block.rows.height


@pytest.mark.parametrize("case", damaged.whole_kinds(), ids=lambda case: case.kind)
def test_what_is_no_extract_is_refused_as_a_whole_without_showing_a_cell(
    case: damaged.Damaged,
) -> None:
    assert case.error is not None

    with pytest.raises(case.error) as caught:
        read(case.data, case.settings)

    assert isinstance(caught.value, ExtractError)
    assert caught.value.__context__ is None
    assert not any(
        cell in str(caught.value) for cell in ("4242", "Main", "Boston", "Smith", "02108", "Zo")
    )


@pytest.mark.parametrize("case", quick(60, list(damaged.every_kind())), ids=lambda case: case.kind)
def test_small_blocks_give_the_same_verdict(case: damaged.Damaged) -> None:
    if len(case.data) > 1 << 20:
        pytest.skip("too long for blocks of a few bytes")
    if case.error is not None:
        # damage may show itself earlier, and so under another name
        with pytest.raises(ExtractError):
            read(case.data, case.settings, block=97)
        return

    whole, pieces = read(case.data, case.settings), read(case.data, case.settings, block=97)

    assert whole[1].rows.equals(pieces[1].rows)
    assert whole[1].refused.equals(pieces[1].refused)
    assert (whole[0].kinds, whole[0].trailer_count) == (pieces[0].kinds, pieces[0].trailer_count)


def test_every_line_is_counted_once() -> None:
    data = damaged.lines(
        damaged.row(1, '"a\nb"'),
        "",
        "# note",
        damaged.HEADER,
        damaged.row(2),
        "short",
        damaged.row(3),
        "TRL|4",
    )

    extract, block = read(data, SourceSettings(comment="#", trailer=r"^TRL\|([0-9]+)"))

    counts = extract
    assert (10, 4, 4) == (counts.lines, counts.height, counts.trailer_count)
    assert {kind: 3 if kind is Kind.RECORD else 1 for kind in Kind} == counts.kinds
    assert [1, 2, 4] == block.rows["row"].to_list()
    assert [2, 7, 9] == block.rows["line"].to_list()
    assert [(3, 8)] == list(block.refused.select("row", "line").iter_rows())


def test_values_come_out_as_text_exactly_as_written_and_empty_ones_are_absent() -> None:
    data = b'a,b,c,d\n007, x ,"",\n02108,"p ""q"", r",1e5,NULL\n'

    _, block = read(data)

    expected = [(1, 2, "007", " x ", None, None), (2, 3, "02108", 'p "q", r', "1e5", "NULL")]
    assert expected == list(block.rows.iter_rows())


def test_line_ends_are_no_part_of_a_value() -> None:
    data = b'a,b\r\n1,\r\n2,"x"\r\n3,"y\r\nz"\r\n4,w'

    _, block = read(data, SourceSettings(final_newline=False))

    assert [("1", None), ("2", "x"), ("3", "y\nz"), ("4", "w")] == list(
        block.rows.select("a", "b").iter_rows()
    )


def test_headers_named_row_and_line_do_not_collide_with_ours() -> None:
    extract, block = read(b"row,line\nx,y\n")

    assert ("row_", "line_") == extract.header
    assert [(1, 2, "x", "y")] == list(block.rows.iter_rows())


def test_a_record_may_span_two_blocks() -> None:
    rows = [damaged.row(n, f'"{"x" * n}\n{"y" * n}"') for n in range(1, 200)]

    extract, block = read(damaged.lines(*rows), block=1000)

    assert [f"{'x' * n}\n{'y' * n}" for n in range(1, 200)] == block.rows[
        "service_card.address.address1"
    ].to_list()
    assert 199 == extract.kinds[Kind.CONTINUES]


CELLS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), max_size=12
)


@given(
    rows=st.lists(st.lists(CELLS, min_size=6, max_size=6), min_size=1, max_size=8),
    delimiter=st.sampled_from(",;\t|"),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    end=st.sampled_from(["\n", "\r\n"]),
    block=st.sampled_from([50, 1 << 24]),
)
def test_what_a_csv_writer_wrote_is_read_back_cell_by_cell(
    rows: list[list[str]], delimiter: str, encoding: str, end: str, block: int
) -> None:
    # First and last cell make each row one that a reader can tell from damage.
    table = [["id", *row, "end"] for row in rows if sum(cell.count(delimiter) for cell in row) < 7]
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end)
    writer.writerows([[f"h{at}" for at in range(8)], *table, table[0] if table else ["x"] * 8])
    written = SourceSettings.model_validate(
        {"delimiter": delimiter, "encoding": encoding.removesuffix("-sig")}
    )

    _, found = read(text.getvalue().encode(encoding), written, block)

    expected = [
        [cell or None for cell in row] for row in [*table, table[0] if table else ["x"] * 8]
    ]
    assert expected == [list(row) for row in found.rows.drop("row", "line").iter_rows()]
    assert 0 == found.refused.height


EXCEL, MYSQL = SourceSettings(quoting="excel"), SourceSettings(quoting="backslash")


@pytest.mark.parametrize(
    ("settings", "line", "cells"),
    [
        (EXCEL, '1,="02108",Ann', ("1", "02108", "Ann")),
        (EXCEL, '="1",="",=""', ("1", None, None)),
        (EXCEL, '1,"=""02108""",=1+1', ("1", "02108", "=1+1")),
        (EXCEL, '1,"a, =""b""","d\n=""e"""', ("1", 'a, ="b"', 'd\n="e"')),
        (MYSQL, r'1,"say \"hi\"",x', ("1", 'say "hi"', "x")),
        (MYSQL, r'1,a\,b,"c\,d\\"', ("1", "a,b", "c,d\\")),
        (MYSQL, r"\N,NULL,\N\N", (None, "NULL", "NN")),
        (MYSQL, '1,"a\\\nb",c\\td', ("1", "a\nb", "c d")),
        (MYSQL, '1,"doubled ""too""",x', ("1", 'doubled "too"', "x")),
    ],
)
def test_cells_are_read_as_excel_and_mysql_write_them(
    settings: SourceSettings, line: str, cells: tuple[str | None, ...]
) -> None:
    _, block = read(f"id,zip,name\n{line}\n2,x,y\n".encode(), settings)

    assert [(1, *cells), (2, "2", "x", "y")] == block.rows.drop("line").rows()
    assert 0 == block.refused.height


@pytest.mark.parametrize(("line", "form"), [('1,="02108"', "excel"), (r'1,"a \"b\""', "backslash")])
def test_without_the_setting_the_quotes_are_blamed_and_the_setting_is_named(
    line: str, form: str
) -> None:
    with pytest.raises(HeaderError) as caught:
        read(f"id,zip\n{line}\n{line}\n".encode())

    assert f"(line.quote.bare); quoting = {form!r} may help" in str(caught.value)


@pytest.mark.parametrize("quote", ["", '"'])
def test_an_extract_may_have_twenty_thousand_columns_and_no_more(quote: str) -> None:
    names, cells = ([f"{quote}{kind}{at}{quote}" for at in range(20_000)] for kind in "cv")
    line = ",".join(cells)

    _, block = read(f"{','.join(names)}\n{line}\n{line},x\n".encode())

    assert ((1, 20_002), ["line.fields.too_many"]) == (
        block.rows.shape,
        block.refused["code"].to_list(),
    )
    with pytest.raises(HeaderError, match="20,001 columns; the limit is 20,000"):
        read(f"{','.join([*names, 'one'])}\n{line},x\n".encode())
