"""Fixtures of tests of the partner's API: constants that a test sets otherwise."""

from __future__ import annotations

import pytest

from flows.extensions.partner_api import connection, link_check, linking


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests be sent one after another."""
    for module in (link_check, linking):
        monkeypatch.setattr(module, "REQUESTS_AT_A_TIME", 1)


@pytest.fixture
def one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no request be tried again."""
    monkeypatch.setattr(connection, "TRIES", 1)


@pytest.fixture
def many_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests be tried again as often as a busy partner needs."""
    monkeypatch.setattr(connection, "TRIES", 9)
