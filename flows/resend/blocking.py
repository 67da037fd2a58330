"""Which rows must stay, because their card has or awaits a link: decided by issue.

A row is compared as it was, as it would be now, and as it was sent meanwhile by runs that repeat
it, whatever they corrected; an attempt for any of these issues (`flows/runs/cards.py`) blocks it.

* An unknown reissue number equals each.
* A row whose expiration could not be read has no issue: it is compared as it would be, and with
  every issue of its card where that is not known either. One without a card number or cuid has no
  card, and was never sent.
* A row whose card has changed since its link is there to replace that link: only an awaited answer
  blocks it, and that its change is settled (`replacing`).
* An issue that expires before one of its card that has or awaits a link is not sent any more: its
  link would replace that of the newer card (`superseded`). Nor is one once a later extract has a
  newer one, whatever came of that, as its plastic is not used any more (`reissued`). A row that we
  refused says less: it may be no reissue, and keeps no other from being sent.
* Cards that look the same are told apart by `twin` where an attempt is of the row's own run or of
  one that repeats the same rows (`Family`). In any other run the numbers may be of other cards, so
  that there each of them blocks.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date

import polars as pl

from flows.book.attempts import ATTEMPT, SENT, active
from flows.book.issues import with_extract
from flows.results.lineage import repeats_of
from flows.runs.cards import CARD_WITHOUT_TWIN, FINGERPRINTS, holder
from flows.runs.stored_run import StoredRun
from schemas.ledger import REJECTED
from schemas.manifest import Manifest
from schemas.reasons import NOT_ELIGIBLES

# what the issue of a row is told from
IDENTITY = ("cuid", "last_4", "expiration", *FINGERPRINTS)
# why a row stays
NEWER = "a newer issue of its card is linked or awaited"
REISSUED = "a later extract has a newer issue of its card"
SETTLED = "its change was sent, taken back or decided since, or a later extract has it"
# An issue that a selected row (`origin`) was, is, or would be of; `twin` null where it is unknown.
_ISSUE = (*CARD_WITHOUT_TWIN, "twin", "expiration", "reissue_check")
ISSUES = pl.Schema({"origin": pl.UInt32()} | {name: ATTEMPT[name] for name in _ISSUE})
# An attempt that keeps its card from being sent again; `is_family`: its twins are the row's.
STANDING = pl.Schema(
    {name: ATTEMPT[name] for name in ("run", *_ISSUE, "state")} | {"is_family": pl.Boolean()}
)


def identified(origins: pl.Series, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the issue of each row (ISSUES without its twin); `rows` has IDENTITY."""
    return rows.select(
        origins.alias("origin"),
        holder(rows),
        "last_4",
        pl.lit(None, ATTEMPT["twin"]).alias("twin"),
        "expiration",
        "reissue_check",
    ).cast(ISSUES)


def as_sent(run: StoredRun, rows: pl.Series) -> pl.DataFrame:
    """Return these rows of a run as they were, and as runs that repeat them have sent them since.

    Columns as of ISSUES, without twins.
    """
    before = _records(run, pl.col("row").is_in(rows.implode()))
    parts = [identified(before["row"], before)]
    for repeat in repeats_of(run):
        repeated = repeat.rows.filter(
            pl.col("origin").is_in(rows.implode()) & pl.col("state").is_in(SENT)
        )
        records = _records(repeat.run, pl.col("row").is_in(repeated["row"].implode()))
        known = records.join(repeated.select("row", root="origin"), on="row", maintain_order="left")
        parts.append(identified(known["root"], known))
    return pl.concat(parts)


def _records(run: StoredRun, which: pl.Expr) -> pl.DataFrame:
    parts = run.committed().ledger
    return pl.concat([run.ledger_part(part, ["row", *IDENTITY], which) for part in parts])


def family(run: str, manifests: Sequence[Manifest]) -> frozenset[str]:
    """Return the runs that repeat the same rows as a run, itself included, however indirectly."""
    repeats = _repeats(manifests)
    root = _root(run, repeats)
    members = {run, root, *repeats}
    return frozenset(member for member in members if _root(member, repeats) == root)


def later_rows(
    attempts: pl.DataFrame,
    run: str,
    manifests: Sequence[Manifest],
    days: Mapping[int, date],
) -> pl.DataFrame:
    """Return the attempts whose rows are of a later extract than those of a run, and right.

    `days`: as of `flows.book.issues`.
    """
    root = _root(run, _repeats(manifests))
    number = next(
        (number for number, manifest in enumerate(manifests, 1) if manifest.run == root), None
    )
    if number is None:  # of a version that kept no order
        return attempts.clear()
    day = pl.lit(manifests[number - 1].as_of)
    is_same_day = pl.col("extract_day") == day
    is_later = (pl.col("extract_day") > day) | (is_same_day & (pl.col("extract") > number))
    is_right = (pl.col("state") != REJECTED) | pl.col("reason").is_in(NOT_ELIGIBLES)
    of_extract = with_extract(attempts, days).filter(pl.col("run") != "")
    return of_extract.filter(is_later & is_right).select(attempts.columns)


def _repeats(manifests: Sequence[Manifest]) -> dict[str, str]:
    """Return which run each selection of rows repeats."""
    return {
        manifest.run: manifest.selection.of
        for manifest in manifests
        if manifest.selection is not None
    }


def _root(run: str, repeats: Mapping[str, str]) -> str:
    """Return the run of the extract whose rows a run has."""
    while run in repeats:
        run = repeats[run]
    return run


def with_twins(rows: pl.DataFrame, attempts: pl.DataFrame, run: str) -> pl.DataFrame:
    """Return ISSUES with the twins that the rows of a run have among its attempts."""
    is_sent = (pl.col("run") == run) & pl.col("state").is_in(SENT)
    twins = attempts.filter(is_sent).select(origin="row", known="twin").unique("origin")
    joined = rows.join(twins, on="origin", how="left", maintain_order="left")
    return joined.with_columns(twin="known").select(*ISSUES).unique(maintain_order=True)


def active_attempts(
    attempts: pl.DataFrame, today: date, members: Iterable[str] = ()
) -> pl.DataFrame:
    """Return the attempts (STANDING) that keep their card from being sent again.

    Those are awaiting, or have a living link. `members`: the runs of the rows' family.
    """
    is_family = pl.col("run").is_in(sorted(members))
    return attempts.filter(active(today)).with_columns(is_family=is_family).select(*STANDING)


def blocking(rows: pl.DataFrame, standing: pl.DataFrame, first: frozenset[str]) -> pl.DataFrame:
    """Return which active attempt blocks each row: origin, `stands` (its state), `where` (its run).

    `rows`: ISSUES. `standing`: STANDING, in the order of the attempts. The last one counts, and
    one of the runs in `first` before all.
    """
    dated = rows.filter(pl.all_horizontal(pl.col(*CARD_WITHOUT_TWIN, "expiration").is_not_null()))
    has_issue = pl.col("origin").is_in(dated["origin"].implode())
    compared = rows.filter(pl.col("expiration").is_not_null() | ~has_issue)
    pairs = compared.join(standing, on=CARD_WITHOUT_TWIN, suffix="_sent", maintain_order="right")
    same_expiration = pl.col("expiration") == pl.col("expiration_sent")
    same_reissue = pl.col("reissue_check") == pl.col("reissue_check_sent")
    same_twin = (pl.col("twin") == pl.col("twin_sent")) | ~pl.col("is_family")
    is_same = pl.all_horizontal(
        same.fill_null(value=True) for same in (same_expiration, same_reissue, same_twin)
    )
    attempts = pairs.filter(is_same)
    ordered = attempts.sort(pl.col("run").is_in(sorted(first)), maintain_order=True)
    return ordered.group_by("origin", maintain_order=True).agg(
        stands=pl.col("state").last().cast(pl.String), where=pl.col("run").last()
    )


def superseded(would_be: pl.DataFrame, standing: pl.DataFrame) -> pl.DataFrame:
    """Return which rows are of an earlier issue than an active attempt (as of `blocking`).

    `would_be`: ISSUES of the rows as they would go out. `standing`: STANDING.
    """
    pairs = would_be.join(
        standing, on=CARD_WITHOUT_TWIN, suffix="_sent", nulls_equal=False, maintain_order="right"
    )
    earlier = pairs.filter(pl.col("expiration") < pl.col("expiration_sent"))
    return earlier.group_by("origin", maintain_order=True).agg(
        stands=pl.lit(NEWER), where=pl.col("run").last()
    )


def reissued(would_be: pl.DataFrame, later: pl.DataFrame) -> pl.DataFrame:
    """Return which rows are of an issue that a later extract has replaced (as of `blocking`).

    `would_be`: ISSUES of the rows as they would go out. `later`: `later_rows`.
    """
    pairs = would_be.join(
        later.select(*_ISSUE, "run"),
        on=CARD_WITHOUT_TWIN,
        suffix="_later",
        maintain_order="right",
    )
    is_same = pl.col("expiration") == pl.col("expiration_later")
    is_other = is_same & (pl.col("reissue_check") != pl.col("reissue_check_later"))
    earlier = pairs.filter((pl.col("expiration") < pl.col("expiration_later")) | is_other)
    return earlier.group_by("origin", maintain_order=True).agg(
        stands=pl.lit(REISSUED), where=pl.col("run").last()
    )


def replacing(others: pl.DataFrame, awaited: pl.DataFrame, settled: pl.Series) -> pl.DataFrame:
    """Return which rows are blocked, those included that would replace the link of their card.

    `others`, `awaited`: as of `blocking`, of the other rows, and of these by what is awaited.
    `settled`: those whose change needs no link any more.
    """
    is_settled = (
        settled.rename("origin").to_frame().with_columns(stands=pl.lit(SETTLED), where=pl.lit(""))
    )
    later = is_settled.join(awaited, on="origin", how="anti")
    return pl.concat([others, awaited, later.cast(awaited.schema)])
