"""Answers that contradict themselves or each other, and rows without one: as operators decided.

A contradiction gives no link before it is decided.

A row decided as lost is an error (`row.result.lost`, to be sent again) and not a state of its own,
so balance, lists, trace, resubmit and limits need no new case. It counts against no error limit,
prior state does not see it, and a real answer that comes later counts. A row of an erased
cardholder (`flows/runs/erased.py`) is one in the same way.
"""

import polars as pl

from flows.results.sent_rows import SentRows
from flows.runs.outcomes import DECISION
from schemas import breaks
from schemas.ledger import ERROR, LINKED
from schemas.reasons import ERASED

# the reason of a row that an operator gave up, by decision
REASONS = {name: decision.reason for name, decision in breaks.DECISIONS.items() if decision.reason}


def decided_answers(answers: pl.DataFrame, decided: pl.DataFrame) -> pl.DataFrame:
    """Return the answers, those with a link and an error as it was decided which of both counts."""
    decisions = decided.filter(kind=breaks.URL_AND_ERROR).filter(
        pl.col("decision").is_in([breaks.LINK, breaks.ERROR])
    )
    if decisions.is_empty():
        return answers
    for_link = pl.col("decision") == breaks.LINK
    possible = (
        pl.when(for_link)
        .then(pl.col("url").is_not_null())
        .otherwise(pl.col("decision").is_not_null())
    )
    counts = (pl.col("trouble") == breaks.URL_AND_ERROR) & possible
    state = pl.when(for_link).then(pl.lit(LINKED)).otherwise(pl.lit(ERROR))
    refusal = [
        pl.when(~(counts & for_link)).then(name).alias(name)
        for name in ("reasons", "message", "shape")
    ]
    return (
        answers.join(
            decisions.select("spot", "decision"), on="spot", how="left", maintain_order="left"
        )
        .with_columns(
            pl.when(counts).then(state).otherwise("state").alias("state"),
            pl.when(~counts).then("trouble").alias("trouble"),
            pl.when(~(counts & ~for_link)).then("url").alias("url"),
            *refusal,
        )
        .drop("decision")
    )


def conflicting_rows(settled: pl.DataFrame, decided: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with different answers and which of them counts, if any.

    Columns: spot, run, chunk, row, cuid, last_4, result, decision.
    """
    conflicts = (
        settled.filter(pl.col("spot").is_duplicated())
        .group_by("spot", "run", "chunk", "row", "cuid", "last_4")
        .agg(pl.struct("state", "url").n_unique().alias("answers"), pl.col("result").last())
        .filter(pl.col("answers") > 1)
        .drop("answers")
        .sort("row")
    )
    decisions = decided.filter(kind=breaks.CONFLICTING_RESULT).select("spot", "decision")
    return conflicts.join(decisions, on="spot", how="left", maintain_order="left")


def undisputed_answers(settled: pl.DataFrame, conflicts: pl.DataFrame) -> pl.DataFrame:
    """Return the answers that count: of those that contradict each other, the ones decided for."""
    if conflicts.is_empty():
        return settled
    state_of = {breaks.LINK: LINKED, breaks.ERROR: ERROR}
    counts = pl.col("decision").replace_strict(state_of, default="", return_dtype=pl.String)
    decided = conflicts.select("spot", counts=counts)
    joined = settled.join(decided, on="spot", how="left", maintain_order="left")
    undisputed = pl.col("counts").is_null() | (pl.col("counts") == pl.col("state"))
    return joined.filter(undisputed).drop("counts")


def with_erased(answers: pl.DataFrame, sent: SentRows) -> pl.DataFrame:
    """Return the answers, and one for each sent row that names nobody any more and has none.

    Its cardholder was erased, and with that what the partner had answered.
    """
    erased = sent.rows.filter(pl.col("cuid").is_null()).join(answers, on="spot", how="anti")
    if erased.is_empty():
        return answers
    answer = {"state": ERROR, "how": DECISION, "shape": ERASED}
    named = erased.select(
        *("run", "chunk", "row", "spot", "place"),
        *(pl.lit(text).alias(name) for name, text in answer.items()),
        has_link=pl.lit(value=False),
        reasons=pl.concat_list(pl.lit(ERASED)),
    )
    return pl.concat([answers, named], how="diagonal")


def given_up_rows(sent: SentRows, answered: pl.DataFrame, decided: pl.DataFrame) -> pl.DataFrame:
    """Return the rows without an answer that count as errors since an operator decided so."""
    code = pl.col("decision").replace_strict(REASONS, default=None, return_dtype=pl.String)
    rows = (
        decided.with_columns(code.alias("shape"))
        .drop_nulls("shape")
        .unique("spot", keep="last", maintain_order=True)
    )
    return (
        rows.join(answered, on="spot", how="anti")
        .join(sent.rows.select("spot", "place"), on="spot")
        .select(
            "spot",
            "place",
            "shape",
            pl.lit(ERROR).alias("state"),
            pl.lit(DECISION).alias("how"),
            pl.concat_list("shape").alias("reasons"),
            pl.col("note").alias("message"),
        )
    )
