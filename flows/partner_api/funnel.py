"""The funnel: cardholders, sent, linked, opened, authenticated, placed, and failed by kind; each
counts once.

It is counted from ledger, reconciled rows, placements and the transaction reports that were kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from io import BytesIO
from typing import Any

import polars as pl

from flows.runs.documents import read_ledger, read_rows
from flows.runs.keys import RunKeys, keys_of, placements
from flows.runs.single_links import LINK as LINK_ROW
from flows.runs.store import ObjectMissingError, Store, read
from schemas import ledger
from schemas.ledger import LINKED
from schemas.manifest import LedgerPart, Manifest
from schemas.partner_api.link_placements import BILLABLE, STAGES, dtypes

REPORTED = pl.Schema(
    {
        "cuid": pl.String(),
        "status": pl.String(),
        "completed_on": pl.Date(),
        "opened": pl.Boolean(),
        "authenticated": pl.Boolean(),
        "running": pl.Boolean(),
        "termination_type": pl.String(),
        "merchant_site": pl.String(),
    }
)

SITES = 50  # merchant sites named; the rest is one line
OTHERS, UNKNOWN_SITE = "other sites", "site not known"

# Days since the run's business date, upper limits, the last open: a link lives two months
# (interface.md 8).
LINK_AGES = ("0 to 6 days", "7 to 13 days", "14 to 29 days", "30 to 61 days", "62 days and older")
_AGE_LIMITS = (6, 13, 29, 61)

SENT, LINK, OPENED, AUTHENTICATED, PLACED = range(1, 6)  # places in STAGES
REACHED = (*STAGES[LINK:], "failed")  # what is counted by merchant site and by age of link
ENDS = pl.Schema(  # what is known of a linked row beyond its link, by row or by cuid
    {
        "opened": pl.Boolean(),
        "authenticated": pl.Boolean(),
        "running": pl.Boolean(),
        "termination_type": pl.String(),
        "merchant_site": pl.String(),
    }
)
STANDING = pl.Schema(
    {
        "holder": pl.UInt64(),
        "stage": pl.UInt8(),
        "running": pl.Boolean(),
        "failed": pl.String(),
        "site": pl.String(),
        "age": pl.UInt8(),
    }
)
CELLS = pl.Schema(
    {
        "stage": pl.UInt8(),
        "running": pl.Boolean(),
        "failed": pl.String(),
        "site": pl.String(),
        "age": pl.UInt8(),
        "cardholders": pl.UInt64(),
    }
)

SHARE = 2_000_000  # rows counted at a time


def settled(rows: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return one row (REPORTED) per cuid over any reports in any order: placed, else its latest
    end, else running.

    A transaction has no number of its own, so a row that ended stands over one that runs: it may be
    the same.
    """
    every = pl.concat([pl.DataFrame(schema=REPORTED), *(frame.select(*REPORTED) for frame in rows)])
    ordered = every.sort(
        pl.col("termination_type") == BILLABLE,
        ~pl.col("running"),
        "authenticated",
        "completed_on",
        "status",
        descending=True,
        nulls_last=True,
    )
    one = ordered.unique("cuid", keep="first", maintain_order=True)
    came = every.group_by("cuid").agg(pl.col("authenticated").any())
    return one.drop("authenticated").join(came, on="cuid").select(*REPORTED).sort("cuid")


def funnel_stages(
    records: pl.DataFrame, states: pl.DataFrame, by_row: pl.DataFrame, by_cuid: pl.DataFrame
) -> pl.DataFrame:
    """Return how far each row of a ledger part came (STANDING, without `age`).

    `records`: run, row, cuid, fate. `states`: row, state of the rows sent. `by_row` and `by_cuid`: what the service
    (row) and the transaction reports (cuid) say of linked rows, with the columns of ENDS; either
    may be empty.
    """
    reported = records.join(states, on="row", how="left").join(
        by_row.select("row", *ENDS), on="row", how="left"
    )
    both = reported.join(by_cuid.select("cuid", *ENDS), on="cuid", how="left", suffix="_report")
    linked = pl.col("state") == LINKED
    placed = _either("termination_type", BILLABLE)
    stage = (
        pl.when(linked & placed).then(PLACED)
        .when(linked & _any("authenticated")).then(AUTHENTICATED)
        .when(linked & _any("opened")).then(OPENED)
        .when(linked).then(LINK)
        .when(pl.col("fate") == ledger.SUBMITTED).then(SENT)
        .otherwise(0)
    )  # fmt: skip
    # the service knows of an end: it is later
    late = pl.col("running_report") & pl.col("termination_type").is_null()
    running = (
        linked & ~placed & (pl.col("running").fill_null(value=False) | late.fill_null(value=False))
    )
    failed = pl.when(linked & ~placed & ~running).then(
        pl.coalesce("termination_type", "termination_type_report")
    )
    return both.select(
        _holder().alias("holder"),
        stage.fill_null(0).cast(pl.UInt8).alias("stage"),
        running.fill_null(value=False).alias("running"),
        failed.alias("failed"),
        pl.when(linked).then(pl.coalesce("merchant_site", "merchant_site_report")).alias("site"),
    )


def age_of(as_of: date, today: date) -> int:
    """Return which of LINK_AGES the links of a run of that business date have."""
    return sum((today - as_of).days > limit for limit in _AGE_LIMITS)


def cells(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Count cardholders by everything the funnel shows (CELLS): each once, by its best state over
    all frames.

    Cells of different cardholders add up by `add`.
    """
    every = pl.concat([pl.DataFrame(schema=STANDING), *(frame.cast(STANDING) for frame in frames)])
    again = pl.col("holder").is_duplicated()
    first = pl.concat([every.filter(~again), _best(every.filter(again))])
    return first.group_by(list(CELLS)[:-1]).agg(pl.len().cast(pl.UInt64).alias("cardholders"))


def _best(rows: pl.DataFrame) -> pl.DataFrame:
    """Put the rows of each cardholder together: placed, else under way where any is, else
    failed.
    """
    ordered = rows.sort(
        "stage", "failed", "site", "age", descending=[True, False, False, False], nulls_last=True
    )
    one = ordered.group_by("holder", maintain_order=True).agg(
        pl.col("stage").first(),
        pl.col("running").any(),
        *(pl.col(name).drop_nulls().first() for name in ("failed", "site")),
        pl.col("age").first(),
    )
    running = pl.col("running") & (pl.col("stage") < PLACED)
    failed = pl.when((pl.col("stage") < PLACED) & ~running).then("failed")
    return one.with_columns(running.alias("running"), failed.alias("failed"))


def add(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Add up cells."""
    every = pl.concat([pl.DataFrame(schema=CELLS), *parts])
    return every.group_by(list(CELLS)[:-1]).agg(pl.col("cardholders").sum())


def facts(counted: pl.DataFrame) -> dict[str, Any]:
    """Return the funnel of cells: stages, failures by kind, jobs under way, by merchant site and by
    age of link.
    """
    total = int(counted["cardholders"].sum())
    reached = [_sum(counted.filter(pl.col("stage") >= at)) for at in range(len(STAGES))]
    failed = counted.drop_nulls("failed").group_by("failed").agg(pl.col("cardholders").sum())
    return {
        "stages": [
            {"stage": stage, "cardholders": number, "share": number / total if total else 0.0}
            for stage, number in zip(STAGES, reached, strict=True)
        ],
        "failed": [
            {"kind": kind, "cardholders": number, "share": number / total}
            for kind, number in failed.sort(
                "cardholders", "failed", descending=[True, False]
            ).iter_rows()
        ],
        "under_way": _sum(counted.filter("running")),
        "sites": _sites(counted),
        "ages": [
            {"age": name, **_reached(counted.filter(age=at))} for at, name in enumerate(LINK_AGES)
        ],
    }


def _sites(counted: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the funnel's end by merchant site, most cardholders first, of those that came to
    one.
    """
    known = counted.filter(
        (pl.col("stage") >= AUTHENTICATED) | pl.col("failed").is_not_null() | pl.col("running")
    )
    named = known.with_columns(pl.col("site").fill_null(UNKNOWN_SITE))
    sizes = (
        named.group_by("site")
        .agg(pl.col("cardholders").sum())
        .sort("cardholders", "site", descending=[True, False])
    )
    shown = sizes["site"].head(SITES)
    folded = named.with_columns(
        pl.when(pl.col("site").is_in(shown.implode())).then("site").otherwise(pl.lit(OTHERS))
    )
    names = [*shown, *([OTHERS] if sizes.height > SITES else [])]
    return [{"site": name, **_reached(folded.filter(site=name))} for name in names]


def _reached(counted: pl.DataFrame) -> dict[str, int]:
    stages = {
        STAGES[at]: _sum(counted.filter(pl.col("stage") >= at))
        for at in (LINK, OPENED, AUTHENTICATED, PLACED)
    }
    return {**stages, "failed": _sum(counted.drop_nulls("failed"))}


def _sum(counted: pl.DataFrame) -> int:
    return int(counted["cardholders"].sum())


def _holder() -> pl.Expr:
    """Mark a cardholder by cuid; a row whose cuid nobody could read is one of its own."""
    own = pl.struct("run", "row").hash(seed=1)
    return pl.when(pl.col("cuid").is_null()).then(own).otherwise(pl.col("cuid").hash())


def _any(column: str) -> pl.Expr:
    return pl.col(column).fill_null(value=False) | pl.col(f"{column}_report").fill_null(value=False)


def _either(column: str, value: str) -> pl.Expr:
    return ((pl.col(column) == value).fill_null(value=False)) | (
        (pl.col(f"{column}_report") == value).fill_null(value=False)
    )


def reported(store: Store, issuer: str, share: pl.Expr) -> pl.DataFrame:
    """Return what all kept reports say (REPORTED), one row per cuid, of the cuids that `share`
    selects.
    """
    frames = (
        kept_frame(store, key, list(REPORTED)).filter(share) for key in kept_reports(store, issuer)
    )
    return settled(frame.drop_nulls("cuid") for frame in frames)


def kept_reports(store: Store, issuer: str) -> list[str]:
    """Return the keys of the transaction reports that were kept."""
    return [entry.key for entry in store.keys(f"{placements(issuer)}reports/")]


def kept_frame(store: Store, key: str, columns: list[str]) -> pl.DataFrame:
    """Return columns of a transaction report that was kept."""
    return pl.read_parquet(BytesIO(read(store, key)), columns=columns)


def placements_key(keys: RunKeys, part: LedgerPart) -> str:
    """Return the placements key of one ledger part."""
    return keys.placements + part.name


def read_placements(
    store: Store, keys: RunKeys, part: LedgerPart, columns: list[str] | None = None
) -> pl.DataFrame:
    """Return the placements of one ledger part (`schemas.partner_api.link_placements.Placements`);
    none before the first look.
    """
    try:
        return pl.read_parquet(BytesIO(read(store, placements_key(keys, part))), columns=columns)
    except ObjectMissingError:
        return pl.DataFrame(schema=dtypes()).select(columns or list(dtypes()))


def run_funnel(store: Store, manifest: Manifest, today: date) -> dict[str, Any] | None:
    """Return the funnel of a run whose rows are reconciled; None where neither service nor
    transaction report told.
    """
    keys = keys_of(manifest.run)
    asked = any(
        entry.key.endswith(".parquet") for entry in store.keys(keys.placements, shallow=True)
    )
    reports = any(True for _ in store.keys(f"{placements(keys.run.issuer)}reports/", shallow=True))
    if not (asked or reports):
        return None
    return funnel_of(store, keys.run.issuer, [manifest], today)


def funnel_of(store: Store, issuer: str, runs: Sequence[Manifest], today: date) -> dict[str, Any]:
    """Return the funnel over runs of an issuer that have a report (see `facts`), each cardholder
    counted once.

    `seen` is when the service was last asked (ISO, None: never), `unasked` how many linked rows it was not asked of.
    """
    shares = 1 + sum(run.counts.read for run in runs) // SHARE
    parts = [
        cells(_funnel_rows(store, issuer, runs, today, share, shares)) for share in range(shares)
    ]
    return {**facts(add(parts)), **_asked(store, runs)}


def _funnel_rows(
    store: Store, issuer: str, runs: Sequence[Manifest], today: date, share: int, shares: int
) -> Iterator[pl.DataFrame]:
    mine = pl.col("cuid").hash().fill_null(0) % shares == share
    by_cuid = reported(store, issuer, mine)
    for run in runs:
        keys, age = keys_of(run.run), pl.lit(age_of(run.as_of, today), pl.UInt8).alias("age")
        records = read_ledger(store, keys, run.ledger, ["row", "cuid", "fate"])
        states = read_rows(store, keys, run.ledger, ["row", "state"])
        for part, sent, state in zip(run.ledger, records, states, strict=True):
            named = sent.filter(mine).with_columns(pl.lit(run.run).alias("run"))
            by_row = read_placements(store, keys, part, ["row", *ENDS])
            yield funnel_stages(named, state, by_row, by_cuid).with_columns(age)


def _asked(store: Store, runs: Sequence[Manifest]) -> dict[str, Any]:
    last: datetime | None = None
    asked = linked = 0
    for run in runs:
        keys = keys_of(run.run)
        for part in run.ledger:
            seen = read_placements(store, keys, part, ["seen"])["seen"].drop_nulls()
            linked += linked_rows(store, keys, part).height
            asked += len(seen)
            newest = seen.max()
            if isinstance(newest, datetime):
                last = max(last, newest) if last else newest
    return {"seen": last.isoformat(timespec="seconds") if last else None, "unasked": linked - asked}


def linked_rows(store: Store, keys: RunKeys, part: LedgerPart) -> pl.DataFrame:
    """Return the rows of a ledger part that have a link (LINK), single links included; every report
    has those.
    """
    columns = ["row", "cuid", "last_4", "state", "url", "expires_on"]
    return pl.concat(read_rows(store, keys, [part], columns, pl.col("state") == LINKED)).select(
        *LINK_ROW
    )
