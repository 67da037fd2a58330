"""What the names of result files tell: the chunk each is named after, and which of them need no other to be looked at.

Most files answer the chunk of their name whole; what they say is placed by one join, whatever else was ever sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from flows.core.results.placing import PLACED, how_found
from flows.core.results.sent import SentRows, number_sent

_NAME = re.compile(r"([a-z0-9-]+-\d{8}-[0-9a-f]{8}(?:-r\d+)?)-(\d{5})(?!\d)")


class Candidates(NamedTuple):
    """The sent rows that result files may answer, the place each file is named after, and the rows placed by that."""

    sent: SentRows
    named: Mapping[int, int]
    by_name: pl.DataFrame  # as `place_by_name` gives them


def candidates(names: Sequence[str], claims: pl.DataFrame, sent: pl.DataFrame) -> Candidates:
    """Number the ledger rows `sent` (row, cuid, last_4, chunk, position[, run]) and place by the names what can be."""
    numbered = number_sent(sent)
    named = named_places(names, numbered.places)
    return Candidates(numbered, named, place_by_name(claims, numbered, named))


def named_places(names: Sequence[str], places: pl.DataFrame) -> dict[int, int]:
    """Return the place each file (by its number) is named after, where there is such a place."""
    known = {(run, chunk): place for place, run, chunk, _ in places.iter_rows()}
    return {at: known[key] for at, name in enumerate(names) for key in spoken_of(name) if key in known}


def spoken_of(name: str) -> list[tuple[str, int]]:
    """Return what runs and chunks a name may speak of, the likeliest last: portals put words before the run."""
    found = _NAME.search(name.lower())
    if not found:
        return []
    words = found[1].split("-")
    runs = ["-".join(words[at:]) for at in reversed(range(len(words) - 2))]
    return [(run, int(found[2])) for run in ("", *runs)]


def place_by_name(claims: pl.DataFrame, sent: SentRows, named: Mapping[int, int]) -> pl.DataFrame:
    """Place the rows of files that answer all rows of the chunk they are named after, each row once, and nothing else.

    No other chunk could make their attribution another one: none has more of the file's rows, and where one has as
    many, the name decides. `claims`: at, file, cuid, claim, last_4; `named`: place by file's number.
    """
    home = pl.col("file").replace_strict(dict(named), default=None, return_dtype=pl.UInt32).alias("place")
    rows = sent.rows.select("spot", "place", pl.col("cuid").alias("claim"), pl.col("last_4").alias("last_4_sent"))
    fits = pl.col("spot").is_not_null() & (pl.col("last_4") == pl.col("last_4_sent")).fill_null(True)
    found = claims.select("at", "file", "claim", "last_4", how_found(), home).join(
        rows, on=["place", "claim"], how="left", maintain_order="left"
    )
    files = (
        found.group_by("file", "place")
        .agg(pl.len().alias("pairs"), fits.sum().alias("fit"), pl.col("at", "spot").n_unique())
        .join(sent.places.select("place", "sent"), on="place")
    )
    one_each = (pl.col(name) == pl.col("sent") for name in ("pairs", "fit", "at", "spot"))
    whole = files.filter(pl.all_horizontal(one_each))
    if whole.height < files.height or whole["file"].n_unique() < found["file"].n_unique():
        found = found.filter(pl.col("file").is_in(whole["file"].implode()))
    return found.select(*PLACED[:-1], exact=True)


def unsettled(claims: pl.DataFrame, placed: pl.DataFrame) -> pl.DataFrame:
    """Return the claims of the files of which no row is placed yet."""
    if claims.height == placed.height:
        return claims.clear()
    return claims.filter(~pl.col("file").is_in(placed["file"].unique().implode()))
