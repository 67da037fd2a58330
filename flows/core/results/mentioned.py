"""What result files speak of, found before attribution: so that few of the sent rows need to be fetched."""

from __future__ import annotations

import polars as pl

from flows.core.results.placing import words_of


def mentioned_cuids(claims: pl.DataFrame) -> pl.Series:
    """Return every cuid that rows claim (columns `claim`, `error`), and every word of error texts that name none."""
    silent = claims.filter(pl.col("claim").is_null() & pl.col("error").is_not_null())
    words = silent.select(pl.col("error").unique()).select(words_of(pl.col("error"))).to_series().explode()
    return pl.concat([claims["claim"].drop_nulls(), words.drop_nulls()]).unique()
