"""Rows that are not eligible for a link are neither sent nor wrong: a fate of its own everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.submissions.eligibility import ineligible
from flows.submissions.gates import IneligibleRateError
from flows.submissions.normalise import normalise
from schemas.portal import CITY, COUNTRY, CUID, MONTH, NICKNAME, PAN, YEAR
from schemas.reasons import (
    COUNTRY_NOT_SERVED,
    ENDS_BEFORE_LINK,
    LENGTH_NOT_TAKEN,
    NETWORK_NOT_TAKEN,
    NOT_WANTED,
)
from tests.book.test_given_up import stands
from tests.builders import portal_rows
from tests.extensions.partner_api.town import town
from tests.night import DAY, issuer, local_bench, portal_csv

AMEX = "378282246310005"
LONG = "6304000000000000000"  # 19 digits, a right check digit


def why(*changes: Mapping[str, str | None], **settings: Any) -> list[str]:
    """Return the code of each row, "" where it is eligible."""
    bank = issuer(**settings)
    reasons = ineligible(normalise(portal_rows(*changes), bank.rules), bank, DAY)
    return [(reason or "").rpartition("|")[2] for reason in reasons.to_list()]


def test_cards_of_other_lengths_are_not_eligible_where_their_check_digit_is_right() -> None:
    numbers = [AMEX, LONG, "4222222222222", "30569309025904", "4242424242424242"]
    mistakes = [AMEX[:-1] + "6", "424242424242424", "42424242424242420", "", None, "n/a"]

    assert [*[LENGTH_NOT_TAKEN] * 4, ""] == why(*({PAN: number} for number in numbers))
    assert [""] * 6 == why(*({PAN: number} for number in mistakes))


def test_known_countries_are_not_served_and_unknown_ones_are_for_the_rules() -> None:
    abroad = ["MX", "mex", "Deutschland", "U.K.", "France", "España"]
    others = ["US", "canada", "Puerto Rico", "PR", "Atlantis", "", None]

    assert [COUNTRY_NOT_SERVED] * 6 == why(*({COUNTRY: name} for name in abroad))
    assert [""] * 7 == why(*({COUNTRY: name} for name in others))


@pytest.mark.parametrize(
    ("eligible", "changes", "code"),
    [
        ({"networks": ["visa"]}, {PAN: "5555555555554444"}, NETWORK_NOT_TAKEN),
        ({"networks": ["visa"]}, {PAN: "5555555555554445"}, ""),
        ({"networks": ["visa", "mastercard"]}, {PAN: "2223003122003222"}, ""),
        ({"countries": ["US"]}, {COUNTRY: "CA"}, COUNTRY_NOT_SERVED),
        ({"ending_cards": False}, {YEAR: "26", MONTH: "12"}, ENDS_BEFORE_LINK),
        ({"ending_cards": False}, {YEAR: "20", MONTH: "01"}, ENDS_BEFORE_LINK),
        ({"ending_cards": False}, {YEAR: "27", MONTH: "01"}, ""),
        ({}, {YEAR: "26", MONTH: "12"}, ""),
    ],
)
def test_settings_say_what_else_is_not_eligible(
    eligible: dict[str, Any], changes: dict[str, str | None], code: str
) -> None:
    assert [code] == why(changes, eligible=eligible)


@pytest.mark.parametrize(
    ("condition", "sent"),
    [
        ({"values": ["P10", "P20"]}, "P10 P20"),
        ({"none_of": "P10"}, "P20 XYZZY 7 -1"),
        ({"prefix": ["P"]}, "P10 P20"),
        ({"length": 3}, "P10 P20"),
        ({"length": [1, 2]}, "7 -1"),
        ({"pattern": "[A-Z]+"}, "XYZZY"),
        ({"at_least": 0}, "7"),
        ({"at_most": 7, "prefix": "-"}, "-1"),
    ],
)
def test_a_source_column_may_ask_for_values_beginnings_lengths_patterns_and_ranges(
    tmp_path: Path, condition: dict[str, Any], sent: str
) -> None:
    bench = local_bench(
        tmp_path,
        eligible={"where": {NICKNAME: condition}},
        limits={"max_ineligible_rate": 1.0, "max_reject_rate": 0.0},
    )
    products = ["P10", "P20", "XYZZY", "7", "-1"]
    rows = portal_rows(*({NICKNAME: product, CUID: f"is {product}"} for product in products))

    manifest = bench.submit(bench.drop_bytes(portal_csv(rows)), opened=["reject-rate"]).manifest

    ledger = bench.ledger(manifest.run)
    not_sent = ledger.filter(fate="ineligible")
    others = [f"is {product}" for product in products if product not in sent.split()]
    assert others == not_sent["cuid"].to_list()
    assert [[f"|{NOT_WANTED}"]] * len(others) == not_sent["reasons"].to_list()


@pytest.mark.slow
def test_it_is_counted_listed_and_balanced_and_no_reject(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, limits={"max_reject_rate": 0.0})
    faults: dict[str, str | None] = {CITY: None}
    rows = portal_rows({}, {PAN: AMEX, **faults}, {COUNTRY: "FR", PAN: "5555555555554444"}, {})
    rows = rows.with_columns(
        pl.when(pl.col("row") == 4).then(pl.lit("4111111111111111")).otherwise(PAN).alias(PAN)
    )

    manifest = bench.submit(bench.drop_bytes(portal_csv(rows))).manifest
    bench.answer()
    bench.ingest()

    counts = manifest.counts
    summary = bench.stored(manifest.run).summary or {}
    rejects = bench.report(manifest.run, "rejects.csv").decode()
    assert (4, 2, 0, 2) == (counts.read, counts.submitted, counts.rejected, counts.ineligible)
    assert {LENGTH_NOT_TAKEN: 1, COUNTRY_NOT_SERVED: 1} == manifest.reasons
    assert (2, 2) == (summary["rows"]["ineligible"], summary["open"]["result"]["cards"])
    assert "balanced" == summary["verdict"]
    assert 2 == rejects.count("not eligible")
    assert "fix at source" not in rejects
    assert AMEX not in rejects


@pytest.mark.slow
def test_many_of_them_stop_the_night_by_a_limit_of_their_own(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, limits={"max_ineligible_rate": 0.4, "max_reject_rate": 0.0})
    extract = bench.drop_bytes(portal_csv(portal_rows({}, {PAN: AMEX})))

    with pytest.raises(IneligibleRateError):
        bench.submit(extract)

    assert 1 == bench.submit(extract, opened=["ineligible-rate"]).manifest.counts.submitted


@pytest.mark.slow
def test_the_cardholder_is_not_eligible_in_the_book_and_nobody_s_work(tmp_path: Path) -> None:
    place = town(tmp_path)
    place.settle("a", "b")
    place.people["b"] |= {COUNTRY: "MX"}

    place.night()
    place.answer()

    assert {"a": "linked", "b": "not eligible"} == stands(place)
