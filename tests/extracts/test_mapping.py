import gzip
import io
import tomllib
from collections.abc import Sequence
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from flows.extracts.errors import MappingError
from flows.extracts.mapping import Mapping, map_rows, plan_mapping, with_dates
from flows.extracts.reader import Block, Extract
from flows.runs.header import default_header, header_from_template
from schemas import portal
from schemas.expressions import UNREADABLE
from schemas.mapping import STEPS as EXPRESSIONS
from schemas.mapping import Cell, Columns
from schemas.portal import REQUIRED
from schemas.source import SourceSettings
from tests.builders import share_of
from tests.night import issuer
from tests.reference import STEPS

COLUMNS: TypeAdapter[Columns] = TypeAdapter(Columns)


def complete(**given: Any) -> Columns:
    """Return `[columns]` with a constant for each required column that is not given (dots as double
    underscores).
    """
    constants = {name: {"constant": "x"} for name in REQUIRED}
    return COLUMNS.validate_python(
        constants | {name.replace("__", "."): spec for name, spec in given.items()}
    )


def plan(
    header: Sequence[str], columns: Columns, *, strict: bool = False, **tables: Any
) -> Mapping:
    """Plan the mapping of an issuer with these columns."""
    there = issuer(**tables).model_copy(
        update={"columns": columns, "source": SourceSettings(strict=strict)}
    )
    return plan_mapping(header, there, "a.csv", default_header().names)


def one(header: list[str], cells: list[str | None], columns: Columns) -> dict[str, str | None]:
    """Map one row."""
    places = {"row": [1], "line": [2]}
    frame = pl.DataFrame(
        places
        | {
            name: pl.Series([cell], dtype=pl.String)
            for name, cell in zip(header, cells, strict=True)
        }
    )
    mapped = map_rows(frame, plan(header, columns)).sent
    return mapped.row(0, named=True)


def test_the_portals_own_header_needs_no_mapping() -> None:
    header = list(portal.columns())
    frame = pl.DataFrame({"row": [1], "line": [2]} | {name: [name] for name in reversed(header)})

    mapped = map_rows(frame, plan(header, {}))

    assert ["row", "line", *header] == mapped.sent.columns
    assert (1, 2, *header) == mapped.sent.row(0)
    assert 0 == mapped.left_out.height


def test_an_optional_column_may_be_missing_and_is_absent_then() -> None:
    header = sorted(REQUIRED)

    mapped = one(header, ["x"] * len(header), {})

    assert mapped[portal.CUID] is None


def test_a_missing_column_is_named_with_the_three_nearest_found() -> None:
    header = [name for name in portal.columns() if name != portal.PAN]

    with pytest.raises(MappingError) as caught:
        plan([*header, "service_card.pam"], {})

    assert "service_card.pan (nearest: service_card.pam, " in str(caught.value)
    assert 2 == str(caught.value).split("nearest:")[1].split(")")[0].count(",")


def test_an_unknown_column_is_named_where_the_header_should_be_the_portals() -> None:
    with pytest.raises(MappingError) as caught:
        plan([*portal.columns(), "mothers_name"], {})

    assert "mothers_name" in str(caught.value)


def test_with_a_mapping_unknown_columns_are_refused_only_where_the_settings_are_strict() -> None:
    columns = complete(service_card__pan="PAN")

    plan(["PAN", "branch"], columns)

    with pytest.raises(MappingError):
        plan(["PAN", "branch"], columns, strict=True)


def test_a_required_column_the_mapping_forgets_is_named() -> None:
    columns = complete()
    del columns[portal.CITY]

    with pytest.raises(MappingError) as caught:
        plan(["PAN"], columns)

    assert portal.CITY in str(caught.value)


def test_a_column_the_portal_does_not_have_is_refused_where_the_settings_are_read() -> None:
    with pytest.raises(ValidationError):
        COLUMNS.validate_python({"service_card.pin": "PIN"})


@pytest.mark.parametrize("found", ["CARD_NO", "card no", "Card_No", "CARDNO", "cardno"])
def test_headers_match_exactly_and_then_without_case_spaces_and_underscores(found: str) -> None:
    mapped = one([found, "other"], ["4242", "no"], complete(service_card__pan="CARD_NO"))

    assert "4242" == mapped[portal.PAN]


def test_an_exact_match_wins_and_two_similar_headers_are_no_match() -> None:
    columns = complete(service_card__pan="PAN")

    assert "exact" == one(["pan", "PAN"], ["alike", "exact"], columns)[portal.PAN]
    with pytest.raises(MappingError):
        one(["pan", "Pan"], ["a", "b"], columns)


def test_the_first_alternative_found_is_used() -> None:
    mapped = one(
        ["CARD_NO", "NUMBER"],
        ["4242", "no"],
        complete(service_card__pan=["PAN", "CARD_NO", "NUMBER"]),
    )

    assert "4242" == mapped[portal.PAN]


@pytest.mark.parametrize(
    ("form", "text", "year", "month"),
    [
        ("MMYY", "1127", "27", "11"),
        ("YYMM", "2711", "27", "11"),
        ("MM/YY", "11/27", "27", "11"),
        ("MM/YY", "1/27", "27", "1"),
        ("MM/YYYY", "11/2027", "2027", "11"),
        ("YYYY-MM", "2027-11", "2027", "11"),
        ("YYYY-MM-DD", "2027-11-30", "2027", "11"),
        ("MMYY", " 1127 ", "27", "11"),
        ("MMYY", "127", UNREADABLE, UNREADABLE),
        ("MMYY", "2027-11", UNREADABLE, UNREADABLE),
        ("YYYY-MM-DD", "11/27", UNREADABLE, UNREADABLE),
        ("MMYY", "١١٢٧", UNREADABLE, UNREADABLE),
        ("MMYY", None, None, None),
    ],
)
def test_year_and_month_are_taken_from_a_date_of_the_stated_form(
    form: str, text: str | None, year: str | None, month: str | None
) -> None:
    spec = {"from": "EXP", "format": form}

    mapped = one(
        ["EXP"],
        [text],
        complete(service_card__expiration_year=spec, service_card__expiration_month=spec),
    )

    assert (year, month) == (mapped[portal.YEAR], mapped[portal.MONTH])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2108", "02108"),
        ("02108", "02108"),
        (" 7", "00007"),
        ("K1A 0B1", "K1A 0B1"),
        ("-1", "-1"),
        (None, None),
    ],
)
def test_zeros_are_put_in_front_of_digits_only(text: str | None, expected: str | None) -> None:
    mapped = one(
        ["ZIP"], [text], complete(service_card__address__postal_code={"from": "ZIP", "pad": 5})
    )

    assert expected == mapped[portal.POSTAL_CODE]


def test_a_lost_zero_is_put_back_before_a_date_is_read() -> None:
    spec = {"from": "EXP", "format": "MMYY", "pad": 4}

    mapped = one(
        ["EXP"],
        ["127"],
        complete(service_card__expiration_month=spec, service_card__expiration_year=spec),
    )

    assert ("27", "01") == (mapped[portal.YEAR], mapped[portal.MONTH])


@pytest.mark.parametrize(
    ("text", "last", "first", "card"),
    [
        ("DOE/JANE", "DOE", "JANE", "JANE DOE"),
        ("VAN DER BERG / ANNA MARIA", "VAN DER BERG", "ANNA MARIA", "ANNA MARIA VAN DER BERG"),
        ("CHER", "CHER", None, "CHER"),
        (None, None, None, None),
    ],
)
def test_a_name_with_the_surname_first_is_taken_apart(
    text: str | None, last: str | None, first: str | None, card: str | None
) -> None:
    spec = {"from": "NAME", "format": "SURNAME/GIVEN"}
    columns = complete(
        service_card__address__last_name=spec,
        service_card__address__first_name=spec,
        service_card__name_on_card=spec,
    )

    mapped = one(["NAME"], [text], columns)

    assert (last, first) == (mapped[portal.LAST_NAME], mapped[portal.FIRST_NAME])
    assert card == mapped[portal.NAME_ON_CARD]


def test_a_constant_is_in_every_row() -> None:
    mapped = one(["PAN"], ["4242"], complete(service_card__address__country={"constant": "US"}))

    assert "US" == mapped[portal.COUNTRY]


def test_every_row_is_either_mapped_or_left_out_by_its_status() -> None:
    frame = pl.DataFrame(
        {
            "row": [1, 2, 3, 4],
            "line": [2, 3, 4, 5],
            "STATUS": ["A", "D ", None, " A"],
            "KIND": ["x"] * 4,
        }
    )
    columns = complete()

    def kept(where: dict[str, Any]) -> list[int]:
        planned = plan(["STATUS", "KIND"], columns, status=where)
        mapped = map_rows(frame, planned)
        assert [1, 2, 3, 4] == sorted([*mapped.sent["row"], *mapped.left_out["row"]])
        return mapped.sent["row"].to_list()

    others = {"unknown": "leave_out"}
    assert [1, 4] == kept({"status": {"send": "A", **others}})
    assert [1, 2, 4] == kept({"STATUS": {"send": ["A", "D"], **others}})
    assert [1, 3, 4] == kept({"STATUS": {"leave_out": "D", "unknown": "send"}})
    kind = {"KIND": {"send": "x"}}
    assert [3] == kept({"STATUS": {"send": ["", "Z"], **others}, **kind})


def test_a_status_of_a_column_that_is_not_there_is_an_error() -> None:
    with pytest.raises(MappingError):
        plan(["PAN"], complete(), status={"STATUS": {"send": "A"}})


PEOPLE = [
    ("C1", "Zoë", "Müller, Jr.", "02108"),
    ("C2", "Anne", 'O"Hara', "10001"),
    ("C3", "José", "Ng\nLi", "00501"),
]
PLAIN = complete(
    cardholder__cuid="ID",
    service_card__address__first_name="FIRST",
    service_card__address__last_name="LAST",
    service_card__address__postal_code="ZIP",
)


def written(order: list[int], delimiter: str, end: str, names: list[str]) -> str:
    """Return the people as CSV with columns in this order."""

    def cell(text: str) -> str:
        special = any(marker in text for marker in (delimiter, '"', "\n"))
        return '"' + text.replace('"', '""') + '"' if special else text

    table = [names, *([person[at] for at in range(4)] for person in PEOPLE)]
    return "".join(delimiter.join(cell(line[at]) for at in order) + end for line in table)


NAMES = ["ID", "FIRST", "LAST", "ZIP"]
DIALECTS: list[tuple[bytes, dict[str, Any]]] = [
    (written([0, 1, 2, 3], ",", "\n", NAMES).encode(), {}),
    (written([3, 2, 1, 0], ";", "\n", NAMES).encode("utf-8-sig"), {"delimiter": ";"}),
    (
        written([1, 0, 3, 2], "\t", "\n", NAMES).encode("cp1252"),
        {"delimiter": "\t", "encoding": "cp1252"},
    ),
    (
        written([0, 1, 2, 3], "|", "\n", NAMES).encode("utf-16"),
        {"delimiter": "|", "encoding": "utf-16"},
    ),
    (
        gzip.compress(written([2, 1, 0, 3], ",", "\n", ["id", "First", "last", "Z I P"]).encode()),
        {},
    ),
    (
        b"sep=,\n" + written([0, 1, 2, 3], ",", "\n", NAMES).encode() + b"END,3\n",
        {"trailer": "^END,([0-9]+)"},
    ),
]


@pytest.mark.parametrize(("data", "source"), DIALECTS)
def test_the_same_extract_in_six_dialects_gives_the_same_rows(
    data: bytes, source: dict[str, Any]
) -> None:
    extract = Extract(io.BytesIO(data), SourceSettings(**source), "a.csv")
    planned = plan(extract.header, PLAIN)

    mapped = pl.concat(map_rows(block.rows, planned).sent for block in extract)

    found = mapped.select(portal.CUID, portal.FIRST_NAME, portal.LAST_NAME, portal.POSTAL_CODE)
    assert PEOPLE == list(found.iter_rows())
    assert [1, 2, 3] == mapped["row"].to_list()


def test_a_fixed_width_extract_is_cut_at_its_positions() -> None:
    people = "".join(f"{cuid:<4}{zip_code:>6}{first:<10}\n" for cuid, first, _, zip_code in PEOPLE)
    settings = SourceSettings(format="fixed", width=20, header_rows=0)
    columns = complete(
        cardholder__cuid={"at": [1, 4]},
        service_card__address__postal_code={"at": [5, 10]},
        service_card__address__first_name={"at": [11, 20]},
        service_card__nickname={"at": [3, 5]},
    )
    extract = Extract(io.BytesIO(people.encode()), settings, "a.txt")

    mapped = map_rows(next(iter(extract)).rows, plan(extract.header, columns)).sent

    found = mapped.select(portal.CUID, portal.FIRST_NAME, portal.POSTAL_CODE, portal.NICKNAME)
    assert [(cuid, first, code, None) for cuid, first, _, code in PEOPLE] == list(found.iter_rows())


def test_every_step_has_an_example_and_they_are_taken_in_the_order_of_the_fields() -> None:
    assert [*STEPS] == [*EXPRESSIONS] == [name for name in Cell.model_fields if name in EXPRESSIONS]


@pytest.mark.parametrize("name", STEPS)
def test_the_example_of_every_step_gives_what_it_says(name: str) -> None:
    example, text, result = STEPS[name]
    spec = tomllib.loads(f"cell = {example}")["cell"]
    target = portal.YEAR if name == "format" else portal.NICKNAME

    mapped = one([spec["from"]], [text], complete(**{target: spec}))

    assert result == mapped[target]


CELLS = {
    "A": " Ann ",
    "B": "van der Berg",
    "NONE": " ",
    "ID": "CUST-0017-X",
    "NAME": "Smith, Ann, Marie",
    "T": "P",
}
MADE: list[tuple[dict[str, Any], str | None]] = [
    ({"join": ["A", "NONE", "B"]}, "Ann van der Berg"),
    ({"join": ["A", {"constant": "x"}, "B"], "with": "-"}, "Ann-x-van der Berg"),
    ({"join": ["NONE", "NONE"]}, None),
    ({"first": ["NONE", "B", "A"]}, "van der Berg"),
    ({"first": ["NONE"]}, None),
    ({"from": "ID", "strip_prefix": ["NO-", "CUST-"], "strip_suffix": "-X"}, "0017"),
    ({"from": "A", "strip_prefix": "CUST-"}, "Ann"),
    ({"from": "NAME", "split": ",", "part": 1}, "Smith"),
    ({"from": "NAME", "split": ",", "part": -1}, "Marie"),
    ({"from": "NAME", "split": ",", "part": 4}, None),
    ({"from": "NAME", "split": ",", "part": [2, -1]}, "Ann, Marie"),
    ({"from": "NAME", "split": ",", "part": [-2, -2]}, "Ann"),
    ({"from": "NAME", "split": ",", "part": [-9, 1]}, "Smith"),
    ({"from": "B", "split": " ", "part": -1}, "Berg"),
    ({"from": "ID", "slice": [6, 9]}, "0017"),
    ({"from": "ID", "slice": [-6, -3]}, "0017"),
    ({"from": "ID", "slice": [6, -3]}, "0017"),
    ({"from": "ID", "slice": [-99, 4]}, "CUST"),
    ({"from": "T", "slice": [2, 3]}, None),
    ({"from": {"from": "ID", "split": "-", "part": 2}, "slice": [3, 4]}, "17"),
    ({"from": "T", "lookup": {"P": "primary"}}, "primary"),
    ({"from": "T", "lookup": {"S": "second"}}, UNREADABLE),
    ({"from": "T", "lookup": {"S": "second"}, "unknown": "empty"}, None),
    ({"from": "T", "lookup": {"S": "second"}, "unknown": "keep"}, "P"),
    ({"from": "NONE", "lookup": {"S": "second"}}, None),
    ({"constant": "yes", "when": {"T": "P"}}, "yes"),
    ({"constant": "yes", "when": {"T": {"not": ["P"]}}}, None),
    ({"constant": "yes", "when": {"T": "P", "NONE": ["x", "y"]}}, None),
    ({"first": [{"constant": "yes", "when": {"T": "Q"}}, {"constant": "no"}]}, "no"),
]


@pytest.mark.parametrize(("spec", "expected"), MADE, ids=lambda part: str(part))
def test_a_column_is_made_of_sources_and_steps(spec: dict[str, Any], expected: str | None) -> None:
    mapped = one(list(CELLS), list(CELLS.values()), complete(service_card__nickname=spec))

    assert expected == mapped[portal.NICKNAME]


@pytest.mark.parametrize(
    ("form", "text", "year", "month"),
    [
        ("YYYYMM", "202711", "2027", "11"),
        ("MMYYYY", "112027", "2027", "11"),
        ("YYYYMMDD", "20271130", "2027", "11"),
        ("DD/MM/YYYY", "1/2/2027", "2027", "2"),
        ("MM/DD/YYYY", "01/02/2027", "2027", "01"),
        ("YY.DD.MM", "27.30.11", "27", "11"),
        ("DD-MON-YYYY", "30-Nov-2027", "2027", "11"),
        ("DDMONYY", "30NOV27", "27", "11"),
        ("MON YYYY", "November  2027", "2027", "11"),
        ("MON YYYY", "Sept 2027", "2027", "09"),
        ("MON YYYY", "Brumaire 2027", UNREADABLE, UNREADABLE),
        ("YYYYMM-DD", "20271-30", UNREADABLE, UNREADABLE),
        ("YYYYMM", "1127", UNREADABLE, UNREADABLE),
    ],
)
def test_a_date_is_read_by_any_pattern(form: str, text: str, year: str, month: str) -> None:
    spec = {"from": "EXP", "format": form}

    mapped = one(
        ["EXP"],
        [text],
        complete(service_card__expiration_year=spec, service_card__expiration_month=spec),
    )

    assert (year, month) == (mapped[portal.YEAR], mapped[portal.MONTH])


@pytest.mark.parametrize(
    ("form", "text", "last", "first"),
    [
        ("LAST, FIRST", "Smith, Ann Marie", "Smith", "Ann Marie"),
        ("LAST, FIRST", "van der Berg,Pieter", "van der Berg", "Pieter"),
        ("LAST, FIRST", "King, Jr., Martin Luther", "King Jr.", "Martin Luther"),
        ("LAST, FIRST", "King, Martin Luther, Jr.", "King Jr.", "Martin Luther"),
        ("LAST, FIRST", "Cher", "Cher", None),
        ("FIRST LAST", "Ann Marie Smith", "Smith", "Ann Marie"),
        ("FIRST LAST", "Pieter van der Berg", "van der Berg", "Pieter"),
        ("FIRST LAST", "Ian St. John III", "St. John III", "Ian"),
        ("FIRST LAST", "Ana María de la Cruz", "de la Cruz", "Ana María"),
        ("FIRST LAST", "Vincent Van", "Van", "Vincent"),
        ("FIRST LAST", "Martin  King, jr", "King jr", "Martin"),
        ("FIRST LAST", "Cher", "Cher", None),
        ("LAST FIRST", "VAN DER BERG PIETER JAN", "VAN DER BERG", "PIETER JAN"),
        ("LAST FIRST", "Smith Ann Jr", "Smith Jr", "Ann"),
        ("LAST/FIRST", "DOE/JANE", "DOE", "JANE"),
        ("LAST/FIRST", "DOE/JANE.MS", "DOE", "JANE"),
        ("LAST/FIRST", "DOE/JANE A.MRS", "DOE", "JANE A"),
        ("LAST/FIRST", "DOE/JANE DR.", "DOE", "JANE"),
        ("LAST/FIRST", "DOE/JANE/MS", "DOE", "JANE"),
        ("LAST/FIRST", "DOE/MS JANE", "DOE", "JANE"),
        ("LAST/FIRST", "DOE/JOHN JR.MR", "DOE JR", "JOHN"),
        ("LAST/FIRST", "DOE/J.R", "DOE", "J.R"),
        ("LAST/FIRST", "DOE/DR", "DOE", "DR"),
        ("LAST/FIRST", "DOE/EMRS", "DOE", "EMRS"),
        ("LAST, FIRST", "Doe, Prof. Jane", "Doe", "Jane"),
        ("LAST, FIRST", "Doe, Jane Mme", "Doe", "Jane"),
    ],
)
def test_a_name_is_taken_apart_by_its_form(
    form: str, text: str, last: str, first: str | None
) -> None:
    spec = {"from": "NAME", "format": form}
    columns = complete(
        service_card__address__last_name=spec,
        service_card__address__first_name=spec,
        service_card__name_on_card=spec,
    )

    mapped = one(["NAME"], [text], columns)

    assert (last, first) == (mapped[portal.LAST_NAME], mapped[portal.FIRST_NAME])
    assert " ".join(filter(None, (first, last))) == mapped[portal.NAME_ON_CARD]


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"from": "E", "format": "YYYYMMM"}, "did you mean 'YYYYMM'"),
        ({"from": "E", "format": "MM"}, "did you mean 'YYMM'"),
        ({"from": "E", "split": ","}, "`split` and `part` belong together"),
        ({"from": "E", "constant": "x"}, "give exactly one of"),
        ({"from": "E", "with": "-"}, "`with` needs `join`"),
        ({"from": "E", "slice": [0, 3]}, "counted from 1"),
        ({"from": {"from": "E", "format": "auto"}, "pad": 4}, "outermost"),
        ({"from": "E", "split": "/", "part": 0}, "counted from 1"),
    ],
)
def test_a_wrong_setting_gets_one_sentence(spec: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as caught:
        COLUMNS.validate_python({portal.YEAR: spec})

    [error] = caught.value.errors()
    assert sentence in error["msg"]


def test_a_date_format_is_for_the_expiration_only() -> None:
    with pytest.raises(ValidationError, match="is for service_card"):
        COLUMNS.validate_python({portal.CITY: {"from": "E", "format": "MMYY"}})


DATED = complete(
    service_card__expiration_year={"from": "EXP", "format": "auto"},
    service_card__expiration_month={"from": "EXP", "format": "auto"},
)


def dated(
    blocks: Sequence[Sequence[str | None]], columns: Columns = DATED
) -> list[tuple[str | None, str | None]]:
    """Map an extract of these dates, block by block; return year and month of each."""
    read, at = [], 0
    for cells in blocks:
        numbers = pl.Series(range(at + 1, at + 1 + len(cells)), dtype=pl.UInt32)
        frame = pl.DataFrame(
            {"row": numbers, "line": numbers + 1, "EXP": pl.Series(cells, dtype=pl.String)}
        )
        read.append(
            Block(
                frame, pl.DataFrame(schema={"row": pl.UInt32, "line": pl.UInt32, "code": pl.String})
            )
        )
        at += len(cells)
    mapping = with_dates(plan(["EXP"], columns), read[0].rows, lambda: iter(read))
    mapped = pl.concat(map_rows(block.rows, mapping).sent for block in read)
    return mapped.select(portal.YEAR, portal.MONTH).rows()


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ([["1127", None, "0128"]], [("27", "11"), (None, None), ("28", "01")]),
        ([["01/02/2027"], ["12/31/2027"]], [("2027", "01"), ("2027", "12")]),
        ([["01/02/2027"], ["31/12/2027"]], [("2027", "02"), ("2027", "12")]),
        ([["281127"], ["320131"]], [("28", "11"), ("32", "01")]),
        ([["30-NOV-2027", "n/a"]], [("2027", "11"), (UNREADABLE, UNREADABLE)]),
        ([[None], ["202711"]], [(None, None), ("2027", "11")]),
        ([[None]], [(None, None)]),
    ],
)
def test_auto_takes_the_one_form_that_fits_all_rows(
    blocks: list[list[str | None]], expected: list[Any]
) -> None:
    assert expected == dated(blocks)


@pytest.mark.parametrize(
    ("blocks", "problem"),
    [
        ([["01/02/2027"], ["03/04/2027"]], "DD/MM/YYYY and MM/DD/YYYY"),
        ([["1127"], ["2711"]], "no form"),
        ([["12/31/2027"], ["31/12/2027"]], "no form"),
        ([["soon"], ["later"]], "line 2 has 'AAAA'"),
        ([[None], ["soon"]], "line 3 has 'AAAA'"),
    ],
)
def test_auto_refuses_an_extract_that_several_forms_fit_or_none(
    blocks: list[list[str | None]], problem: str
) -> None:
    with pytest.raises(MappingError) as caught:
        dated(blocks)

    assert problem in str(caught.value)
    assert "EXP" in str(caught.value)


@settings(max_examples=share_of(0.5))
@given(
    st.lists(st.sampled_from(["0128", "1127", "2711", "0102", "", "x"]), min_size=1, max_size=12),
    st.randoms(),
)
def test_neither_the_order_of_rows_nor_blocks_change_how_auto_reads_them(
    cells: list[str], chance: Random
) -> None:
    def read(blocks: list[list[str | None]]) -> dict[str | None, Any] | None:
        try:
            return dict(
                zip((cell for block in blocks for cell in block), dated(blocks), strict=True)
            )
        except MappingError:
            return None

    rows = [cell or None for cell in cells]
    whole, mixed = read([rows]), chance.sample(rows, len(rows))
    cut = chance.randint(1, len(rows))

    assert whole == read([mixed[:cut], mixed[cut:]])


def test_a_wrong_date_format_names_line_shape_and_what_would_fit_and_no_cell() -> None:
    spec = {"from": "EXP", "format": "MMYY"}
    columns = complete(service_card__expiration_year=spec, service_card__expiration_month=spec)

    with pytest.raises(MappingError) as caught:
        dated([[None, "202711"], ["202801"]], columns)

    assert (
        "line 3 has '999999', which format = 'MMYY' does not read (formats that do: YYYYMM)"
        in str(caught.value)
    )
    assert "2027" not in str(caught.value)


def test_one_date_that_can_be_read_leaves_the_others_to_the_rules() -> None:
    spec = {"from": "EXP", "format": "MMYY"}
    columns = complete(service_card__expiration_year=spec, service_card__expiration_month=spec)

    found = dated([["202711"], ["1127"]], columns)

    assert [(UNREADABLE, UNREADABLE), ("27", "11")] == found


def test_the_portals_own_template_names_the_columns_of_an_extract() -> None:
    template = [name.replace("service_card", "acme_card") for name in reversed(portal.columns())]
    header = header_from_template(",".join(template), "template.csv")
    frame = pl.DataFrame({"row": [1], "line": [2]} | {name: [name] for name in template})

    mapped = map_rows(frame, plan_mapping(template, issuer(), "a.csv", header.names)).sent

    assert (1, 2, *reversed(template)) == mapped.row(0)
