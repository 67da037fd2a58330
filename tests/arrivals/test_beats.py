"""The beats of several processes of one store: none hides another, and what they counted stays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from flows.adapters.local import LocalStore
from flows.arrivals.beats import Beats, Condition
from flows.arrivals.dispatch import Dispatcher
from flows.arrivals.targets import Target
from flows.operations.arrivals_beat import liveness, read_beats
from flows.wiring import now
from tests.night import BANK, issuer

WORKS = Condition(0.0, "")


def process(store: LocalStore, files: int, number: int, patch: pytest.MonkeyPatch) -> Beats:
    """Return the beats of a process of this number, after files came to it."""
    patch.setattr(os, "getpid", lambda: number)
    came = Counter({Target(BANK, "nightly"): files})
    dispatcher = SimpleNamespace(files=came, runs=came, problems={})
    return Beats({BANK: store}, cast(Dispatcher, dispatcher))


def dead() -> int:
    """Return the number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        return ended.pid


def test_of_two_processes_each_beats_for_itself_and_one_that_ends_leaves_its_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    one = process(store, 3, os.getpid(), monkeypatch)
    two = process(store, 4, os.getppid(), monkeypatch)
    for beats, condition in ((one, Condition(900.0, "")), (two, WORKS), (two, WORKS)):
        beats.beat(BANK, condition)

    stuck = liveness(store, issuer(arrivals={}), now())
    one.end()

    assert stuck is not None
    assert stuck.is_down
    assert "of its 2 processes" in stuck.text
    assert ("7 files came, 7 runs were started", False) == liveness(
        store, issuer(arrivals={}), now()
    )


def test_a_process_takes_the_place_of_one_that_died_on_its_machine_and_of_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    lost = process(store, 1, dead(), monkeypatch)
    lost.beat(BANK, WORKS)
    process(store, 2, os.getppid(), monkeypatch).beat(BANK, WORKS)
    again = process(store, 5, dead(), monkeypatch)
    again.beat(BANK, WORKS)
    lost_name, again_name = lost._name, again._name

    known = read_beats(store, BANK)

    assert again.last_at() > 0
    assert lost_name not in known.living
    assert again_name in known.living
    assert {"nightly": 8, "ingest": 0} == known.total(lambda beat: beat.files)
