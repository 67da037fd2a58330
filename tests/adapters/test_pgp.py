"""Real gpg seals to pinned keys and opens again, whole, bounded and without a word of the content
in an error.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.adapters.gpg_opener import GpgOpener
from flows.adapters.gpg_sealer import trial_seal
from flows.errors import BugError
from flows.extensions.simulator.portal_key import Algorithm
from flows.runs.sealing import (
    GpgHungError,
    Plain,
    SealedUnreadableError,
    SecretKeyUnreadableError,
)
from tests import keys
from tests.adapters.sealers import CHUNKS, gpg_that, sealer_to


@settings(max_examples=15, deadline=None)
@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=4), st.booleans())
def test_what_is_sealed_opens_to_the_same_bytes(contents: list[bytes], armor: bool) -> None:
    chunks = [Plain(f"c-{number}.csv", content) for number, content in enumerate(contents)]
    key = keys.sound()

    with sealer_to(key, armor=armor) as sealer, GpgOpener([key.secret]) as opener:
        opened = [opener.open(sealed.data, 3000) for sealed in sealer.seal(chunks)]

    assert contents == opened


@pytest.mark.parametrize(
    "algorithm",
    [
        "rsa2048",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("rsa3072", "rsa4096")),
        "curve25519",
    ],
)
def test_every_usual_kind_of_key_can_be_sealed_to(algorithm: Algorithm) -> None:
    key = keys.sound(algorithm)

    with sealer_to(key) as sealer, GpgOpener([key.secret]) as opener:
        trial_seal(sealer)
        opened = opener.open(sealer.seal(CHUNKS[:1])[0].data, 100)

    assert CHUNKS[0].data == opened


def test_a_group_is_sealed_in_order_and_under_its_names() -> None:
    with sealer_to(keys.sound()) as sealer:
        sealed = sealer.seal(CHUNKS)

    assert [(chunk.name, "") for chunk in CHUNKS] == [(one.name, one.trouble) for one in sealed]


def test_a_group_takes_one_gpg_process(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    gpg = gpg_that(tmp_path, f'case "$*" in *--encrypt*) echo >> {calls};; esac')

    with sealer_to(keys.sound(), gpg=gpg) as sealer:
        sealer.seal(CHUNKS)

    assert "\n" == calls.read_text()


def test_more_chunks_than_a_group_holds_are_sealed_in_several() -> None:
    chunks = [Plain(f"c-{number}.csv", b"%d" % number) for number in range(130)]
    key = keys.sound()

    with sealer_to(key) as sealer, GpgOpener([key.secret]) as opener:
        sealed = sealer.seal(chunks)
        opened = [opener.open(sealed[at].data, 10) for at in (0, 63, 64, 129)]

    assert [b"0", b"63", b"64", b"129"] == opened


def test_two_threads_can_seal_at_once() -> None:
    groups = [
        [Plain(f"t-{thread}-{n}.csv", b"%d-%d" % (thread, n)) for n in range(32)]
        for thread in range(4)
    ]
    key = keys.sound()

    with (
        sealer_to(key) as sealer,
        GpgOpener([key.secret]) as opener,
        ThreadPoolExecutor(2) as threads,
    ):
        sealed = list(threads.map(sealer.seal, groups))
        opened = [opener.open(group[31].data, 10) for group in sealed]

    assert [b"0-31", b"1-31", b"2-31", b"3-31"] == opened


def test_no_chunks_are_no_trouble() -> None:
    with sealer_to(keys.sound()) as sealer:
        assert [] == sealer.seal([])


@pytest.mark.parametrize("name", ["../c.csv", "a/b.csv", "two\nlines.csv", "", "-o.csv"])
def test_a_chunk_name_that_is_no_plain_file_name_is_our_bug(name: str) -> None:
    with sealer_to(keys.sound()) as sealer, pytest.raises(BugError):
        sealer.seal([Plain(name, b"")])


def test_two_chunks_of_one_name_are_our_bug() -> None:
    with sealer_to(keys.sound()) as sealer, pytest.raises(BugError):
        sealer.seal([CHUNKS[0], CHUNKS[0]])


def test_a_message_larger_than_the_limit_is_refused_whatever_its_sealed_size() -> None:
    key = keys.sound()

    with sealer_to(key) as sealer, GpgOpener([key.secret]) as opener:
        bomb = sealer.seal([Plain("bomb.csv", bytes(20_000_000))])[0].data
        with pytest.raises(SealedUnreadableError) as caught:
            opener.open(bomb, 1000)

    assert {"reason": "message.content.too_large"} == caught.value.fields
    assert len(bomb) < 500_000


@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b"\r\n", b"Dear issuer:\n\n"])
def test_an_armored_message_with_other_line_ends_or_text_around_it_opens(before: bytes) -> None:
    key = keys.sound()

    with sealer_to(key, armor=True) as sealer, GpgOpener([key.secret]) as opener:
        sealed = sealer.seal(CHUNKS[:1])[0].data
        opened = opener.open(before + sealed.replace(b"\n", b"\r\n"), 100)

    assert CHUNKS[0].data == opened


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_a_message_as_large_as_the_limit_opens(size: int) -> None:
    key = keys.sound()

    with sealer_to(key) as sealer, GpgOpener([key.secret]) as opener:
        opened = opener.open(sealer.seal([Plain("c.csv", bytes(size))])[0].data, max(size, 1))

    assert bytes(size) == opened


@given(st.data())
def test_a_message_with_one_bit_turned_or_cut_is_refused_without_its_content(
    data: st.DataObject,
) -> None:
    """A few bits, in lengths that say the same twice, change nothing: then the very same content
    comes out.
    """
    whole = bytearray(damaged_message())
    at = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        whole[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del whole[at:]

    refused, opened = None, b""
    with GpgOpener([keys.sound().secret]) as opener:
        try:
            opened = opener.open(bytes(whole), 10_000)
        except SealedUnreadableError as error:
            refused = error

    if refused is None:
        assert CHUNKS[0].data == opened
    else:
        assert refused.__context__ is None
        assert str(refused).isascii()


def damaged_message() -> bytes:
    """Return a message over one card, to be damaged."""
    with sealer_to(keys.sound()) as sealer:
        return sealer.seal(CHUNKS[:1])[0].data


@pytest.mark.parametrize(
    "content", [b"", b"cuid,pan\n1,4242424242424242\n", b"\xcb\x0bt\x00\x00\x00\x00\x00plain"]
)
def test_what_is_not_sealed_is_not_opened(content: bytes) -> None:
    with GpgOpener([keys.sound().secret]) as opener, pytest.raises(SealedUnreadableError):
        opener.open(content, 1000)


@pytest.mark.parametrize("passphrase", ["one two three", "пароль, Straße 5"])
def test_a_key_behind_a_passphrase_opens_with_it_only_and_never_asks(passphrase: str) -> None:
    key = keys.behind(passphrase)
    with sealer_to(key) as sealer:
        sealed = sealer.seal(CHUNKS[:1])[0].data

    with GpgOpener([key.secret], passphrase) as opener:
        assert CHUNKS[0].data == opener.open(sealed, 100)
    for wrong in ("one two", "", None):
        with (
            GpgOpener([key.secret], wrong) as opener,
            pytest.raises(SealedUnreadableError) as caught,
        ):
            opener.open(sealed, 100)
        assert {"reason": "key.passphrase.wrong"} == caught.value.fields


def test_a_file_without_a_secret_key_is_refused_by_its_number() -> None:
    key = keys.sound()

    for content in (b"", b"no key", key.public):
        with pytest.raises(SecretKeyUnreadableError) as caught:
            GpgOpener([key.secret, content])

        assert {"number": 2, "total": 2} == caught.value.fields


@pytest.mark.parametrize("at", ["--import", "--decrypt"])
@pytest.mark.parametrize(
    "says", ["gpg: Fatal: out of memory", "[GNUPG:] ENC_TO 0\ngpg: out of core"]
)
def test_a_gpg_that_fails_by_itself_is_not_taken_for_a_bad_key_or_message(
    tmp_path: Path, at: str, says: str
) -> None:
    recipient = keys.sound()
    (sealed,) = sealer_to(recipient).seal(CHUNKS[:1])
    gpg = gpg_that(tmp_path, f'case "$*" in *{at}*) echo "{says}" >&2; exit 2;; esac')

    with (
        pytest.raises(GpgHungError, match="it reported that"),
        GpgOpener([recipient.secret], gpg=gpg) as opener,
    ):
        opener.open(sealed.data, 1000)
