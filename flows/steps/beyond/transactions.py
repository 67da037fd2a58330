"""Take up the partner's transaction reports: each is kept as one Parquet object, derived, whatever its name.

A report fed twice, or in any order with others, says the same: what counts is put together anew from all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import chain
from typing import NamedTuple

import polars as pl

from flows.core.names import placements, transactions
from flows.core.ports import Entry, Store
from flows.core.redaction import redact
from flows.core.results.reconcile import SHOWN
from flows.core.results.results import DAMAGE, LIMIT, TOO_LARGE
from flows.core.results.transactions import TOLD, read_transactions, settled
from flows.core.run.planning import digest
from flows.steps.answers.linked import single_links
from flows.steps.beyond.singles import prompted_singles
from flows.steps.edges import read
from flows.steps.rows import read_rows
from flows.steps.runs import keys_of, read_summary
from schemas.breaks import DAMAGED_TRANSACTIONS, UNKNOWN_TRANSACTION, Break, found
from schemas.manifest import Manifest
from schemas.states import LINKED

POSITION = "position"


class TakenUp(NamedTuple):
    """All transaction reports of an issuer: how many there are, their rows, and what does not fit."""

    files: int
    rows: int
    breaks: tuple[Break, ...]


def take_up(store: Store, issuer: str, runs: Iterable[Manifest]) -> TakenUp:
    """Keep every transaction report that is new or has changed; name the rows whose cuid has a link in none of `runs`.

    A report that is taken away later still counts.
    """
    kept = set(_kept(store, issuer))
    listed = {_key(issuer, entry): entry for entry in store.keys(transactions(issuer)) if entry.key[-1] != "/"}
    for key, entry in listed.items():
        if key not in kept or _facts(read(store, key))["version"] != _version(entry):
            _keep(store, key, entry)
    files = sorted(kept | listed.keys())
    strange = _strange(store, issuer, files, runs)
    breaks = {one for key in files for one in _breaks(read(store, key), strange)}
    return TakenUp(len(files), sum(_frame(store, key, [POSITION]).height for key in files), tuple(sorted(breaks)))


def told(store: Store, issuer: str, share: pl.Expr) -> pl.DataFrame:
    """Return what all kept reports say (`core.results.transactions.TOLD`), one row a cuid, of those `share` takes."""
    frames = (_frame(store, key, list(TOLD)).filter(share) for key in _kept(store, issuer))
    return settled(frame.drop_nulls("cuid") for frame in frames)


def _kept(store: Store, issuer: str) -> list[str]:
    return [entry.key for entry in store.keys(f"{placements(issuer)}reports/")]


def _key(issuer: str, entry: Entry) -> str:
    """Return where a report is kept: named after the file, so that a half written one gives way to the whole."""
    return f"{placements(issuer)}reports/{digest(entry.key.encode())[:32]}.parquet"


def _version(entry: Entry) -> str:
    return f"{entry.size}|{entry.version}"


def _keep(store: Store, key: str, entry: Entry) -> None:
    name = redact(entry.key.rpartition("/")[2])  # whoever names a report may name it after a card
    report = read_transactions(read(store, entry.key) if entry.size <= LIMIT else b"", name)
    problems = report.problems if entry.size <= LIMIT else (TOO_LARGE,)
    out = BytesIO()
    facts = {"name": report.name, "problems": json.dumps(problems), "version": _version(entry)}
    report.rows.write_parquet(out, compression="zstd", metadata=facts)
    store.replace(key, [out.getvalue()])


def _facts(content: bytes) -> dict[str, str]:
    return pl.read_parquet_metadata(BytesIO(content))


def _frame(store: Store, key: str, columns: list[str]) -> pl.DataFrame:
    return pl.read_parquet(BytesIO(read(store, key)), columns=columns)


def _strange(store: Store, issuer: str, files: Iterable[str], runs: Iterable[Manifest]) -> pl.Series:
    """Return 64-bit marks of the cuids that nobody with a link has; runs are read until every one is found."""
    marks = [_frame(store, key, ["cuid"]).drop_nulls().select(_mark()) for key in files]
    left = pl.concat([pl.DataFrame(schema={"mark": pl.UInt64}), *marks])["mark"].unique()
    for linked in chain(_typed_in(store, issuer), *(_linked(store, manifest) for manifest in runs)):
        left = left.filter(~left.is_in(linked.implode()))
        if left.is_empty():
            break
    return left


def _typed_in(store: Store, issuer: str) -> Iterator[pl.Series]:
    cuids = [one.asked.cuid for one in prompted_singles(store, issuer)]
    yield pl.DataFrame({"cuid": cuids}, {"cuid": pl.String}).select(_mark())["mark"]


def _linked(store: Store, manifest: Manifest) -> Iterator[pl.Series]:
    keys = keys_of(manifest.run)
    yield single_links(store, keys).select(_mark())["mark"]
    if read_summary(store, keys) is not None:
        for rows in read_rows(store, keys, manifest.ledger, ["cuid", "state"]):
            yield rows.filter(state=LINKED).select(_mark())["mark"]


def _mark() -> pl.Expr:
    return pl.col("cuid").hash().alias("mark")


def _breaks(content: bytes, strange: pl.Series) -> Iterator[Break]:
    facts = _facts(content)
    rows = pl.read_parquet(BytesIO(content), columns=[POSITION, "cuid"])
    for problem in json.loads(facts["problems"]):
        if problem in DAMAGE:
            yield found(DAMAGED_TRANSACTIONS, rows.height, f"{facts['name']} ({problem})")
    lost = rows.filter(pl.col("cuid").is_null() | pl.col("cuid").hash().is_in(strange.implode()))
    if lost.height:
        first = ", ".join(map(str, lost[POSITION].head(SHOWN)))
        yield found(UNKNOWN_TRANSACTION, lost.height, f"{facts['name']}, rows {first}")
