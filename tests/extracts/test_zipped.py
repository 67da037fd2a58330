"""An extract in a ZIP archive: read as a stream, and never as half a file."""

import io
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.errors import ExtractError
from flows.extracts import zipped as reader
from flows.extracts.decode import line_blocks
from flows.extracts.errors import ArchiveError, NotCsvError, TruncatedError
from tests.extracts.damaged import zipped
from tests.extracts.test_exports import cardlink
from tests.extracts.usual_exports import seven

TEXT = "".join(f"Zoë {number},x\n" for number in range(2000)).encode()
LONG = random.Random(7).randbytes(1 << 20).hex().encode() + b"\n"  # does not end in one piece


class Unseekable(io.RawIOBase):
    """What cannot be rewound, so that sizes are written behind a file."""

    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        added = bytes(data)  # type: ignore[call-overload]  # whatever has bytes
        self.data += added
        return len(added)


def streamed(*files: bytes, zip64: bool = False, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = Unseekable()
    with zipfile.ZipFile(out, "w", method) as archive:
        for number, content in enumerate(files):
            with archive.open(f"{number}.csv", "w", force_zip64=zip64) as file:
                file.write(content)
    return bytes(out.data)


def zip64(content: bytes) -> bytes:
    out = io.BytesIO()
    with (
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("cards.csv", "w", force_zip64=True) as file,
    ):
        file.write(content)
    return out.getvalue()


def without_signature(content: bytes) -> bytes:
    """Return an archive whose sizes behind the file have no signature, which is optional."""
    return streamed(content).replace(b"PK\x07\x08", b"")


def with_comment(content: bytes) -> bytes:
    out = io.BytesIO(zipped(content))
    with zipfile.ZipFile(out, "a") as archive:
        archive.comment = b"nightly"
    return out.getvalue()


def together(data: bytes, size: int = 1 << 24) -> bytes:
    return b"".join(line_blocks(io.BytesIO(data), "utf-8", "a.zip", size))


def refusal(data: bytes) -> str:
    with pytest.raises(ExtractError) as error:
        together(data)
    return str(error.value)


WRITERS: dict[str, Callable[[bytes], bytes]] = {
    "sizes before the file": zipped,
    "not compressed": lambda content: zipped(content, method=zipfile.ZIP_STORED),
    "sizes behind the file": streamed,
    "sizes without signature": without_signature,
    "ZIP64": zip64,
    "ZIP64, sizes behind the file": lambda content: streamed(content, zip64=True),
    "a comment": with_comment,
}


@pytest.mark.parametrize("size", [7, 1000, 1 << 24])
@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_file_in_an_archive_is_read_however_the_archive_was_written(
    write: Callable[[bytes], bytes], size: int
) -> None:
    packed = write(TEXT)

    unpacked = together(packed, size)

    assert TEXT == unpacked


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@given(chance=st.randoms(use_true_random=False))
def test_an_archive_cut_anywhere_is_refused(
    write: Callable[[bytes], bytes], chance: random.Random
) -> None:
    packed = write(TEXT)
    length = chance.randrange(4, len(packed))

    with pytest.raises(TruncatedError):
        together(packed[:length])


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@given(chance=st.randoms(use_true_random=False))
def test_a_changed_byte_is_refused_or_changes_nothing(
    write: Callable[[bytes], bytes], chance: random.Random
) -> None:
    packed = bytearray(write(TEXT))
    packed[chance.randrange(4, len(packed))] ^= 1 << chance.randrange(8)

    try:
        unpacked = together(bytes(packed))
    except ExtractError:
        return

    assert TEXT == unpacked


@pytest.mark.parametrize("write", [zipped, streamed])
@pytest.mark.parametrize("second", [b"", TEXT])
def test_an_archive_of_several_files_is_refused_whatever_is_in_them(
    write: Callable[..., bytes], second: bytes
) -> None:
    short = refusal(write(b"read me", second))
    long = refusal(write(LONG, second))

    assert "a.zip is a ZIP archive that cannot be read: it has more than one file or folder." in (
        short
    )
    assert short == long
    assert "Ask the issuer for a ZIP of one file" in short


def test_a_file_behind_an_archive_is_refused() -> None:
    with pytest.raises(ArchiveError, match="more than one file"):
        together(zipped(LONG) + zipped(LONG))


def test_a_folder_is_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.mkdir("night")

    assert "it has a folder" in refusal(out.getvalue())


def flagged(packed: bytes, flags: int) -> bytes:
    """Return an archive whose first header has other flags."""
    return packed[:6] + struct.pack("<H", flags) + packed[8:]


def test_an_encrypted_file_is_refused_with_what_to_use_instead() -> None:
    message = refusal(flagged(zipped(TEXT), 1))

    assert "it is encrypted with a password" in message
    assert "with PGP to your key" in message


def test_other_compression_is_refused_with_its_number() -> None:
    assert "compressed by method 14, not by Deflate" in refusal(
        zipped(TEXT, method=zipfile.ZIP_LZMA)
    )


def test_a_file_that_is_not_compressed_and_has_no_length_is_refused() -> None:
    assert "its length is not before it" in refusal(streamed(TEXT, method=zipfile.ZIP_STORED))


@pytest.mark.parametrize("write", [zipped, streamed])
def test_a_file_that_unpacks_to_more_than_the_limit_is_stopped(
    write: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = b"x" * 1023 + b"\n"
    monkeypatch.setattr(reader, "LARGEST", len(row) * 2000 - 1)

    with pytest.raises(ArchiveError, match="unpacked, the most that is read"):
        together(write(row * 2000))


def test_no_step_of_a_bomb_unpacks_to_more_than_16_mib() -> None:
    bomb = zipped(bytes(100 << 20))

    largest = max(map(len, reader.unzipped(pieces(bomb), "a.zip")))

    assert largest <= 1032 * reader.STEP


def pieces(data: bytes) -> Iterator[bytes]:
    yield data


def test_a_workbook_is_named_as_what_it_is() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("xl/workbook.xml", LONG)

    with pytest.raises(NotCsvError, match="it is an Excel workbook"):
        together(out.getvalue())


def test_the_names_in_an_archive_are_not_shown() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("4242424242424242.csv", TEXT)
        archive.writestr("Zoe Miller.csv", TEXT)

    message = refusal(out.getvalue())

    assert [] == [name for name in ("4242", "Zoe", "csv") if name in message]


@pytest.mark.slow
def test_init_guesses_from_a_zip_what_it_guesses_from_the_plain_file(tmp_path: Path) -> None:
    content = next(iter(seven().values())).content
    (tmp_path / "plain.csv").write_bytes(content)
    (tmp_path / "cards.zip").write_bytes(zipped(content))

    of_zip = cardlink(tmp_path, "init", "zip-bank", "--from", str(tmp_path / "cards.zip"))
    cardlink(tmp_path, "init", "plain-bank", "--from", str(tmp_path / "plain.csv"))

    toml = (tmp_path / "zip-bank.toml").read_text()
    assert 0 == of_zip.exit_code, of_zip.output
    assert (tmp_path / "plain-bank.toml").read_text().replace("plain-", "zip-") == toml
