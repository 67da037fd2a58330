"""A night of records by a copybook: every cardholder is sent as the mainframe wrote them, and what
proves the file is compared.
"""

from __future__ import annotations

import csv
import io
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from flows.cli.main import main
from flows.configuration import load_issuer
from flows.extensions.formats.fields import NUMBER
from flows.extensions.formats.settings import FormatSettings
from flows.extracts.errors import TrailerError
from schemas import portal
from tests.extensions.formats import mainframe
from tests.extensions.formats.mainframe import Piece
from tests.night import Bench, local_bench

WIDTH = 176
TRAILER = r"^TRL([0-9]{9})([0-9]{12})"
SENT = {
    portal.CUID: "CUST-ID",
    portal.PAN: "CARD-NUMBER",
    portal.FIRST_NAME: "FIRST-NAME",
    portal.LAST_NAME: "LAST-NAME",
    portal.ADDRESS1: "STREET-LINE(1)",
    portal.CITY: "CITY",
    portal.SUBNATIONAL: "STATE",
    portal.POSTAL_CODE: "ZIP",
}


def bank(folder: Path, **source: object) -> Bench:
    limits = {"max_reject_rate": 0.2}
    settings = mainframe.SOURCE | source
    return local_bench(folder, source=settings, columns=mainframe.COLUMNS, limits=limits)


def people(count: int) -> list[list[Piece]]:
    chance = random.Random(7)
    return [mainframe.person(number, chance) for number in range(count)]


def trailer(persons: Sequence[Sequence[Piece]], *, off_by: int = 0) -> bytes:
    cards = sum(int(mainframe.texts(person)["CARD-NUMBER"] or "") for person in persons)
    total = (cards + off_by) % 10**12
    return mainframe.text(f"TRL{len(persons):09d}{total:012d}", WIDTH)


def test_a_file_of_records_is_committed_and_every_row_is_what_the_mainframe_wrote(
    tmp_path: Path,
) -> None:
    bench = bank(tmp_path, trailer=TRAILER, hash_total="CARD-NUMBER", record_format="VB")
    persons = people(20)
    records = [*map(mainframe.record, persons), trailer(persons)]

    bench.drop_bytes(mainframe.blocked(records), "cards-20261120.dat")
    manifest = bench.submit("cards-20261120.dat").manifest

    rows = [
        row
        for chunk in bench.chunks(manifest.run)
        for row in csv.DictReader(io.StringIO(chunk.decode()))
    ]
    written = [mainframe.texts(person) for person in persons]
    assert (20, 20, 20) == (manifest.counts.trailer, manifest.counts.read, len(rows))
    assert [{name: person[field] for name, field in SENT.items()} for person in written] == [
        {name: row[name] for name in SENT} for row in rows
    ]


def test_a_damaged_record_is_a_reject_with_its_number_byte_and_field(tmp_path: Path) -> None:
    bench = bank(tmp_path)
    records = [bytearray(mainframe.record(person)) for person in people(20)]
    records[4][18] = 0x41  # no sign of a packed number

    bench.drop_bytes(b"".join(records), "cards-20261120.dat")
    manifest = bench.submit("cards-20261120.dat").manifest

    refused = bench.ledger(manifest.run).filter(fate="rejected")
    assert (1, 19) == (manifest.counts.rejected, manifest.counts.submitted)
    assert [(5, 5, NUMBER)] == [
        (row, line, reasons[0].split("|")[1])
        for row, line, reasons in refused.select("row", "line", "reasons").rows()
    ]


def test_a_hash_total_that_differs_refuses_the_file_of_records(tmp_path: Path) -> None:
    bench = bank(tmp_path, trailer=TRAILER, hash_total="CARD-NUMBER")
    persons = people(20)
    records = [*map(mainframe.record, persons), trailer(persons, off_by=1)]

    bench.drop_bytes(b"".join(records), "cards-20261120.dat")
    with pytest.raises(TrailerError, match="hash total"):
        bench.submit("cards-20261120.dat")


def test_init_guesses_settings_and_mapping_from_a_copybook_and_check_reads_every_record(
    tmp_path: Path,
) -> None:
    records = [mainframe.record(person) for person in people(30)]
    (tmp_path / "cards.dat").write_bytes(mainframe.blocked(records))
    prefixed = re.sub("05  (?!FILLER)([A-Z-]+)    ", r"05  CRM-\1", mainframe.COPYBOOK)
    (tmp_path / "CARDS.cpy").write_text(prefixed)
    folder = tmp_path / "settings"

    made = cardlink(
        *("--config", str(folder), "init", "bank", "--from", str(tmp_path / "cards.dat")),
        *("--copybook", str(tmp_path / "CARDS.cpy")),
    )

    source = load_issuer(folder, "bank").source
    assert "30 of 30 rows in 1 chunk would be sent" in made
    assert isinstance(source, FormatSettings)
    assert ("cp037", "VB", WIDTH) == (source.encoding, source.record_format, source.record_size)
    extracts = folder / "store" / "bank" / "extracts"
    extracts.mkdir(parents=True)
    (extracts / "cards.dat").write_bytes(mainframe.blocked(records))
    checked = cardlink("--config", str(folder), "check", "bank", "cards.dat")
    assert "14 of the portal's columns have content" in checked
    assert '"CRM-CARD-NUMBER"' in checked


@pytest.mark.parametrize(
    ("copybook", "problem"),
    [
        (mainframe.COPYBOOK.replace("PIC X(4)", "PIC X(5)"), "has no records of 177 bytes"),
        (mainframe.COPYBOOK.replace("PIC X(4)", "PIX X(4)"), "line 17, FILLER: PIX is not"),
    ],
)
def test_a_copybook_that_does_not_fit_is_refused_and_nothing_is_written(
    tmp_path: Path, copybook: str, problem: str
) -> None:
    (tmp_path / "cards.dat").write_bytes(b"".join(map(mainframe.record, people(30))))
    (tmp_path / "cards.cpy").write_text(copybook)

    refused = cardlink(
        *("--config", str(tmp_path), "init", "bank", "--from", str(tmp_path / "cards.dat")),
        *("--copybook", str(tmp_path / "cards.cpy")),
    )

    assert problem in refused
    assert not (tmp_path / "bank.toml").exists()


def cardlink(*arguments: str) -> str:
    return CliRunner().invoke(main, arguments).output
