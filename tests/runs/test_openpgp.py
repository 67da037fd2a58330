"""The packet walk tells a whole message from a damaged one, and who it is for."""

from __future__ import annotations

import base64
import contextlib
import textwrap
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.runs.openpgp import blocks, inspect, keys_in, looks_like_message
from flows.runs.sealing import SealedUnreadableError
from tests import keys

Pack = Callable[[int, bytes], bytes]
KEY_IDS = st.lists(st.binary(min_size=8, max_size=8), min_size=1, max_size=3)


def old_packet(tag: int, body: bytes) -> bytes:
    """Write a packet with a two-octet length, as gpg does."""
    return bytes([0x80 | tag << 2 | 1]) + len(body).to_bytes(2, "big") + body


def new_packet(tag: int, body: bytes) -> bytes:
    """Write a packet of the new format with the shortest length."""
    size = len(body)
    if size < 192:
        return bytes([0xC0 | tag, size]) + body
    if size < 8384:
        return bytes([0xC0 | tag, 192 + (size - 192 >> 8), size - 192 & 0xFF]) + body
    return bytes([0xC0 | tag, 255]) + size.to_bytes(4, "big") + body


def partial_packet(tag: int, body: bytes) -> bytes:
    """Write a packet in parts of 512 bytes and a last one."""
    *parts, last = [body[start : start + 512] for start in range(0, len(body) + 1, 512)]
    packed = b"".join(bytes([224 + 9]) + part for part in parts)
    return bytes([0xC0 | tag]) + packed + new_packet(0, last)[1:]


def session_key(key_id: bytes) -> bytes:
    """Write the packet that carries the session key for one recipient, RSA of 2048 bits long."""
    return b"\x03" + key_id + b"\x01" + b"\x08\x00" + b"\xaa" * 256


def message(key_ids: list[bytes], size: int = 700) -> bytes:
    """Write a message for some recipients around `size` bytes of noise."""
    return b"".join(old_packet(1, session_key(key_id)) for key_id in key_ids) + partial_packet(
        18, b"\x01" + b"\xbb" * size
    )


def armored(data: bytes, kind: str = "MESSAGE", newline: str = "\n") -> bytes:
    """Write data as text, with a header line and a CRC that is not looked at."""
    body = textwrap.wrap(base64.b64encode(data).decode(), 64)
    lines = [
        f"-----BEGIN PGP {kind}-----",
        "Comment: a test",
        "",
        *body,
        "=AAAA",
        f"-----END PGP {kind}-----",
        "",
    ]
    return newline.join(lines).encode()


@given(KEY_IDS, st.integers(0, 20_000), st.sampled_from([new_packet, partial_packet]))
def test_the_recipients_of_every_whole_message_are_found(
    key_ids: list[bytes], size: int, pack: Pack
) -> None:
    whole = b"".join(old_packet(1, session_key(key_id)) for key_id in key_ids) + pack(
        18, b"\x01" + bytes(size)
    )

    found = inspect(whole)

    assert tuple(key_id.hex().upper() for key_id in key_ids) == found


@given(KEY_IDS, st.integers(0, 3_000), st.data())
def test_a_message_cut_anywhere_is_malformed(
    key_ids: list[bytes], size: int, data: st.DataObject
) -> None:
    whole = message(key_ids, size)
    kept = data.draw(st.integers(0, len(whole) - 1))

    with pytest.raises(SealedUnreadableError):
        inspect(whole[:kept])


@given(KEY_IDS, st.binary(min_size=1, max_size=40))
def test_bytes_after_the_message_are_malformed(key_ids: list[bytes], more: bytes) -> None:
    whole = message(key_ids)

    with pytest.raises(SealedUnreadableError):
        inspect(whole + more)


@given(st.binary(max_size=300))
def test_noise_is_malformed_and_nothing_worse(noise: bytes) -> None:
    with contextlib.suppress(SealedUnreadableError):
        assert isinstance(inspect(noise), tuple)


@given(
    KEY_IDS, st.sampled_from(["\n", "\r\n"]), st.sampled_from([b"", b"\xef\xbb\xbf", b"Hello,\n\n"])
)
def test_armor_changes_nothing(key_ids: list[bytes], newline: str, before: bytes) -> None:
    whole = message(key_ids)

    found = inspect(before + armored(whole, newline=newline))

    assert inspect(whole) == found


@pytest.mark.parametrize(
    ("damaged", "code"),
    [
        (b"", "armor.begin.missing"),
        (b"pan,cvv\n", "armor.begin.missing"),
        (armored(message([b"8 octets"]))[:-40], "armor.end.missing"),
        (armored(message([b"8 octets"])).replace(b"\n\n", b"\n"), "armor.head.malformed"),
        (armored(message([b"8 octets"])).replace(b"u7u7", b"u-7u", 1), "armor.base64.malformed"),
        (armored(message([b"8 octets"])) * 2, "message.blocks.many"),
        (armored(b"").replace(b"=AAAA", b"\n=AAAA"), "message.packets.missing"),
        (old_packet(1, session_key(b"8 octets")), "message.packets.unexpected"),
        (message([b"8 octets"]) * 2, "message.packets.unexpected"),
        (new_packet(9, b"sealed without protection against change"), "message.packets.unexpected"),
        (new_packet(20, b"\x01 the kind of gpg 2.4"), "message.aead.unsupported"),
        (new_packet(18, b"\x02 the newer kind few can read"), "message.version.unsupported"),
        (
            new_packet(1, b"\x06 the newer kind") + new_packet(18, b"\x01"),
            "recipient.version.unsupported",
        ),
        (b"\x87\x03 runs to the end", "packet.length.indeterminate"),
        (new_packet(18, b"\x01") + b"text", "packet.header.malformed"),
        (b"\xd2\xff\x00", "packet.length.beyond_end"),
    ],
)
def test_each_damage_has_its_code(damaged: bytes, code: str) -> None:
    with pytest.raises(SealedUnreadableError) as caught:
        inspect(damaged)

    assert {"reason": code} == caught.value.fields


@pytest.mark.parametrize("copies", [1, 2])
def test_keys_of_a_file_are_counted_in_text_and_in_binary(copies: int) -> None:
    files = [keys.sound(copy=copy) for copy in range(1, copies + 1)]

    public = keys_in(blocks(b"".join(key.public for key in files)))
    secret = keys_in(blocks(b"".join(key.secret for key in files)))

    assert [(copies, 0), (0, copies)] == [(len(made), hidden) for made, hidden in (public, secret)]


@pytest.mark.parametrize(
    "head",
    [
        message([b"8 octets"]),
        armored(message([b"8 octets"])),
        b"\xef\xbb\xbf\n" + armored(message([b"8 octets"])),
        new_packet(1, session_key(b"8 octets")),
        new_packet(10, b"PGP") + message([b"8 octets"]),
    ],
)
def test_a_message_is_told_by_its_head(head: bytes) -> None:
    assert looks_like_message(head[:64])


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\x85",
        b"cuid,pan\n1,4242424242424242\n",
        "\ufeffcuid,pan\n".encode(),
        "Ángel,Ávila\n".encode("cp1252"),
        "…,…\n".encode("cp1252"),
        "Ángel\n".encode(),
        b"\x1f\x8b\x08\x00",
        b"PK\x03\x04",
        b"\x28\xb5\x2f\xfd",
        armored(b"", "PUBLIC KEY BLOCK"),
    ],
)
def test_an_extract_in_the_clear_is_not_taken_for_a_message(head: bytes) -> None:
    assert not looks_like_message(head[:64])
