from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from flows.adapters.gpg_opener import GpgOpener
from flows.extensions.formats.fields import NUMBER
from flows.extensions.simulator.portal import Portal
from flows.extensions.simulator.portal_key import PortalKey
from flows.extensions.simulator.validation import luhn_holds
from flows.extracts import grammar
from flows.reports.ingestion import ingest
from flows.reports.verdicts import OUT_OF_BALANCE
from flows.runs.context import IssuerContext
from flows.runs.keys import keys_of, results
from flows.runs.store import read
from flows.runs.stored_run import StoredRun
from flows.submissions.submit import Request, submit
from flows.wiring import wire
from schemas import ledger, portal
from schemas.expressions import GENERATED, PUBLISHED
from schemas.manifest import Manifest
from schemas.portal import NICKNAME
from schemas.reasons import LINES
from schemas.rule import Rule
from schemas.rules import RULES
from tests import keys, sample_bank
from tests.sample_bank import AS_OF, EXTRACT, FOLDER, placed
from tests.sample_rows import elsewhere
from tests.submissions.made_up import added

ISSUER = "sample-bank"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)  # the links of the example results end in January
EXPECTED = sample_bank.expected()


class Night(NamedTuple):
    """The sample, submitted by the real steps with real gpg."""

    context: IssuerContext
    key: PortalKey
    manifest: Manifest
    ledger: pl.DataFrame

    def chunks(self) -> Iterator[tuple[str, bytes]]:
        keys = keys_of(self.manifest.run)
        for chunk in self.manifest.chunks:
            yield chunk.name, read(self.context.adapters.store, keys.chunks + chunk.name)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    return submitted(tmp_path_factory.mktemp("night"), (FOLDER / "extracts" / EXTRACT).read_bytes())


def submitted(folder: Path, extract: bytes) -> Night:
    """Submit an extract of the sample issuer."""
    key = keys.sound()
    (folder / "portal.asc").write_bytes(key.public)
    settings = (FOLDER / f"{ISSUER}.toml").read_text("utf-8")
    (folder / f"{ISSUER}.toml").write_text(settings.replace("0" * 40, key.fingerprint), "utf-8")
    (folder / "store").mkdir()
    context = wire(folder, ISSUER)
    context = context._replace(adapters=context.adapters._replace(now=lambda: NOON))
    context.adapters.store.create(f"{ISSUER}/extracts/{EXTRACT}", extract)
    manifest = submit(context, Request(EXTRACT)).manifest
    parts = StoredRun.by_id(context.adapters, manifest.run).ledger()
    return Night(context, key, manifest, pl.concat(parts).sort("row"))


def test_the_files_are_what_their_rows_make_of_them(tmp_path: Path) -> None:
    sample_bank.write(tmp_path)

    written = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*.*")}

    kept = {
        path.relative_to(FOLDER): path.read_bytes()
        for path in FOLDER.rglob("*.*")
        if path.suffix != ".toml"
    }
    assert kept == written


def test_the_counts_are_the_expected_ones(night: Night) -> None:
    counts = night.manifest.counts.model_dump()

    assert EXPECTED["as_of"] == night.manifest.as_of.isoformat()
    assert EXPECTED["counts"] == {name: counts[name] for name in EXPECTED["counts"]}
    reasons = Counter(
        reason.partition("|")[2] for reason in night.ledger["reasons"].explode().drop_nulls()
    )
    assert EXPECTED["reasons"] == dict(sorted(reasons.items()))


def test_every_row_has_the_fate_and_the_reasons_the_table_says(night: Night) -> None:
    records = night.ledger.select("row", "line", "fate", "reasons").iter_rows()
    fates = {row: (line, fate, reasons) for row, line, fate, reasons in records}

    assert EXPECTED["rows"] == {row: fates[row] for row in EXPECTED["rows"]}
    quiet = [fate for row, fate in fates.items() if row not in EXPECTED["rows"]]
    assert {(ledger.SUBMITTED, 0)} == {(fate, len(reasons)) for _, fate, reasons in quiet}


def test_what_is_sent_is_spelled_as_the_table_says(night: Night) -> None:
    places = {(chunk, position): row for row, chunk, position in _places(night)}
    sent = {places[number, at]: fields for number, at, fields in _opened(night)}

    changed = {one.row: dict(one.case.sent) for one in placed() if one.case.sent}
    assert changed == {
        row: {name: sent[row][name] for name in fields} for row, fields in changed.items()
    }


def test_every_reason_a_row_can_have_stands_in_the_sample() -> None:
    codes = {rule.code for rule in RULES} | {entry.code for entry in LINES}
    other_formats = {grammar.TOO_SHORT, grammar.TOO_LONG, NUMBER}
    of_parts = {code for code in codes if code.startswith(("segment.", "join."))}

    missing = codes - other_formats - of_parts - elsewhere() - set(EXPECTED["reasons"])

    assert set() == missing


def test_a_rule_without_a_row_of_its_own_has_its_example_in_the_sample_and_is_refused_by_it(
    tmp_path: Path,
) -> None:
    long = Rule(
        "made.up.long",
        NICKNAME,
        pl.col(NICKNAME).str.len_chars() <= 20,
        example={NICKNAME: "x" * 21},
    )

    with added(long):
        [row] = [one.row for one in placed() if one.case.why == "the example of `made.up.long`"]
        night = submitted(tmp_path, sample_bank.extract())

    told = night.ledger.filter(row=row).select("fate", "reasons").rows()
    assert [(ledger.REJECTED, [f"{NICKNAME}|{long.code}"])] == told


@pytest.mark.slow
def test_the_portal_makes_a_link_of_every_row_sent_and_its_cardholder_can_open_it(
    night: Night,
) -> None:
    with GpgOpener([night.key.secret]) as opener:
        desk = Portal(opener, today=AS_OF)
        for name, content in night.chunks():
            desk.upload(name, content)

    by_place = {(chunk, position): placed()[row - 1] for row, chunk, position in _places(night)}
    closed = {
        by_place[number, booked.row].case.why
        for number, upload in enumerate(desk.books, start=1)
        for booked in upload.rows
        if not desk.opens(booked.url or "", *_known(by_place[number, booked.row]))
    }
    assert {"no CVV and no hash: the link may not open"} == closed


def test_the_example_results_answer_every_row_sent(night: Night) -> None:
    for name, content in sample_bank.results().items():
        night.context.adapters.store.create(results(ISSUER) + name, content)

    (report,) = ingest(night.context).reports

    rows = report.summary["rows"]
    assert EXPECTED["results"] == {name: rows[name] for name in EXPECTED["results"]}
    assert report.summary["verdict"] != OUT_OF_BALANCE


def test_the_sample_holds_test_cards_only() -> None:
    text = (FOLDER / "extracts" / EXTRACT).read_bytes().decode("latin-1")

    numbers = re.findall(r"(?<![\d+/=A-Za-z])\d(?:[ -]?\d){12,18}(?![\d+/=A-Za-z])", text)

    pans = {re.sub("[ -]", "", number) for number in numbers}
    real = {
        pan
        for pan in pans
        if pan.strip("0")
        and luhn_holds(pan)
        and pan not in PUBLISHED
        and not pan.startswith(GENERATED)
    }
    assert len(pans) > 100
    assert set() == real


def _places(night: Night) -> Iterator[tuple[int, int, int]]:
    sent = night.ledger.filter(fate=ledger.SUBMITTED)
    yield from sent.select("row", "chunk", "position").iter_rows()


def _opened(night: Night) -> Iterator[tuple[int, int, dict[str, str]]]:
    with GpgOpener([night.key.secret]) as opener:
        for number, (_, message) in enumerate(night.chunks(), start=1):
            text = opener.open(message, 1 << 20).decode()
            yield from (
                (number, at, row)
                for at, row in enumerate(csv.DictReader(io.StringIO(text)), start=1)
            )


def _known(one: sample_bank.Placed) -> tuple[str, str]:
    """Return CVV and postal code as the cardholder knows them."""
    cvv = one.fields[portal.CVV] or ("042" if one.fields[portal.CVV_HASH] else "")
    return cvv, one.fields[portal.POSTAL_CODE]
