"""What result files speak of, found before attribution: so that few of the sent rows need to be fetched."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from flows.core.results.placing import words_of
from flows.core.results.sent import SentRows


def mentioned_cuids(claims: pl.DataFrame) -> pl.Series:
    """Return every cuid that rows claim (columns `claim`, `error`), and every word of error texts that name none."""
    silent = claims.filter(pl.col("claim").is_null() & pl.col("error").is_not_null())
    words = silent.select(pl.col("error").unique()).select(words_of(pl.col("error"))).to_series().explode()
    return pl.concat([claims["claim"].drop_nulls(), words.drop_nulls()]).unique()


def settled_by_name(claims: pl.DataFrame, sent: SentRows, named: Mapping[int, int]) -> frozenset[int]:
    """Return the files that answer all rows of the chunk they are named after, each row once, and nothing else.

    No other chunk could make their attribution another one: none has more of the file's rows, and where one has as
    many, the name decides. `claims`: file, claim, last_4; `named`: place by file's number.
    """
    home = pl.col("file").replace_strict(dict(named), default=None, return_dtype=pl.UInt32).alias("place")
    rows = sent.rows.select("place", pl.col("cuid").alias("claim"), pl.col("last_4").alias("last_4_sent"), answers=True)
    fits = pl.col("answers") & (pl.col("last_4") == pl.col("last_4_sent")).fill_null(True)
    files = (
        claims.select("file", "claim", "last_4", home)
        .join(rows, on=["place", "claim"], how="left")
        .group_by("file", "place")
        .agg(pl.len().alias("rows"), fits.sum().alias("fit"), pl.col("claim").n_unique().alias("different"))
        .join(sent.places.select("place", "sent"), on="place")
    )
    whole = pl.all_horizontal(pl.col(name) == pl.col("sent") for name in ("rows", "fit", "different"))
    return frozenset(files.filter(whole)["file"])
