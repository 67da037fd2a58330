"""The attempts to get cards their links: each row that a run sent or refused, and single links.

An attempt is what a run's ledger and its reconciled rows say of one row. Duplicates and rows that
were suppressed are none, but for the first row of a cardholder whom `[status]` leaves out or marks
as deleted from the start: nothing else would say that there is somebody.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime

import polars as pl

from flows.runs.cards import FINGERPRINTS, holder, numbered_twins
from flows.runs.chunks import OutboxChunk
from flows.runs.erased import is_erased
from flows.runs.events import ANSWERED
from flows.runs.frames import shaped
from flows.runs.outcomes import DECISION
from flows.runs.single_links import ARRIVED, SingleLink, answers_of
from flows.runs.store import ObjectMissingError
from flows.runs.stored_run import StoredRun
from schemas import ledger, reasons
from schemas.ledger import AWAITING, ERROR, LINKED, REJECTED, SUBMITTED
from schemas.manifest import LedgerPart, Manifest
from schemas.result import LIFE

CANCELLED = "cancelled"  # its chunk was cancelled before the upload: never sent
SINGLE = "single"  # awaits the outcome of a single link, instead of its chunk's result
FILE = "file"
CHANNELS = (FILE, SINGLE)
# Not sent, while its card has or awaits a link: its name or address is not what was sent, or it is
# that again. Such a row is no attempt; it says what a card's link should be made from.
CHANGED = "changed"
REVERTED = "reverted"
CHANGES = (CHANGED, REVERTED)
STATES = (LINKED, ERROR, AWAITING, REJECTED, CANCELLED, *CHANGES)
SENT = (LINKED, ERROR, AWAITING)
WAITS = ("waiting", "held", "uploaded", "answered", SINGLE)  # chunk states of an awaiting row
TYPED_IN = 2**31 - 1  # the turn of single links whose fields were typed in: after all runs
ATTEMPT = pl.Schema(
    {
        "turn": pl.Int32(),  # number of the run's commit
        "content": pl.Int32(),  # number of the commit of the extract whose row it is, -1: unknown
        "run": pl.String(),  # "" where the fields were typed in
        "as_of": pl.Date(),  # business date of the run
        "row": pl.UInt32(),
        "chunk": pl.UInt32(),
        "origin": pl.UInt32(),  # the row that this one repeats, perhaps with corrections
        "renewal": pl.Boolean(),  # sent because a link was about to end, perhaps again
        "cuid": pl.String(),
        "holder": pl.String(),
        "last_4": pl.String(),
        "twin": pl.UInt8(),
        "expiration": pl.String(),  # YYMM
        "name_check": pl.UInt32(),
        "address_check": pl.UInt32(),
        "reissue_check": pl.UInt32(),
        "state": pl.Enum(STATES),
        "reason": pl.String(),  # the first code of the refusal, ours or the partner's
        "trouble": pl.String(),  # the break of an answer that settled nothing
        "decided": pl.Boolean(),  # an error by an operator's decision: no answer that can be used
        "expires_on": pl.Date(),  # of the link
        "wait": pl.Enum(WAITS),  # what an awaiting row waits for, by the state of its chunk
        # since when: of an awaiting row that its chunk is in that state, of an answer that it came
        "since": ARRIVED,
        "channel": pl.Enum(CHANNELS),  # by which it was sent or answered
        # attempts that this one stands for, itself included where its chunk was not cancelled
        "tries": pl.UInt16(),
        "sendings": pl.UInt16(),  # of these, those that were sent
    }
)
UNKNOWN_CONTENT = -1
_CHANGES = {reasons.CHANGED: CHANGED, reasons.REVERTED: REVERTED}
NO_ATTEMPTS = pl.DataFrame(schema=ATTEMPT)
_RECORD = [
    "row",
    "chunk",
    "origin",
    "cuid",
    "last_4",
    "expiration",
    *FINGERPRINTS,
    "fate",
    "reasons",
]
_RESULT = pl.Schema(
    {
        "row": pl.UInt32(),
        "state": pl.String(),
        "expires_on": pl.Date(),
        "how": pl.String(),
        "reasons": pl.List(pl.String),
        "trouble": pl.String(),
        "result": pl.String(),  # name of the result file
    }
)


def attempts_of(run: StoredRun, turn: int, content: int | None = None) -> pl.DataFrame:
    """Return the attempts (ATTEMPT) of a committed run, in the order of its rows.

    `turn`: number of its commit; `content`: that of its extract, where the run is not of all of it.
    Single links that were made for its rows follow.
    """
    manifest = run.committed()
    suppressed = _suppressed(run, manifest)
    answered = answer_times(run)
    parts = (
        _settled(run, manifest, _as_attempts(_part(run, part, suppressed), answered))
        for part in manifest.ledger
    )
    shared = _shared(manifest, turn, turn if content is None else content)
    return _of_run(parts, shared, run.single_link_attempts)


def attempts_typed_in(singles: Sequence[SingleLink]) -> pl.DataFrame:
    """Return the single links of an issuer whose fields were typed in, as attempts."""
    rows = _single_attempts(singles, NO_ATTEMPTS)
    identified = rows.with_columns(holder=holder(rows), twin=pl.lit(0, pl.UInt8))
    return identified.with_columns(
        turn=pl.lit(TYPED_IN, pl.Int32),
        content=pl.lit(UNKNOWN_CONTENT, pl.Int32),
        run=pl.lit(""),
        renewal=pl.lit(value=False),
        as_of=pl.col("since").dt.date(),
    ).select(*ATTEMPT)


def is_set_aside() -> pl.Expr:
    """Return whether an attempt is a row that `[status]` leaves out or marks as deleted: it says
    that there is such a card, where nothing did before, and nothing else.
    """
    is_of_reason = pl.col("reason").is_in(reasons.SET_ASIDE)
    return ((pl.col("state") == REJECTED) & is_of_reason).fill_null(value=False)


def _suppressed(run: StoredRun, manifest: Manifest) -> list[str]:
    """Return the reasons of a run's suppressed rows that are attempts: by which its ledger tells
    changes (where they are on hold, only that a row can be sent again), and SET_ASIDE.
    """
    settings = run.plan.settings if run.plan is not None else {}
    is_on_hold = settings.get("resend", {}).get("changed") == "hold"
    codes = [reasons.REVERTED] if is_on_hold else [*reasons.CHANGES]
    return [f"|{code}" for code in (*codes, *reasons.SET_ASIDE) if code in manifest.reasons]


def _part(run: StoredRun, part: LedgerPart, suppressed: Sequence[str]) -> pl.DataFrame:
    """Return the records of a ledger part that are attempts, with what came of them."""
    results = _results(run, part)
    # a single link comes to a row that was not sent, too
    linked = results.filter(pl.col("state") == LINKED)["row"]
    is_attempt = pl.col("fate").is_in([SUBMITTED, ledger.REJECTED, ledger.INELIGIBLE])
    if linked.len():
        is_attempt |= pl.col("row").is_in(linked.implode())
    if suppressed:
        is_suppressed = pl.col("fate") == ledger.SUPPRESSED
        is_attempt |= is_suppressed & pl.col("reasons").list.last().is_in(suppressed)
    of_somebody = is_attempt & ~is_erased()
    return _with_results(run.ledger_part(part, _RECORD, of_somebody), results)


def _results(run: StoredRun, part: LedgerPart) -> pl.DataFrame:
    """Return the reconciled rows of a ledger part; none before the first report."""
    try:
        return run.rows_part(part, list(_RESULT))
    except ObjectMissingError:
        return _no_results()


def _no_results() -> pl.DataFrame:
    return pl.DataFrame(schema=_RESULT)


def _with_results(records: pl.DataFrame, results: pl.DataFrame) -> pl.DataFrame:
    return records.join(results, on="row", how="left", maintain_order="left", suffix="_result")


def answer_times(run: StoredRun) -> dict[str, datetime]:
    """Return when each result file of a run was ingested first, by its name."""
    times: dict[str, datetime] = {}
    for event in run.events(ANSWERED):
        for name in event.facts.get("results", ()):
            times.setdefault(name, event.at)
    return times


def _as_attempts(rows: pl.DataFrame, answered: Mapping[str, datetime]) -> pl.DataFrame:
    """Return ledger records with their results as attempts, but for what the whole run shares.

    `answered`: when each result file came, by its name.
    """
    is_sent = (pl.col("fate") == SUBMITTED) | (pl.col("state") == LINKED)
    code = pl.col("reasons").list.last().str.strip_prefix("|")
    state = (
        pl.when(is_sent)
        .then(pl.col("state").fill_null(AWAITING))
        .when(pl.col("fate") == ledger.SUPPRESSED)
        .then(code.replace_strict(_CHANGES, default=REJECTED, return_dtype=pl.String))
        .when(pl.col("fate") == ledger.INELIGIBLE)
        .then(pl.lit(REJECTED))  # its reason says that it is not eligible
        .otherwise("fate")
    )
    is_aside = code.is_in(reasons.SET_ASIDE).fill_null(value=False)
    is_aside &= ~pl.col("state").eq_missing(LINKED)
    refusals = pl.when(is_sent).then("reasons_result").otherwise("reasons")
    is_single = pl.col("how").eq_missing(SINGLE)
    times = pl.DataFrame(
        [*answered.items()], {"result": pl.String, "since": ATTEMPT["since"]}, orient="row"
    )
    rows = rows.join(times, on="result", how="left", maintain_order="left")
    return shaped(
        rows.with_columns(
            state=state,
            reason=pl.when(is_aside)
            .then(code)
            .otherwise(refusals.list.first().str.split("|").list.last()),
            decided=pl.col("how").eq_missing(DECISION),
            since=pl.when(~is_single).then("since"),
            channel=pl.when(is_single).then(pl.lit(SINGLE)).otherwise(pl.lit(FILE)),
            tries=(~state.is_in(CHANGES) & ~is_aside).cast(pl.UInt16),
            sendings=is_sent.cast(pl.UInt16).fill_null(0),
        ),
        ATTEMPT,
    )


def _with_single_times(rows: pl.DataFrame, singles: pl.DataFrame) -> pl.DataFrame:
    """Say since when rows have the link that was requested for them singly."""
    if singles.is_empty():
        return rows
    times = singles.select("row", "arrived")
    joined = rows.join(times, on="row", how="left", maintain_order="left")
    is_single = pl.col("channel") == SINGLE
    since = pl.when(is_single).then("arrived").otherwise("since")
    return joined.with_columns(since=since).select(*ATTEMPT)


def _with_cancelled(rows: pl.DataFrame, cancelled: Iterable[int]) -> pl.DataFrame:
    """Mark the rows of cancelled chunks that have no answer: they were never sent.

    Not where other rows of the chunk have one: somebody uploaded it all the same.
    """
    chunks = sorted(set(cancelled).difference(answered_chunks(rows)))
    if not chunks:
        return rows
    is_cancelled = (pl.col("state") == AWAITING) & pl.col("chunk").is_in(chunks)
    return rows.with_columns(
        state=pl.when(is_cancelled)
        .then(pl.lit(CANCELLED))
        .otherwise("state")
        .cast(ATTEMPT["state"]),
        **{
            name: pl.when(is_cancelled).then(0).otherwise(name).cast(pl.UInt16)
            for name in ("tries", "sendings")
        },
    )


def _with_waits(rows: pl.DataFrame, chunks: Sequence[OutboxChunk]) -> pl.DataFrame:
    """Say of each awaiting row what it waits for, and since when.

    A chunk of which other rows have an answer is answered, however it is marked.
    """
    if not (rows["state"] == AWAITING).any():
        return rows
    waits = pl.DataFrame(
        [(item.chunk.number, item.state, item.clock) for item in chunks if item.state in WAITS],
        {"chunk": pl.UInt32, "wait": ATTEMPT["wait"], "since": ATTEMPT["since"]},
        orient="row",
    )
    is_of_answered = pl.col("chunk").is_in(answered_chunks(rows).implode())
    waits = waits.with_columns(
        wait=pl.when(is_of_answered).then(pl.lit("answered", ATTEMPT["wait"])).otherwise("wait")
    )
    # of all columns a join would make another copy
    of_chunk = rows.select("chunk").join(waits, on="chunk", how="left", maintain_order="left")
    is_awaiting = pl.col("state") == AWAITING
    return rows.with_columns(
        wait=pl.when(is_awaiting).then(of_chunk["wait"]),
        since=pl.when(is_awaiting).then(of_chunk["since"]).otherwise("since"),
    )


def answered_chunks(rows: pl.DataFrame) -> pl.Series:
    """Return the chunks of which a row has an answer in a result file, also one that settles
    nothing; `rows`: chunk, state, channel, trouble.
    """
    is_answered = pl.col("state").is_in([LINKED, ERROR]) & (pl.col("channel") == FILE)
    answers = rows.filter(is_answered | pl.col("trouble").is_not_null())
    return answers["chunk"].drop_nulls().unique()


def _single_attempts(singles: Iterable[SingleLink], rows: pl.DataFrame) -> pl.DataFrame:
    """Return single links as attempts: links that `rows` do not have yet, and unknown outcomes.

    One for a row among `rows` repeats that row: it was sent with the same content.
    """
    answers = answers_of(singles)
    if answers.is_empty():
        return NO_ATTEMPTS
    already = rows.filter(pl.col("state") == LINKED).select("row", "expires_on")
    news = answers.join(already, on=["row", "expires_on"], how="anti", nulls_equal=True)
    content = rows.select("row", "origin", *FINGERPRINTS).unique("row")
    of_rows = news.join(content, on="row", how="left", maintain_order="left")
    is_awaiting = pl.col("state") == AWAITING
    ends = pl.coalesce("expires_on", pl.col("arrived").dt.date() + LIFE)
    attempts = of_rows.with_columns(
        expires_on=pl.when(pl.col("state") == LINKED).then(ends),
        wait=pl.when(is_awaiting).then(pl.lit(SINGLE)),
        since="arrived",
        channel=pl.lit(SINGLE),
        decided=pl.lit(value=False),
        tries=pl.lit(1),
        sendings=pl.lit(1),
    )
    return shaped(attempts, ATTEMPT)


def _settled(run: StoredRun, manifest: Manifest, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the attempts of a ledger part with what became of their chunks and single links.

    No chunk spans two parts.
    """
    rows = _with_single_times(rows, run.single_links)
    rows = _with_waits(_with_cancelled(rows, run.cancelled_chunks), run.chunk_states)
    end = pl.col("expires_on").fill_null(manifest.as_of + LIFE)
    return rows.with_columns(expires_on=pl.when(pl.col("state") == LINKED).then(end))


def _shared(manifest: Manifest, turn: int, content: int) -> dict[str, pl.Expr]:
    """Return what all attempts of a run share."""
    is_renewal = manifest.selection is not None and manifest.selection.kind == "renew"
    shared = {
        "renewal": pl.lit(is_renewal),
        "turn": pl.lit(turn, pl.Int32),
        "content": pl.lit(content, pl.Int32),
        "run": pl.lit(manifest.run),
        "as_of": pl.lit(manifest.as_of),
    }
    if is_renewal:  # sent as the extract has them
        shared["origin"] = pl.lit(None, pl.UInt32)
    return shared


def _of_run(
    parts: Iterable[pl.DataFrame], shared: Mapping[str, pl.Expr], singles: Sequence[SingleLink] = ()
) -> pl.DataFrame:
    """Return the attempts of a run from those of its ledger parts: what was sent comes last.

    Each part is freed before the next is read, so that the run is in memory once.
    """
    unsent = [NO_ATTEMPTS]
    sent = [NO_ATTEMPTS]
    for part in parts:
        _sort_in(part, shared, unsent, sent)
        del part
    _sort_in(_single_attempts(singles, pl.concat([*unsent, *sent])), shared, unsent, sent)
    return pl.concat([*unsent, _sent_with_twins(pl.concat(sent))])


def _sort_in(
    rows: pl.DataFrame,
    shared: Mapping[str, pl.Expr],
    unsent: list[pl.DataFrame],
    sent: list[pl.DataFrame],
) -> None:
    """Add attempts, completed with their identity, to those that were sent or that were not."""
    named = rows.with_columns(holder=holder(rows), twin=pl.lit(0, pl.UInt8), **shared)
    completed = named.select(*ATTEMPT)
    is_sent = pl.col("state").is_in(SENT)
    unsent.append(completed.filter(~is_sent))
    sent.append(completed.filter(is_sent))


def _sent_with_twins(rows: pl.DataFrame) -> pl.DataFrame:
    """Number cards that look the same; several attempts of one row are of one card."""
    once = rows
    if rows["row"].n_unique() < rows.height:
        once = rows.unique("row", keep="first", maintain_order=True)
    twins = numbered_twins(once).select("row", "twin")
    if not (twins["twin"] > 0).any():
        return rows
    joined = rows.drop("twin").join(twins, on="row", how="left", maintain_order="left")
    return joined.select(*ATTEMPT)


def active(today: date) -> pl.Expr:
    """Return whether an attempt keeps its card from being sent: awaiting, or a living link."""
    is_alive = (pl.col("state") == LINKED) & ~ended(today)
    return (pl.col("state") == AWAITING) | is_alive


def ended(today: date) -> pl.Expr:
    """Return whether the link of an attempt cannot be opened any more."""
    return (pl.col("expires_on") < today).fill_null(value=False)


def in_order(frames: Iterator[pl.DataFrame] | Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the attempts of several runs in the order of their commits.

    Within a run what was sent comes last, so that it counts.
    """
    ordered = list(frames)
    nothing = NO_ATTEMPTS.select(ordered[0].columns) if ordered else NO_ATTEMPTS
    attempts: pl.DataFrame = pl.concat([nothing, *ordered])
    if attempts["turn"].is_sorted():  # as most often: no copy is needed
        return attempts
    return attempts.sort("turn", maintain_order=True)
