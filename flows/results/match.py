"""Find the sent row of every result row, over many files at once, among the rows it may answer.

Those are found in `sent_rows`. What a match means is decided in `attribution`.
"""

from collections.abc import Sequence
from datetime import date

import polars as pl

from flows.results.sent_rows import SentRows, place_named, words_of
from flows.runs.keys import RunId

PROOF = 3  # links in the order they were sent that prove the order, so that positions count

PLACED_TYPES = {
    "result_row": pl.UInt32,  # numbered over all files
    "file": pl.UInt32,
    "place": pl.UInt32,  # its chunk
    "spot": pl.UInt32,  # its sent row; null: one more than was sent
    "how": pl.String,
    # False: other last four digits than were sent, or a cuid that `_distrust` doubts
    "trusted": pl.Boolean,
}
PLACED = list(PLACED_TYPES)
_NO_PLACES = pl.DataFrame(schema=PLACED_TYPES)


def place_rows(
    claims: pl.DataFrame, among: SentRows, received: Sequence[date | None]
) -> pl.DataFrame:
    """Return result_row, file, place, spot, how, trusted for every result row that can be placed.

    `claims`: result_row, file, position, cuid, last_4, error, error_cuid, claim. `received`: the
    day each file arrived.
    """
    cuid_column = pl.when(pl.col("cuid").is_not_null()).then(pl.lit("cuid"))
    claimed = claims.select(
        "result_row",
        "file",
        "last_4",
        "claim",
        cuid_column.otherwise(pl.lit("error_cuid")).alias("how"),
    ).drop_nulls("claim")
    ranked = _rank(_pairs(claimed, among), claimed, claims, among, received)
    sure = pl.col("trusted") & pl.col("last_4").is_not_null()
    by_card = ["file", "claim", "last_4"]
    first = _choose(ranked.filter(sure), _NO_PLACES, by_card, among)
    others = ranked.filter(~sure).join(first, on="result_row", how="anti", maintain_order="left")
    second = _distrust(_choose(others, first, ["file", "claim"], among), first)
    placed = pl.concat([first, second])
    placed = pl.concat([placed, _by_token(claims, placed, among, received)])
    return pl.concat([placed, _by_order(claims, placed, among)])


def _pairs(claims: pl.DataFrame, sent: SentRows) -> pl.DataFrame:
    """Join every claim with the sent rows of that cuid.

    `trusted`: the last four digits agree, or the result has none (`_distrust` may doubt it then).
    """
    rows = sent.rows.select("spot", "place", "cuid", pl.col("last_4").alias("last_4_sent"))
    trusted = pl.col("last_4").is_null() | (pl.col("last_4") == pl.col("last_4_sent"))
    return claims.join(rows, left_on="claim", right_on="cuid", how="inner").with_columns(
        trusted.alias("trusted")
    )


def _rank(
    pairs: pl.DataFrame,
    voting: pl.DataFrame,
    claims: pl.DataFrame,
    among: SentRows,
    received: Sequence[date | None],
) -> pl.DataFrame:
    """Order the candidates of each result row, the best first.

    `voting`: the rows that name somebody, whether that was sent or not.

    First those of the chunk that the file answers whole (it has the chunk's size, and no row of it
    names anybody else, an error in its words neither), of one that may be meant at all (of some row
    of the file it is the newest sending, or it has its name), that most rows of the file name, that
    has its name. A row that was resent (a resubmission, a renewal) is in chunks of several runs;
    then the newest run of the day the file arrived, or earlier, counts. A run of a later day does
    not, unless the file carries its name.
    """
    pairs = _with_times(pairs, among, received)
    has_choice = pl.col("result_row").is_duplicated()
    votes = (
        pairs.filter("trusted")
        .group_by("file", "place")
        .agg(pl.col("result_row").n_unique().alias("votes"), spots=pl.col("spot").n_unique())
    )
    several = pairs.filter(has_choice).join(votes, on=["file", "place"], how="left")
    ordered = (
        _with_whole(several, voting, claims, among)
        .join(_meant(pairs), on=["file", "place"], how="left")
        .with_columns(pl.col("votes").fill_null(0), pl.col("meant").fill_null(False))
        .filter(pl.col("possible") | ~pl.col("possible").any().over("result_row", "trusted"))
        .sort(
            ["result_row", "whole", "meant", "votes", "named", "turn", "place", "spot"],
            descending=[False, True, True, True, True, True, False, False],
        )
    )
    columns = [*PLACED, "claim", "last_4"]
    return pl.concat([pairs.filter(~has_choice).select(columns), ordered.select(columns)])


def _with_whole(
    several: pl.DataFrame, voting: pl.DataFrame, claims: pl.DataFrame, among: SentRows
) -> pl.DataFrame:
    """Add `whole`: the file has the size of the chunk, and no row of it names anybody else.

    `several`: rows with several candidates, `spots`: how many of the chunk the file names.
    """
    heights = claims.group_by("file").agg(pl.len().alias("height"))
    voters = voting.group_by("file").agg(voters=pl.col("result_row").n_unique())
    words = _in_words(claims if several.height else claims.clear(), among)
    worded = words.group_by("file").agg(worded=pl.col("result_row").n_unique())
    in_words = words.group_by("file", "place").agg(in_words=pl.col("result_row").n_unique())
    # a card that is named twice is one of the chunk's, not two
    is_of_all = (pl.col("spots") == pl.col("voters")).fill_null(False)
    names_others = pl.col("worded").fill_null(0) > pl.col("in_words").fill_null(0)
    is_whole = (pl.col("sent") == pl.col("height")) & is_of_all & ~names_others
    counted = several.join(among.places.select("place", "sent"), on="place", how="left")
    for of_file in (heights, voters, worded):
        counted = counted.join(of_file, on="file", how="left")
    counted = counted.join(in_words, on=["file", "place"], how="left")
    return counted.with_columns(is_whole.alias("whole"))


def _with_times(
    pairs: pl.DataFrame, among: SentRows, received: Sequence[date | None]
) -> pl.DataFrame:
    """Add `named`: the file has the chunk's name; `turn`, the rank of its run by age; `possible`:
    it was sent before the file arrived, or has its name.
    """
    arrived = pl.col("file").replace_strict(
        dict(enumerate(received)), default=None, return_dtype=pl.Date
    )
    by_name = (place_named(among.named) == pl.col("place")).fill_null(False)
    in_time = (pl.col("day") <= arrived).fill_null(True)
    dated = pairs.join(_turns(among.places), on="place", how="left", maintain_order="left")
    return dated.with_columns(by_name.alias("named"), (by_name | in_time).alias("possible"))


def _meant(pairs: pl.DataFrame) -> pl.DataFrame:
    """Return file, place, meant: the chunks that a file may mean to answer.

    Of some row of the file such a chunk is the newest sending, or it has its name: one all of whose
    rows in the file were resent since is not meant, however many of them there are.
    """
    possible = pairs.filter(pl.col("trusted") & pl.col("possible"))
    is_newest = pl.col("turn") == pl.col("turn").max().over("result_row")
    meant = possible.filter(is_newest | pl.col("named")).select("file", "place").unique()
    return meant.with_columns(meant=pl.lit(value=True))


def _turns(places: pl.DataFrame) -> pl.DataFrame:
    """Return place, day, turn: the business date of a place's run, and the run's rank by age."""
    runs = {text: RunId.parse(text) for text in places["run"].unique()}
    dated = sorted((run.age, text) for text, run in runs.items() if run is not None)
    ranks = [(text, age[0], turn) for turn, (age, text) in enumerate(dated, start=1)]
    turns = pl.DataFrame(ranks, {"run": pl.String, "day": pl.Date, "turn": pl.UInt32}, orient="row")
    return (
        places.select("place", "run")
        .join(turns, on="run", how="left")
        .select("place", "day", pl.col("turn").fill_null(0))
    )


def _choose(
    ranked: pl.DataFrame, taken: pl.DataFrame, same_card: list[str], among: SentRows
) -> pl.DataFrame:
    """Give the k-th claim to the same card its k-th free candidate.

    `same_card`: the columns by which claims are to the same card. A surplus claim gets the chunk
    but no row; so does one whose candidate is in another sending of which the file has few rows.
    """
    free = ranked.join(
        taken.drop_nulls("spot"), on=["file", "spot"], how="anti", maintain_order="left"
    )
    undisputed = ~pl.col("result_row").is_duplicated() & ~pl.struct("file", "spot").is_duplicated()
    clear = free.filter(undisputed)  # the usual night: one claim, one candidate
    ranked = ranked.join(clear, on="result_row", how="anti", maintain_order="left")
    if ranked.is_empty():
        return clear.select(*PLACED)
    best = ranked.unique("result_row", keep="first", maintain_order=True).sort("result_row")
    turn = best.select("result_row", pl.int_range(pl.len()).over(same_card).alias("turn"))
    chosen = (
        free.filter(~undisputed)
        .with_columns(pl.int_range(pl.len()).over("result_row").alias("choice"))
        .join(turn, on="result_row")
        .filter(pl.col("choice") == pl.col("turn"))
    )
    answers = pl.concat([part.select("result_row", "file", "place") for part in (clear, chosen)])
    chosen = chosen.join(_astray(answers, best, among), on="result_row", how="anti")
    surplus = best.join(chosen, on="result_row", how="anti").with_columns(
        pl.lit(None, pl.UInt32).alias("spot")
    )
    return pl.concat([part.select(*PLACED) for part in (clear, chosen, surplus)])


def _astray(answers: pl.DataFrame, best: pl.DataFrame, among: SentRows) -> pl.DataFrame:
    """Return the answers that would be alone, or few, within another chunk than their best one.

    A merged file has half of each of its chunks at least; a card that is named once too often
    answers its own chunk too often, and not an earlier or later sending of the same card.
    """
    homes = best.select("result_row", home="place")
    elsewhere = answers.join(homes, on="result_row").filter(pl.col("place") != pl.col("home"))
    counts = answers.group_by("file", "place").agg(rows=pl.len())
    sizes = among.places.select("place", "sent")
    sized = elsewhere.join(counts, on=["file", "place"]).join(sizes, on="place")
    return sized.filter(2 * pl.col("rows") < pl.col("sent"))


def _distrust(others: pl.DataFrame, sure: pl.DataFrame) -> pl.DataFrame:
    """Trust no cuid of a file in which more rows have wrong last four digits than right ones.

    Such a file may be another issuer's, with cuids that happen to be equal. So its rows without
    digits, which a cuid alone placed, settle nothing either.
    """
    wrong = others.group_by("file").agg((~pl.col("trusted")).sum().alias("wrong"))
    right = sure.group_by("file").agg(pl.len().alias("right"))
    mostly_wrong = wrong.join(right, on="file", how="left").filter(
        pl.col("wrong") > pl.col("right").fill_null(0)
    )
    doubted = pl.col("file").is_in(mostly_wrong["file"].implode())
    return others.with_columns((pl.col("trusted") & ~doubted).alias("trusted"))


def _unplaced_errors(claims: pl.DataFrame, placed: pl.DataFrame) -> pl.DataFrame:
    """Return the errors that name no cuid in their column and are not placed."""
    nameless = claims.filter(pl.col("cuid").is_null() & pl.col("error").is_not_null())
    return nameless.join(placed, on="result_row", how="anti")


def _by_token(
    claims: pl.DataFrame, placed: pl.DataFrame, among: SentRows, received: Sequence[date | None]
) -> pl.DataFrame:
    """Place errors whose text has exactly one cuid without a result in the file's chunks.

    If no row of a file names a cuid, any chunk counts that half of its rows may mean.
    """
    errors = _unplaced_errors(claims, placed)
    if errors.is_empty():
        return _NO_PLACES
    unanswered = _pairs(_tokens(errors), among).join(
        placed.drop_nulls("spot"), on=["file", "spot"], how="anti"
    )
    homes = placed.select("file", "place").unique()
    at_home = unanswered.join(homes, on=["file", "place"], how="semi")
    files = claims.group_by("file").agg(
        pl.col("claim").is_null().all().alias("mute"), pl.len().alias("height")
    )
    likely = 2 * pl.col("result_row").n_unique().over("file", "place") >= pl.col("height")
    homeless = (
        unanswered.join(files.filter("mute"), on="file").filter(likely).select(unanswered.columns)
    )
    names_one_cuid = pl.col("claim").n_unique().over("result_row") == 1
    named_once = pl.col("result_row").n_unique().over("file", "claim") == 1
    clear = pl.concat([at_home, homeless]).filter(names_one_cuid).filter(named_once)
    ranked = _rank(clear, clear, claims, among, received)
    return _choose(ranked, _NO_PLACES, ["file", "claim"], among)


def _tokens(errors: pl.DataFrame) -> pl.DataFrame:
    """Return the words of errors as claims: result_row, file, claim, last_4, how."""
    words = words_of(pl.col("error")).list.unique()
    tokens = errors.select("result_row", "file", words.alias("claim")).explode("claim")
    return tokens.drop_nulls("claim").with_columns(
        pl.lit(None, pl.String).alias("last_4"), pl.lit("token").alias("how")
    )


def _in_words(claims: pl.DataFrame, among: SentRows) -> pl.DataFrame:
    """Return result_row, file, place of the errors that name nobody but in their words, and there
    one cuid that was sent: each chunk that it was sent in.
    """
    silent = claims.filter(pl.col("claim").is_null() & pl.col("error").is_not_null())
    known = _pairs(_tokens(silent), among)
    names_one_cuid = pl.col("claim").n_unique().over("result_row") == 1
    return known.filter(names_one_cuid).select("result_row", "file", "place").unique()


def _by_order(claims: pl.DataFrame, placed: pl.DataFrame, sent: SentRows) -> pl.DataFrame:
    """Place nameless errors by position or elimination.

    Only in files that answer exactly one whole chunk, and none whose words name somebody.
    """
    unplaced = _unplaced_errors(claims, placed).filter(pl.col("claim").is_null())
    nameless = unplaced.join(_in_words(unplaced, sent), on="result_row", how="anti")
    by_order = [_NO_PLACES]
    for (file,), errors in nameless.partition_by("file", as_dict=True).items():
        placed_rows = placed.filter(pl.col("file") == file)
        rows = claims.filter(pl.col("file") == file)
        if placed_rows["place"].n_unique() == 1 and placed_rows["trusted"].all():
            chunk = sent.rows.filter(pl.col("place") == placed_rows["place"][0])
            if rows.height == chunk.height:
                by_order.append(_in_order(errors, rows, placed_rows, chunk))
    return pl.concat(by_order)


def _in_order(
    errors: pl.DataFrame, rows: pl.DataFrame, placed_rows: pl.DataFrame, chunk: pl.DataFrame
) -> pl.DataFrame:
    """Place the nameless errors of one file among the rows of its chunk that have no result."""
    known = placed_rows.join(rows.select("result_row", "position"), on="result_row").join(
        chunk.select("spot", "sent_at"), on="spot"
    )
    free = chunk.join(known, on="spot", how="anti")
    in_order = bool((known["position"] == known["sent_at"]).all())
    if in_order and (known["how"] == "cuid").sum() >= PROOF:
        pairs = errors.join(free, left_on="position", right_on="sent_at")
        reason = "position"
    elif free.height == 1 == errors.height:
        pairs = errors.join(free, how="cross")
        reason = "elimination"
    else:
        return _NO_PLACES
    return pairs.select(
        "result_row",
        "file",
        "place",
        "spot",
        pl.lit(reason).alias("how"),
        pl.lit(value=True).alias("trusted"),
    )
