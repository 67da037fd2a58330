"""A property shows something only where it is tried often enough."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.builders import share_of

LEAST = 10
SETTINGS = "_hypothesis_internal_use_settings"  # as Hypothesis's own plugin of pytest reads them


def examples_of(item: pytest.Item) -> int:
    """Return with how many examples a test runs; LEAST where it is no property."""
    chosen = getattr(getattr(item, "obj", None), SETTINGS, None)
    return chosen.max_examples if isinstance(chosen, settings) else LEAST


def test_no_property_of_this_session_runs_with_fewer_than_ten_examples(
    request: pytest.FixtureRequest,
) -> None:
    few = [item.nodeid for item in request.session.items if examples_of(item) < LEAST]

    assert [] == few
    assert [LEAST, LEAST] == [share_of(0), share_of(0.05)]


@settings(max_examples=LEAST - 1)
def _few() -> None:
    """Stand for a property with fewer."""


def test_a_property_with_fewer_is_noticed(request: pytest.FixtureRequest) -> None:
    assert LEAST - 1 == examples_of(
        pytest.Function.from_parent(request.node.parent, name="few", callobj=_few)
    )
