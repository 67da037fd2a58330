"""Limits of settings, requests and layouts: the limit and its neighbours, the first and the last."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import date
from typing import Any

import polars as pl
import pytest
from pydantic import ValidationError

from flows.extensions.partner_api.profile import Profile
from flows.extensions.partner_api.service_objects import ACK_KEY, CredentialRequest
from flows.extensions.partner_api.settings import last_day
from schemas import toml_problems
from schemas.conditions import LONGEST
from schemas.expressions import holds_card
from schemas.issuer import RuleSettings
from schemas.mapping import Cell
from schemas.portal import CITY
from schemas.portal_settings import PortalSettings
from schemas.rules import RULES
from schemas.settings import LinkSettings, Retention
from schemas.source import SourceSettings
from schemas.status import StatusColumn
from tests.builders import portal_rows

DAY = date(2026, 11, 20)


def refused(is_refused: bool) -> Any:
    return pytest.raises(ValidationError) if is_refused else nullcontext()


# Texts
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "is_too_long"), [(LONGEST, False), (LONGEST + 1, True)])
def test_a_text_has_at_most_as_many_characters_as_its_column_may(
    length: int, is_too_long: bool
) -> None:
    rule = next(rule for rule in RULES if rule.column == CITY and rule.severity == "too_long")

    holds = portal_rows({CITY: "x" * length}).select(rule.expression(DAY, RuleSettings()))

    assert [not is_too_long] == holds.to_series().to_list()


def test_a_number_of_its_own_bin_has_sixteen_digits_wherever_it_begins() -> None:
    texts = pl.Series(["1242424200000018", "124242420000000018"])
    pans = pl.Series(["4242424242424242"] * 2)

    holds = pl.select(holds_card(pl.lit(texts), pl.lit(pans))).to_series()

    assert [False, True] == holds.to_list()


# Settings
# --------------------------------------------------------------------------------------------------


def test_links_csv_needs_two_columns() -> None:
    assert 2 == len(LinkSettings(columns={"cuid": "a", "url": "b"}).columns)


@pytest.mark.parametrize("days", [394, 395, 396])
def test_chunks_are_kept_at_most_as_long_as_the_ledger(days: int) -> None:
    with refused(days > 395):
        Retention(chunks_days=days, ledger_days=395)


@pytest.mark.parametrize("length", [252, 253, 254])
def test_a_host_has_at_most_253_characters(length: int) -> None:
    host = ("a." * 200)[: length - 3 - (1 - length % 2)] + "b" * (1 - length % 2) + "com"

    assert length == len(host)
    with refused(length > 253):
        PortalSettings(allowed_hosts=(host,), fingerprints=("0" * 40,))


def test_the_characters_of_a_field_may_be_the_first_one_alone() -> None:
    Cell(at=(1, 1))
    StatusColumn(at=(1, 1), send=("A",))
    for at in ((0, 1), (2, 1)):
        with refused(is_refused=True):
            Cell(at=at)
        with refused(is_refused=True):
            StatusColumn(at=at, send=("A",))


def test_parts_may_be_the_same_at_both_ends() -> None:
    for part in ((2, 2), (-1, -1), (2, -1), (-2, 1)):
        assert part == Cell.model_validate({"from": "x", "split": "-", "part": part}).part
    for part in ((2, 1), (-1, -2), (0, 1), (-1, 0)):
        with refused(is_refused=True):
            Cell.model_validate({"from": "x", "split": "-", "part": part})


def test_a_hash_total_may_have_one_character() -> None:
    for span in ((2, 2), (3, 2)):
        with refused(span == (3, 2)):
            SourceSettings(
                format="fixed", width=9, trailer="T(..)(.)", hash_total=span, header_rows=0
            )


def test_the_total_is_where_there_are_two_groups() -> None:
    source = SourceSettings(trailer="T(..)", header_record="H(..)(..)")

    assert "header_record" == source.total_in


def test_an_extract_without_a_header_has_two_columns_or_more() -> None:
    for names in (("a",), ("a", "b")):
        with refused(len(names) < 2):
            SourceSettings(header_rows=0, names=names)


@pytest.mark.parametrize("day", ["2026-11-19", "2026-11-20", "2026-11-21"])
def test_a_link_may_end_today_and_not_yesterday(day: str) -> None:
    with pytest.raises(ValueError, match="gone by") if day < "2026-11-20" else nullcontext():
        assert day == str(last_day(day, DAY))


def test_a_request_is_acknowledged_where_it_has_all_the_keys_there_may_be() -> None:
    settings = Profile(names={"message.acknowledged": ("ACK", "a", "b")})

    def is_acknowledged(kind: str, *keys: str) -> bool:
        prompts = [{"key_name": key, "label": "", "secret": False} for key in keys]
        content = {"type": kind, "envelope_id": "e", "account_link": prompts}
        return settings.wants_no_input(CredentialRequest.model_validate(content))

    assert is_acknowledged("other", "a", "b")
    assert not is_acknowledged("other", "a", "b", ACK_KEY)
    assert is_acknowledged("ACK", "a", "b", ACK_KEY)
    assert not is_acknowledged("ACK", "a", "b", ACK_KEY, "c")


def test_the_place_of_a_list_that_is_too_short_is_that_of_the_list() -> None:
    with pytest.raises(ValidationError) as caught:
        Cell.model_validate({"at": [1]})

    told = toml_problems.problems(caught.value, {"at": [1]}, "at = [1]\n")

    assert all("line 1, at" in sentence for sentence in told.values())


# Layouts
# --------------------------------------------------------------------------------------------------
