"""A second file beside an extract, found by its name and proven by the keys of both: for `init`.

It is looked for where an extract has no column for a part of the address. A key is proven by all
rows of both files; it stays a doubt, since running numbers are equal in any two files.
"""

import re
import tomllib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import polars as pl

from flows.errors import CardlinkError
from flows.extensions.init.dialect import take_sample
from flows.extensions.init.draft import Draft, columns_of, draft_of
from flows.extensions.init.guess import Column, Guess, Sample
from flows.extensions.init.sample import FIRST
from flows.extracts.opening import Digesting, Pair
from flows.extracts.row_source import Rows
from flows.extracts.rows import open_rows
from schemas import portal
from schemas.issuer import source_settings
from schemas.reference import toml
from schemas.source import SourceSettings

OF_OTHERS: Final = (  # what [source.join] says of the second file, as [source] does of the extract
    *("delimiter", "encoding", "quoting", "header_rows", "names", "comment", "trailer"),
    "final_newline",
)
MOST_FILES: Final = 20  # beside an extract that are looked at
MOST_KEYS: Final = 3  # that are proposed
OVERLAP: Final = 0.5  # share of the rows whose key is in the other file
DIFFERENT: Final = 0.95  # share of the other file's rows that have a key of their own
_DAY: Final = re.compile(r"\d{4}[-_.]?\d{2}[-_.]?\d{2}|\d{6,}")
_ADDRESS: Final = (portal.ADDRESS1, portal.CITY, portal.POSTAL_CODE)

Open = Callable[[Path], AbstractContextManager[BinaryIO]]


class _Names(NamedTuple):
    """The patterns of two files that come together."""

    first: str
    second: str


class _Key(NamedTuple):
    """A column of each file, and how well they fit; the larger is the better."""

    overlap: float
    is_namesake: bool
    own: str
    other: str


class _Proven(NamedTuple):
    """What a reading of both files showed: how many rows have one row there, and the first rows."""

    rows: int
    joined: int
    unused: int
    columns: list[Column]


def with_second_file(draft: Draft, extract: Path, opened: Open) -> Draft:
    """Return a draft with the second file that an extract seems to have, as a doubt."""
    lacking = _lacking(draft)
    source = _source(draft)
    is_delimited = source.get("format", "csv") == "csv" and "segments" not in source
    if not (lacking and is_delimited and "join" in source_settings().model_fields):
        return draft
    for other in _beside(extract):
        with suppress(CardlinkError):  # it is no extract
            joined = _with_file(draft, extract, other, opened)
            if joined is not None and _lacking(joined) < lacking:
                return joined
    return draft


def _lacking(draft: Draft) -> set[str]:
    """Return the parts of an address that no column looks like."""
    return {guess.key for guess in draft.guesses if guess.key in _ADDRESS and not guess.value}


def _beside(extract: Path) -> list[Path]:
    """Return the files beside an extract of the same kind, those of the same day first."""
    files = [file for file in sorted(extract.parent.glob(f"*{extract.suffix}")) if file != extract]
    day = _DAY.search(extract.name)
    if day is not None:
        files = [file for file in files if day[0] in file.name]
    return files[:MOST_FILES]


def _patterns(first: str, second: str) -> _Names:
    """Return the patterns of two names: by their day, else with a `*` before the suffix."""
    day = _DAY.search(first)
    if day is not None and day[0] in second:
        return _Names(first.replace(day[0], "*", 1), second.replace(day[0], "*", 1))
    return _Names(*(re.sub(r"(\.[^.]*)?$", r"*\1", name, count=1) for name in (first, second)))


def _with_file(draft: Draft, extract: Path, other: Path, opened: Open) -> Draft | None:
    """Return the draft with a second file; None where no key joins it."""
    with opened(other) as stream:
        sample = take_sample(stream, other.name)
    names = _patterns(extract.name, other.name)
    written = _written(sample)
    with opened(other) as stream:
        keys = _keys(
            draft, open_rows(stream, source_settings().model_validate(written), other.name)
        )
    if not keys:
        return None
    joins = [_join(names, key, written) for key in keys]
    source = _source(draft) | {"pattern": names.first, "join": joins[0]}
    with opened(extract) as first, opened(other) as second:
        pair = Pair(Digesting(first), Digesting(second), other.name)
        proven = _proven(pair, source_settings().model_validate(source), extract.name)
    question = (
        f"Does {other.name} belong to it, each night? {proven.joined:,} of {proven.rows:,} rows "
        f"have one row there by {keys[0].own} = {keys[0].other}, and {proven.unused:,} of its rows "
        "belong to none"
    )
    others = (*map(toml, joins[1:]), "")
    guess = Guess("join", toml(joins[0]), "a second file, joined by key", question, others)
    return _drafted(draft, names.first, guess, proven.columns)


def _drafted(draft: Draft, pattern: str, join: Guess, columns: Sequence[Column]) -> Draft:
    kept = []
    for guess in draft.guesses:
        if guess.table or guess.key in portal.columns():
            continue
        is_pattern = guess.key == "pattern"
        kept.append(guess._replace(value=toml(pattern)) if is_pattern else guess)
    sample = Sample([*kept, join], columns, named=True, last=draft.last)
    joined = draft_of(sample, draft.today)
    return joined._replace(proofs=draft.proofs, alone=draft)


def _source(draft: Draft) -> dict[str, Any]:
    source: dict[str, Any] = tomllib.loads(draft.toml)["source"]
    return source


def _written(sample: Sample) -> dict[str, Any]:
    """Return how a second file is written, of what [source.join] can say."""
    lines = chain.from_iterable(guess.lines for guess in sample.guesses)
    settings = tomllib.loads("\n".join(lines))
    fields = SourceSettings.model_fields
    return {
        name: value
        for name, value in settings.items()
        if name in OF_OTHERS and value != fields[name].default
    }


def _join(names: _Names, key: _Key, written: dict[str, Any]) -> dict[str, Any]:
    join: dict[str, Any] = {"pattern": names.second, "key": [key.own]}
    if key.other != key.own:
        join["other_key"] = [key.other]
    return join | written


def _keys(draft: Draft, other: Rows) -> list[_Key]:
    """Return the columns of both files that join them, the best first."""
    rows = pl.concat([block.rows for block in other]).drop("row", "line")
    keys = []
    for column in draft.columns:
        values = set(column.present)
        if len(values) < 2:
            continue
        for name in rows.columns:
            cells = rows[name].str.strip_chars()
            if cells.n_unique() < DIFFERENT * len(cells):
                continue
            overlap = len(values.intersection(cells.to_list())) / len(values)
            if overlap >= OVERLAP:
                keys.append(_Key(overlap, _plain(name) == _plain(column.name), column.name, name))
    return sorted(keys, key=lambda key: key[:2], reverse=True)[:MOST_KEYS]


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.casefold())


def _proven(pair: Pair, source: SourceSettings, name: str) -> _Proven:
    rows = open_rows(pair, source, name)
    first: list[pl.DataFrame] = []
    sampled = 0
    joined = 0
    for block in rows:
        joined += block.rows.height
        if sampled < FIRST:
            first.append(block.rows.head(FIRST - sampled))
            sampled += first[-1].height
    unused = rows.tally.unused if rows.tally else 0
    return _Proven(rows.height, joined, unused, columns_of(pl.concat(first)))
