"""Which sent row a result row answers, and what it says about it.

The rows decide, not the file's name: cuid column, cuid in the error object, a sent cuid as a token of the
text, position (only where the file's link rows prove the order), elimination (only where one candidate
remains). What none of these settles is a break, never a guess and never dropped.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

import polars as pl

from flows.core.error_object import ErrorObject, parse_error
from flows.core.results import ResultRows
from schemas import breaks

LINKED = "linked"
ERROR = "error"
BROKEN = "broken"  # settles nothing: the sent row stays awaiting, and the break says why

PROOF = 3  # link rows that must stand at the position they were sent from before position counts

KEY = ("run", "chunk", "row")
OUTCOME = {
    "position": pl.UInt32,  # data row of the result file, from 1
    "run": pl.String,  # null: belongs to no chunk
    "chunk": pl.UInt32,
    "row": pl.UInt32,  # null: belongs to no sent row
    "cuid": pl.String,  # as sent where attributed, else as received unless it looks like a card number
    "last_4": pl.String,
    "how": pl.String,  # cuid, error_cuid, token, position, elimination; null where not attributed
    "state": pl.String,  # linked, error, broken
    "trouble": pl.String,  # name of the break, null where there is none
    "url": pl.String,
    "has_url": pl.Boolean,  # the row came with a url, kept or not
    "expires_on": pl.Date,
    "expires_raw": pl.String,
    "reasons": pl.List(pl.String),  # codes of the partner's error
    "message": pl.String,  # masked
    "shape": pl.String,  # masked, ids and numbers blanked: same kind of error, same shape
    "content": pl.UInt64,  # hash of the row as received: the same row in two files has the same
    "nth": pl.UInt32,  # occurrence of that content within the file, from 0
}


class Attributed(NamedTuple):
    """One result file, every row attributed or named as a break; free of card numbers (columns: OUTCOME)."""

    digest: str
    name: str
    received: date | None
    problems: tuple[str, ...]
    outcomes: pl.DataFrame
    named: tuple[str, int] | None  # run and chunk the file's name speaks of, where they were sent


def attribute(result: ResultRows, sent: pl.DataFrame, allowed_hosts: Sequence[str]) -> Attributed:
    """Attribute one result file to the submitted ledger rows `sent` (row, cuid, last_4, chunk, position[, run])."""
    return attribute_all([result], sent, allowed_hosts)[0]


def attribute_all(results: Sequence[ResultRows], sent: pl.DataFrame, allowed_hosts: Sequence[str]) -> list[Attributed]:
    """Attribute many result files at once (one join for all of them; a few hundred files keep memory flat)."""
    sent = _sent(sent)
    named = [_named(result.name, sent) for result in results]
    claims = _claims(results)
    placed = _place(claims, sent, named)
    judged = _judge(claims.join(placed, on="at", how="left"), sent, named, allowed_hosts)
    parts = {key[0]: part for key, part in judged.partition_by("file", as_dict=True).items()}
    return [
        Attributed(
            result.digest,
            result.name,
            result.received,
            result.problems,
            parts[at].select(*OUTCOME) if at in parts else pl.DataFrame(schema=OUTCOME),
            named[at],
        )
        for at, result in enumerate(results)
    ]


def _sent(sent: pl.DataFrame) -> pl.DataFrame:
    run = pl.col("run") if "run" in sent.columns else pl.lit("", pl.String).alias("run")
    return sent.select(
        run,
        pl.col("chunk", "row").cast(pl.UInt32),
        "cuid",
        "last_4",
        pl.col("position").cast(pl.UInt32).alias("sent_at"),
    )


_NAME = re.compile(r"([a-z0-9][a-z0-9-]*-\d{8}-[0-9a-f]{8})-(\d{5})(?!\d)")


def _named(name: str, sent: pl.DataFrame) -> tuple[str, int] | None:
    found = _NAME.search(name)
    if not found:
        return None
    chunk = int(found[2])
    mine = sent.filter(pl.col("run").is_in([found[1], ""]) & (pl.col("chunk") == chunk)).head(1)
    return (mine["run"][0], chunk) if mine.height else None


def _claims(results: Sequence[ResultRows]) -> pl.DataFrame:
    """One row per result row of all files: `at` numbers them, `claim` is the cuid it speaks of."""
    frames = [result.rows.with_columns(pl.lit(at, pl.UInt32).alias("file")) for at, result in enumerate(results)]
    rows = pl.concat(frames).with_row_index("at")
    texts = rows.filter(pl.col("error").is_not_null()).select("at", "error")
    parsed = [parse_error(text) for text in texts["error"]]
    content = pl.struct("cuid", "last_4", "url", "expires_raw", "error").hash().alias("content")
    return (
        rows.with_columns(content)
        .with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).over("file", "content").alias("nth"))
        .join(_parsed(texts["at"], parsed), on="at", how="left", maintain_order="left")
        .with_columns(pl.coalesce("cuid", "error_cuid").alias("claim"))
    )


def _parsed(at: pl.Series, parsed: list[ErrorObject]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "at": at,
            "error_cuid": pl.Series([one.cuid for one in parsed], dtype=pl.String),
            "reasons": pl.Series([[r.code for r in one.reasons] for one in parsed], dtype=pl.List(pl.String)),
            "message": pl.Series(
                ["; ".join(dict.fromkeys(r.message for r in one.reasons)) for one in parsed], dtype=pl.String
            ),
            "shape": pl.Series([one.shape for one in parsed], dtype=pl.String),
        }
    )


_PLACED = {
    "at": pl.UInt32,
    "run": pl.String,
    "chunk": pl.UInt32,
    "row": pl.UInt32,
    "how": pl.String,
    "exact": pl.Boolean,
}


def _place(claims: pl.DataFrame, sent: pl.DataFrame, named: list[tuple[str, int] | None]) -> pl.DataFrame:
    """Return at, run, chunk, row, how for every row that can be placed; row is null for one too many."""
    how = pl.when(pl.col("cuid").is_not_null()).then(pl.lit("cuid")).otherwise(pl.lit("error_cuid")).alias("how")
    pairs = _pairs(claims.select("at", "file", "last_4", "claim", how), sent)
    ranked = _rank(pairs, claims, sent, named)
    exact = pl.col("exact") & pl.col("last_4").is_not_null()
    first = _choose(ranked.filter(exact), _none())
    second = _choose(ranked.filter(~exact).join(first, on="at", how="anti"), first)
    placed = pl.concat([first, second])
    for weaker in (_by_token, _by_order):
        placed = pl.concat([placed, weaker(claims, placed, sent)])
    return placed.drop("file")


def _none() -> pl.DataFrame:
    return pl.DataFrame(schema={"file": pl.UInt32, **_PLACED})


def _pairs(claims: pl.DataFrame, sent: pl.DataFrame) -> pl.DataFrame:
    """Join every claim with the sent rows of that cuid; `exact` where the last four digits do not object."""
    return claims.join(sent, left_on="claim", right_on="cuid", how="inner", suffix="_sent").with_columns(
        (pl.col("last_4").is_null() | (pl.col("last_4") == pl.col("last_4_sent"))).alias("exact")
    )


def _rank(
    pairs: pl.DataFrame, claims: pl.DataFrame, sent: pl.DataFrame, named: list[tuple[str, int] | None]
) -> pl.DataFrame:
    """Order each claim's candidates: the chunk most of the file speaks of, then of the file's size, then its name."""
    votes = pairs.filter("exact").group_by("file", "run", "chunk").agg(pl.col("at").n_unique().alias("votes"))
    sizes = sent.group_by("run", "chunk").agg(pl.len().alias("sent_rows"))
    files = claims.group_by("file").agg(pl.len().alias("file_rows"))
    names = pl.DataFrame(
        [(at, run, chunk, True) for at, found in enumerate(named) if found for run, chunk in [found]],
        schema={"file": pl.UInt32, "run": pl.String, "chunk": pl.UInt32, "named": pl.Boolean},
        orient="row",
    )
    place = ["file", "run", "chunk"]
    return (
        pairs.join(votes, on=place, how="left")
        .join(sizes, on=["run", "chunk"], how="left")
        .join(files, on="file", how="left")
        .join(names, on=place, how="left")
        .with_columns((pl.col("sent_rows") == pl.col("file_rows")).alias("whole"), pl.col("named").fill_null(False))
        .with_columns(pl.col("votes").fill_null(0))
        .sort(
            ["at", "exact", "votes", "whole", "named", "run", "chunk", "row"],
            descending=[False, True, True, True, True, False, False, False],
        )
    )


def _choose(ranked: pl.DataFrame, taken: pl.DataFrame) -> pl.DataFrame:
    """Give the k-th claim of one card its k-th free candidate; a claim too many keeps the chunk and no row."""
    place = ["file", "run", "chunk", "row"]
    free = ranked.join(taken.drop_nulls("row").select(place), on=place, how="anti", maintain_order="left")
    best = ranked.group_by("at", maintain_order=True).first()
    turn = best.select("at", (pl.col("at").rank("ordinal") - 1).over("file", "claim", "last_4").alias("turn"))
    chosen = (
        free.with_columns(pl.int_range(pl.len()).over("at").alias("choice"))
        .join(turn, on="at")
        .filter(pl.col("choice") == pl.col("turn"))
    )
    surplus = best.join(chosen, on="at", how="anti").with_columns(pl.lit(None, pl.UInt32).alias("row"))
    columns = list(_none().columns)
    return pl.concat([chosen.select(columns), surplus.select(columns)])


_TOKEN = r"""[^\s"'{}\[\],:;()<>=\\&]+"""  # noqa: S105 - a pattern, not a secret


def _leftover(claims: pl.DataFrame, placed: pl.DataFrame) -> pl.DataFrame:
    return claims.filter(pl.col("cuid").is_null() & pl.col("error").is_not_null()).join(placed, on="at", how="anti")


def _by_token(claims: pl.DataFrame, placed: pl.DataFrame, sent: pl.DataFrame) -> pl.DataFrame:
    """Place errors whose text holds exactly one cuid still open in the chunks of the file (or, with none, anywhere)."""
    rest = _leftover(claims, placed)
    if rest.is_empty():
        return _none()
    tokens = (
        rest.select("at", "file", pl.col("error").str.extract_all(_TOKEN).list.unique().alias("token"))
        .explode("token")
        .drop_nulls()
        .with_columns(pl.col("token").str.strip_chars(".#!?"))
        .unique()
    )
    found = tokens.join(sent, left_on="token", right_on="cuid", how="inner")
    chunks = placed.select("file", "run", "chunk").unique()
    known = found.join(chunks.select("file").unique(), on="file", how="anti")
    open_ones = pl.concat([known, found.join(chunks, on=["file", "run", "chunk"], how="semi")]).join(
        placed.drop_nulls("row").select("file", "run", "chunk", "row"), on=["file", "run", "chunk", "row"], how="anti"
    )
    alone = open_ones.filter((pl.len().over("at") == 1) & (pl.len().over("file", "run", "chunk", "row") == 1))
    return alone.select("file", "at", "run", "chunk", "row", pl.lit("token").alias("how"), pl.lit(True).alias("exact"))


def _by_order(claims: pl.DataFrame, placed: pl.DataFrame, sent: pl.DataFrame) -> pl.DataFrame:
    """Place nameless errors by position or elimination, in files that answer exactly one whole chunk."""
    rest = _leftover(claims, placed).filter(pl.col("error_cuid").is_null())
    found = [_none()]
    for key, lost in rest.partition_by("file", as_dict=True).items():
        mine = placed.filter(pl.col("file") == key[0])
        chunks = mine.select("run", "chunk").unique()
        if chunks.height != 1:
            continue
        chunk = sent.join(chunks, on=["run", "chunk"], how="semi")
        rows = claims.filter(pl.col("file") == key[0]).select("at", "file", "position")
        if rows.height == chunk.height:
            found.append(_in_order(lost, rows, mine, chunk))
    return pl.concat(found)


def _in_order(lost: pl.DataFrame, rows: pl.DataFrame, mine: pl.DataFrame, chunk: pl.DataFrame) -> pl.DataFrame:
    free = chunk.join(mine.drop_nulls("row"), on="row", how="anti")
    known = mine.drop_nulls("row").join(rows, on="at").join(chunk.select("row", "sent_at"), on="row")
    proven = known.filter(pl.col("how") == "cuid")
    if proven.height >= PROOF and (known["position"] == known["sent_at"]).all():
        pairs, how = (
            lost.select("at", "file", "position").join(free, left_on="position", right_on="sent_at"),
            "position",
        )
    elif free.height == 1 == lost.height:
        pairs, how = lost.select("at", "file").join(free, how="cross"), "elimination"
    else:
        return _none()
    return pairs.select("file", "at", "run", "chunk", "row", pl.lit(how).alias("how"), pl.lit(True).alias("exact"))


def _judge(
    rows: pl.DataFrame, sent: pl.DataFrame, named: list[tuple[str, int] | None], hosts: Sequence[str]
) -> pl.DataFrame:
    """Say of every row what state it is in and which break it is; what stays is free of card numbers."""
    rows = _home(rows, named)
    url, error, row = pl.col("url").is_not_null(), pl.col("error").is_not_null(), pl.col("row").is_not_null()
    trouble = (
        pl.when(pl.col("foreign"))
        .then(pl.lit(breaks.FOREIGN_FILE))
        .when(pl.col("how").is_not_null() & ~row)
        .then(pl.lit(breaks.RESULT_LONG))
        .when(~row & pl.col("claim").is_not_null())
        .then(pl.lit(breaks.UNKNOWN_CUID))
        .when(~row & error)
        .then(pl.lit(breaks.UNATTRIBUTED_ERROR))
        .when(~row)
        .then(pl.lit(breaks.UNKNOWN_CUID))
        .when(~pl.col("exact"))
        .then(pl.lit(breaks.LAST4_MISMATCH))
        .when(url & error)
        .then(pl.lit(breaks.URL_AND_ERROR))
        .when(~url & ~error)
        .then(pl.lit(breaks.NEITHER_URL_NOR_ERROR))
        .when(url & ~allowed("url", hosts))
        .then(pl.lit(breaks.URL_NOT_ALLOWED))
        .alias("trouble")
    )
    settled = pl.when(url).then(pl.lit(LINKED)).otherwise(pl.lit(ERROR))
    return (
        rows.with_columns(trouble)
        .with_columns(pl.when(pl.col("trouble").is_null()).then(settled).otherwise(pl.lit(BROKEN)).alias("state"))
        .join(sent.select(*KEY, "cuid", "last_4"), on=KEY, how="left", suffix="_sent", maintain_order="left")
        .with_columns(
            pl.coalesce("cuid_sent", _storable("claim")).alias("cuid"),
            pl.when(row).then("last_4_sent").otherwise("last_4").alias("last_4"),
            pl.when(pl.col("state") == LINKED).then("url").alias("url"),
            url.alias("has_url"),
            pl.when(pl.col("expires_on").is_not_null()).then("expires_raw").otherwise(_storable("expires_raw")),
        )
    )


def _home(rows: pl.DataFrame, named: list[tuple[str, int] | None]) -> pl.DataFrame:
    """Give rows that fit no sent row the one chunk of their file, or the named one; a file of none is foreign."""
    homes = rows.group_by("file").agg(
        pl.struct("run", "chunk").filter(pl.col("chunk").is_not_null()).unique().alias("homes"),
        pl.col("cuid").is_null().all().alias("nameless"),
    )
    listed = []
    for file, found, nameless in homes.iter_rows():
        by_name = named[file] if not found and nameless else None
        home = (found[0]["run"], found[0]["chunk"]) if len(found) == 1 else by_name or (None, None)
        listed.append((file, *home, not found and by_name is None))
    schema = {"file": pl.UInt32, "home_run": pl.String, "home_chunk": pl.UInt32, "foreign": pl.Boolean}
    return rows.join(
        pl.DataFrame(listed, schema=schema, orient="row"), on="file", how="left", maintain_order="left"
    ).with_columns(pl.coalesce("run", "home_run").alias("run"), pl.coalesce("chunk", "home_chunk").alias("chunk"))


def _storable(column: str) -> pl.Expr:
    """Blank a foreign cell that looks like a card number."""
    return pl.when(~pl.col(column).str.contains(r"\d(?:[^0-9A-Za-z]{0,3}\d){12,}")).then(column).alias(column)


def allowed(column: str, hosts: Sequence[str]) -> pl.Expr:
    """Return whether the URL is https, without user or port tricks, on one of `hosts` (`*.host`: its subdomains)."""
    names = "|".join(
        rf"(?:[a-z0-9-]+\.)+{re.escape(host[2:])}" if host.startswith("*.") else re.escape(host)
        for host in map(str.lower, hosts)
    )
    return pl.col(column).str.contains(rf"^(?i:https://(?:{names}))(?::443)?(?:[/?#][!-~]*)?$")


def digest_of(outcomes: pl.DataFrame) -> str:
    """Return a digest of a file's rows that does not depend on their order or the file's encoding."""
    return hashlib.sha256(outcomes["content"].sort().to_numpy().tobytes()).hexdigest()
