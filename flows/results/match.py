"""Find the sent row of every result row, over many files at once: in the chunk a file is named
after, else in all runs.

What a match means is decided in `attribution`.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cache, cached_property, lru_cache
from typing import NamedTuple

import polars as pl

from flows.runs.documents import read_ledger, read_manifest, with_ledger, without_ledger
from flows.runs.keys import RunId, RunKeys, keys_of
from flows.runs.store import Store
from schemas import ledger
from schemas.manifest import LedgerPart, Manifest

PROOF = 3  # links in the order they were sent that prove the order, so that positions count

PLACED_TYPES = {
    "at": pl.UInt32,  # the result row
    "file": pl.UInt32,
    "place": pl.UInt32,  # its chunk
    "spot": pl.UInt32,  # its sent row; null: one more than was sent
    "how": pl.String,
    "exact": pl.Boolean,  # False: other last four digits than were sent
}
PLACED = list(PLACED_TYPES)
_NO_PLACES = pl.DataFrame(schema=PLACED_TYPES)
_TOKEN = r"""[^\s"'{}\[\],:;()<>=\\&]+"""  # noqa: S105 - a pattern for words of a text, not a secret
# words with apostrophes in them
_JOINED = r"""[^\s"'{}\[\],:;()<>=\\&]+(?:'[^\s"'{}\[\],:;()<>=\\&]+)+"""
_APOSTROPHE = r"\\+'|&#39;|&#x27;|&apos;"

_NAME = re.compile(r"([a-z0-9-]+-\d{8}-[0-9a-f]{8}(?:-r\d+)?)-(\d{5})(?!\d)")


class ByHand(NamedTuple):
    """An operator's attribution: data row `position` of result file number `file` answers this row
    of this run.
    """

    file: int
    position: int
    run: str
    row: int


class SentRows(NamedTuple):
    """What was sent: `rows` (spot, place, run, chunk, row, sent_at, cuid, last_4), `places` (place,
    run, chunk, sent).

    A spot is one sent row, a place is one chunk of one run; `sent_at` is the data row within the
    chunk, from 1.
    `named`: the place that each result file (by its number) is named after.
    """

    rows: pl.DataFrame
    places: pl.DataFrame
    named: Mapping[int, int] = {}


def number_sent_rows(sent: pl.DataFrame, names: Sequence[str] = ()) -> SentRows:
    """Number ledger rows (row, cuid, last_4, chunk, position, run); look up the files' `names` in
    them.
    """
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
    chunks = {(run, chunk): place for place, run, chunk, _ in places.iter_rows()}
    named = {
        at: chunks[key] for at, name in enumerate(names) for key in named_in(name) if key in chunks
    }
    return SentRows(numbered.with_row_index("spot"), places, named)


def words_of(text: pl.Expr) -> pl.Expr:
    """Return the words of a text, any of which may be a cuid."""
    plain = text.str.replace_all(_APOSTROPHE, "'")
    words = pl.concat_list(text.str.extract_all(_TOKEN), plain.str.extract_all(_JOINED))
    return words.list.eval(pl.element().str.strip_chars(".#!?"))


def named_in(name: str) -> list[tuple[str, int]]:
    """Return the runs and chunks that a file name may mean, the likeliest last: portals add words
    before the run.
    """
    found = _NAME.search(name.lower())
    if not found:
        return []
    words = found[1].split("-")
    runs = ["-".join(words[at:]) for at in reversed(range(len(words) - 2))]
    return [(run, int(found[2])) for run in ("", *runs)]


def searched_elsewhere(claims: pl.DataFrame, among: SentRows) -> pl.DataFrame:
    """Return the claims of all files but those that answer each row of the chunk they are named
    after exactly once.

    No other chunk could change where the rows of such a file belong: none has more of them, and the
    name breaks a tie. So the ledgers of other runs, up to a year of them, are read only for the
    rest.
    """
    rows = among.rows.select(
        "spot", "place", pl.col("cuid").alias("claim"), pl.col("last_4").alias("last_4_sent")
    )
    fits = pl.col("spot").is_not_null() & (pl.col("last_4") == pl.col("last_4_sent")).fill_null(
        True
    )
    once = (
        claims.select("at", "file", "claim", "last_4", place_named(among.named).alias("place"))
        .join(rows, on=["place", "claim"], how="left")
        .group_by("file", "place")
        .agg(pl.len().alias("pairs"), fits.sum().alias("fit"), pl.col("at", "spot").n_unique())
        .join(among.places, on="place")
        .filter(
            pl.all_horizontal(
                pl.col(name) == pl.col("sent") for name in ("pairs", "fit", "at", "spot")
            )
        )
    )
    return claims.filter(~pl.col("file").is_in(once["file"].implode()))


def place_named(named: Mapping[int, int]) -> pl.Expr:
    """Return the place that the file of a row is named after."""
    return pl.col("file").replace_strict(dict(named), default=None, return_dtype=pl.UInt32)


def place_rows(
    claims: pl.DataFrame, among: SentRows, received: Sequence[date | None]
) -> pl.DataFrame:
    """Return at, file, place, spot, how, exact for every result row that can be placed.

    `claims`: at, file, position, cuid, last_4, error, error_cuid, claim. `received`: the day each file arrived.
    """
    how = (
        pl.when(pl.col("cuid").is_not_null())
        .then(pl.lit("cuid"))
        .otherwise(pl.lit("error_cuid"))
        .alias("how")
    )
    pairs = _pairs(claims.select("at", "file", "last_4", "claim", how).drop_nulls("claim"), among)
    ranked = _rank(pairs, claims, among, received)
    sure = pl.col("exact") & pl.col("last_4").is_not_null()
    first = _choose(ranked.filter(sure), _NO_PLACES, ["file", "claim", "last_4"])
    others = ranked.filter(~sure).join(first, on="at", how="anti", maintain_order="left")
    placed = pl.concat([first, _distrust(_choose(others, first, ["file", "claim"]), first)])
    placed = pl.concat([placed, _by_token(claims, placed, among, received)])
    return pl.concat([placed, _by_order(claims, placed, among)])


def _pairs(claims: pl.DataFrame, sent: SentRows) -> pl.DataFrame:
    """Join every claim with the sent rows of that cuid; `exact`: the last four digits agree, or the
    result has none.
    """
    rows = sent.rows.select("spot", "place", "cuid", pl.col("last_4").alias("last_4_sent"))
    exact = pl.col("last_4").is_null() | (pl.col("last_4") == pl.col("last_4_sent"))
    return claims.join(rows, left_on="claim", right_on="cuid", how="inner").with_columns(
        exact.alias("exact")
    )


def _rank(
    pairs: pl.DataFrame, claims: pl.DataFrame, among: SentRows, received: Sequence[date | None]
) -> pl.DataFrame:
    """Order the candidates: right digits, then the chunk that most rows of the file name, of its
    size, of its name.

    A row that was resent (a resubmission, a renewal) is in chunks of several runs; then the newest
    run of the day the file arrived, or earlier, counts. A run of a later day does not, unless the
    file carries its name.
    """
    twice = pl.col("at").is_duplicated()
    clear, several = pairs.filter(~twice), pairs.filter(twice)
    votes = (
        pairs.filter("exact").group_by("file", "place").agg(pl.col("at").n_unique().alias("votes"))
    )
    heights = claims.group_by("file").agg(pl.len().alias("height"))
    arrived = pl.col("file").replace_strict(
        dict(enumerate(received)), default=None, return_dtype=pl.Date
    )
    by_name = (place_named(among.named) == pl.col("place")).fill_null(False)
    ordered = (
        several.join(votes, on=["file", "place"], how="left")
        .join(among.places.select("place", "sent"), on="place", how="left")
        .join(heights, on="file", how="left")
        .join(_turns(among.places), on="place", how="left")
        .with_columns(
            (by_name | (pl.col("day") <= arrived).fill_null(True)).alias("possible"),
            pl.col("votes").fill_null(0),
            (pl.col("sent") == pl.col("height")).alias("whole"),
            by_name.alias("named"),
        )
        .filter(pl.col("possible") | ~pl.col("possible").any().over("at", "exact"))
        .sort(
            ["at", "exact", "votes", "whole", "named", "turn", "place", "spot"],
            descending=[False, *[True] * 5, False, False],
        )
    )
    return pl.concat([clear, ordered.select(clear.columns)])


def _turns(places: pl.DataFrame) -> pl.DataFrame:
    """Return place, day, turn: the business date of a place's run, and the run's rank, oldest
    first.
    """
    runs = {text: RunId.parse(text) for text in places["run"].unique()}
    dated = sorted((run.day, run.again, text) for text, run in runs.items() if run is not None)
    reported = [(text, day, turn) for turn, (day, _, text) in enumerate(dated, start=1)]
    turns = pl.DataFrame(
        reported, {"run": pl.String, "day": pl.Date, "turn": pl.UInt32}, orient="row"
    )
    return (
        places.select("place", "run")
        .join(turns, on="run", how="left")
        .select("place", "day", pl.col("turn").fill_null(0))
    )


def _choose(ranked: pl.DataFrame, taken: pl.DataFrame, same: list[str]) -> pl.DataFrame:
    """Give the k-th claim to the same card its k-th free candidate; a surplus claim gets the chunk
    but no row.
    """
    free = ranked.join(
        taken.drop_nulls("spot"), on=["file", "spot"], how="anti", maintain_order="left"
    )
    clear = ~pl.col("at").is_duplicated() & ~pl.struct("file", "spot").is_duplicated()
    plain = free.filter(clear)  # the usual night: one claim, one candidate
    ranked, free = (
        ranked.join(plain, on="at", how="anti", maintain_order="left"),
        free.filter(~clear),
    )
    if ranked.is_empty():
        return plain.select(*PLACED)
    best = ranked.unique("at", keep="first", maintain_order=True).sort("at")
    turn = best.select("at", pl.int_range(pl.len()).over(same).alias("turn"))
    chosen = (
        free.with_columns(pl.int_range(pl.len()).over("at").alias("choice"))
        .join(turn, on="at")
        .filter(pl.col("choice") == pl.col("turn"))
    )
    surplus = best.join(chosen, on="at", how="anti").with_columns(
        pl.lit(None, pl.UInt32).alias("spot")
    )
    return pl.concat([part.select(*PLACED) for part in (plain, chosen, surplus)])


def _distrust(others: pl.DataFrame, sure: pl.DataFrame) -> pl.DataFrame:
    """Mark cuids as not exact in a file with mostly wrong last four digits: another issuer's cuids
    may be equal.
    """
    wrong = others.group_by("file").agg((~pl.col("exact")).sum().alias("wrong"))
    right = sure.group_by("file").agg(pl.len().alias("right"))
    votes = wrong.join(right, on="file", how="left").filter(
        pl.col("wrong") > pl.col("right").fill_null(0)
    )
    doubted = pl.col("file").is_in(votes["file"].implode())
    return others.with_columns((pl.col("exact") & ~doubted).alias("exact"))


def _leftover(claims: pl.DataFrame, placed: pl.DataFrame) -> pl.DataFrame:
    """Return the errors that name no cuid in their column and are not placed."""
    nameless = claims.filter(pl.col("cuid").is_null() & pl.col("error").is_not_null())
    return nameless.join(placed, on="at", how="anti")


def _by_token(
    claims: pl.DataFrame, placed: pl.DataFrame, among: SentRows, received: Sequence[date | None]
) -> pl.DataFrame:
    """Place errors whose text has exactly one cuid without a result in the file's chunks.

    If no row of a file names a cuid, any chunk counts that half of its rows may mean.
    """
    rest = _leftover(claims, placed)
    if rest.is_empty():
        return _NO_PLACES
    words = words_of(pl.col("error")).list.unique()
    tokens = rest.select("at", "file", words.alias("claim")).explode("claim").drop_nulls("claim")
    tokens = tokens.with_columns(
        pl.lit(None, pl.String).alias("last_4"), pl.lit("token").alias("how")
    )
    found = _pairs(tokens, among).join(placed.drop_nulls("spot"), on=["file", "spot"], how="anti")
    homes = placed.select("file", "place").unique()
    at_home = found.join(homes, on=["file", "place"], how="semi")
    mute = claims.group_by("file").agg(
        pl.col("claim").is_null().all().alias("mute"), pl.len().alias("height")
    )
    likely = 2 * pl.col("at").n_unique().over("file", "place") >= pl.col("height")
    homeless = found.join(mute.filter("mute"), on="file").filter(likely).select(found.columns)
    open_ones = pl.concat([at_home, homeless]).filter(pl.col("claim").n_unique().over("at") == 1)
    alone = open_ones.filter(pl.col("at").n_unique().over("file", "claim") == 1)
    return _choose(_rank(alone, claims, among, received), _NO_PLACES, ["file", "claim"])


def _by_order(claims: pl.DataFrame, placed: pl.DataFrame, sent: SentRows) -> pl.DataFrame:
    """Place nameless errors by position or elimination, in files that answer exactly one whole
    chunk.
    """
    rest = _leftover(claims, placed).filter(pl.col("claim").is_null())
    found = [_NO_PLACES]
    for key, lost in rest.partition_by("file", as_dict=True).items():
        mine = placed.filter(pl.col("file") == key[0])
        rows = claims.filter(pl.col("file") == key[0])
        if mine["place"].n_unique() == 1 and mine["exact"].all():
            chunk = sent.rows.filter(pl.col("place") == mine["place"][0])
            if rows.height == chunk.height:
                found.append(_in_order(lost, rows, mine, chunk))
    return pl.concat(found)


def _in_order(
    lost: pl.DataFrame, rows: pl.DataFrame, mine: pl.DataFrame, chunk: pl.DataFrame
) -> pl.DataFrame:
    known = mine.join(rows.select("at", "position"), on="at").join(
        chunk.select("spot", "sent_at"), on="spot"
    )
    free = chunk.join(known, on="spot", how="anti")
    in_order = bool((known["position"] == known["sent_at"]).all())
    if in_order and (known["how"] == "cuid").sum() >= PROOF:
        pairs, how = lost.join(free, left_on="position", right_on="sent_at"), "position"
    elif free.height == 1 == lost.height:
        pairs, how = lost.join(free, how="cross"), "elimination"
    else:
        return _NO_PLACES
    return pairs.select(
        "at", "file", "place", "spot", pl.lit(how).alias("how"), pl.lit(True).alias("exact")
    )


SENT = ["row", "cuid", "last_4", "fate", "chunk", "position"]
# ledger parts kept decoded, about 15 MB each: result files arrive in the order of their chunks
AT_HAND = 4
_NONE = pl.DataFrame(
    schema={"run": pl.String, **{name: ledger.dtypes()[name] for name in SENT}}
).drop("fate")


def candidate_ids(claims: pl.DataFrame) -> pl.Series:
    """Return every cuid that rows claim (columns `claim`, `error`), and every word of the errors
    that name none.
    """
    silent = claims.filter(pl.col("claim").is_null() & pl.col("error").is_not_null())
    words = (
        silent.select(pl.col("error").unique())
        .select(words_of(pl.col("error")))
        .to_series()
        .explode()
    )
    return pl.concat([claims["claim"].drop_nulls(), words.drop_nulls()]).unique()


class SentIndex:
    """The sent rows of the committed runs of one issuer, for one ingest."""

    def __init__(self, store: Store, issuer: str) -> None:
        self._store = store
        self._issuer = issuer
        self._part = lru_cache(AT_HAND)(self._read_part)
        self._chunks = cache(lambda run, part: frozenset(self._part(run, part)["chunk"].unique()))
        self._manifest = lru_cache(AT_HAND)(self._read_manifest)

    def candidates(
        self, names: Sequence[str], claims: pl.DataFrame, forced: Sequence[ByHand] = ()
    ) -> SentRows:
        """Return the sent rows that files of these names, with these claims or attributions, may
        answer.
        """
        asked: dict[str, set[int]] = {}
        for run, chunk in (one for name in names for one in named_in(name)):
            asked.setdefault(run, set()).add(chunk)
        named = pl.concat(
            [_NONE, *(self._chunks_of(run, chunks) for run, chunks in sorted(asked.items()))]
        )
        found = number_sent_rows(named, names)
        others = searched_elsewhere(claims, found)
        if others.is_empty() and not forced:
            return found
        sent = [named]
        for manifest, row in ((self._manifest(one.run), one.row) for one in forced):
            sent += self._chunks_with(pl.col("row") == row, [manifest] if manifest else [])
        if not others.is_empty():
            sent += self._chunks_with(
                pl.col("cuid").is_in(candidate_ids(others).implode()), self._committed
            )
        return number_sent_rows(pl.concat(sent).unique(["run", "row"], maintain_order=True), names)

    def _chunks_with(self, rows: pl.Expr, runs: Iterable[Manifest]) -> Iterator[pl.DataFrame]:
        """Yield the sent rows of every chunk of these runs that has one of these `rows`."""
        for run, part in ((one.run, part) for one in runs for part in one.ledger):
            sent = self._part(run, part)
            yield sent.filter(pl.col("chunk").is_in(sent.filter(rows)["chunk"].unique().implode()))

    def _chunks_of(self, run: str, chunks: Collection[int]) -> pl.DataFrame:
        """Return the rows of some chunks of a run; none if there is no such run."""
        manifest, left, found = self._manifest(run), set(chunks), [_NONE]
        for part in manifest.ledger if manifest else ():
            if here := left & self._chunks(run, part):
                found.append(self._part(run, part).filter(pl.col("chunk").is_in(list(here))))
                left -= here
            if not left:
                break
        return pl.concat(found)

    def _read_part(self, run: str, part: LedgerPart) -> pl.DataFrame:
        (records,) = read_ledger(self._store, keys_of(run), [part], SENT)
        return records.filter(fate=ledger.SUBMITTED).select(
            pl.lit(run).alias("run"), pl.all().exclude("fate")
        )

    def _read_manifest(self, run: str) -> Manifest | None:
        parsed = RunId.parse(run)
        if parsed is None or parsed.issuer != self._issuer or run in self.purged:
            return None
        return read_manifest(self._store, RunKeys(parsed))

    @cached_property
    def purged(self) -> frozenset[str]:
        """The runs whose ledgers are gone: nothing can be attributed to them any more."""
        return without_ledger(self._store, self._issuer)

    @cached_property
    def _committed(self) -> list[Manifest]:
        return list(with_ledger(self._store, self._issuer))
