"""Signed notes: read and made as the specification's own example, and forged by nobody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.runs.signed_note import Signer, Verifier

# the published example of the format, with its keys
PUBLIC = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
SECRET = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
TEXT = """If you think cryptography is the answer to your problem,
then you don't know what your problem is.
"""
SIGNATURE = (
    "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="
)
NOTE = f"{TEXT}\n\N{EM DASH} PeterNeumann {SIGNATURE}\n"


def test_the_published_example_is_signed_by_the_published_key() -> None:
    assert Verifier.of(PUBLIC).text_of(NOTE) == TEXT


def test_the_published_secret_key_makes_the_published_note_and_public_key() -> None:
    signer = Signer.of(SECRET)

    assert (NOTE, PUBLIC, SECRET) == (signer.signed(TEXT), str(signer.verifier), str(signer))


@given(st.integers(0, len(NOTE) - 1), st.characters())
def test_a_note_with_another_character_is_not_signed(place: int, other: str) -> None:
    forged = NOTE[:place] + other + NOTE[place + 1 :]

    assert forged == NOTE or Verifier.of(PUBLIC).text_of(forged) in (None, TEXT)
    if place < len(TEXT) and forged != NOTE:
        assert Verifier.of(PUBLIC).text_of(forged) is None


@given(st.from_regex(r"\A[^\s+]{1,30}\Z"), st.text(min_size=1))
def test_what_a_new_key_signs_only_this_key_confirms(name: str, line: str) -> None:
    signer = Signer.new(name)
    text = f"{line}\n"

    note = signer.signed(text)

    assert Verifier.of(str(signer.verifier)).text_of(note) == text
    assert Signer.new(name).verifier.text_of(note) is None


@pytest.mark.parametrize(
    "line",
    [
        "",
        "name",
        "name+c74f20a3+AAAA",
        PUBLIC.replace("c74f", "c74e"),
        f"with space {PUBLIC}",
        SECRET,
    ],
)
def test_what_is_no_public_key_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not"):
        Verifier.of(line)


@pytest.mark.parametrize("line", ["", PUBLIC, SECRET.replace("c74f", "c74e"), SECRET[:-4]])
def test_what_is_no_secret_key_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not"):
        Signer.of(line)


def test_a_secret_key_is_not_printed() -> None:
    assert "Signer('PeterNeumann')" == repr(Signer.of(SECRET))
