"""No night that fails leaves a card number or a CVV where it does not belong (small size of `make
leaks`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.leaks.nights import FAILING, GateFacts
from tests.leaks.place import Place

SMALL = ("results that echo cards",)


@pytest.mark.parametrize(
    "night",
    [
        pytest.param(one, id=one.name, marks=[] if one.name in SMALL else [pytest.mark.slow])
        for one in FAILING
    ],
)
def test_a_failing_night_leaves_no_card_where_none_belongs(
    night: GateFacts, tmp_path: Path
) -> None:
    place = Place(tmp_path)

    night.play(place, False)

    assert [] == place.leaks()
