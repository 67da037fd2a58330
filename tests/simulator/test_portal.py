from __future__ import annotations

import csv
import io
import json
import pickle
from datetime import date
from urllib.parse import urlsplit

import pytest

from flows.extensions.simulator.error_shapes import SHAPES
from flows.extensions.simulator.portal import RESULT_HEADER, two_months_after
from flows.extensions.simulator.uploads import UploadRefusedError
from flows.extensions.simulator.validation import REQUIRED
from schemas import portal as interface
from tests.simulator.uploads import DAY, answers, paper_seal, people, portal, upload_csv

NO_HEADER = "its header row is not the template's"


def test_every_good_row_gets_its_own_link_that_ends_in_two_months() -> None:
    rows = people(1000)

    result = answers(portal().upload("a.csv.pgp", paper_seal(upload_csv(rows))))

    assert [(row[interface.CUID], row[interface.PAN][-4:]) for row in rows] == [
        (answer["cuid"], answer["last_4"]) for answer in result
    ]
    assert 1000 == len({answer["url"] for answer in result})
    assert {("https", "links.example.com")} == {urlsplit(answer["url"])[:2] for answer in result}
    assert {"2027-01-20"} == {answer["expiration_date"] for answer in result}
    assert {""} == {answer["error"] for answer in result}


def test_the_result_has_the_columns_of_the_interface_in_order() -> None:
    result = portal().upload("a.csv.pgp", paper_seal(upload_csv(people(1))))

    header = next(csv.reader(io.StringIO(result.decode())))
    assert RESULT_HEADER == tuple(header)


@pytest.mark.parametrize(
    ("field", "value", "entity", "name", "kind"),
    [
        (interface.PAN, "", "card", "pan", "missing"),
        (interface.PAN, "4242 4242 4242 4242", "card", "pan", "invalid"),
        (interface.PAN, "4242424242424241", "card", "pan", "invalid"),
        (interface.YEAR, "2027", "card", "expiration_year", "invalid"),
        (interface.MONTH, "3", "card", "expiration_month", "invalid"),
        (interface.YEAR, "25", "card", "expiration", "expired"),
        (interface.CVV, "12", "card", "cvv", "invalid"),
        (interface.CVV_HASH, "0" * 64, "card", "cvv_hash", "invalid"),
        (interface.ADDRESS1, "", "address", "address1", "missing"),
        (interface.COUNTRY, "Usa", "address", "country", "invalid"),
        (interface.IS_PRIMARY, "true", "address", "is_primary", "invalid"),
    ],
)
def test_a_row_that_breaks_the_interface_gets_an_error_and_no_link(
    field: str, value: str, entity: str, name: str, kind: str
) -> None:
    handle = portal()
    bad, good = people(2)
    cuid = bad[interface.CUID]
    bad[field] = value

    first, second = answers(handle.upload("a.csv.pgp", paper_seal(upload_csv([bad, good]))))

    error = json.loads(first.pop("error"))
    assert {"cuid": "", "last_4": "", "url": "", "expiration_date": ""} == first
    assert cuid == error["cuid"]
    assert [(name, kind)] == [
        (one["property"], one["name"]) for one in error["errors"][entity]["_errors"]
    ]
    assert second["url"]


def test_all_faults_of_a_row_are_told() -> None:
    (row,) = people(1)
    row |= {f"service_card.{field}": "" for field in REQUIRED}

    portal_ = portal()
    portal_.upload("a.csv.pgp", paper_seal(upload_csv([row])))

    (booked,) = portal_.books[0].rows
    assert len(REQUIRED) == len(booked.faults)


def test_a_cuid_that_stands_twice_is_refused_the_second_time() -> None:
    rows = people(2)
    rows[1][interface.CUID] = rows[0][interface.CUID]

    handle = portal()
    handle.upload("a.csv.pgp", paper_seal(upload_csv(rows)))

    assert [(), ("duplicate",)] == [
        tuple(one.kind for one in row.faults) for row in handle.books[0].rows
    ]


def test_a_row_without_cuid_gets_one_that_the_portal_makes_up() -> None:
    (row,) = people(1)
    row[interface.CUID] = ""

    (answer,) = answers(portal().upload("a.csv.pgp", paper_seal(upload_csv([row]))))

    assert answer["cuid"].startswith("made-")


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("empty", b"", NO_HEADER),
        ("no rows", upload_csv([]), "0 cardholders, from 1 to 1000 are allowed"),
        ("too many", upload_csv(people(1001)), "1001 cardholders, from 1 to 1000 are allowed"),
        ("other header", b"a,b\n1,2\n", NO_HEADER),
        ("reordered", upload_csv(people(1), reversed(interface.columns())), NO_HEADER),
        ("with a BOM", b"\xef\xbb\xbf" + upload_csv(people(1)), NO_HEADER),
        ("ragged", upload_csv(people(1)).rstrip() + b",x\n", "row 1 does not have 20 fields"),
        ("bare quote", upload_csv(people(1)) + b'"\n', "it is not a CSV"),
        ("latin-1", upload_csv(people(1)) + b"\xe9\n", "it is not UTF-8"),
    ],
)
def test_a_file_that_is_not_the_templates_is_refused_whole(
    name: str, content: bytes, why: str
) -> None:
    handle = portal()

    with pytest.raises(UploadRefusedError) as caught:
        handle.upload(name, paper_seal(content))

    assert {"name": name, "reason": why} == caught.value.fields
    assert [] == handle.books


def test_a_message_for_another_key_is_refused_without_a_word_of_its_content() -> None:
    with pytest.raises(UploadRefusedError) as caught:
        portal().upload("a.csv.pgp", b"\xc1" + upload_csv(people(1)))

    assert "it cannot be decrypted with the portal's key" == caught.value.fields["reason"]
    assert None is caught.value.__context__


def test_a_refusal_survives_pickling() -> None:
    error = UploadRefusedError(name="a.csv.pgp", reason="it is empty")

    again = pickle.loads(pickle.dumps(error))

    assert (error.fields, str(error)) == (again.fields, str(again))


def test_plain_files_are_taken_with_published_test_cards_only() -> None:
    handle = portal()

    handle.upload("published.csv", upload_csv(people(7)))
    with pytest.raises(UploadRefusedError, match="not encrypted"):
        handle.upload("others.csv", upload_csv(people(8)))

    assert ["published.csv"] == [upload.name for upload in handle.books]


def test_a_portal_with_its_own_prefix_takes_its_own_header_and_no_other() -> None:
    header = [name.replace("service_card.", "bank_card.") for name in interface.columns()]
    handle = portal(header=header)
    ours = upload_csv(people(7))

    result = answers(handle.upload("own.csv", ours.replace(b"service_card.", b"bank_card.")))

    assert 7 == len([answer for answer in result if answer["url"]])
    with pytest.raises(UploadRefusedError, match="template"):
        handle.upload("ours.csv", ours)


def test_about_the_share_asked_for_fails_and_the_books_say_which() -> None:
    handle = portal(fail_share=0.2)

    result = answers(handle.upload("a.csv.pgp", paper_seal(upload_csv(people(1000)))))

    failed = [row.row for row in handle.books[0].rows if row.faults]
    assert failed == [number for number, answer in enumerate(result, start=1) if answer["error"]]
    assert 150 < len(failed) < 250
    assert 3 == len({row.faults for row in handle.books[0].rows if row.faults})


def test_shuffling_changes_the_order_and_nothing_else() -> None:
    content = paper_seal(upload_csv(people(200)))

    straight = portal(fail_share=0.1).upload("a.csv.pgp", content).decode().splitlines()
    shuffled = (
        portal(fail_share=0.1, shuffle=True).upload("a.csv.pgp", content).decode().splitlines()
    )

    assert straight != shuffled
    assert straight[0] == shuffled[0]
    assert sorted(straight) == sorted(shuffled)


def test_the_same_seed_gives_the_same_result_and_another_seed_other_links() -> None:
    content = paper_seal(upload_csv(people(50)))

    first, again, other = (portal(seed=seed).upload("a.csv.pgp", content) for seed in (1, 1, 2))

    assert first == again
    assert first != other


@pytest.mark.parametrize("shape", [*SHAPES, "mixed"])
def test_every_error_shape_fills_the_error_column_alone(shape: str) -> None:
    handle = portal(error_shape=shape, fail_share=1.0)

    result = answers(handle.upload("a.csv.pgp", paper_seal(upload_csv(people(40)))))

    assert 40 == len(result)
    assert {("", "", "", "")} == {tuple(answer.values())[:4] for answer in result}
    assert all(answer["error"] for answer in result)


def test_a_link_opens_for_who_knows_cvv_and_zip_and_for_nobody_else() -> None:
    handle = portal()
    row = people(1)[0] | {
        interface.CVV: "007",
        interface.CVV_HASH: "",
        interface.POSTAL_CODE: "02108-1234",
    }

    (answer,) = answers(handle.upload("a.csv", upload_csv([row])))

    url = answer["url"]
    tries = [("007", "02108"), ("7", "02108"), ("007", "2108"), ("", "02108")]
    assert [True, False, False, False] == [handle.opens(url, cvv, code) for cvv, code in tries]


def test_a_link_to_a_card_without_cvv_opens_for_nobody() -> None:
    handle = portal()
    row = people(1)[0] | {interface.CVV: "", interface.CVV_HASH: ""}

    (answer,) = answers(handle.upload("a.csv", upload_csv([row])))

    assert False is handle.opens(answer["url"], "", row[interface.POSTAL_CODE])


def test_the_books_hold_no_card_number_and_no_cvv() -> None:
    handle = portal(fail_share=0.5)
    rows = people(7)

    handle.upload("a.csv", upload_csv(rows))

    assert not [row for row in rows if row[interface.PAN] in repr(handle.books)]


@pytest.mark.parametrize(
    ("form", "written"),
    [
        ("iso", "2027-01-20"),
        ("timestamp", "2027-01-20T00:00:00.000Z"),
        ("us", "01/20/2027"),
        ("epoch", "1800403200000"),
    ],
)
def test_the_expiration_date_is_written_in_the_form_asked_for(form: str, written: str) -> None:
    (answer,) = answers(portal(date_form=form).upload("a.csv", upload_csv(people(1))))

    assert written == answer["expiration_date"]


def test_links_can_be_made_to_end_on_another_day() -> None:
    (answer,) = answers(portal(expires=date(2030, 1, 1)).upload("a.csv", upload_csv(people(1))))

    assert "2030-01-01" == answer["expiration_date"]


@pytest.mark.parametrize(
    ("made", "ends"),
    [
        (DAY, date(2027, 1, 20)),
        (date(2026, 12, 31), date(2027, 2, 28)),
        (date(2027, 12, 30), date(2028, 2, 29)),
        (date(2026, 10, 15), date(2026, 12, 15)),
    ],
)
def test_a_link_lives_two_months_or_to_the_end_of_a_shorter_one(made: date, ends: date) -> None:
    assert ends == two_months_after(made)
