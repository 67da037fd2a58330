"""The OpenPGP format as it is seen from outside (RFC 4880); nothing here can decrypt.

Armor, packets, recipients, kinds of keys, and the literal data packet inside a message, plain or
deflated. Keep out: gpg itself.
"""

import binascii
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, Literal, NamedTuple

from isal import isal_zlib

from flows.runs.sealing import Plain, SealedUnreadableError

_BEGIN = b"-----BEGIN PGP "
_END = b"-----END PGP "
_BOM = b"\xef\xbb\xbf"
# RFC 4880 6.2: headers, then an empty line
_HEAD_OF_ARMOR = re.compile(rb"(?:[^\n:]+:[^\n]*\n)*[ \t]*\n")
_MARKERS = (b"\xca\x03PGP", b"\xa8\x03PGP")  # a marker packet, which some senders put first
# tags of packets, RFC 4880 4.3
_SESSION_KEY: Final = 1
_SIGNATURE: Final = 2
_SECRET_KEY: Final = 5
_PUBLIC_KEY: Final = 6
_COMPRESSED: Final = 8
_UNAUTHENTICATED: Final = 9
_LITERAL: Final = 11
_SEALED: Final = 18
_AEAD: Final = 20
# what a cut leaves
_CUT = ("armor.end.missing", "armor.head.malformed", "packet.length.beyond_end")

Compression = Literal["zip", "none"]
_VERSION: Final = 4  # of signatures
_CRITICAL_NOTATION: Final = 0x94  # a subpacket of a signature: type 20, and the critical bit
_ZIP: Final = b"\x01"  # the algorithm: raw deflate
_BINARY: Final = b"b"
_NO_DATE: Final = bytes(4)  # so that the same rows make the same content at any time


class Packet(NamedTuple):
    """One packet: its tag, and its body, or the body's first part where the length is partial."""

    tag: int
    body: memoryview


class _Length(NamedTuple):
    """A length as a header has it: of the bytes from `start` on.

    After a partial one another part follows.
    """

    size: int
    start: int
    is_partial: bool = False

    @property
    def end(self) -> int:
        """Where the part ends."""
        return self.start + self.size


def looks_like_message(head: bytes) -> bool:
    """Return whether something that begins with these 64 bytes is an OpenPGP message.

    It may be armored or binary.
    """
    text = head.removeprefix(_BOM).lstrip()
    if text.startswith(_BEGIN + b"MESSAGE-----") or head[:5] in _MARKERS:
        return True
    try:
        tag, length = _header(memoryview(head), 0)
    except SealedUnreadableError:
        return False
    # else some letter of cp1252 or UTF-8
    version = head[length.start : length.start + 1]
    return tag == _SESSION_KEY and version == b"\x03"


def is_cut_off(message: bytes) -> bool:
    """Return whether the end of a message is missing.

    That of its armor, its last packet, or all that is sealed.
    """
    try:
        tags = {packet.tag for packet in _packets_of(blocks(message))}
    except SealedUnreadableError as error:
        return error.fields["reason"] in _CUT
    return not tags & {_UNAUTHENTICATED, _SEALED, _AEAD}


def inspect(message: bytes) -> tuple[str, ...]:
    """Return the key ids (16 hex) of session keys before one tag 18 version 1, no more.

    Raises SealedUnreadableError.
    """
    message_blocks = blocks(message)
    if len(message_blocks) != 1:
        raise SealedUnreadableError(reason="message.blocks.many")
    *keys, sealed = packets(message_blocks[0])
    # gpg 2.4 writes it to keys that ask for it; many readers cannot open it
    if sealed.tag == _AEAD:
        raise SealedUnreadableError(reason="message.aead.unsupported")
    if sealed.tag != _SEALED or any(key.tag != _SESSION_KEY for key in keys):
        raise SealedUnreadableError(reason="message.packets.unexpected")
    if bytes(sealed.body[:1]) != b"\x01":
        raise SealedUnreadableError(reason="message.version.unsupported")
    return tuple(_recipient(key.body) for key in keys)


def recipients(message: bytes) -> tuple[str, ...]:
    """Return the ids (16 hex) of the keys that a whole message is sealed to, as far as it has them.

    Those of subkeys, as a rule; zeros where the sender hides them.
    """
    keys = (packet for packet in _packets_of(blocks(message)) if packet.tag == _SESSION_KEY)
    return tuple(_recipient(key.body) for key in keys)


def keys_in(binary: Sequence[bytes]) -> tuple[list[int], int]:
    """Return when (epoch) each public key of a key file was made, and how many are secret.

    `binary` are the blocks of the file. Subkeys do not count. Raises SealedUnreadableError where a
    block is not made of packets.
    """
    key_packets = list(_packets_of(binary))
    public = [packet for packet in key_packets if packet.tag == _PUBLIC_KEY]
    # RFC 4880 5.5.2
    moments = [int.from_bytes(packet.body[1:5], "big") for packet in public]
    return moments, sum(packet.tag == _SECRET_KEY for packet in key_packets)


class Signature(NamedTuple):
    """A signature in a key file: the number of its hash algorithm, and its critical notations."""

    hash: int
    notations: tuple[str, ...]


def signatures_in(binary: Sequence[bytes]) -> list[Signature]:
    """Return the signatures of a key file that are of version 4, which all keys in use have.

    Raises SealedUnreadableError where a block is not made of packets.
    """
    signed = (packet.body for packet in _packets_of(binary) if packet.tag == _SIGNATURE)
    return [_signature(body) for body in signed if body and body[0] == _VERSION]


def _signature(body: memoryview) -> Signature:
    # RFC 4880 5.2.3: version, type, two algorithms, then what is signed with the key
    place = 6
    end = place + int.from_bytes(body[4:6], "big")
    names: list[str] = []
    while place < end:
        length = _new_length(body, place)
        subpacket = _slice(body, length.start, length.size)
        if subpacket and subpacket[0] == _CRITICAL_NOTATION:
            size = int.from_bytes(subpacket[5:7], "big")
            names.append(bytes(subpacket[9 : 9 + size]).decode("ascii", "replace"))
        place = length.end
    return Signature(body[3], tuple(names))


def _packets_of(binary: Iterable[bytes]) -> Iterator[Packet]:
    return chain.from_iterable(map(packets, binary))


def blocks(data: bytes) -> list[bytes]:
    """Return the binary content of every armored block, or the data itself where it is binary.

    The armor's CRC is not checked: gpg's own authentication is stronger, and in Python it costs
    more than the sealing. Raises SealedUnreadableError where neither kind is found.
    """
    # every packet starts with the top bit set
    if data[:1] >= b"\x80" and not data.startswith(_BOM):
        return [data]
    contents: list[bytes] = []
    begin = data.find(_BEGIN)
    while begin >= 0:
        end = data.find(_END, begin)
        if end < 0:
            raise SealedUnreadableError(reason="armor.end.missing")
        contents.append(_dearmor(data[begin:end]))
        begin = data.find(_BEGIN, end)
    if not contents:
        raise SealedUnreadableError(reason="armor.begin.missing")
    return contents


def packets(data: bytes) -> list[Packet]:
    """Cut binary data into packets (at least one) that tile it.

    Raises SealedUnreadableError where they do not.
    """
    view = memoryview(data)
    tiles: list[Packet] = []
    place = 0
    while place < len(view):
        tag, length = _header(view, place)
        tiles.append(Packet(tag, _slice(view, length.start, length.size)))
        while length.is_partial:
            length = _new_length(view, length.end)
            _slice(view, length.start, length.size)
        place = length.end
    if not tiles:
        raise SealedUnreadableError(reason="message.packets.missing")
    return tiles


def _dearmor(block: bytes) -> bytes:
    """Decode one block from its BEGIN line up to (without) its END line."""
    _, _, lines = block.replace(b"\r\n", b"\n").partition(b"\n")
    head = _HEAD_OF_ARMOR.match(lines)
    if not head:
        raise SealedUnreadableError(reason="armor.head.malformed")
    body, _, _ = lines[head.end() :].partition(b"\n=")
    try:
        return binascii.a2b_base64(b"".join(body.split()), strict_mode=True)
    except binascii.Error:
        pass
    raise SealedUnreadableError(reason="armor.base64.malformed")


def _header(view: memoryview, place: int) -> tuple[int, _Length]:
    """Return the tag of the packet at a place, and its first length."""
    first = _slice(view, place, 1)[0]
    if not first & 0x80:
        raise SealedUnreadableError(reason="packet.header.malformed")
    if first & 0x40:
        return first & 0x3F, _new_length(view, place + 1)
    if first & 3 == 3:  # runs to the end of the file: truncation could not be noticed
        raise SealedUnreadableError(reason="packet.length.indeterminate")
    width = 1 << (first & 3)
    size = int.from_bytes(_slice(view, place + 1, width), "big")
    return (first & 0x3C) >> 2, _Length(size, place + 1 + width)


def _new_length(view: memoryview, place: int) -> _Length:
    """Return the length at a place, in the new format (RFC 4880 4.2.2)."""
    first = _slice(view, place, 1)[0]
    if first < 192:
        return _Length(first, place + 1)
    if first < 224:
        second = _slice(view, place + 1, 1)[0]
        return _Length(((first - 192) << 8) + second + 192, place + 2)
    if first < 255:
        return _Length(1 << (first & 0x1F), place + 1, is_partial=True)
    return _Length(int.from_bytes(_slice(view, place + 1, 4), "big"), place + 5)


def _slice(view: memoryview, start: int, length: int) -> memoryview:
    part = view[start : start + length]
    if len(part) != length:
        raise SealedUnreadableError(reason="packet.length.beyond_end")
    return part


def _recipient(body: memoryview) -> str:
    """Return the key id of a session key packet of version 3.

    Its body is version, key id, algorithm, numbers.
    """
    if bytes(body[:1]) != b"\x03" or len(body) < 10:
        raise SealedUnreadableError(reason="recipient.version.unsupported")
    return bytes(body[1:9]).hex().upper()


def content(chunk: Plain, compression: Compression) -> Plain:
    """Return the packet to seal of one chunk.

    Its name (at most 255 bytes) is shown to whoever opens it.
    """
    name = chunk.name.encode()
    literal = _packet(_LITERAL, _BINARY + bytes([len(name)]) + name + _NO_DATE + chunk.data)
    if compression == "none":
        return Plain(chunk.name, literal)
    deflate = isal_zlib.compressobj(1, isal_zlib.DEFLATED, -isal_zlib.MAX_WBITS)
    compressed = _ZIP + deflate.compress(literal) + deflate.flush()
    return Plain(chunk.name, _packet(_COMPRESSED, compressed))


def _packet(tag: int, body: bytes) -> bytes:
    """Return a packet with a header of the new format and a length of four bytes.

    RFC 4880 4.2.2.3.
    """
    return bytes([0xC0 | tag, 0xFF]) + len(body).to_bytes(4, "big") + body
