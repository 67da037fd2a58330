"""The cuids a result file may speak of: read before attribution, to fetch only the chunks it may answer."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from flows.core.results.error_object import parse_error
from flows.core.results.placing import words_of
from flows.core.results.results import ResultRows


def mentioned_cuids(results: Sequence[ResultRows]) -> pl.Series:
    """Return the cuid column, the cuids of error objects, and every token of error texts that name none."""
    rows = pl.concat([result.rows.select("cuid", "error") for result in results])
    texts = rows.filter(pl.col("cuid").is_null() & pl.col("error").is_not_null())["error"].unique()
    parsed = [(text, parse_error(text).cuid) for text in texts]
    nameless = pl.Series([text for text, cuid in parsed if cuid is None], dtype=pl.String)
    words = nameless.to_frame("text").select(words_of(pl.col("text"))).to_series().explode()
    named = pl.Series([cuid for _, cuid in parsed if cuid is not None], dtype=pl.String)
    return pl.concat([rows["cuid"].drop_nulls(), named, words.drop_nulls()]).unique()
