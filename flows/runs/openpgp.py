"""The OpenPGP format as it is seen from outside (RFC 4880); nothing here can decrypt.

Armor, packets, recipients, kinds of keys, and the literal data packet inside a message, plain or
deflated. Keep out: gpg itself.
"""

import binascii
import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from isal import isal_zlib

from flows.runs.sealing import Plain, SealedUnreadableError

_BEGIN = b"-----BEGIN PGP "
_END = b"-----END PGP "
_BOM = b"\xef\xbb\xbf"
# RFC 4880 6.2: headers, then an empty line
_HEAD_OF_ARMOR = re.compile(rb"(?:[^\n:]+:[^\n]*\n)*[ \t]*\n")
_MARKERS = (b"\xca\x03PGP", b"\xa8\x03PGP")  # a marker packet, which some senders put first


_SESSION_KEY, _SECRET_KEY, _PUBLIC_KEY, _UNAUTHENTICATED, _SEALED, _AEAD = 1, 5, 6, 9, 18, 20
# what a cut leaves
_CUT = ("armor.end.missing", "armor.head.malformed", "packet.length.beyond_end")


Compression = Literal["zip", "none"]


_COMPRESSED, _LITERAL = 8, 11
_ZIP: Final = b"\x01"  # the algorithm: raw deflate
_BINARY: Final = b"b"
_NO_DATE: Final = bytes(4)  # so that the same rows make the same content at any time


class Packet(NamedTuple):
    """One packet: its tag, and its body, or the body's first part where the length is partial."""

    tag: int
    body: memoryview


def looks_like_message(head: bytes) -> bool:
    """Return whether something that begins with these 64 bytes is an OpenPGP message, armored or
    binary.
    """
    if (
        head.removeprefix(_BOM).lstrip().startswith(_BEGIN + b"MESSAGE-----")
        or head[:5] in _MARKERS
    ):
        return True
    try:
        tag, _, start, _ = _header(memoryview(head), 0)
    except SealedUnreadableError:
        return False
    # else some letter of cp1252 or UTF-8
    return tag == _SESSION_KEY and head[start : start + 1] == b"\x03"


def is_cut_off(message: bytes) -> bool:
    """Return whether the end of a message is missing: of its armor, its last packet, or all that is
    sealed.
    """
    try:
        tags = {packet.tag for block in blocks(message) for packet in packets(block)}
    except SealedUnreadableError as error:
        return error.fields["reason"] in _CUT
    return not tags & {_UNAUTHENTICATED, _SEALED, _AEAD}


def inspect(message: bytes) -> tuple[str, ...]:
    """Return the key ids (16 hex) of session keys before one tag 18 version 1, no more;
    SealedUnreadableError.
    """
    found = blocks(message)
    if len(found) != 1:
        raise SealedUnreadableError(reason="message.blocks.many")
    *keys, sealed = packets(found[0])
    # gpg 2.4 writes it to keys that ask for it; many readers cannot open it
    if sealed.tag == _AEAD:
        raise SealedUnreadableError(reason="message.aead.unsupported")
    if sealed.tag != _SEALED or any(key.tag != _SESSION_KEY for key in keys):
        raise SealedUnreadableError(reason="message.packets.unexpected")
    if bytes(sealed.body[:1]) != b"\x01":
        raise SealedUnreadableError(reason="message.version.unsupported")
    return tuple(_recipient(key.body) for key in keys)


def keys_in(binary: Sequence[bytes]) -> tuple[list[int], int]:
    """Return when (epoch) each public key in the blocks of a key file was made, and how many secret
    keys are there.

    Subkeys do not count. Raises SealedUnreadableError where a block is not made of packets.
    """
    found = [packet for block in binary for packet in packets(block)]
    # RFC 4880 5.5.2
    made = [
        int.from_bytes(packet.body[1:5], "big") for packet in found if packet.tag == _PUBLIC_KEY
    ]
    return made, sum(packet.tag == _SECRET_KEY for packet in found)


def blocks(data: bytes) -> list[bytes]:
    """Return the binary content of every armored block, or the data itself where it is binary.

    The armor's CRC is not checked: gpg's own authentication is stronger, and in Python it costs
    more than the sealing. Raises SealedUnreadableError where neither kind is found.
    """
    # every packet starts with the top bit set
    if data[:1] >= b"\x80" and not data.startswith(_BOM):
        return [data]
    found = []
    begin = data.find(_BEGIN)
    while begin >= 0:
        end = data.find(_END, begin)
        if end < 0:
            raise SealedUnreadableError(reason="armor.end.missing")
        found.append(_dearmor(data[begin:end]))
        begin = data.find(_BEGIN, end)
    if not found:
        raise SealedUnreadableError(reason="armor.begin.missing")
    return found


def packets(data: bytes) -> list[Packet]:
    """Cut binary data into packets (at least one) that tile it; SealedUnreadableError where they do
    not.
    """
    view, found, place = memoryview(data), [], 0
    while place < len(view):
        tag, length, place, more = _header(view, place)
        found.append(Packet(tag, _slice(view, place, length)))
        place += length
        while more:
            length, place, more = _new_length(view, place)
            place += len(_slice(view, place, length))
    if not found:
        raise SealedUnreadableError(reason="message.packets.missing")
    return found


def _dearmor(block: bytes) -> bytes:
    """Decode one block from its BEGIN line up to (without) its END line."""
    _, _, rest = block.replace(b"\r\n", b"\n").partition(b"\n")
    head = _HEAD_OF_ARMOR.match(rest)
    if not head:
        raise SealedUnreadableError(reason="armor.head.malformed")
    body, _, _ = rest[head.end() :].partition(b"\n=")
    try:
        return binascii.a2b_base64(b"".join(body.split()), strict_mode=True)
    except binascii.Error:
        pass
    raise SealedUnreadableError(reason="armor.base64.malformed")


def _header(view: memoryview, place: int) -> tuple[int, int, int, bool]:
    """Return a packet's tag, its (first) length, where its body starts, and whether another part
    follows.
    """
    first = _slice(view, place, 1)[0]
    if not first & 0x80:
        raise SealedUnreadableError(reason="packet.header.malformed")
    if first & 0x40:
        return first & 0x3F, *_new_length(view, place + 1)
    if first & 3 == 3:  # runs to the end of the file: truncation could not be noticed
        raise SealedUnreadableError(reason="packet.length.indeterminate")
    width = 1 << (first & 3)
    length = int.from_bytes(_slice(view, place + 1, width), "big")
    return (first & 0x3C) >> 2, length, place + 1 + width, False


def _new_length(view: memoryview, place: int) -> tuple[int, int, bool]:
    """Return a length of the new format, where what it measures starts, and whether another part
    follows.
    """
    first = _slice(view, place, 1)[0]
    if first < 192:
        return first, place + 1, False
    if first < 224:
        return ((first - 192) << 8) + _slice(view, place + 1, 1)[0] + 192, place + 2, False
    if first < 255:
        return 1 << (first & 0x1F), place + 1, True
    return int.from_bytes(_slice(view, place + 1, 4), "big"), place + 5, False


def _slice(view: memoryview, start: int, length: int) -> memoryview:
    part = view[start : start + length]
    if len(part) != length:
        raise SealedUnreadableError(reason="packet.length.beyond_end")
    return part


def _recipient(body: memoryview) -> str:
    """Return the key id of a session key packet of version 3: version, key id, algorithm,
    numbers.
    """
    if bytes(body[:1]) != b"\x03" or len(body) < 10:
        raise SealedUnreadableError(reason="recipient.version.unsupported")
    return bytes(body[1:9]).hex().upper()


def content(chunk: Plain, compression: Compression) -> Plain:
    """Return the packet to seal of one chunk; its name (at most 255 bytes) is shown to whoever
    opens it.
    """
    name = chunk.name.encode()
    literal = _packet(_LITERAL, _BINARY + bytes([len(name)]) + name + _NO_DATE + chunk.data)
    if compression == "none":
        return Plain(chunk.name, literal)
    deflate = isal_zlib.compressobj(1, isal_zlib.DEFLATED, -isal_zlib.MAX_WBITS)
    return Plain(
        chunk.name, _packet(_COMPRESSED, _ZIP + deflate.compress(literal) + deflate.flush())
    )


def _packet(tag: int, body: bytes) -> bytes:
    """Return a packet with a header of the new format and a length of four bytes (RFC 4880
    4.2.2.3).
    """
    return bytes([0xC0 | tag, 0xFF]) + len(body).to_bytes(4, "big") + body
