import gzip
import io
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from flows.extracts.decode import as_utf8, line_blocks
from flows.extracts.errors import EncodingError, NotCsvError, TruncatedError

TEXT = "".join(f"Zoë {number},x\n" for number in range(2000)).encode()


class Dripping(io.BytesIO):
    """A stream that gives a few bytes at a time, as networks do."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 7, 7))


def together(data: bytes, encoding: str = "utf-8", size: int = 1 << 24) -> bytes:
    return b"".join(line_blocks(io.BytesIO(data), encoding, "a.csv", size))


@given(size=st.integers(1, 3000))
def test_blocks_are_whole_lines_and_together_the_extract(size: int) -> None:
    blocks = list(line_blocks(io.BytesIO(TEXT), "utf-8", "a.csv", size))

    assert TEXT == b"".join(blocks)
    assert all(block.endswith(b"\n") for block in blocks)


@pytest.mark.parametrize(
    "packed", [TEXT, gzip.compress(TEXT), zstandard.compress(TEXT)], ids=["plain", "gzip", "zstd"]
)
def test_a_stream_may_come_in_drops(packed: bytes) -> None:
    blocks = line_blocks(Dripping(packed), "utf-8", "a.csv", 1000)

    assert TEXT == b"".join(blocks)


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_made_utf_8_whatever_its_byte_order(codec: str) -> None:
    assert TEXT == together(TEXT.decode().encode(codec), "utf-16")


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_compressed_data_cut_anywhere_is_noticed(pack: object, share: float) -> None:
    assert callable(pack)
    data = pack(TEXT)

    with pytest.raises(TruncatedError):
        together(data[: int(len(data) * share)])


@pytest.mark.parametrize(
    "pack",
    [gzip.compress, pytest.param(zstandard.compress, marks=pytest.mark.slow)],
    ids=["gzip", "zstd"],
)
def test_a_small_file_that_swells_without_end_is_stopped(pack: object) -> None:
    assert callable(pack)
    bomb = pack(bytes(200 << 20))

    with pytest.raises(NotCsvError):
        together(bomb)


def test_a_checksum_that_does_not_fit_is_noticed() -> None:
    data = bytearray(gzip.compress(TEXT))
    data[-8:-4] = zlib.crc32(b"other").to_bytes(4, "little")

    with pytest.raises(TruncatedError):
        together(bytes(data))


def test_a_few_lines_in_another_encoding_are_marked_and_many_refuse_the_extract() -> None:
    line, wrong = "Zoë,x\n".encode(), "Zoë,x\n".encode("cp1252")

    marked = as_utf8(line * 500 + wrong + line * 500, "utf-8", "a.csv", 1)

    assert line * 500 + b"\x00\n" + line * 500 == marked
    with pytest.raises(EncodingError, match="first is line 507"):
        as_utf8(line * 500 + wrong * 20 + line * 500, "utf-8", "a.csv", 7)


@given(st.binary(min_size=1, max_size=6).filter(lambda data: b"\n" not in data and data != b"\x00"))
def test_a_line_is_marked_just_where_python_cannot_decode_it(odd: bytes) -> None:
    good = "Zoë,x\n".encode() * 200

    marked = as_utf8(good + odd + b"\n", "utf-8", "a.csv", 1)

    try:
        odd.decode("utf-8")
    except UnicodeDecodeError:
        assert good + b"\x00\n" == marked
    else:
        assert good + odd + b"\n" == marked
