"""The straightforward script: what a competent user writes in an afternoon with the same libraries.

Usage: python -m tests.bench.script PUBLIC-KEY EXTRACT FOLDER. It reads the whole extract, validates lazily with
pandera, drops the rows with failure cases and repeats, hashes CVVs, and calls python-gnupg with its defaults per
chunk. It has no plan, no commit, no rerun and no streaming: it stands for the price of this way, not for its safety.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import tempfile
from datetime import date
from pathlib import Path

import gnupg
import pandera.polars as pa
import polars as pl
from pandera.errors import SchemaErrors

from schemas.places import PROVINCES, STATES
from schemas.portal import (
    ADDRESS1,
    CITY,
    COUNTRY,
    CUID,
    CVV,
    CVV_HASH,
    EMAIL,
    FIRST_NAME,
    IS_PRIMARY,
    LAST_NAME,
    MONTH,
    NAME_ON_CARD,
    PAN,
    PHONE,
    POSTAL_CODE,
    SUBNATIONAL,
    YEAR,
    columns,
)

PLACEHOLDERS = ["NULL", "N/A", "NA", "NONE", "TEST", "UNKNOWN"]


def luhn(pan: str) -> bool:
    """Return whether the check digit is right."""
    digits = [int(digit) for digit in pan if digit.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(doubled) + sum(digits[-1::-2])) % 10 == 0


def hashed(cvv: str) -> str:
    """Return the hash the portal takes."""
    return base64.b64encode(hashlib.sha256(cvv.encode()).digest()).decode()


def schema() -> pa.DataFrameSchema:
    """Return the rules as pandera's own documentation would have them written."""
    real = pa.Check(lambda data: data.lazyframe.select(~pl.col(data.key).str.to_uppercase().is_in(PLACEHOLDERS)))
    valid = pa.Check(
        lambda data: data.lazyframe.select(pl.col(data.key).map_elements(luhn, return_dtype=pl.Boolean)), name="luhn"
    )
    checks = {
        PAN: [pa.Check.str_matches(r"^[0-9]{16}$"), valid],
        YEAR: [pa.Check.str_matches(r"^[0-9]{2}$")],
        MONTH: [pa.Check.str_matches(r"^(0[1-9]|1[0-2])$")],
        CVV: [pa.Check.str_matches(r"^[0-9]{3,4}$")],
        CVV_HASH: [pa.Check.str_matches(r"^[A-Za-z0-9+/]{43}=$")],
        ADDRESS1: [real],
        CITY: [real],
        FIRST_NAME: [real],
        LAST_NAME: [real],
        SUBNATIONAL: [pa.Check.isin([*STATES, *PROVINCES])],
        COUNTRY: [pa.Check.isin(["usa", "USA", "us", "US", "canada", "Canada", "ca", "CA"])],
        POSTAL_CODE: [pa.Check.str_matches(r"^([0-9]{5}(-[0-9]{4})?|[A-Z][0-9][A-Z] [0-9][A-Z][0-9])$")],
        EMAIL: [pa.Check.str_matches(r"^[^@\s]+@[^@\s]+\.[^@\s]+$")],
        PHONE: [pa.Check.str_matches(r"^\+?[0-9 ().-]{7,20}$")],
        IS_PRIMARY: [pa.Check.isin(["TRUE", "FALSE"])],
    }
    needed = {PAN, YEAR, MONTH, ADDRESS1, CITY, SUBNATIONAL, COUNTRY, POSTAL_CODE, FIRST_NAME, LAST_NAME, IS_PRIMARY}
    return pa.DataFrameSchema(
        {name: pa.Column(pl.String, checks.get(name, []), nullable=name not in needed) for name in columns()}
    )


def main(key: Path, extract: Path, folder: Path, as_of: date = date(2026, 11, 20)) -> None:
    """Do the night's work."""
    rows = pl.read_csv(extract, infer_schema=False).select(pl.col(columns()).str.strip_chars())
    rows = rows.with_columns(
        pl.col(IS_PRIMARY).str.to_uppercase(),
        pl.coalesce(NAME_ON_CARD, pl.concat_str(FIRST_NAME, LAST_NAME, separator=" ")).alias(NAME_ON_CARD),
    ).with_row_index("row")
    bad: set[int] = set()
    try:
        schema().validate(rows.drop("row"), lazy=True)
    except SchemaErrors as errors:
        bad = set(errors.failure_cases["index"].drop_nulls().to_list())
    expired = (pl.col(YEAR) + pl.col(MONTH)) < f"{as_of:%y%m}"
    refused = pl.col("row").is_in(list(bad)) | expired.fill_null(True)
    good = rows.filter(~refused).unique([CUID, PAN], keep="first", maintain_order=True)
    good = good.with_columns(
        pl.coalesce(CVV_HASH, pl.col(CVV).map_elements(hashed, return_dtype=pl.String)).alias(CVV_HASH),
        pl.lit(None, pl.String).alias(CVV),
    )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        gpg = gnupg.GPG(gnupghome=home)
        recipient = gpg.import_keys(key.read_bytes()).fingerprints[0]
        sent = []
        for number, chunk in enumerate(good.iter_slices(1000), start=1):
            sealed = gpg.encrypt(chunk.select(columns()).write_csv(), [recipient], always_trust=True)
            assert sealed.ok
            (folder / f"chunk-{number:05d}.csv.pgp").write_bytes(sealed.data)
            sent.append({"number": number, "rows": chunk.height, "sha256": hashlib.sha256(sealed.data).hexdigest()})
    rows.filter(refused).select("row", CUID).write_csv(folder / "rejects.csv")
    good.select("row", CUID, pl.col(PAN).str.slice(-4)).write_parquet(folder / "ledger.parquet")
    (folder / "manifest.json").write_text(json.dumps({"read": rows.height, "chunks": sent}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
