"""No plaintext ever is a file: every write of a night is looked at, those to files deleted at once
included.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.leaks.place import BANK, CARDS, STARTER, Place, rows
from tests.leaks.tracing import can_trace, traced
from tests.night import portal_csv

CARELESS = f"""
import tempfile, time
with tempfile.NamedTemporaryFile() as file:
    file.write(b"{CARDS[0]}")
    file.flush()
    time.sleep(0.2)
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_card_in_a_temporary_file_that_is_gone_is_seen(place: Place) -> None:
    script = place.drop(CARELESS.encode(), "careless.py")

    said, leaks = traced(place, [sys.executable, str(script)])

    assert 0 == said.code
    assert any("/tmp" in leak.place for leak in leaks)


@pytest.mark.slow
def test_a_submit_writes_no_plaintext_to_any_file(place: Place) -> None:
    place.drop(portal_csv(rows()))

    said, leaks = traced(place, [sys.executable, *STARTER, "-v", "submit", BANK])

    assert 0 == said.code, said.err
    assert [] == leaks
    assert 3 == len(list(place.folder.rglob("*.pgp")))


@pytest.mark.skipif(
    not can_trace(), reason="strace is missing or may not trace: the folders are watched instead"
)
def test_command_lines_and_environments_of_children_are_looked_at(place: Place) -> None:
    shout = (
        f"import subprocess; subprocess.run(['true', '{CARDS[0]}'], env={{'PAN': '{CARDS[1]}'}})"
    )
    script = place.drop(shout.encode(), "shout.py")

    _, leaks = traced(place, [sys.executable, str(script)])

    assert {"a command line"} == {leak.place for leak in leaks}
    assert 2 == len({leak.secret.whose for leak in leaks})
