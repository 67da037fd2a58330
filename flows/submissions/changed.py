"""Hold an extract that has the name of a committed one and other content, until an operator decides about it."""

from __future__ import annotations

import shlex
from collections.abc import Collection

import polars as pl

from flows.errors import GateError
from flows.extracts.open import open_extract
from flows.runs.chains import commits_since
from flows.runs.context import IssuerContext
from flows.runs.documents import LedgerPurgedError, keys_of, plans, read_ledger, read_manifest
from flows.runs.keys import extracts
from flows.runs.prior_state import PriorState
from flows.runs.store import Entry, Store
from flows.submissions.build import Piece, Scan
from flows.submissions.gates import CHANGED_EXTRACT
from flows.submissions.plan import RunInputs, dismiss_line, expected_run
from flows.submissions.rows import RowScope
from schemas.manifest import Counts, Manifest, SourceIdentity
from schemas.portal import CUID

CARD = ["cuid", "cuid_made", "last_4", "expiration"]


class ChangedExtractError(GateError):
    """A name that was committed with other content."""

    message = "{extract} has other content than run {run}, committed under that name: {rows}. Nothing was committed."
    next_step = (
        "Ask the issuer which it is. A correction: `{submit}` sends {sent} rows. Not to be sent: `{dismiss}` sends "
        'none. Where every file has that name: [source] same_name = "replace".'
    )


class Changed:
    """An extract's rows beside those of the committed run of that name; add every piece of its scan."""

    def __init__(self, context: IssuerContext, before: Manifest) -> None:
        self._before = before
        self._old = _old_cards(context.adapters.store, before)
        self._new = [pl.Series("card", dtype=pl.UInt64)]

    def add(self, piece: Piece) -> None:
        """Add the rows of a piece, sent or not."""
        chunks = (chunk.with_columns(pl.col(CUID).alias("cuid")) for chunk in piece.chunks)
        self._new += [_cards(rows) for rows in (piece.others, *chunks)]

    def error(self, counts: Counts) -> ChangedExtractError:
        """Return what holds the extract, by the counts of its scan."""
        new, key = pl.concat(self._new), self._before.source.key
        issuer = keys_of(self._before.run).run.issuer
        rows = f"{counts.read:,} rows, not compared since the ledger of that run was purged"
        if self._old is not None:
            same, gone = int(new.is_in(self._old.implode()).sum()), int((~self._old.is_in(new.implode())).sum())
            rows = f"{same:,} rows are the same, {new.len() - same:,} new, {gone:,} gone"
        words = ["cardlink", "submit", issuer, "--extract", key.removeprefix(extracts(issuer))]
        line = shlex.join([*words, "--open", CHANGED_EXTRACT])
        sent = f"{counts.submitted:,}"
        return ChangedExtractError(
            extract=key, run=self._before.run, rows=rows, submit=line, sent=sent, dismiss=dismiss_line(key)
        )


def hold_changed(
    context: IssuerContext,
    entry: Entry,
    source: SourceIdentity,
    asked: RunInputs,
    opened: Collection[str],
    prior: PriorState | None,
) -> None:
    """Raise ChangedExtractError where a name was committed with other content; the extract is read only then."""
    changed = changed_from(context, source, opened)
    if changed is None:
        return
    expected_run(context, source, asked)  # dismissed or repeated, rather than changed
    with open_extract(context, entry, source) as stream:
        scan = Scan(context, stream, source, asked.as_of, RowScope(prior=prior))
        for piece in scan:
            changed.add(piece)
    raise changed.error(scan.counts)


def changed_from(context: IssuerContext, source: SourceIdentity, opened: Collection[str]) -> Changed | None:
    """Return what to compare an extract with: the last commit of its name, None where that had the same content."""
    store, issuer = context.adapters.store, context.issuer.issuer
    if context.issuer.source.same_name == "replace" or CHANGED_EXTRACT in opened:
        return None
    named = [plan.run for plan in plans(store, issuer) if plan.source.key == source.key and plan.selection is None]
    before = [end for run in named if (end := read_manifest(store, keys_of(run))) is not None]
    if not before or any(one.source.sha256 == source.sha256 for one in before):
        return None
    turns = {one.run: turn for turn, one in enumerate(commits_since(store, issuer))} if before[1:] else {}
    return Changed(context, max(before, key=lambda one: turns.get(one.run, -1)))


def _old_cards(store: Store, before: Manifest) -> pl.Series | None:
    try:
        parts = list(read_ledger(store, keys_of(before.run), before.ledger, CARD))
    except LedgerPurgedError:
        return None
    return pl.concat([pl.Series("card", dtype=pl.UInt64), *map(_cards, parts)])


def _cards(rows: pl.DataFrame) -> pl.Series:
    """Return what a row's card is known by, in this process; a cuid that we made is another in each content."""
    cuid = pl.when(~pl.col("cuid_made")).then("cuid").alias("cuid")
    return rows.select(pl.struct(cuid, "last_4", "expiration").hash().alias("card")).to_series()
