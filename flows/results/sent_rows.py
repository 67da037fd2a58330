"""The sent rows that result files may answer: of the chunk a file is named after, else of all runs.

Which of them a result row answers is decided in `match`.

The name only saves the search in other runs: ten CPU seconds over twenty runs of 200,000 rows. A
way of matching by names alone was removed.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import NamedTuple

import polars as pl

from flows.runs.keys import RunId
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from schemas import ledger
from schemas.manifest import LedgerPart, Manifest

_TOKEN = r"""[^\s"'{}\[\],:;()<>=\\&]+"""  # noqa: S105 - a pattern, not a secret
# words with apostrophes in them
_JOINED = r"""[^\s"'{}\[\],:;()<>=\\&]+(?:'[^\s"'{}\[\],:;()<>=\\&]+)+"""
_APOSTROPHE = r"\\+'|&#39;|&#x27;|&apos;"

_NAME = re.compile(r"([a-z0-9-]+-\d{8}-[0-9a-f]{8}(?:-r\d+)?)(?:-e\d+)?-(\d{5})(?!\d)")

_RECORD = ["row", "cuid", "last_4", "fate", "chunk", "position"]
_NO_ROWS = pl.DataFrame(
    schema={"run": pl.String, **{name: ledger.dtypes()[name] for name in _RECORD}}
).drop("fate")
# Ledger parts kept decoded, about 15 MB each. Few are enough, since result files arrive in the
# order of their chunks.
AT_HAND = 4
TOGETHER = 100_000  # rows of several parts that are looked through at once


class ByHand(NamedTuple):
    """An operator's attribution: which row of which run a result row answers.

    The result row is data row `position` of result file number `file`.
    """

    file: int
    position: int
    run: str
    row: int


class SentRows(NamedTuple):
    """What was sent, as rows, and as the places they were sent in.

    `rows`: spot, place, run, chunk, row, sent_at, cuid, last_4. `places`: place, run, chunk, sent.
    A spot is one sent row, a place is one chunk of one run; `sent_at` is the data row within the
    chunk, from 1. `named`: the place that each result file (by its number) is named after.
    """

    rows: pl.DataFrame
    places: pl.DataFrame
    named: Mapping[int, int] = {}


def number_sent_rows(sent: pl.DataFrame, names: Sequence[str] = ()) -> SentRows:
    """Number ledger rows (row, cuid, last_4, chunk, position, run); look up the files' `names`."""
    rows = sent.select(
        "run",
        pl.col("chunk", "row").cast(pl.UInt32),
        pl.col("position").cast(pl.UInt32).alias("sent_at"),
        pl.col("cuid", "last_4").cast(pl.String),
    )
    places = (
        rows.group_by("run", "chunk")
        .agg(pl.len().alias("sent"))
        .sort("run", "chunk")
        .with_row_index("place")
    )
    numbered = rows.join(
        places.drop("sent"), on=["run", "chunk"], how="left", maintain_order="left"
    )
    return SentRows(numbered.with_row_index("spot"), places, _named_places(places, names))


def _named_places(places: pl.DataFrame, names: Sequence[str]) -> dict[int, int]:
    """Return the place that each file is named after, by the file's number."""
    chunks = places.select("run", "chunk", "place").iter_rows()
    place_of = {(run, chunk): place for run, chunk, place in chunks}
    named = dict[int, int]()
    for file, name in enumerate(names):
        for chunk in named_in(name):  # the likeliest comes last
            if chunk in place_of:
                named[file] = place_of[chunk]
    return named


def named_in(name: str) -> list[tuple[str, int]]:
    """Return the runs and chunks that a file name may mean, the likeliest last.

    Portals add words before the run.
    """
    chunk_name = _NAME.search(name.lower())
    if not chunk_name:
        return []
    words = chunk_name[1].split("-")
    chunk = int(chunk_name[2])
    runs = ["-".join(words[start:]) for start in reversed(range(len(words) - 2))]
    return [(run, chunk) for run in ("", *runs)]


def place_named(named: Mapping[int, int]) -> pl.Expr:
    """Return the place that the file of a row is named after."""
    return pl.col("file").replace_strict(dict(named), default=None, return_dtype=pl.UInt32)


def words_of(text: pl.Expr) -> pl.Expr:
    """Return the words of a text, any of which may be a cuid."""
    plain = text.str.replace_all(_APOSTROPHE, "'")
    words = pl.concat_list(text.str.extract_all(_TOKEN), plain.str.extract_all(_JOINED))
    return words.list.eval(pl.element().str.strip_chars(".#!?"))


def candidate_ids(claims: pl.DataFrame) -> pl.Series:
    """Return every cuid that rows claim, and every word of the errors that name none.

    `claims`: at least the columns `claim` and `error`.
    """
    silent = claims.filter(pl.col("claim").is_null() & pl.col("error").is_not_null())
    words = (
        silent.select(pl.col("error").unique())
        .select(words_of(pl.col("error")))
        .to_series()
        .explode()
    )
    return pl.concat([claims["claim"].drop_nulls(), words.drop_nulls()]).unique()


def searched_elsewhere(claims: pl.DataFrame, among: SentRows) -> pl.DataFrame:
    """Return the claims of all files but those that answer the chunk they are named after whole.

    Such a file answers each row of that chunk exactly once. No other chunk could change where its
    rows belong: none has more of them, and the name breaks a tie. So the ledgers of other runs, up
    to a year of them, are read only for the rest.
    """
    rows = among.rows.select(
        "spot", "place", pl.col("cuid").alias("claim"), pl.col("last_4").alias("last_4_sent")
    )
    same_digits = (pl.col("last_4") == pl.col("last_4_sent")).fill_null(True)
    fits = pl.col("spot").is_not_null() & same_digits
    counts = (
        claims.select(
            "result_row", "file", "claim", "last_4", place_named(among.named).alias("place")
        )
        .join(rows, on=["place", "claim"], how="left")
        .group_by("file", "place")
        .agg(
            pl.len().alias("pairs"),
            fits.sum().alias("fit"),
            pl.col("result_row", "spot").n_unique(),
        )
        .join(among.places, on="place")
    )
    once_each = pl.all_horizontal(
        pl.col(count) == pl.col("sent") for count in ("pairs", "fit", "result_row", "spot")
    )
    whole = counts.filter(once_each)
    return claims.filter(~pl.col("file").is_in(whole["file"].implode()))


def _together(parts: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield parts put together until they have enough rows: many runs are small."""
    small: list[pl.DataFrame] = []
    rows = 0
    for part in parts:
        small.append(part)
        rows += part.height
        if rows >= TOGETHER:
            yield pl.concat(small)
            small = []
            rows = 0
    if small:
        yield pl.concat(small)


class SentIndex:
    """The sent rows of the committed runs of one issuer, for one ingest."""

    def __init__(self, runs: StoredRuns) -> None:
        self._runs = runs
        self._part = lru_cache(AT_HAND)(self._read_part)
        self._chunks = cache(lambda run, part: frozenset(self._part(run, part)["chunk"].unique()))
        self._manifest = lru_cache(AT_HAND)(self._read_manifest)

    def candidates(
        self, names: Sequence[str], claims: pl.DataFrame, forced: Sequence[ByHand] = ()
    ) -> SentRows:
        """Return the sent rows that files may answer.

        The files have these names, and these claims or attributions.
        """
        named_rows = self._rows_named(names)
        named = number_sent_rows(named_rows, names)
        unsettled = searched_elsewhere(claims, named)
        if unsettled.is_empty() and not forced:
            return named
        sent = [named_rows]
        for attribution in forced:
            manifest = self._manifest(attribution.run)
            if manifest is not None:
                sent += self._chunks_with(pl.col("row") == attribution.row, [manifest])
        if not unsettled.is_empty():
            claimed = pl.col("cuid").is_in(candidate_ids(unsettled).implode())
            sent += self._chunks_with(claimed, self._committed)
        return number_sent_rows(pl.concat(sent).unique(["run", "row"], maintain_order=True), names)

    def _rows_named(self, names: Sequence[str]) -> pl.DataFrame:
        """Return the rows of the chunks that these file names may mean."""
        chunks_of = dict[str, set[int]]()
        for name in names:
            for run, chunk in named_in(name):
                chunks_of.setdefault(run, set()).add(chunk)
        rows = [self._rows_of(run, chunks) for run, chunks in sorted(chunks_of.items())]
        return pl.concat([_NO_ROWS, *rows])

    def _chunks_with(self, rows: pl.Expr, manifests: Iterable[Manifest]) -> Iterator[pl.DataFrame]:
        """Yield the sent rows of every chunk of these runs that has one of these `rows`."""
        for sent in _together(self._parts(manifests)):
            chunks = sent.filter(rows).select("run", "chunk").unique()
            yield sent.join(chunks, on=["run", "chunk"], how="semi", maintain_order="left")

    def _parts(self, manifests: Iterable[Manifest]) -> Iterator[pl.DataFrame]:
        for manifest in manifests:
            yield from (self._part(manifest.run, part) for part in manifest.ledger)

    def _rows_of(self, run: str, chunks: Collection[int]) -> pl.DataFrame:
        """Return the rows of some chunks of a run; none if there is no such run."""
        manifest = self._manifest(run)
        if manifest is None:
            return _NO_ROWS
        rows = [_NO_ROWS]
        missing = set(chunks)
        for part in manifest.ledger:
            in_part = missing & self._chunks(run, part)
            if in_part:
                rows.append(self._part(run, part).filter(pl.col("chunk").is_in(list(in_part))))
                missing -= in_part
            if not missing:
                break
        return pl.concat(rows)

    def _read_part(self, run: str, part: LedgerPart) -> pl.DataFrame:
        records = StoredRun.by_id(self._runs.adapters, run).ledger_part(part, _RECORD)
        return records.filter(fate=ledger.SUBMITTED).select(
            pl.lit(run).alias("run"), pl.all().exclude("fate")
        )

    def _read_manifest(self, run: str) -> Manifest | None:
        """Return the manifest of a committed run of the issuer whose ledger is not purged."""
        parsed = RunId.parse(run)
        if parsed is None or parsed.issuer != self._runs.issuer:
            return None
        if run in self._runs.without_ledger:
            return None
        return self._runs.run(parsed).manifest

    @cached_property
    def _committed(self) -> list[Manifest]:
        return [run.committed() for run in self._runs.with_ledger()]
