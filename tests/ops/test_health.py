"""Whoever checks from outside learns whether files that arrive start runs, and no issuer's name."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.adapters.local import LocalStore
from flows.extensions.arrivals.beat import Beat, write_beat
from flows.pages.health import EVERY, ArrivalsHealth
from flows.wiring import now
from tests.cli.test_reconcile import TOML


def test_the_health_of_arrivals_is_down_where_their_process_is_silent(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    toml = TOML.format(name="bank", fingerprint="0" * 40)
    answers = []

    (tmp_path / "bank.toml").write_text(toml)
    answers.append(ArrivalsHealth(tmp_path).read())
    (tmp_path / "bank.toml").write_text(f"{toml}\n[arrivals]\n")
    health = ArrivalsHealth(tmp_path)
    answers.append(health.read())
    write_beat(LocalStore(tmp_path / "store"), "bank", Beat(at=now() - timedelta(seconds=5)))
    answers += [health.read(), ArrivalsHealth(tmp_path).read()]

    assert [200, 503, 503, 200] == [answer.status for answer in answers]  # the third is remembered
    assert not any("bank" in answer.text for answer in answers)


def test_the_health_of_arrivals_is_read_again_after_half_a_minute_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[Path]()

    def nothing_down(folder: Path) -> list[bool]:
        read.append(folder)
        return []

    moments = [0.0]
    clock = SimpleNamespace(monotonic=lambda: moments[-1])
    monkeypatch.setattr("flows.pages.health.time", clock)
    monkeypatch.setattr("flows.pages.health._down", nothing_down)
    health = ArrivalsHealth(tmp_path)

    reads = []
    for moment in (1.0, EVERY + 0.9, EVERY + 1.0):
        moments.append(moment)
        health.read()
        reads.append(len(read))

    assert [1, 1, 2] == reads
