"""The partner's words become reason codes, and every kind they can become has an action of its
own.
"""

from __future__ import annotations

import pytest

from flows.results.partner_terms import KINDS, OTHER, UNREADABLE, partner_reason, shape_of
from schemas.reasons import ACTIONS, HINTS, reason


@pytest.mark.parametrize(
    ("path", "message", "code"),
    [
        (("address", "postal_code"), "Required", "address.postal_code.missing"),
        (("service_card.address.city",), "must not be empty", "address.city.missing"),
        (("card", "expirationMonth"), "is invalid", "card.expiration_month.format"),
        (("pan",), "fails Luhn check", "card.pan.luhn"),
        (("create_card",), "card has expired", "card.expiration.expired"),
        (("card",), "declined", "card.record.other"),
        ((), "ZIP code is not valid", "address.postal_code.format"),
        ((), "cuid must be unique", "cardholder.cuid.exists"),
        ((), "cuid c-7: city is too long", "address.city.length"),
        ((), "card BIN is not supported", "card.record.unsupported"),
        ((), "503 Service Unavailable", "partner.error.unavailable"),
        ((), "[object Object]", "partner.error.unreadable"),
        ((), "computer says no", "partner.error.other"),
    ],
)
def test_the_partners_words_become_a_reason_code(
    path: tuple[str, ...], message: str, code: str
) -> None:
    assert code == partner_reason(path, message).code


def test_every_kind_the_partner_can_give_has_an_action() -> None:
    assert set() == {*KINDS, OTHER, UNREADABLE} - set(ACTIONS)


def test_what_passes_by_itself_is_sent_again_as_it_is() -> None:
    assert "resubmit as is" == reason(partner_reason((), "upstream timed out").code).action


def test_a_property_the_partner_names_has_our_hint() -> None:
    assert HINTS["address.postal_code"] == reason(partner_reason(("zip",), "is invalid").code).hint


def test_messages_that_differ_in_numbers_and_quotes_only_have_one_shape() -> None:
    shapes = {
        shape_of((partner_reason((), f"lookup {at} of 'holder {at}' broke"),)) for at in range(20)
    }

    assert 1 == len(shapes)
