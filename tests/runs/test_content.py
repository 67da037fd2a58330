"""The packet made of a chunk before it is sealed is what any reader of RFC 4880 takes apart
again.
"""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from flows.runs.openpgp import content, packets
from flows.runs.sealing import Plain

NAMES = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,254}\Z")


def _taken_apart(literal: bytes) -> tuple[int, bytes, bytes]:
    """Return tag, name and data of a literal packet."""
    packet = packets(literal)[0]
    body = bytes(packet.body)
    start = 2 + body[1]
    assert b"b" == body[:1]
    assert bytes(4) == body[start : start + 4]
    return packet.tag, body[2:start], body[start + 4 :]


@given(NAMES, st.binary(max_size=5000))
def test_a_chunk_not_compressed_is_a_literal_packet_of_its_name_and_bytes(
    name: str, data: bytes
) -> None:
    assert (11, name.encode(), data) == _taken_apart(content(Plain(name, data), "none").data)


@given(NAMES, st.binary(max_size=5000), st.integers(1, 200))
def test_zlib_inflates_a_compressed_packet_to_the_same_literal_packet(
    name: str, data: bytes, times: int
) -> None:
    packet = packets(content(Plain(name, data * times), "zip").data)[0]

    inflate = zlib.decompressobj(-15)
    literal = inflate.decompress(bytes(packet.body[1:]))

    assert (8, b"\x01", b"", True) == (
        packet.tag,
        bytes(packet.body[:1]),
        inflate.unused_data,
        inflate.eof,
    )
    assert (11, name.encode(), data * times) == _taken_apart(literal)
