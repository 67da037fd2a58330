"""No night leaves a card number or a CVV where it does not belong (small size; `make leaks` runs
the full one).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.leaks.nights import BY_COMMAND, GateFacts
from tests.leaks.place import Place


@pytest.mark.slow  # in `make test` nights that fail are searched
@pytest.mark.parametrize("night", BY_COMMAND, ids=lambda night: night.name)
def test_a_night_leaves_no_card_where_none_belongs(night: GateFacts, tmp_path: Path) -> None:
    place = Place(tmp_path)

    night.play(place, False)

    assert [] == place.leaks()
