"""Which sent row a result row answers, and what it means for that row.

The rows decide, not the file's name: by the cuid column, the cuid in the error object, a sent cuid
as a word of the error text, position (only where the file's links prove the order), or elimination
(only where one candidate is left). Everything else is a break: never guessed, never dropped.

**A row with other last four digits than were sent** is placed by its cuid (`match.place_rows`) but
not trusted. `_trouble` makes it the break LAST4_MISMATCH, so its link is neither stored nor
delivered, and the sent row stays awaiting unless another row answers it. The break waits for an
operator: `mend close` (decision `lost`: the row may be sent again), or `mend attribute` once the
partner has confirmed the card. In a file where most digits are wrong, rows without digits are
treated alike (`match._distrust`).

A row is recognised in another copy of its file by XXH3 of its cells without card numbers, the same
in every version.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np
import polars as pl
from xxhash import xxh3_64_intdigest

from flows.harmless import CUID
from flows.harmless_tokens import OWN
from flows.results.error_text import parse_error
from flows.results.links import LinkRules, judge_links
from flows.results.masking import storable
from flows.results.match import place_rows
from flows.results.partner_terms import PartnerReason
from flows.results.read import ResultRows
from flows.results.sent_rows import ByHand, SentRows, place_named
from flows.runs.outcomes import OUTCOME, Attributed
from schemas import breaks
from schemas.ledger import BROKEN, ERROR, LINKED

BETWEEN = "\x1f"  # the unit separator, which no cell contains


def read_claims(results: Sequence[ResultRows]) -> pl.DataFrame:
    """Return the rows of all files, at least one, with what they claim.

    `result_row` numbers them, `claim` is the cuid that the row names. `is_last` is the last row of
    a file, `open_ended` where the file may end within its URL.
    """
    heights = np.array([result.rows.height for result in results])
    files = np.repeat(np.arange(len(results), dtype=np.uint32), heights)
    may_be_cut = np.repeat([result.open_ended for result in results], heights)
    is_last = pl.col("position") == pl.Series(np.repeat(heights, heights))
    rows = (
        pl.concat([result.rows for result in results])
        .with_columns(pl.Series("file", files), is_last=is_last)
        .with_columns(open_ended=pl.col("is_last") & pl.Series(may_be_cut))
        .with_row_index("result_row")
    )
    known = results[0].known_texts
    texts = rows.filter(pl.col("error").is_not_null()).select("result_row", "error")
    parsed = [parse_error(text, known) for text in texts["error"]]
    codes = pl.Series("reasons", [_codes(error.reasons) for error in parsed], pl.String)
    errors = texts.select(
        "result_row",
        pl.Series("error_cuid", [error.cuid for error in parsed], pl.String),
        codes.str.split(BETWEEN),  # several times as fast as lists
        pl.Series("message", [_message(error.reasons) for error in parsed], pl.String),
        pl.Series("shape", [error.shape for error in parsed], pl.String),
    )
    return rows.join(errors, on="result_row", how="left", maintain_order="left").with_columns(
        pl.coalesce("cuid", "error_cuid").alias("claim")
    )


@lru_cache(maxsize=1024)  # many rows have the same error
def _codes(reasons: Sequence[PartnerReason]) -> str:
    return BETWEEN.join(dict.fromkeys(reason.code for reason in reasons))


@lru_cache(maxsize=1024)
def _message(reasons: Sequence[PartnerReason]) -> str:
    return "; ".join(dict.fromkeys(reason.message for reason in reasons))


def attribute_claims(
    results: Sequence[ResultRows],
    claims: pl.DataFrame,
    among: SentRows,
    rules: LinkRules,
    forced: Sequence[ByHand] = (),
) -> list[Attributed]:
    """Attribute result files, at least one, by their claims.

    An operator's attribution (`forced`) takes precedence.
    """
    placed = place_rows(claims, among, [result.received for result in results])
    if forced:
        placed = _by_hand(placed, claims, among, forced)
    rows = claims.join(placed.drop("file"), on="result_row", how="left", maintain_order="left")
    judged = _judge(rows, among, rules).select(*OUTCOME)
    places = among.places.select("place", "run", "chunk").iter_rows()
    chunks = {place: (run, chunk) for place, run, chunk in places}
    ends = accumulate(result.rows.height for result in results)
    return [
        Attributed(
            digest=result.digest,
            name=result.name,
            received=result.received,
            problems=result.problems,
            outcomes=judged[end - result.rows.height : end],
            named=chunks.get(among.named.get(file, -1)),
        )
        for file, (result, end) in enumerate(zip(results, ends, strict=True))
    ]


def _by_hand(
    placed: pl.DataFrame, claims: pl.DataFrame, sent: SentRows, forced: Sequence[ByHand]
) -> pl.DataFrame:
    """Place the rows that an operator attributed where the operator did."""
    decided = pl.DataFrame(
        forced,
        {"file": pl.UInt32, "position": pl.UInt32, "run": pl.String, "row": pl.UInt32},
        orient="row",
    )
    spots = sent.rows.select("run", "row", "spot", "place")
    by_hand = (
        claims.join(decided, on=["file", "position"])
        .join(spots, on=["run", "row"])
        .with_columns(pl.lit("by hand").alias("how"), pl.lit(value=True).alias("trusted"))
    )
    others = placed.join(by_hand, on="result_row", how="anti")
    return pl.concat([others, by_hand.select(placed.columns)])


def _judge(rows: pl.DataFrame, among: SentRows, rules: LinkRules) -> pl.DataFrame:
    """Give every row its state and its break, if any.

    The stored columns are free of card numbers.
    """
    answered = among.rows.select("spot", "row", pl.col("cuid", "last_4").name.suffix("_sent"))
    placed = (
        _home(rows, among.named)
        .join(among.places.drop("sent"), on="place", how="left", maintain_order="left")
        .join(answered, on="spot", how="left", maintain_order="left")
    )
    judged = (
        placed.join(judge_links(placed, rules), on="result_row", how="left", maintain_order="left")
        .with_columns(_trouble().alias("trouble"))
        .with_columns(_state().alias("state"))
        .with_columns(*_stored_cells())
    )
    hashed = judged.with_columns(_contents(judged))
    nth = pl.int_range(pl.len(), dtype=pl.UInt32).over("file", "content")
    # none occurs twice: counting takes 30 times as long
    if hashed["content"].n_unique() == hashed.height:
        nth = pl.lit(0, pl.UInt32)
    return hashed.with_columns(nth.alias("nth"))


def _state() -> pl.Expr:
    return (
        pl.when(pl.col("trouble").is_not_null())
        .then(pl.lit(BROKEN))
        .when(pl.col("url").is_not_null())
        .then(pl.lit(LINKED))
        .otherwise(pl.lit(ERROR))
    )


def _stored_cells() -> list[pl.Expr]:
    """Return the cells that are stored, and those as received of which the hash is stored."""
    linked = pl.col("state") == LINKED
    # an operator may decide that the link counts
    is_link = pl.col("link_trouble").is_null()
    disputed = (pl.col("trouble") == breaks.URL_AND_ERROR) & is_link
    as_sent = (pl.col("claim") == pl.col("cuid_sent")).fill_null(value=False)
    names_its_own = (pl.col("error_cuid") == pl.col("cuid_sent")).fill_null(value=False)
    named = pl.when(names_its_own).then("cuid_sent").otherwise(pl.lit(CUID))
    cuid = storable("claim", pl.col("cuid_sent").is_null())
    return [
        pl.coalesce("cuid_sent", cuid).alias("cuid"),
        pl.coalesce("last_4_sent", "last_4").alias("last_4"),
        pl.when(linked | disputed).then("url").alias("url"),
        pl.col("url").is_not_null().alias("has_link"),
        pl.col("message").str.split(OWN).list.join(named),
        # as received; a cuid that we sent is no card number, however long it is
        pl.when(as_sent).then("claim").otherwise(storable("claim", ~as_sent)).alias("claimed"),
        pl.col("last_4").alias("claimed_last_4"),
        pl.when(linked).then("url").otherwise(storable("url", ~linked)).alias("claimed_url"),
    ]


def _contents(rows: pl.DataFrame) -> pl.Series:
    """Hash every row as received, but without card numbers.

    The hash would otherwise help to recover them. The hashes are stored, and those of polars may
    change with its version.
    """
    names = ("claimed", "claimed_last_4", "claimed_url", "expires_form", "message")
    day = pl.col("expires_on").cast(pl.String)
    cells = [*(pl.col(name).fill_null("") for name in names), day.fill_null("")]
    reasons = pl.col("reasons").list.join(",").fill_null("")
    text = pl.concat_str([*cells, reasons], separator=BETWEEN)
    # a list is gone through in half the time
    texts = rows.select(text.alias("text"))["text"].cast(pl.Binary).to_list()
    hashes = np.fromiter(map(xxh3_64_intdigest, texts), np.uint64, rows.height)
    return pl.Series("content", hashes)


def _home(rows: pl.DataFrame, named: Mapping[int, int]) -> pl.DataFrame:
    """Give rows that fit no sent row the one chunk of their file.

    A file that answers nothing is foreign. The file's name counts only where none of its rows names
    a cuid.
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


def _trouble() -> pl.Expr:
    """Name the break of a row, null for a plain link or error of a sent row."""
    url = pl.col("url").is_not_null()
    error = pl.col("error").is_not_null()
    placed = pl.col("spot").is_not_null()
    surplus = pl.col("how").is_not_null() & ~placed
    nameless = ~placed & pl.col("claim").is_null()
    cases = (  # the first that holds
        (pl.col("foreign"), breaks.FOREIGN_FILE),
        # also of a row without digits, where most of its file's are wrong: such a file may be
        # another issuer's, and a cuid alone proves nothing then (`match._distrust`)
        (~pl.col("trusted"), breaks.LAST4_MISMATCH),
        (surplus, breaks.RESULT_LONG),
        (nameless & error, breaks.UNATTRIBUTED_ERROR),
        (nameless, breaks.UNNAMED_ROW),
        (~placed, breaks.UNKNOWN_CUID),
        (url & error, breaks.URL_AND_ERROR),
        (~url & ~error, breaks.NEITHER_URL_NOR_ERROR),
    )
    named = [pl.when(holds).then(pl.lit(name)) for holds, name in cases]
    return pl.coalesce(*named, "link_trouble")


def digest_of(outcomes: pl.DataFrame) -> str:
    """Return a digest of a file's rows, whatever their order or the file's encoding."""
    return hashlib.sha256(outcomes["content"].sort().to_numpy().tobytes()).hexdigest()
