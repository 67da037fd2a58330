"""A key that is taken never leads out of the root, and one that is refused can be shown."""

from __future__ import annotations

from pathlib import PurePosixPath

from hypothesis import given
from hypothesis import strategies as st

from flows.runs.keys import checked, shown
from flows.runs.store import KeyRefusedError

KEYS = st.text(st.characters(codec=None), max_size=30) | st.text("./a\x00~", max_size=12)


@given(KEYS)
def test_a_key_that_is_taken_stays_below_the_root(key: str) -> None:
    try:
        path = PurePosixPath("/root", checked(key))
    except KeyRefusedError:
        return

    assert f"/root/{key}" == str(path)
    assert ".." not in path.parts


@given(KEYS)
def test_any_key_can_be_shown_in_one_line_of_utf_8(key: str) -> None:
    text = shown(key)

    assert text == text.encode().decode()
    assert "\n" not in text
