"""Which sent row a result row answers, and what it means for that row.

The rows decide, not the file's name: by the cuid column, the cuid in the error object, a sent cuid
as a word of the error text, position (only where the file's links prove the order), or elimination
(only where one candidate is left). Everything else is a break: never guessed, never dropped.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import numpy as np
import polars as pl
from xxhash import xxh3_64_intdigest

from flows.results.error_text import parse_error
from flows.results.masking import showing_cards, storable
from flows.results.match import ByHand, SentRows, place_named, place_rows
from flows.results.read import ResultRows
from flows.runs.chains import records
from flows.runs.closings import ROWS, place_of
from flows.runs.identity import digest
from flows.runs.keys import attributions
from flows.runs.outcomes import OUTCOME, Attributed
from flows.runs.store import Store
from schemas import breaks
from schemas.breaks import DECISIONS, PLACELESS, Break
from schemas.ledger import BROKEN, ERROR, LINKED
from schemas.records import Attribution, Closing

BETWEEN = "\x1f"  # the unit separator, which no cell contains


def read_claims(results: Sequence[ResultRows]) -> pl.DataFrame:
    """Return the rows of all files, at least one: `at` numbers them, `claim` is the cuid that the
    row names.
    """
    files = np.repeat(
        np.arange(len(results), dtype=np.uint32), [result.rows.height for result in results]
    )
    rows = (
        pl.concat([result.rows for result in results])
        .with_columns(pl.Series("file", files))
        .with_row_index("at")
    )
    texts = rows.filter(pl.col("error").is_not_null()).select("at", "error")
    parsed = [parse_error(text) for text in texts["error"]]
    messages = [
        "; ".join(dict.fromkeys(reason.message for reason in one.reasons)) for one in parsed
    ]
    codes = [BETWEEN.join(dict.fromkeys(reason.code for reason in one.reasons)) for one in parsed]
    errors = texts.select(
        "at",
        pl.Series("error_cuid", [one.cuid for one in parsed], pl.String),
        pl.Series("reasons", codes, pl.String).str.split(BETWEEN),  # several times as fast as lists
        pl.Series("message", messages, pl.String),
        pl.Series("shape", [one.shape for one in parsed], pl.String),
    )
    return rows.join(errors, on="at", how="left", maintain_order="left").with_columns(
        pl.coalesce("cuid", "error_cuid").alias("claim")
    )


def attribute_claims(
    results: Sequence[ResultRows],
    claims: pl.DataFrame,
    among: SentRows,
    allowed_hosts: Sequence[str],
    forced: Sequence[ByHand] = (),
) -> list[Attributed]:
    """Attribute result files, at least one, by their claims; an operator's attribution takes
    precedence.
    """
    placed = place_rows(claims, among, [result.received for result in results])
    placed = _by_hand(placed, claims, among, forced)
    rows = claims.join(placed.drop("file"), on="at", how="left", maintain_order="left")
    judged = _judge(rows, among, allowed_hosts).select(*OUTCOME)
    ends = accumulate(result.rows.height for result in results)
    chunks = {place: (run, chunk) for place, run, chunk, _ in among.places.iter_rows()}
    return [
        Attributed(
            result.digest,
            result.name,
            result.received,
            result.problems,
            judged[end - result.rows.height : end],
            chunks.get(among.named.get(at, -1)),
        )
        for at, (result, end) in enumerate(zip(results, ends, strict=True))
    ]


def _by_hand(
    placed: pl.DataFrame, claims: pl.DataFrame, sent: SentRows, forced: Sequence[ByHand]
) -> pl.DataFrame:
    if not forced:
        return placed
    decided = pl.DataFrame(
        forced,
        {"file": pl.UInt32, "position": pl.UInt32, "run": pl.String, "row": pl.UInt32},
        orient="row",
    )
    spots = sent.rows.select("run", "row", "spot", "place")
    found = claims.join(decided, on=["file", "position"]).join(spots, on=["run", "row"])
    hand = found.with_columns(pl.lit("by hand").alias("how"), pl.lit(value=True).alias("exact"))
    return pl.concat([placed.join(hand, on="at", how="anti"), hand.select(placed.columns)])


def _judge(rows: pl.DataFrame, among: SentRows, hosts: Sequence[str]) -> pl.DataFrame:
    """Give every row its state and its break, if any; the stored columns are free of card
    numbers.
    """
    answered = among.rows.select("spot", "row", pl.col("cuid", "last_4").name.suffix("_sent"))
    placed = (
        _home(rows, among.named)
        .join(among.places.drop("sent"), on="place", how="left", maintain_order="left")
        .join(answered, on="spot", how="left", maintain_order="left")
    )
    cards = showing_cards(placed)
    url, trouble = pl.col("url").is_not_null(), pl.col("trouble").is_not_null()
    state = (
        pl.when(trouble)
        .then(pl.lit(BROKEN))
        .when(url)
        .then(pl.lit(LINKED))
        .otherwise(pl.lit(ERROR))
    )
    # an operator may decide that the link counts
    disputed = (
        (pl.col("trouble") == breaks.URL_AND_ERROR)
        & allowed("url", hosts)
        & ~pl.col("at").is_in(cards.implode())
    )
    linked, ours = (
        pl.col("state") == LINKED,
        (pl.col("claim") == pl.col("cuid_sent")).fill_null(value=False),
    )
    judged = (
        placed.with_columns(_trouble(hosts, cards).alias("trouble"))
        .with_columns(state.alias("state"))
        .with_columns(
            pl.coalesce("cuid_sent", storable("claim", pl.col("cuid_sent").is_null())).alias(
                "cuid"
            ),
            pl.coalesce("last_4_sent", "last_4").alias("last_4"),
            pl.when(linked | disputed).then("url").alias("url"),
            url.alias("has_link"),
            storable("expires_raw"),
            # as received; a cuid that we sent is no card number, however long it is
            pl.when(ours).then("claim").otherwise(storable("claim", ~ours)).alias("claimed"),
            pl.col("last_4").alias("claimed_last_4"),
            pl.when(linked).then("url").otherwise(storable("url", ~linked)).alias("claimed_url"),
        )
    )
    hashed = judged.with_columns(_contents(judged))
    nth = pl.int_range(pl.len(), dtype=pl.UInt32).over("file", "content")
    # none occurs twice: counting takes 30 times as long
    if hashed["content"].n_unique() == hashed.height:
        nth = pl.lit(0, pl.UInt32)
    return hashed.with_columns(nth.alias("nth"))


def _contents(rows: pl.DataFrame) -> pl.Series:
    """Hash every row as received, but without card numbers, which the hash would otherwise help to
    recover.

    The hashes are stored, and those of polars may change with its version.
    """
    names = ("claimed", "claimed_last_4", "claimed_url", "expires_raw", "message")
    cells = [
        *(pl.col(name).fill_null("") for name in names),
        pl.col("reasons").list.join(",").fill_null(""),
    ]
    texts = rows.select(pl.concat_str(cells, separator=BETWEEN).alias("text"))["text"]
    return pl.Series(
        "content",
        np.fromiter(map(xxh3_64_intdigest, texts.cast(pl.Binary)), np.uint64, rows.height),
    )


def _home(rows: pl.DataFrame, named: Mapping[int, int]) -> pl.DataFrame:
    """Give rows that fit no sent row the one chunk of their file; a file that answers nothing is
    foreign.

    The file's name counts only where none of its rows names a cuid.
    """
    place = pl.col("place").drop_nulls()
    homes = (
        rows.group_by("file")
        .agg(
            pl.when(place.n_unique() == 1).then(place.first()).alias("home"),
            (place.len() == 0).alias("lost"),
            pl.col("claim").is_null().all().alias("mute"),
        )
        .with_columns(
            pl.when(pl.col("lost") & pl.col("mute"))
            .then(place_named(named))
            .otherwise("home")
            .alias("home")
        )
        .with_columns((pl.col("lost") & pl.col("home").is_null()).alias("foreign"))
    )
    return rows.join(homes, on="file", how="left", maintain_order="left").with_columns(
        pl.coalesce("place", "home")
    )


def _trouble(hosts: Sequence[str], cards: pl.Series) -> pl.Expr:
    """Name the break of a row, null for a plain link or error of a sent row; `cards`: rows whose
    URL shows a card.
    """
    url, error = pl.col("url").is_not_null(), pl.col("error").is_not_null()
    placed = pl.col("spot").is_not_null()
    return (
        pl.when(pl.col("foreign")).then(pl.lit(breaks.FOREIGN_FILE))
        .when(~pl.col("exact")).then(pl.lit(breaks.LAST4_MISMATCH))
        .when(pl.col("how").is_not_null() & ~placed).then(pl.lit(breaks.RESULT_LONG))
        .when(~placed & error & pl.col("claim").is_null()).then(pl.lit(breaks.UNATTRIBUTED_ERROR))
        .when(~placed & pl.col("claim").is_null()).then(pl.lit(breaks.UNNAMED_ROW))
        .when(~placed).then(pl.lit(breaks.UNKNOWN_CUID))
        .when(url & error).then(pl.lit(breaks.URL_AND_ERROR))
        .when(~url & ~error).then(pl.lit(breaks.NEITHER_URL_NOR_ERROR))
        .when(url & (~allowed("url", hosts) | pl.col("at").is_in(cards.implode()))).then(pl.lit(breaks.URL_NOT_ALLOWED))
    )  # fmt: skip


def allowed(column: str, hosts: Sequence[str]) -> pl.Expr:
    """Return whether a URL is https on one of `hosts` (`*.host`: its subdomains), with no user or
    other port.
    """
    patterns = [
        rf"(?:[a-z0-9-]+\.)+{re.escape(host[2:])}" if host.startswith("*.") else re.escape(host)
        for host in (host.lower() for host in hosts)
    ]
    shape = rf"^(?i:https://(?:{'|'.join(patterns)}))(?::443)?(?:[/?#][!-~]*)?$"
    # (?i) takes ſ for s and the Kelvin sign for k
    ascii_only = ~pl.col(column).str.contains("[^!-~]")
    return pl.col(column).str.contains(shape) & ascii_only


def digest_of(outcomes: pl.DataFrame) -> str:
    """Return a digest of a file's rows that does not depend on their order or the file's
    encoding.
    """
    return hashlib.sha256(outcomes["content"].sort().to_numpy().tobytes()).hexdigest()


# Operators' decisions about the results of a run, read from its records: rows attributed, breaks
# closed.

SHOWN = 5  # row numbers in the place of a break; with no more rows than that, it has them all


DECIDED = {
    "kind": pl.String,
    "row": pl.UInt32,
    "decision": pl.String,
    "note": pl.String,
    "closing": pl.UInt32,
}


def sort_breaks(
    found: Iterable[Break], closings: Sequence[Closing]
) -> tuple[tuple[Break, ...], tuple[tuple[Break, Closing], ...]]:
    """Return the open breaks and the notices, which are never closed; and the closed breaks, each
    with its closing.
    """
    covered = {one: next((by for by in closings if covers(by, one)), None) for one in found}
    still = tuple(one for one, by in covered.items() if by is None or one.notice)
    return still, tuple(
        (one, by) for one, by in covered.items() if by is not None and not one.notice
    )


def covers(closing: Closing, found: Break) -> bool:
    """Return whether a break is of the closed kind and place, without a row that was not closed
    then.

    A closing that names its rows covers just these (`decided_rows`), not what is found besides
    them.
    """
    if (found.name, place_of(found.place)) != (
        closing.name,
        place_of(closing.place),
    ) or found.rows > closing.rows:
        return False
    if closing.covers and found.name not in PLACELESS:
        return False
    return closing.rows > SHOWN or _named(found.place) <= _named(closing.place)


def _named(place: str) -> frozenset[str]:
    return frozenset(place.partition(ROWS)[2].split(", ")) - {""}


def decided_rows(closings: Sequence[Closing]) -> pl.DataFrame:
    """Return the rows that closings cover (DECIDED), the later one's where two of a kind have a row
    in common.
    """
    rows = [
        (
            one.name,
            row,
            one.decision,
            f"{DECISIONS[one.decision].meaning} ({one.by}: {one.reason})",
            at,
        )
        for at, one in enumerate(closings)
        if one.covers
        for row in one.covers
    ]
    return pl.DataFrame(rows, DECIDED, orient="row").unique(
        ["kind", "row"], keep="last", maintain_order=True
    )


def chain_of(issuer: str, result: str) -> str:
    """Return the prefix of a result file's chain of decisions; a hash, since the key may hold a
    card number.
    """
    return f"{attributions(issuer)}{digest(result.encode())[:32]}/"


def decisions(store: Store, issuer: str) -> dict[str, tuple[Attribution, ...]]:
    """Return every chain of decisions of an issuer by its prefix, oldest record first."""
    chains = [folder.key for folder in store.keys(attributions(issuer), shallow=True)]
    return {chain: tuple(records(store, chain, Attribution)) for chain in chains}
