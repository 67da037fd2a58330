"""Texts that repeat a CVV, and cuids that tell their card, through a real submit and ingest: of none
of them anything is left in what is written.
"""

from __future__ import annotations

import json
from io import StringIO
from itertools import product
from pathlib import Path

import polars as pl
import pytest

from schemas.portal import CUID, CVV, PAN
from tests.builders import portal_rows
from tests.leaks.scanner import Scanner
from tests.night import Bench, local_bench, portal_csv
from tests.schemas.test_telling import PAN_TOLD, spelled

SENT_CVV = "592"
PROPERTIES = ("cvv", "service_card.cvv", "cvc", "securityCode", "cardCode", "cvvStatus")
MESSAGES = (
    "invalid value {0}",
    "{0} is not a valid security code; got {0}",
    "959 is not a valid security code; got {0}",
    "expected 3 digits, was {0}",
    "value {1} rejected",
    "code ({0}) does not match",
    "must not be '{0}'",
    "{0}",
    "cvv={0}",
    "rejected: {2}",
    "was: {3}",
    "verification failed for {0}, try {0}0",
    "five nine two ({0})",
)
SHAPES = (
    lambda name, text: json.dumps({"property_name": name, "message": text, "value": SENT_CVV}),
    lambda name, text: json.dumps({"errors": [{"field": name, "detail": text}]}),
    lambda name, text: f"{name}: {text}",
)


def texts() -> list[str]:
    """Return errors about a property with a CVV, which repeat it in some spelling."""
    spellings = (SENT_CVV, "5 9 2", "5-9-2", "\uff15\uff19\uff12")
    said = [message.format(*spellings) for message in MESSAGES]
    return [shape(name, text) for shape, name, text in product(SHAPES, PROPERTIES, said)]


def answered(bench: Bench, run: str, errors: list[str]) -> None:
    """Ingest a result with one of these errors for each row, and the cuid beside it."""
    ledger = bench.ledger(run).filter(fate="submitted").sort("position")
    named = [f"{cuid}: {text}" for cuid, text in zip(ledger["cuid"], errors, strict=True)]
    nothing = pl.lit(None, pl.String)
    rows = pl.DataFrame({"error": named}).select(
        *(nothing.alias(name) for name in ("cuid", "last_4", "url", "expiration_date")), "error"
    )
    bench.drop_result(rows.write_csv().encode(), f"card-links-{run}-00001-result.csv")
    bench.ingest()


@pytest.mark.slow
def test_of_errors_about_a_cvv_no_digit_of_it_is_kept(tmp_path: Path) -> None:
    errors = texts()
    bench = local_bench(tmp_path)
    people = [{CUID: f"c-{chr(97 + n // 26)}{chr(97 + n % 26)}"} for n in range(len(errors))]
    rows = portal_rows(*people).with_columns(pl.lit(SENT_CVV).alias(CVV))
    run = bench.submit(bench.drop_bytes(portal_csv(rows))).manifest.run

    answered(bench, run, errors)

    kept = pl.read_csv(StringIO(bench.report(run, "errors.csv").decode()), infer_schema=False)
    messages = kept["message"].fill_null("")
    assert len(errors) >= 68
    assert len(errors) == kept.height
    assert [] == [text for text in messages if any(digit in text for digit in SENT_CVV)]
    assert [] == left(bench, tmp_path)


@pytest.mark.slow
def test_of_cuids_that_tell_their_card_none_is_kept(tmp_path: Path) -> None:
    cuids = [*spelled().values()]
    bench = local_bench(tmp_path, limits={"max_reject_rate": 1.0})
    rows = portal_rows(*({CUID: cuid, PAN: PAN_TOLD, CVV: SENT_CVV} for cuid in cuids), {CUID: "z"})

    done = bench.submit(bench.drop_bytes(portal_csv(rows))).manifest

    assert len(cuids) >= 47
    assert (1, len(cuids)) == (done.counts.submitted, done.counts.rejected)
    assert [] == left(bench, tmp_path)
    written = [path for path in files_of(tmp_path) if "/extracts/" not in str(path)]
    contents = b"".join(path.read_bytes() for path in written)
    assert [] == [cuid for cuid in cuids if len(cuid) > 9 and cuid.encode() in contents]


def files_of(folder: Path) -> list[Path]:
    """Return all files of a store."""
    return sorted(path for path in (folder / "store").rglob("*") if path.is_file())


def left(bench: Bench, folder: Path) -> list[str]:
    """Return where the scanner finds a card or CVV in what is written."""
    issuer = folder / "store" / bench.issuer.issuer
    dropped = [issuer / name for name in ("extracts", "results")]
    scanner = Scanner([PAN_TOLD], [SENT_CVV])
    return [leak.place for leak in scanner.scan_folder(folder / "store", dropped)]
