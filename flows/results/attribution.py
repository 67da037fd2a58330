"""Which sent row a result row answers, and what it says about it.

The rows decide, not the file's name: cuid column, cuid in the error object, a sent cuid as a token of the
text, position (only where the file's link rows prove the order), elimination (only where one candidate
remains). What none of these settles is a break, never a guess and never dropped.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import polars as pl
from xxhash import xxh3_64_intdigest

from flows.results.error_text import ErrorObject, parse_error
from flows.results.masking import storable
from flows.results.match import Candidates, Files, SentRows, candidates, place_rows, unsettled
from flows.results.read import ResultRows
from flows.runs.outcomes import OUTCOME, Attributed
from schemas import breaks
from schemas.expressions import luhn_holds
from schemas.ledger import BROKEN, ERROR, LINKED

BETWEEN = "\x1f"  # stands in no cell: the unit separator


def attribute(result: ResultRows, sent: pl.DataFrame, allowed_hosts: Sequence[str]) -> Attributed:
    """Attribute one result file to the submitted ledger rows `sent` (row, cuid, last_4, chunk, position[, run])."""
    return attribute_all([result], sent, allowed_hosts)[0]


def attribute_all(results: Sequence[ResultRows], sent: pl.DataFrame, allowed_hosts: Sequence[str]) -> list[Attributed]:
    """Attribute many result files at once: one join for all; groups of about 200 files keep memory flat.

    Pass the rows of every run still open, so that a file of another run is told from a foreign one.
    """
    if not results:
        return []
    claims = read_claims(results)
    return attribute_claims(results, claims, candidates([one.name for one in results], claims, sent), allowed_hosts)


class ByHand(NamedTuple):
    """Where an operator says that a row belongs: data row `position` of the file so numbered, and the row sent."""

    file: int
    position: int
    run: str
    row: int


def attribute_claims(
    results: Sequence[ResultRows],
    claims: pl.DataFrame,
    among: Candidates,
    allowed_hosts: Sequence[str],
    forced: Sequence[ByHand] = (),
) -> list[Attributed]:
    """Attribute result files, at least one, whose claims are read already; what is said by hand goes before any rule.

    What a row says of its sent row is judged by the same rules, whoever found that row.
    """
    numbered, named, placed = among
    if len(rest := unsettled(claims, placed)):
        files = Files(named, [result.received for result in results])
        placed = pl.concat([placed, place_rows(rest, numbered, files)])
    placed = _by_hand(placed, claims, numbered, forced)
    rows = claims.join(placed.drop("file"), on="at", how="left", maintain_order="left")
    judged = _judge(rows, numbered, named, allowed_hosts).select(*OUTCOME)  # the rows stand as they were claimed
    ends = accumulate(result.rows.height for result in results)
    home = {place: (run, chunk) for place, run, chunk, _ in numbered.places.iter_rows()}
    return [
        Attributed(
            result.digest,
            result.name,
            result.received,
            result.problems,
            judged[end - result.rows.height : end],
            home[named[at]] if at in named else None,
        )
        for at, (result, end) in enumerate(zip(results, ends, strict=True))
    ]


def _by_hand(placed: pl.DataFrame, claims: pl.DataFrame, sent: SentRows, forced: Sequence[ByHand]) -> pl.DataFrame:
    if not forced:
        return placed
    said = pl.DataFrame(
        forced, {"file": pl.UInt32, "position": pl.UInt32, "run": pl.String, "row": pl.UInt32}, orient="row"
    )
    spots = sent.rows.select("run", "row", "spot", "place")
    found = claims.select("at", "file", "position").join(said, on=["file", "position"]).join(spots, on=["run", "row"])
    hand = found.with_columns(pl.lit("by hand").alias("how"), pl.lit(value=True).alias("exact"))
    return pl.concat([placed.join(hand, on="at", how="anti"), hand.select(placed.columns)])


def read_claims(results: Sequence[ResultRows]) -> pl.DataFrame:
    """Return one row per result row of all files, at least one: `at` numbers them, `claim` is the cuid it speaks of."""
    files = np.repeat(np.arange(len(results), dtype=np.uint32), [result.rows.height for result in results])
    rows = pl.concat([result.rows for result in results]).with_columns(pl.Series("file", files)).with_row_index("at")
    texts = rows.filter(pl.col("error").is_not_null()).select("at", "error")
    parsed = _parsed(texts["at"], [parse_error(text) for text in texts["error"]])
    return rows.join(parsed, on="at", how="left", maintain_order="left").with_columns(
        pl.coalesce("cuid", "error_cuid").alias("claim")
    )


def _reported() -> tuple[pl.Expr, ...]:
    """Return the cells a row is known again by, card numbers left out; a cuid we sent is none, however long."""
    linked, known = pl.col("state") == LINKED, pl.col("claim") == pl.col("cuid_sent")
    return (
        pl.when(known).then("claim").otherwise(storable("claim", ~known.fill_null(value=False))).alias("told_cuid"),
        pl.col("last_4").alias("told_last_4"),
        pl.when(linked).then("url").otherwise(storable("url", ~linked)).alias("told_url"),
    )


def _contents(rows: pl.DataFrame) -> pl.Series:
    """Hash every row as received, card numbers left out: beside a masked text, the hash of the whole gives them away.

    Not by polars, whose hashes may change with its version: these are kept.
    """
    names = ("told_cuid", "told_last_4", "told_url", "expires_raw", "message")
    cells = [*(pl.col(name).fill_null("") for name in names), pl.col("reasons").list.join(",").fill_null("")]
    texts = rows.select(pl.concat_str(cells, separator=BETWEEN).alias("text"))["text"]
    return pl.Series("content", np.fromiter(map(xxh3_64_intdigest, texts.cast(pl.Binary)), np.uint64, rows.height))


def _numbered(rows: pl.DataFrame) -> pl.DataFrame:
    """Count the rows of one content within their file; they are few, so only they go through the window."""
    again = rows.filter(pl.col("content").is_duplicated())
    if again.is_empty():
        return rows.with_columns(pl.lit(0, pl.UInt32).alias("nth"))
    nth = again.select("at", pl.int_range(pl.len(), dtype=pl.UInt32).over("file", "content").alias("nth"))
    return rows.join(nth, on="at", how="left", maintain_order="left").with_columns(pl.col("nth").fill_null(0))


def _parsed(at: pl.Series, parsed: Sequence[ErrorObject]) -> pl.DataFrame:
    messages = ["; ".join(dict.fromkeys(reason.message for reason in one.reasons)) for one in parsed]
    codes = [BETWEEN.join(dict.fromkeys(reason.code for reason in one.reasons)) for one in parsed]
    return pl.DataFrame(
        {
            "at": at,
            "error_cuid": pl.Series([one.cuid for one in parsed], dtype=pl.String),
            "reasons": pl.Series(codes, dtype=pl.String).str.split(BETWEEN),  # several times as fast as lists
            "message": pl.Series(messages, dtype=pl.String),
            "shape": pl.Series([one.shape for one in parsed], dtype=pl.String),
        }
    )


def _judge(rows: pl.DataFrame, sent: SentRows, named: Mapping[int, int], hosts: Sequence[str]) -> pl.DataFrame:
    """Say of every row what state it is in and which break it is; what stays is free of card numbers."""
    url = pl.col("url").is_not_null()
    state = (
        pl.when(pl.col("trouble").is_not_null())
        .then(pl.lit(BROKEN))
        .when(url)
        .then(pl.lit(LINKED))
        .otherwise(pl.lit(ERROR))
    )
    answered = sent.rows.select("spot", "row", pl.col("cuid", "last_4").name.suffix("_sent"))
    placed = (
        _home(rows, named)
        .join(sent.places.drop("sent"), on="place", how="left", maintain_order="left")
        .join(answered, on="spot", how="left", maintain_order="left")
    )
    judged = (
        placed.with_columns(_trouble(hosts, _shows_card(placed)).alias("trouble"))
        .with_columns(state.alias("state"))
        .with_columns(
            pl.coalesce("cuid_sent", storable("claim", pl.col("cuid_sent").is_null())).alias("cuid"),
            pl.coalesce("last_4_sent", "last_4").alias("last_4"),
            pl.when(pl.col("state") == LINKED).then("url").alias("url"),
            *_reported(),
            url.alias("has_link"),
            storable("expires_raw"),
        )
    )
    return _numbered(judged.with_columns(_contents(judged)))


def _home(rows: pl.DataFrame, named: Mapping[int, int]) -> pl.DataFrame:
    """Give rows that fit no sent row the one chunk of their file; a file that answers nothing is foreign.

    The name of a file counts only where none of its rows says anything: errors without a cuid.
    """
    place = pl.col("place").drop_nulls()
    homes = rows.group_by("file").agg(
        pl.when(place.n_unique() == 1).then(place.first()).alias("home"),
        (place.len() == 0).alias("lost"),
        pl.col("claim").is_null().all().alias("mute"),
    )
    by_name = pl.col("file").replace_strict(dict(named), default=None, return_dtype=pl.UInt32)
    mute = pl.col("lost") & pl.col("mute")
    homes = homes.with_columns(pl.when(mute).then(by_name).otherwise("home").alias("home")).with_columns(
        (pl.col("lost") & pl.col("home").is_null()).alias("foreign")
    )
    return rows.join(homes, on="file", how="left", maintain_order="left").with_columns(
        pl.coalesce("place", "home").alias("place")
    )


def _trouble(hosts: Sequence[str], cards: pl.Series) -> pl.Expr:
    """Name the break of a row, null where it is a plain link or error of a sent row; `cards`: whose URL shows one."""
    url, error = pl.col("url").is_not_null(), pl.col("error").is_not_null()
    placed = pl.col("spot").is_not_null()
    return (
        pl.when(pl.col("foreign"))
        .then(pl.lit(breaks.FOREIGN_FILE))
        .when(~pl.col("exact"))
        .then(pl.lit(breaks.LAST4_MISMATCH))
        .when(pl.col("how").is_not_null() & ~placed)
        .then(pl.lit(breaks.RESULT_LONG))
        .when(~placed & error & pl.col("claim").is_null())
        .then(pl.lit(breaks.UNATTRIBUTED_ERROR))
        .when(~placed)
        .then(pl.lit(breaks.UNKNOWN_CUID))
        .when(url & error)
        .then(pl.lit(breaks.URL_AND_ERROR))
        .when(~url & ~error)
        .then(pl.lit(breaks.NEITHER_URL_NOR_ERROR))
        .when(url & (~allowed("url", hosts) | pl.col("at").is_in(cards.implode())))
        .then(pl.lit(breaks.URL_NOT_ALLOWED))
    )


def allowed(column: str, hosts: Sequence[str]) -> pl.Expr:
    """Return whether a URL is https on one of `hosts` (`*.host`: its subdomains), with no user or other port."""
    patterns = [
        rf"(?:[a-z0-9-]+\.)+{re.escape(host[2:])}" if host.startswith("*.") else re.escape(host)
        for host in (host.lower() for host in hosts)
    ]
    return pl.col(column).str.contains(rf"^(?i:https://(?:{'|'.join(patterns)}))(?::443)?(?:[/?#][!-~]*)?$")


def _shows_card(rows: pl.DataFrame) -> pl.Series:
    """Return which rows' URLs hold 16 digits that end as the card it was made for does and pass Luhn."""
    bare = pl.col("url").str.replace_all(r"[._+-]|%20", "")
    number = bare.str.extract(r"(?:^|[^0-9])([0-9]{16})(?:[^0-9]|$)")
    long = rows.filter(pl.col("url").str.contains(r"[0-9._+%-]{16}"))  # nearly none
    return long.filter((number.str.slice(-4) == pl.col("last_4_sent")) & luhn_holds(number))["at"]


def digest_of(outcomes: pl.DataFrame) -> str:
    """Return a digest of a file's rows that does not depend on their order or the file's encoding."""
    return hashlib.sha256(outcomes["content"].sort().to_numpy().tobytes()).hexdigest()
