"""The bench of checks of links, at a small size: what it says of them is true."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.following import Plan, looks


@pytest.mark.slow
def test_checks_find_who_opened_a_link_within_the_requests_that_their_time_allows(
    tmp_path: Path,
) -> None:
    plan = Plan(links=40, days=1, movement=1.0, rate=0.1, quiet_days=20)

    first, *later = looks(tmp_path, plan)

    assert (40, 80, 0) == (first.queried, first.requests, first.waiting)
    assert all(check.queried + check.waiting <= 40 for check in later)
    # thirty requests in five minutes, and one more for a job that a message names
    assert all(check.requests <= 30 + 2 * check.opened for check in later)
    assert 0 < later[-1].opened <= later[-1].truly_opened
