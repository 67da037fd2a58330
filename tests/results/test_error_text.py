"""The ladder reads what real writers make of an error object, and never raises on anything else."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.harmless import about
from flows.results.error_text import ErrorObject, Fault, parse_error, read_error
from flows.results.partner_terms import partner_reason, shape_of
from tests.builders import quick
from tests.results.error_objects import TEXTS, Written

CARDS = (
    "4242424242424242",
    "4111111111111111",
    "5555555555554444",
    "2223003122003222",
    "6011111111111117",
)


def by_itself(text: str) -> ErrorObject:
    """Read an error without what was read before."""
    cuid, faults = read_error.__wrapped__(text)
    reasons = tuple(dict.fromkeys(partner_reason(*own(fault, cuid)) for fault in faults))
    return ErrorObject(cuid, reasons, shape_of(reasons))


def own(fault: Fault, cuid: str | None) -> Fault:
    names = tuple(about(name, cuid) for name in fault.path)
    return Fault(names, about(fault.message, cuid), about(fault.name, cuid))


@pytest.mark.parametrize("written", TEXTS, ids=lambda written: written.writer)
def test_the_cuid_is_recovered_from_what_real_writers_write(written: Written) -> None:
    parsed = parse_error(written.text)

    assert written.cuid == parsed.cuid


@pytest.mark.parametrize("written", TEXTS, ids=lambda written: written.writer)
def test_the_reasons_are_recovered_from_what_real_writers_write(written: Written) -> None:
    parsed = parse_error(written.text)

    assert set(written.codes) <= {reason.code for reason in parsed.reasons}
    assert parsed.reasons


def test_there_are_at_least_forty_texts_of_real_writers() -> None:
    assert len({written.text for written in TEXTS}) >= 40


@given(st.text() | st.sampled_from(TEXTS).map(lambda written: written.text))
def test_any_text_gives_a_reason_and_never_raises(text: str) -> None:
    parsed = parse_error(text)

    assert parsed.reasons
    assert parsed.shape


@given(st.sampled_from(TEXTS), st.data())
def test_a_text_cut_anywhere_gives_a_reason_and_never_raises(
    written: Written, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(written.text)))

    assert parse_error(written.text[:cut]).reasons
    assert parse_error(written.text[cut:]).reasons


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda below: (
        st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=10), below, max_size=4)
    ),
    max_leaves=20,
)


@given(TREES, st.sampled_from([json.dumps, repr, str]))
def test_any_object_gives_a_reason_and_never_raises(tree: object, write: type[str]) -> None:
    assert parse_error(write(tree)).reasons


HOSTILE = (
    *("[" * 50_000, "{'a':" * 5_000, "(" * 9_000, '"' * 999, "\\" * 999, "0x" + "f" * 9_000),
    *(
        "{'" + "\\'" * 10_000,
        "{`" + "\\`" * 9_000,
        "{ " + "Bbbb" * 4_000,
        "{" + "a:" * 10_000,
        "1 " * 10_000,
    ),
)


@pytest.mark.parametrize("text", quick(6, list(HOSTILE)), ids=lambda text: text[:6])
def test_a_text_made_to_break_or_slow_a_parser_gives_a_reason_in_time(text: str) -> None:
    assert all(parse_error(text + str(at)).reasons for at in range(20))


CUIDS = st.from_regex(r"\A[A-Za-z][A-Za-z0-9_.-]{2,20}[A-Za-z0-9]\Z")


@given(CUIDS, st.sampled_from(["json", "twice", "repr", "escaped"]))
def test_the_cuid_is_recovered_whatever_it_looks_like(cuid: str, way: str) -> None:
    tree = {
        "cuid": cuid,
        "errors": {"address": {"_errors": [{"property": "city", "message": "is required"}]}},
    }
    text = {
        "json": json.dumps(tree),
        "twice": json.dumps(json.dumps(tree)),
        "repr": repr(tree),
        "escaped": json.dumps(tree).replace('"', '\\"'),
    }[way]

    assert cuid == parse_error(text).cuid


@given(st.sampled_from(CARDS), st.sampled_from(["", " ", "-", ".", " - "]), st.sampled_from(TEXTS))
def test_no_card_number_leaves_the_ladder(card: str, separator: str, written: Written) -> None:
    grouped = separator.join(card[at : at + 4] for at in range(0, 16, 4))

    parsed = parse_error(
        written.text.replace("is required", f"{grouped} is required") + f" ({grouped})"
    )

    told = " ".join([parsed.shape, *(reason.message for reason in parsed.reasons)])
    assert card not in "".join(filter(str.isdigit, told))


def test_errors_that_differ_in_ids_and_numbers_only_have_one_shape() -> None:
    shapes = {
        parse_error(
            json.dumps(
                {"cuid": f"c-{at}", "errors": [f"customer {at * 7919} has no profile 'p{at}'"]}
            )
        ).shape
        for at in range(50)
    }

    assert 1 == len(shapes)


@given(
    st.text('abQ19-._: %é"\\', max_size=8),
    st.sampled_from(TEXTS),
    st.sampled_from([json.dumps, repr]),
)
def test_an_error_that_was_read_with_another_cuid_reads_as_by_itself(
    cuid: str, written: Written, write: Callable[[object], str]
) -> None:
    fields = {
        "errors": [{"property": "city", "message": f"{cuid} is required"}],
        "note": written.text,
    }
    text = write({"cuid": cuid, **fields})

    parse_error(write({"cuid": "another-1", **fields}))

    assert by_itself(text) == parse_error(text)


@pytest.mark.parametrize(
    "error",
    [
        {"name": "cuid: 'luhn-1'", "message": "refused"},
        {"property": "cuid: 'city'", "message": "refused"},
        {"message": "cuid: 'expired-1' refused"},
    ],
)
def test_a_cuid_within_a_name_or_message_is_read_as_it_is(error: dict[str, str]) -> None:
    text = json.dumps({"errors": [error]})

    assert by_itself(text) == parse_error(text)


@given(st.from_regex(r"[0-9a-z.-]{1,8}", fullmatch=True), st.sampled_from(TEXTS), st.data())
def test_a_cuid_in_the_place_of_another_changes_nothing_else(
    cuid: str, written: Written, data: st.DataObject
) -> None:
    if not written.cuid:
        return
    cut = data.draw(st.integers(0, len(written.text)))
    text = written.text.replace(written.cuid, cuid)[cut % 7 and cut :]

    assert by_itself(text) == parse_error(text)


@pytest.mark.parametrize("cuid", ["O'S1-85", "S1-85'A", "D'O'85"])
@pytest.mark.parametrize(
    "text", ["{{ cuid: '{}', errors: [ 'no city' ] }}", "{{'cuid': '{}', 'errors': ['no city']}}"]
)
def test_a_cuid_with_an_apostrophe_is_read_whole_though_it_ends_the_quotes(
    text: str, cuid: str
) -> None:
    assert cuid == parse_error(text.format(cuid)).cuid


def test_a_cvv_one_digit_in_each_message_of_an_error_is_not_kept() -> None:
    split = json.dumps({"cuid": "C-1", "errors": ["size is 3", "length is 6", "limit is 0"]})
    usual = json.dumps({"cuid": "C-1", "errors": ["at most 40 characters", "row 14", "row 15"]})

    assert ["size is [1 digit]", "length is [1 digit]", "limit is [1 digit]"] == [
        each.message for each in parse_error(split).reasons
    ]
    assert ["at most 40 characters", "row 14", "row 15"] == [
        each.message for each in parse_error(usual).reasons
    ]
