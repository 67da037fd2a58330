"""A second file beside an extract, found by its name and proven by the keys of both: for `init`.

It is looked for where an extract has no column for a part of the address.
"""

import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final

import polars as pl

from flows.errors import CardlinkError
from flows.extensions.init.dialect import take_sample
from flows.extensions.init.draft import Draft, columns_of, draft_of
from flows.extensions.init.guess import Guess, Sample
from flows.extensions.init.keys import MOST_KEYS, OVERLAP, Key, Reading, keys_of, read_all
from flows.extracts.opening import Digesting, Pair
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
_DAY: Final = re.compile(r"\d{4}[-_.]?\d{2}[-_.]?\d{2}|\d{6,}")
_ADDRESS: Final = (portal.ADDRESS1, portal.CITY, portal.POSTAL_CODE)

Open = Callable[[Path], AbstractContextManager[BinaryIO]]


def with_second_file(draft: Draft, extract: Path, opened: Open) -> Draft:
    """Return a draft with the second file that an extract seems to have, as a doubt."""
    lacking = _lacking(draft)
    source = draft.source
    is_delimited = source.get("format", "csv") == "csv" and "segments" not in source
    if not (lacking and is_delimited and "join" in source_settings().model_fields):
        return draft
    for other in _beside(extract):
        with suppress(CardlinkError):  # it is no extract
            for joined in _with_file(draft, extract, other, opened):
                if _lacking(joined) < lacking:
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


def _with_file(draft: Draft, extract: Path, other: Path, opened: Open) -> Iterator[Draft]:
    """Yield the draft with a second file, where a key joins it."""
    with opened(other) as stream:
        written = _written(take_sample(stream, other.name))
    with opened(other) as stream:
        rows = open_rows(stream, source_settings().model_validate(written), other.name)
        cells = pl.concat([block.rows for block in rows]).drop("row", "line")
    own = {column.name: column.values for column in draft.columns}
    stripped = {name: cells[name].str.strip_chars().to_list() for name in cells.columns}
    keys = [key for key in keys_of(own, stripped) if key.share >= OVERLAP][:MOST_KEYS]
    if not keys:
        return
    first, second = _patterns(extract.name, other.name)
    joins = [_join(second, key) | written for key in keys]
    source = draft.source | {"pattern": first, "join": joins[0]}
    with opened(extract) as stream, opened(other) as other_stream:
        pair = Pair(Digesting(stream), Digesting(other_stream), other.name)
        reading = read_all(pair, source, extract.name)
    if reading is not None:
        question = (
            f"Does {other.name} belong to it, each night? {reading.whole:,} of {reading.rows:,} "
            f"rows have one row there by {keys[0].own} = {keys[0].other}, and {reading.unused:,} "
            "of its rows belong to none"
        )
        others = (*map(toml, joins[1:]), "")
        join = Guess("join", toml(joins[0]), "a second file, joined by key", question, others)
        yield _drafted(draft, first, join, reading)


def _written(sample: Sample) -> dict[str, Any]:
    """Return how a second file is written, of what [source.join] can say."""
    lines = chain.from_iterable(guess.lines for guess in sample.guesses)
    settings = tomllib.loads("\n".join(lines))
    defaults = {name: SourceSettings.model_fields[name].default for name in OF_OTHERS}
    return {
        name: value
        for name, value in settings.items()
        if name in OF_OTHERS and value != defaults[name]
    }


def _patterns(first: str, second: str) -> list[str]:
    """Return the patterns of two names: by their day, else with a `*` before the suffix."""
    day = _DAY.search(first)
    if day is not None and day[0] in second:
        return [name.replace(day[0], "*", 1) for name in (first, second)]
    return [re.sub(r"(\.[^.]*)?$", r"*\1", name, count=1) for name in (first, second)]


def _join(pattern: str, key: Key) -> dict[str, Any]:
    join: dict[str, Any] = {"pattern": pattern, "key": [key.own]}
    return join if key.other == key.own else join | {"other_key": [key.other]}


def _drafted(draft: Draft, pattern: str, join: Guess, reading: Reading) -> Draft:
    kept = [
        guess._replace(value=toml(pattern)) if guess.key == "pattern" else guess
        for guess in draft.guesses
        if not guess.table and guess.key not in portal.columns()
    ]
    sample = Sample([*kept, join], columns_of(reading.first), named=True, last=draft.last)
    return draft_of(sample, draft.today)._replace(alone=draft)
