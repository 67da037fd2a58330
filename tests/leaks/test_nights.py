"""No night leaves a card number or a CVV where it does not belong (small size; `make leaks` runs the full one)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.leaks.nights import BY_COMMAND, GateFacts
from tests.leaks.place import Place

SMALL = ("damaged extracts",)  # in `make test`, beside the nights that fail


@pytest.mark.parametrize(
    "night",
    [pytest.param(one, id=one.name, marks=[] if one.name in SMALL else [pytest.mark.slow]) for one in BY_COMMAND],
)
def test_a_night_leaves_no_card_where_none_belongs(night: GateFacts, tmp_path: Path) -> None:
    place = Place(tmp_path)

    night.play(place, False)

    assert [] == place.leaks()
