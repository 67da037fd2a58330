"""Whole nights on extracts as issuers really send them: in every dialect, and damaged in every
way.
"""

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from zlib import crc32

import polars as pl
import pytest
import zstandard

from flows.adapters.gpg_opener import GpgOpener
from flows.adapters.gpg_sealer import GpgSealer
from flows.errors import CardlinkError
from flows.extensions.simulator.extract import Dialect, write_sample
from flows.extracts.errors import MappingError, TruncatedError
from flows.runs.context import IssuerContext
from flows.runs.sealing import Opener, Plain
from flows.submissions.rehearsal import Checked, rehearse
from flows.submissions.submit import Request
from schemas.portal import CITY, COUNTRY, MONTH, PAN, YEAR, columns
from tests import keys
from tests.builders import quick
from tests.extracts import damaged
from tests.night import DAY, Bench, issuer, local_bench

TRAILER = "#TRAILER,{rows}"
TRAILED = {"source": {"trailer": r"^#TRAILER,([0-9]+)$"}}


def sample(dialect: Dialect) -> bytes:
    out = BytesIO()
    write_sample(out, 120, bad=0.1, seed=4, as_of=DAY, dialect=dialect)
    return out.getvalue()


def sealed(data: bytes) -> bytes:
    key = keys.sound(copy=2)
    with GpgSealer(
        [key.public], [key.fingerprint], armor=True, compression="zip", today=DAY
    ) as sealer:
        return sealer.seal([Plain("extract.csv", data)])[0].data


def in_other_columns(data: bytes) -> bytes:
    """Return the extract under other header names, in another order, with one MMYY column for the
    expiry.
    """
    rows = pl.read_csv(BytesIO(data), infer_schema=False)
    expiry = (pl.col(MONTH) + pl.col(YEAR)).alias("EXP")
    named = rows.select(
        expiry, *[pl.col(name).alias(theirs(name)) for name in reversed(rows.columns)]
    )
    return named.drop(theirs(MONTH), theirs(YEAR)).write_csv().encode()


def theirs(name: str) -> str:
    return name.rpartition(".")[2].replace("_", " ").title()


MAPPED: dict[str, Any] = {
    "columns": {name: theirs(name) for name in columns() if name not in (MONTH, YEAR)}
    | {name: {"from": "exp", "format": "MMYY"} for name in (MONTH, YEAR)}
}
PLAIN = sample(Dialect())
DIALECTS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "semicolon, cp1252, CRLF": (
        sample(Dialect(delimiter=";", encoding="cp1252", newline="\r\n")),
        {"source": {"delimiter": ";", "encoding": "cp1252"}},
    ),
    "tab, UTF-16": (
        sample(Dialect(delimiter="\t", encoding="utf-16")),
        {"source": {"delimiter": "\t", "encoding": "utf-16"}},
    ),
    "byte order mark, trailer": (b"\xef\xbb\xbf" + sample(Dialect(trailer=TRAILER)), TRAILED),
    "gzip": (gzip.compress(PLAIN), {}),
    "zstd": (zstandard.compress(PLAIN), {}),
    "ZIP": (damaged.zipped(PLAIN), {}),
    "PGP, of a ZIP": (sealed(damaged.zipped(PLAIN)), {}),
    "other columns": (in_other_columns(PLAIN), MAPPED),
    "PGP": (sealed(PLAIN), {}),
}


NotOurHeaders = MappingError  # the kind has a header of its own


class WithPrivateKey(Bench):
    """A bench whose issuer has the key that opens its extracts."""

    @property
    def context(self) -> IssuerContext:
        return super().context._replace(opener=self._private)

    @contextmanager
    def _private(self) -> Iterator[Opener]:
        with GpgOpener([keys.sound(copy=2).secret]) as opener:
            yield opener


@pytest.mark.slow
def test_the_same_extract_in_every_dialect_gives_the_same_chunks(tmp_path: Path) -> None:
    first = local_bench(tmp_path / "plain")
    expected = first.chunks(first.submit(first.drop_bytes(PLAIN)).manifest.run)

    found = {}
    for at, (name, (data, changes)) in enumerate(DIALECTS.items()):
        bench = local_bench(tmp_path / str(at), **changes)
        bench = WithPrivateKey(bench.store, bench.issuer, bench.now)
        found[name] = bench.chunks(bench.submit(bench.drop_bytes(data)).manifest.run)

    assert {name: chunks for name, chunks in found.items() if chunks != expected} == {}


# some of every sort come first
KINDS = sorted(damaged.every_kind(), key=lambda kind: crc32(kind.kind.encode()))


def tried(context: IssuerContext, name: str) -> Checked | CardlinkError:
    try:
        return rehearse(context, Request(name, DAY))
    except CardlinkError as error:
        return error


def fates(checked: Checked) -> int:
    counts = checked.counts
    return counts.submitted + counts.rejected + counts.duplicate + counts.suppressed


def cells(data: bytes) -> set[str]:
    """Return what of a damaged extract must never be said: its longer cells that are no header."""
    header = set(columns())
    text = data.decode("utf-8", "replace").replace("\x00", "")
    return {
        cell for line in text.splitlines() for cell in line.split(",") if len(cell) > 7
    } - header


@pytest.mark.parametrize("kind", quick(12, KINDS), ids=lambda kind: kind.kind.replace(" ", "-"))
def test_a_damaged_extract_is_counted_row_by_row_or_refused_whole_and_no_cell_is_told(
    tmp_path: Path, kind: damaged.Damaged
) -> None:
    bench = local_bench(tmp_path)
    settings = bench.issuer.model_copy(update={"source": kind.settings})
    context = replace(bench, issuer=settings).context
    name = bench.drop_bytes(kind.data)

    told = tried(context, name)

    if isinstance(told, Checked):
        assert (told.counts.read, fates(told)) == (kind.accepted + len(kind.refused),) * 2
    else:
        # a message without its end is cut
        assert isinstance(told, (kind.error or NotOurHeaders, TruncatedError))
    said = f"{told} {told!r}"
    assert [cell for cell in cells(kind.data) if cell in said] == []


def doubled(change: Callable[[pl.DataFrame], pl.DataFrame]) -> bytes:
    rows = pl.read_csv(BytesIO(sample(Dialect())), infer_schema=False)
    return change(rows).write_csv().encode()


def test_an_extract_out_of_a_spreadsheet_is_refused_with_one_message(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    name = bench.drop_bytes(
        doubled(lambda rows: rows.with_columns(pl.lit("4.24242E+15").alias(PAN)))
    )

    with pytest.raises(CardlinkError, match="spreadsheet") as error:
        bench.submit(name)

    assert error.value.exit_code == 2


@pytest.mark.slow
def test_zips_that_lost_their_zeros_are_repaired_and_counted(tmp_path: Path) -> None:
    whole = local_bench(tmp_path / "whole")
    with_zeros = doubled(
        lambda rows: rows.filter(pl.col("service_card.address.postal_code").str.starts_with("0"))
    )
    sent = whole.submit(whole.drop_bytes(with_zeros)).manifest
    lost = local_bench(tmp_path / "lost")
    shorter = pl.col("service_card.address.postal_code").str.strip_chars_start("0")
    without = doubled(
        lambda rows: rows.filter(
            pl.col("service_card.address.postal_code").str.starts_with("0")
        ).with_columns(shorter)
    )

    repaired = lost.submit(lost.drop_bytes(without)).manifest

    assert lost.chunks(repaired.run) == whole.chunks(sent.run)
    assert repaired.repairs["zip_zeros"] == sent.counts.read


def test_rows_that_the_status_leaves_out_are_suppressed_and_counted(tmp_path: Path) -> None:
    bench = local_bench(
        tmp_path,
        columns={name: name for name in columns()},
        status={COUNTRY: {"send": ["US", "us", "USA"], "unknown": "leave_out"}},
    )
    extract = bench.drop(100)
    source = pl.read_csv(BytesIO(bench.content(f"bank/extracts/{extract}")), infer_schema=False)

    counts = bench.submit(extract).manifest.counts

    assert (
        counts.suppressed == source.filter(~pl.col(COUNTRY).is_in(["US", "us", "USA"])).height > 0
    )
    assert counts.read == 100


def test_a_missing_column_is_named_with_the_nearest_headers(tmp_path: Path) -> None:
    changed = issuer(
        columns={**{name: name for name in columns()}, CITY: "service_card.address.town"}
    )
    bench = replace(local_bench(tmp_path), issuer=changed)

    with pytest.raises(CardlinkError) as error:
        bench.submit(bench.drop(5))

    assert "service_card.address.town" in str(error.value)
    assert CITY in str(error.value)
