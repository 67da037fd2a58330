"""The lists of a report (`schemas.tables`): links, errors, rejects, chunks, open rows, cardholders
without a link.

Derived from ledger and reconciled rows, without card numbers; the small tables shown by commands
are here too.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import polars as pl

from flows.reports.cardholder import waits
from flows.results.lineage import CARD_HASHES
from flows.runs.chunks import OutboxChunk
from flows.runs.documents import read_ledger
from flows.runs.frames import csv_pieces
from flows.runs.keys import RunKeys, keys_of
from flows.runs.prior_state import SEEN, seen_rows
from flows.runs.store import Store
from schemas import ledger
from schemas.breaks import KINDS, Break
from schemas.ledger import ERROR, LINKED
from schemas.manifest import Manifest
from schemas.reasons import reason
from schemas.settings import LinkSettings
from schemas.tables import Awaiting, Links, Refusals

FAILED = pl.col("state") == ERROR  # rows of errors.csv
UNSENT = pl.col("fate").is_in([ledger.REJECTED, ledger.DUPLICATE])  # rows of rejects.csv
# rows of held.csv
HELD = pl.col("reasons").list.eval(pl.element().is_in([f"|{code}" for code in SEEN])).list.any()

SHOWN = 200  # chunks listed in one table; chunks.csv has them all

CARD = ["cuid", "last_4"]
OUTBOX = "outbox"
TRIED = {
    "cuid": pl.String(),
    "last_4": pl.String(),
    "run": pl.String(),
    # submit: refused by us; partner: sent, but in error; OUTBOX: its chunk was cancelled
    "stage": pl.String(),
    "reason": pl.String(),
}


def verified_links(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the links of reconciled rows (`schemas.tables.Links`): verified ones only, cells
    unchanged.
    """
    return rows.filter(state=LINKED).select(*Links.dtypes())


def errors(rows: pl.DataFrame) -> pl.DataFrame:
    """Return errors.csv of reconciled rows: one line per row and reason the partner gave."""
    reported = rows.filter(FAILED).select(
        "row", "cuid", "last_4", "message", pl.col("reasons").alias("reason")
    )
    listed = reported.explode("reason").with_columns(
        pl.lit("partner").alias("stage"), pl.lit(None, pl.String).alias("column")
    )
    return _refusals(listed)


def unsent(records: pl.DataFrame, shapes: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return rejects.csv or held.csv of ledger records: a line per row and reason, no value;
    `shapes` of a check.
    """
    reported = records.select("row", "cuid", "last_4", "reasons").explode("reasons")
    split = pl.col("reasons").str.split_exact("|", 1)
    listed = reported.with_columns(
        split.struct.field("field_0").replace("", None).alias("column"),
        split.struct.field("field_1").alias("reason"),
        pl.lit("submit").alias("stage"),
    )
    advice = _by_code(listed["reason"], lambda code: reason(code).advice or None)
    listed = listed.with_columns(advice.alias("message"))
    if shapes is not None:
        told = pl.concat_str(
            "found: " + pl.col("found"), "message", separator="; ", ignore_nulls=True
        )
        listed = listed.join(
            shapes, on=["row", "column"], how="left", maintain_order="left"
        ).with_columns(message=told)
    return _refusals(listed)


def chunks(manifest: Manifest, reconciled: pl.DataFrame) -> pl.DataFrame:
    """Return chunks.csv: every chunk as uploaded, and what came back for it."""
    sealed = pl.DataFrame(
        [(one.number, one.name, one.bytes, one.sha256) for one in manifest.chunks],
        schema={"chunk": pl.UInt32, "name": pl.String, "bytes": pl.UInt64, "sha256": pl.String},
        orient="row",
    )
    reported = reconciled.with_columns(pl.col("results").list.join(" | "))
    counts = [
        pl.col(name).cast(pl.UInt32) for name in ("sent", "answers", "linked", "error", "awaiting")
    ]
    joined = sealed.join(reported, on="chunk", how="left", maintain_order="left")
    return joined.select("chunk", "name", "bytes", "sha256", *counts, "state", "results")


def _by_code(codes: pl.Series, text: Callable[[str], str | None]) -> pl.Expr:
    """Return the expression of a text for each reason code."""
    texts = {code: text(code) for code in codes.unique().drop_nulls()}
    return pl.col("reason").replace_strict(texts, default=None, return_dtype=pl.String)


def _actions(listed: pl.DataFrame) -> pl.DataFrame:
    return listed.with_columns(
        _by_code(listed["reason"], lambda code: reason(code).action).alias("action")
    )


def _refusals(listed: pl.DataFrame) -> pl.DataFrame:
    return _actions(listed).select(*Refusals.dtypes())


def reason_rows(reasons: Mapping[str, int]) -> list[tuple[str, int, str]]:
    """Return each reason code, most frequent first, with its rows and what to do."""
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return [(code, number, reason(code).action) for code, number in ordered]


def unlinked(tried: Iterable[pl.DataFrame], done: pl.DataFrame) -> pl.DataFrame:
    """Return cuid, last_4, attempts, sent, run, stage, reason, action of cards not in `done`
    (`Cardholders.settled`).

    `tried`: frames of TRIED, runs in order; the last attempt gives run, stage and reason, a cancelled chunk only where
    there is no other. A row refused before its card number could be read counts as linked where its
    cardholder is.
    """
    every = pl.concat([pl.DataFrame(schema=TRIED), *(_without(frame, done) for frame in tried)])
    made = pl.col("stage") != OUTBOX
    last = [pl.col(name).last() for name in ("run", "stage", "reason")]
    counted = (
        every.sort(made, maintain_order=True)
        .group_by(CARD, maintain_order=True)
        .agg(
            made.sum().alias("attempts"), (pl.col("stage") == "partner").sum().alias("sent"), *last
        )
    )
    return _actions(counted).sort("attempts", "cuid", "last_4", descending=[True, False, False])


def _without(tried: pl.DataFrame, done: pl.DataFrame) -> pl.DataFrame:
    known = tried.drop_nulls("cuid")
    hashes = known.select(**CARD_HASHES)
    card = hashes["card"].is_in(done["card"].implode())
    holder = hashes["holder"].is_in(done["holder"].implode()) & known["last_4"].is_null()
    return known.filter(~(card | holder)).select(*TRIED)


def write_links(
    store: Store, keys: RunKeys, links: Iterator[pl.DataFrame], settings: LinkSettings
) -> None:
    """Write all links of a run.

    Link files of an earlier report keep only their header: a link withdrawn since must not be sent
    from them.
    """
    written = set()
    for name, pieces in link_files(links, settings):
        store.replace(keys.report(name), pieces)
        written.add(keys.report(name))
    for entry in list(store.keys(keys.report("links"), shallow=True)):
        if entry.key.endswith(".csv") and entry.key not in written:
            store.replace(entry.key, csv_pieces([], settings.columns.values()))


def link_files(
    links: Iterator[pl.DataFrame], settings: LinkSettings, more: Sequence[str] = ()
) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield name and content of links.csv, or of links-00001.csv and so on, of `rows_per_file` rows
    each.

    Columns, their names and the date format are those of the sending system; `more` columns follow.
    """
    names = [*settings.columns.values(), *more]
    cells = [
        pl.col(column).alias(name)
        for column, name in zip([*settings.columns, *more], names, strict=True)
    ]
    day = pl.col("expires_on").dt.strftime(settings.strftime)
    mailed = (part.with_columns(day).select(cells) for part in links)
    for number, frames in enumerate(_files(mailed, settings.rows_per_file), start=1):
        name = f"links-{number:05d}.csv" if settings.rows_per_file else "links.csv"
        yield name, csv_pieces(frames, names, unchanged=True)


def _files(frames: Iterator[pl.DataFrame], limit: int | None) -> Iterator[Iterable[pl.DataFrame]]:
    """Yield the frames of each file: all of them, or `limit` rows at a time."""
    if limit is None:
        yield frames
        return
    waiting = next(frames, None)
    while waiting is not None:
        while waiting.height <= limit and (more := next(frames, None)) is not None:
            waiting = pl.concat([waiting, more])
        yield [waiting.head(limit)]
        waiting = waiting.slice(limit) if waiting.height > limit else None


def write_unsent(store: Store, keys: RunKeys, manifest: Manifest, *, portfolio: bool) -> None:
    """Write rejects.csv, and held.csv where a card was seen before; in a portfolio that is most,
    and not listed.
    """
    columns = ["row", "cuid", "last_4", "fate", "reasons"]
    listed = {"rejects.csv": UNSENT} | (
        {"held.csv": HELD} if seen_rows(manifest.reasons) and not portfolio else {}
    )
    for name, rows in listed.items():
        frames = (unsent(part) for part in read_ledger(store, keys, manifest.ledger, columns, rows))
        store.replace(keys.report(name), csv_pieces(frames, Refusals.dtypes()))


BREAKS = ["break", "place", "row", "cuid", "last_4", "chunk", "action"]
_WHY = {
    "chunk": pl.UInt32,
    "trouble": pl.String,
    "since": pl.String,
    "why": pl.String,
    "action": pl.String,
}


def awaiting(
    frames: Iterable[pl.DataFrame], items: Collection[OutboxChunk]
) -> Iterator[pl.DataFrame]:
    """Yield awaiting.csv of reconciled rows that wait (row, cuid, last_4, chunk, trouble)."""
    by_chunk = {item.chunk.number: item for item in items}
    for rows in frames:
        why = []
        for chunk, trouble in rows.select("chunk", "trouble").unique().iter_rows():
            item = by_chunk[chunk]
            said = waits(item.state, trouble, item.run, keys_of(item.run).run.issuer, chunk)
            why.append((chunk, trouble, item.clock.isoformat(timespec="seconds"), *said))
        joined = rows.join(
            pl.DataFrame(why, _WHY, orient="row"), on=["chunk", "trouble"], nulls_equal=True
        ).sort("row")
        yield joined.select(*Awaiting.dtypes())


def breaks(broken: pl.DataFrame, found: Iterable[Break]) -> pl.DataFrame:
    """Return breaks.csv: every row of every open break, and one line of a break that has no
    rows.
    """
    listed = set(broken["kind"])
    alone = [
        (one.name, one.place, KINDS[one.name].then)
        for one in found
        if not one.notice and one.name not in listed
    ]
    file = pl.when(pl.col("row").is_null()).then(pl.format("{}, row {}", "result", "position"))
    rows = broken.with_columns(
        pl.col("kind").alias("break"),
        pl.coalesce(file, pl.format("chunk {}", "chunk")).alias("place"),
        pl.col("kind")
        .replace_strict({name: kind.then for name, kind in KINDS.items()})
        .alias("action"),
    ).select(BREAKS)
    every = pl.concat(
        [rows, pl.DataFrame(alone, ["break", "place", "action"], orient="row")],
        how="diagonal_relaxed",
    )
    return every.sort("break", "chunk", "row", "place", nulls_last=True)


def questions(
    broken: pl.DataFrame,
    awaited: pl.DataFrame,
    items: Sequence[OutboxChunk],
    now: datetime,
    within: timedelta,
) -> pl.DataFrame:
    """Return questions.csv: what to ask the partner about each row of an open break or of an
    overdue result.

    `awaited`: the rows that wait (chunk, cuid, last_4, trouble).
    """
    asked = {name: kind.question for name, kind in KINDS.items() if kind.question}
    late = {
        item.chunk.number: f"The chunk was uploaded on {item.clock:%Y-%m-%d} and has no result: what became of it?"
        for item in items
        if item.state == "uploaded" and item.overdue(now, within)
    }
    names = {item.chunk.number: item.chunk.name for item in items}
    name = pl.col("chunk").replace_strict(names, default=None, return_dtype=pl.String)
    frames = [
        one.with_columns(
            pl.col(by).replace_strict(texts, default=None, return_dtype=pl.String).alias("question")
        )
        .drop_nulls("question")
        .select(
            pl.coalesce(name, *(["result"] if by == "kind" else [])).alias("chunk"),
            "cuid",
            "last_4",
            "question",
        )
        for one, by, texts in ((broken, "kind", asked), (awaited, "chunk", late))
    ]
    return pl.concat(frames).unique(maintain_order=True)
