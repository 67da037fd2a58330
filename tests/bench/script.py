"""The straightforward script: what a competent user writes in a day or two with the same libraries.

Usage: python -m tests.bench.script PUBLIC-KEY EXTRACT FOLDER. It reads the whole extract,
normalises it, validates it lazily with pandera by the same rules, drops the rows with failure cases
and repeats, hashes CVVs, calls python-gnupg with its defaults per chunk, reads each file back, and
writes ledger, rejects and manifest. It sends the same rows in the same words as the pipeline (a
test holds both together). It has no plan, no claim, no commit, no rerun and no streaming: it stands
for the price of this way, not for its safety.
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

from schemas.places import (
    PROVINCES,
    STATES,
    country_spellings,
    postal_places,
    subnational_spellings,
)
from schemas.portal import (
    ADDRESS1,
    ADDRESS2,
    CITY,
    COUNTRY,
    CUID,
    CUSTOMER_KEY,
    CVV,
    CVV_HASH,
    EMAIL,
    FIRST_NAME,
    IS_PRIMARY,
    LAST_NAME,
    MONTH,
    NAME_ON_CARD,
    NICKNAME,
    PAN,
    PHONE,
    POSTAL_CODE,
    SUBNATIONAL,
    YEAR,
    columns,
)

PLACEHOLDERS = ["NULL", "null", "(null)", "N/A", "n/a", "#N/A", "TEST", "test"]
FILLER = r"^(0{4,}|[xX]{3,}|[-.?*_]+)$"
TRUTHS = {
    "T": "TRUE",
    "YES": "TRUE",
    "Y": "TRUE",
    "1": "TRUE",
    "F": "FALSE",
    "NO": "FALSE",
    "N": "FALSE",
    "0": "FALSE",
}
OPTIONAL = [NAME_ON_CARD, CVV_HASH, CVV, CUSTOMER_KEY, NICKNAME, ADDRESS2, EMAIL, PHONE]
NEEDED = [
    PAN,
    YEAR,
    MONTH,
    ADDRESS1,
    CITY,
    SUBNATIONAL,
    COUNTRY,
    POSTAL_CODE,
    FIRST_NAME,
    LAST_NAME,
    IS_PRIMARY,
]
WARNINGS = ["soon", "email", "phone", "name_on_card", "no_cvv"]  # told, and sent all the same


def luhn(pan: str) -> bool:
    """Return whether the check digit is right."""
    digits = [int(digit) for digit in pan if digit.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(doubled) + sum(digits[-1::-2])) % 10 == 0


def hashed(cvv: str) -> str:
    """Return the hash the portal takes."""
    return base64.b64encode(hashlib.sha256(cvv.encode()).digest()).decode()


HASHES = sorted({hashed(f"{number:0{width}d}") for width in (3, 4) for number in range(10**width)})


def normalised(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows in the portal's spelling."""
    word = (
        pl.all()
        .exclude(IS_PRIMARY)
        .str.replace_all(r"[\p{Cc}\x{2028}\x{2029}]+", " ")
        .str.normalize("NFC")
    )
    rows = rows.with_columns(word).with_columns(pl.all().str.strip_chars())
    rows = rows.with_columns(pl.when(pl.all() != "").then(pl.all()))
    key = (
        pl.col(COUNTRY, SUBNATIONAL)
        .str.to_uppercase()
        .str.replace_all(".", " ", literal=True)
        .str.strip_chars()
    )
    keys = rows.select(key)
    digits = pl.col(PAN).str.replace_all(r"[\s\p{Pd}]", "")
    rows = rows.with_columns(
        *(pl.when(~pl.col(name).is_in(PLACEHOLDERS)).then(name).alias(name) for name in OPTIONAL),
        pl.when(digits.str.contains("^[0-9]+$")).then(digits).otherwise(PAN).alias(PAN),
        pl.col(MONTH).str.replace("^([1-9])$", "0${1}"),
        pl.col(YEAR).str.replace("^20([0-9]{2})$", "${1}"),
        pl.coalesce(keys[COUNTRY].replace_strict(country_spellings(), default=None), COUNTRY).alias(
            COUNTRY
        ),
        pl.col(IS_PRIMARY).str.to_uppercase().replace(TRUTHS),
    )
    code = pl.col("key").replace_strict
    american, canadian = (
        code(subnational_spellings(country), default=None) for country in ("US", "CA")
    )
    rows = rows.with_columns(keys[SUBNATIONAL].alias("key")).with_columns(
        pl.when(pl.col(COUNTRY) == "US")
        .then(american)
        .when(pl.col(COUNTRY) == "CA")
        .then(canadian)
        .alias("key"),
        pl.when(pl.col(COUNTRY) == "US")
        .then(pl.col(POSTAL_CODE).str.replace(r"^([0-9]{5})[-\s]?[0-9]{4}$", "${1}"))
        .otherwise(
            pl.col(POSTAL_CODE)
            .str.to_uppercase()
            .str.replace(r"^(\w{3})[-\s]*(\w{3})$", "${1} ${2}")
        )
        .alias(POSTAL_CODE),
    )
    return rows.with_columns(
        pl.coalesce("key", SUBNATIONAL).alias(SUBNATIONAL),
        pl.coalesce(NAME_ON_CARD, pl.concat_str(FIRST_NAME, LAST_NAME, separator=" ")).alias(
            NAME_ON_CARD
        ),
    ).drop("key")


def check(name: str, holds: pl.Expr) -> pa.Check:
    """Return a check that is asked of whole rows; what is not there breaks none."""
    return pa.Check(lambda data: data.lazyframe.select(holds.fill_null(value=True)), name=name)


def schema(as_of: date) -> pa.DataFrameSchema:
    """Return the rules as pandera's own documentation would have them written."""
    valid = pl.col(PAN).map_elements(luhn, return_dtype=pl.Boolean)
    bare = pl.col(CUID).str.replace_all("[ ._/-]", "")
    card = (
        pl.when(bare.str.contains("^[2-6][0-9]{12,18}$"))
        .then(bare)
        .map_elements(luhn, return_dtype=pl.Boolean)
    )
    both = pl.when(pl.col(CVV_HASH).is_not_null()).then(CVV)
    own = both.map_elements(hashed, return_dtype=pl.String) == pl.col(CVV_HASH)
    expiry, year, month = pl.col(YEAR) + pl.col(MONTH), as_of.year, as_of.month
    soon = f"{(year * 12 + month + 1) // 12 % 100:02d}{(month + 1) % 12 + 1:02d}"
    american = pl.col(COUNTRY) == "US"
    place = (
        pl.when(american)
        .then(pl.col(POSTAL_CODE).str.slice(0, 3))
        .otherwise(pl.col(POSTAL_CODE).str.slice(0, 1))
    )
    zipped = pl.col(POSTAL_CODE).str.contains("^[0-9]{5}$")
    posted = pl.col(POSTAL_CODE).str.contains(
        "^[ABCEGHJ-NPRSTVXY][0-9][ABCEGHJ-NPRSTV-Z] [0-9][A-Z][0-9]$"
    )
    checks = {
        CUID: [check("card_number", ~card), check("control", ~pl.col(CUID).str.contains(r"\p{Cc}"))],
        PAN: [pa.Check.str_matches(r"^[0-9]{16}$"), check("luhn", valid)],
        YEAR: [
            pa.Check.str_matches(r"^[0-9]{2}$"),
            check("expired", expiry >= f"{as_of:%y%m}"),
            check("far", expiry <= f"{(year + 20) % 100:02d}{month:02d}"),
            check("soon", expiry >= soon),
        ],
        MONTH: [pa.Check.str_matches(r"^(0[1-9]|1[0-2])$")],
        NAME_ON_CARD: [check("name_on_card", pl.col(NAME_ON_CARD).str.contains(r"^[^0-9]*\p{L}[^0-9]*$"))],
        CVV: [
            pa.Check.str_matches(r"^[0-9]{3,4}$"),
            check("no_cvv", pl.col(CVV).is_not_null() | pl.col(CVV_HASH).is_not_null()),
        ],
        CVV_HASH: [check("known", pl.col(CVV_HASH).is_in(HASHES)), check("own", own)],
        SUBNATIONAL: [
            check("subnational", pl.when(american).then(pl.col(SUBNATIONAL).is_in([*STATES])).otherwise(
                pl.col(SUBNATIONAL).is_in([*PROVINCES])))
        ],
        COUNTRY: [pa.Check.isin(["usa", "USA", "us", "US", "canada", "Canada", "ca", "CA"])],
        POSTAL_CODE: [
            check("postal_code", pl.when(american).then(zipped).otherwise(posted)),
            check("lies_there", (place + pl.col(SUBNATIONAL)).is_in(sorted(postal_places()))),
        ],
        EMAIL: [check("email", pl.col(EMAIL).str.contains(r"^[^@\s]+@[^@\s]+\.[^@\s]+$"))],
        PHONE: [check("phone", pl.col(PHONE).str.contains(r"^\+?\(?[0-9]([ ().-]*[0-9]){6,14}$"))],
        IS_PRIMARY: [pa.Check.isin(["TRUE", "FALSE"])],
    }  # fmt: skip
    for name in [CUID, *NEEDED]:
        real = ~pl.col(name).is_in(PLACEHOLDERS) & ~pl.col(name).str.contains(FILLER)
        checks.setdefault(name, []).append(check("placeholder", real))
    return pa.DataFrameSchema(
        {
            name: pa.Column(pl.String, checks.get(name, []), nullable=name not in NEEDED)
            for name in columns()
        }
    )


def failures(rows: pl.DataFrame, as_of: date) -> pl.DataFrame:
    """Return row, column and check of whatever breaks a rule."""
    told = pl.DataFrame(schema={"row": pl.UInt32, "column": pl.String, "check": pl.String})
    try:
        schema(as_of).validate(rows, lazy=True)
    except SchemaErrors as errors:
        found = errors.failure_cases.select(
            pl.col("index").cast(pl.UInt32).alias("row"), "column", "check"
        )
        told = pl.concat([told, found])
    return told


def main(key: Path, extract: Path, folder: Path, as_of: date = date(2026, 11, 20)) -> None:
    """Do the night's work."""
    rows = normalised(pl.read_csv(extract, infer_schema=False).select(columns()))
    told = failures(rows, as_of)
    reasons = told.group_by("row").agg(
        pl.concat_str("column", "check", separator="|").alias("reasons")
    )
    refused = told.filter(~pl.col("check").is_in(WARNINGS))["row"].unique()
    rows = rows.with_row_index("row").join(reasons, on="row", how="left", maintain_order="left")
    sound = ~pl.col("row").is_in(refused.implode())
    first = rows.filter(sound).unique([CUID, PAN], keep="first", maintain_order=True)
    good = first.with_columns(
        pl.coalesce(CVV_HASH, pl.col(CVV).map_elements(hashed, return_dtype=pl.String)).alias(
            CVV_HASH
        ),
        pl.lit(None, pl.String).alias(CVV),
    )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        gpg = gnupg.GPG(gnupghome=home)
        recipient = gpg.import_keys(key.read_bytes()).fingerprints[0]
        sent = []
        for number, chunk in enumerate(good.iter_slices(1000), start=1):
            sealed = gpg.encrypt(
                chunk.select(columns()).write_csv().encode(), [recipient], always_trust=True
            )
            assert sealed.ok
            file = folder / f"chunk-{number:05d}.csv.pgp"
            file.write_bytes(sealed.data)
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            assert digest == hashlib.sha256(sealed.data).hexdigest()
            sent.append({"number": number, "rows": chunk.height, "sha256": digest})
    chunks = pl.Series("chunk", range(good.height), pl.UInt32) // 1000 + 1
    ledger = rows.join(
        good.select("row").with_columns(chunks), on="row", how="left", maintain_order="left"
    )
    ledger = ledger.select("row", CUID, pl.col(PAN).str.slice(-4), "chunk", "reasons")
    ledger.filter(pl.col("chunk").is_null()).select(
        "row", CUID, pl.col("reasons").list.join(" ")
    ).write_csv(folder / "rejects.csv")
    ledger.write_parquet(folder / "ledger.parquet")
    (folder / "manifest.json").write_text(json.dumps({"read": rows.height, "chunks": sent}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
