"""Unsealed chunks: at a test issuer, with published test cards, and never otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from flows.adapters.plain_sealer import PlainSealer, UnsealedCardError
from flows.configuration import load_issuer
from flows.runs.sealing import Plain, Sealed
from flows.wiring import wire
from schemas.expressions import PUBLISHED
from schemas.issuer import Issuer
from schemas.portal import PAN
from tests.builders import portal_rows
from tests.night import portal_csv

GENERATED = "4000001234567899"
PUBLISHED_ROWS = portal_csv(portal_rows(*({PAN: card} for card in PUBLISHED)))


def settings(**portal: Any) -> dict[str, Any]:
    return {
        "issuer": "bank",
        "root": "store",
        "test": True,
        "portal": {"allowed_hosts": ["a.example"], **portal},
    }


def test_a_chunk_of_published_test_cards_passes_as_it_is() -> None:
    assert [Sealed("a.csv", PUBLISHED_ROWS)] == PlainSealer().seal([Plain("a.csv", PUBLISHED_ROWS)])


@pytest.mark.parametrize(
    "other", [GENERATED, "1234123412341234", "378282246310005", "4242424242424242" * 2]
)
@pytest.mark.parametrize("column", [PAN, "service_card.nickname"])
def test_a_number_that_is_no_published_card_is_refused_in_any_column(
    column: str, other: str
) -> None:
    chunk = portal_csv(portal_rows({}, {column: other}))

    with pytest.raises(UnsealedCardError) as refused:
        PlainSealer().seal([Plain("good.csv", PUBLISHED_ROWS), Plain("bad.csv", chunk)])

    assert {"chunk": "bad.csv", "count": 1} == refused.value.fields
    assert other not in str(refused.value)


@given(st.integers(10**12, 10**19 - 1).map(str).filter(lambda number: number not in PUBLISHED))
def test_no_other_number_of_13_to_19_digits_ever_passes(number: str) -> None:
    with pytest.raises(UnsealedCardError):
        PlainSealer().seal([Plain("a.csv", f"a,b\nc-1,{number}\n".encode())])


def test_an_issuer_that_is_not_a_test_may_not_leave_chunks_unsealed() -> None:
    with pytest.raises(ValidationError, match="test = true"):
        Issuer.model_validate(settings(sealed=False) | {"test": False})


def test_a_sealing_issuer_needs_a_pinned_fingerprint_and_an_unsealed_one_none() -> None:
    unsealed = Issuer.model_validate(settings(sealed=False))

    assert ("csv", ()) == (unsealed.portal.extension, unsealed.portal.fingerprints)
    with pytest.raises(ValidationError, match="fingerprint"):
        Issuer.model_validate(settings())


def test_sealed_false_in_the_toml_wires_the_plain_sealer(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "bank.toml").write_text(
        'issuer = "bank"\nroot = "store"\ntest = true\n'
        '[portal]\nsealed = false\nallowed_hosts = ["a.example"]\n'
    )

    with wire(tmp_path, "bank").sealer() as sealer:
        warnings = sealer.warnings

    assert isinstance(sealer, PlainSealer)
    assert "not sealed" in warnings[0].text
    assert load_issuer(tmp_path, "bank").portal.sealed is False
