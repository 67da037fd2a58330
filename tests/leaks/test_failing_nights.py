"""No night that fails leaves a card number or a CVV where it does not belong (small size of `make
leaks`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.leaks.nights import FAILING, GateFacts
from tests.leaks.place import Place


@pytest.mark.slow
@pytest.mark.parametrize("night", FAILING, ids=lambda night: night.name)
def test_a_failing_night_leaves_no_card_where_none_belongs(
    night: GateFacts, tmp_path: Path
) -> None:
    place = Place(tmp_path)

    night.play(place, False)

    assert [] == place.leaks()
