"""What became of each extract: committed, dismissed, repeated, held, or still to be submitted.

An extract is known by its name and content, so that a store that was copied or restored makes
nothing pending. One that has the name of a committed extract and other content is held until an
operator decides about it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import polars as pl

from flows.errors import GateError
from flows.extracts.delivery import business_date, is_extract, missing, open_extract, waits_for
from flows.extracts.errors import checked_name
from flows.runs import documents
from flows.runs.chains import commits_since
from flows.runs.context import IssuerContext
from flows.runs.identity import canonical, date_in_name, digest
from flows.runs.keys import dismissed, extracts, identified
from flows.runs.prior_state import PriorState
from flows.runs.store import (
    Entry,
    ObjectChangedError,
    ObjectMissingError,
    VerdictAwaitedError,
    VerdictRefusedError,
    concurrently,
)
from flows.submissions.build import Scan
from flows.submissions.gates import CHANGED_EXTRACT
from flows.submissions.plan import (
    RunInputs,
    dismiss_line,
    dismissal,
    dismissals,
    expected_run,
    identify,
    submit_line,
)
from flows.submissions.rows import RowScope
from schemas.manifest import Manifest, Plan, SourceIdentity
from schemas.portal import CUID
from schemas.records import Abandoned, Dismissal

State = Literal[
    "pending",
    "held",
    "repeated",
    "unclean",
    "committed",
    "abandoned",
    "dismissed",
    "replaced",
    "gone",
    "ignored",
]
WAITING = ("pending", "held", "repeated", "unclean")


class ExtractState(NamedTuple):
    """One content of one name, its last run, and the `other` run whose content it repeats or
    changes.
    """

    key: str
    state: State
    sha256: str = ""  # "" where nothing known has that size, so that it need not be read
    run: str = ""
    other: str = ""
    entry: Entry | None = None  # None where the name has other content now, or is gone
    dismissals: tuple[Dismissal, ...] = ()
    waits: str = ""  # what it still lacks to be taken


_Run = tuple[Plan, Manifest | Abandoned | None]  # a run's plan, and how it ended


def pending(context: IssuerContext, *, remember: bool = False) -> list[Entry]:
    """Return the extracts that need a run and can be taken, oldest first; CardInNameError."""
    return [entry for entry, waits in unsubmitted(context, remember=remember) if not waits]


def unsubmitted(context: IssuerContext, *, remember: bool = False) -> list[tuple[Entry, str]]:
    """Return the extracts that match [source] pattern and still need a run, oldest first, with what
    each waits for.

    One whose last run was abandoned needs none until an operator asks for a new run.
    """
    found = extract_states(context, remember=remember)
    waiting = [
        (one.entry, one.waits) for one in found if one.entry is not None and one.state in WAITING
    ]
    return sorted(waiting, key=lambda one: (one[0].modified, one[0].key))


def extract_states(context: IssuerContext, *, remember: bool = False) -> list[ExtractState]:
    """Return what became of every extract that is stored or had a run, by name; CardInNameError.

    A file is read for its digest only where its size is known and its version is not; `remember`
    stores what was read.
    """
    store, issuer = context.adapters.store, context.issuer.issuer
    whole = [plan for plan in documents.plans(store, issuer) if plan.selection is None]
    runs = defaultdict[str, list[_Run]](list)  # by name and by content
    ends = concurrently(lambda plan: documents.read_end(store, documents.keys_of(plan.run)), whole)
    for plan, end in zip(whole, ends, strict=True):
        runs[plan.source.key].append((plan, end))
        runs[plan.source.sha256].append((plan, end))
    listed = {
        entry.key.removeprefix(dismissed(issuer)).partition("/")[0]
        for entry in store.keys(dismissed(issuer))
    }
    chains = {sha256: dismissals(store, issuer, sha256) for sha256 in listed}
    versions = {
        (plan.source.key, plan.source.size, plan.source.version): plan.source.sha256
        for plan in whole
    }
    sizes = {size for _, size, _ in versions} | {
        one.size for chain in chains.values() for one in chain
    }
    source, now = context.issuer.source, context.adapters.now()
    found, present, files = [], {}, {entry.key: entry for entry in store.keys(extracts(issuer))}
    for entry in files.values():
        if not is_extract(checked_name(entry.key.removeprefix(extracts(issuer))), source):
            found.append(ExtractState(entry.key, "ignored", entry=entry))
            continue
        sha256 = versions.get((entry.key, entry.size, entry.version), "")
        state: State = "pending"
        try:  # what has a plan was judged; whoever reads it again asks for its verdict again
            waits = (
                missing(entry, files, source, now) if sha256 else waits_for(context, entry, files)
            )
        except VerdictRefusedError as error:
            state, waits = "unclean", error.message.format(**error.fields)
        if not sha256 and entry.size in sizes:
            sha256 = _content(context, entry, remember=remember)
        present[entry.key] = sha256
        one = ExtractState(entry.key, state, sha256, "", "", entry, chains.get(sha256, ()), waits)
        found.append(_state(context, runs, one))
    for key, sha256 in {(plan.source.key, plan.source.sha256) for plan in whole}:
        if present.get(key) != sha256:
            state = "replaced" if key in present else "gone"
            found.append(
                _state(
                    context,
                    runs,
                    ExtractState(key, state, sha256, dismissals=chains.get(sha256, ())),
                )
            )
    return sorted(found, key=lambda one: (one.key, one.entry is not None, one.run))


def _content(context: IssuerContext, entry: Entry, *, remember: bool) -> str:
    """Return the digest of an extract, read once for each version of it; "" while somebody changes
    it.
    """
    store = context.adapters.store
    version = canonical({"key": entry.key, "size": entry.size, "version": entry.version})
    key = f"{identified(context.issuer.issuer)}{digest(version)}.json"
    if (found := documents.read_document(store, key, SourceIdentity)) is not None:
        return found.sha256
    try:
        found = identify(store, entry)
    except (ObjectChangedError, ObjectMissingError, VerdictAwaitedError, VerdictRefusedError):
        return ""
    if remember:
        store.create(key, canonical(found))
    return found.sha256


def _state(
    context: IssuerContext, runs: Mapping[str, Sequence[_Run]], one: ExtractState
) -> ExtractState:
    """Return what became of one content of one name."""
    alike, key, entry = runs.get(one.sha256, ()), one.key, one.entry
    # its bytes may be the same on another date
    if entry is not None and context.issuer.full_portfolio:
        day, dated = None if one.waits else business_date(context, entry), date_in_name(key)
        own = [
            plan.source.key == key and (dated or plan.source.version == entry.version)
            for plan, _ in alike
        ]
        alike = [run for run, mine in zip(alike, own, strict=True) if mine or run[0].as_of == day]
    mine = [plan.run for plan, _ in alike if plan.source.key == key]
    ended = {plan.run: end for plan, end in alike if end is not None}
    committed = [run for run, end in ended.items() if isinstance(end, Manifest)]
    if done := [run for run in mine if run in committed]:
        return one._replace(state="committed", run=done[-1])
    one = one._replace(run=mine[-1] if mine else "")
    if one.run in ended:
        return one._replace(state="abandoned")
    if dismissal(context, key, one.dismissals) is not None:
        return one._replace(state="dismissed")
    if entry is not None and (committed or (alike and alike[-1][1] is not None)):
        return one._replace(state="repeated", other=(committed or [*ended])[-1])
    before = [plan.run for plan, end in runs.get(key, ()) if isinstance(end, Manifest)]
    if entry is not None and before and context.issuer.source.same_name == "hold":
        return one._replace(state="held", other=before[-1])
    return one


CARD = ["cuid", "cuid_made", "last_4", "expiration"]


class ChangedExtractError(GateError):
    """A name that was committed with other content."""

    message = "{extract} has other content than run {run}, committed under that name: {rows}. Nothing was committed."
    next_step = (
        "Ask the issuer which it is. A correction: `{submit}` sends {sent} rows. Not to be sent: `{dismiss}` sends "
        'none. Where every file has that name: [source] same_name = "replace".'
    )


def changed_extract(
    context: IssuerContext,
    entry: Entry,
    source: SourceIdentity,
    asked: RunInputs,
    prior: PriorState | None,
) -> ChangedExtractError | None:
    """Return what holds a name whose last commit had other content; the extract is read only
    then.
    """
    store, issuer, key = context.adapters.store, context.issuer.issuer, source.key
    named = [
        plan.run
        for plan in documents.plans(store, issuer)
        if plan.source.key == key and plan.selection is None
    ]
    ends = [
        end
        for run in named
        if (end := documents.read_manifest(store, documents.keys_of(run))) is not None
    ]
    if not ends or any(one.source.sha256 == source.sha256 for one in ends):
        return None
    expected_run(context, source, asked)  # dismissed or repeated, rather than changed
    turns = (
        {one.run: turn for turn, one in enumerate(commits_since(store, issuer))} if ends[1:] else {}
    )
    last, new = max(ends, key=lambda one: turns.get(one.run, -1)), list[pl.Series]()
    with open_extract(context, entry, source) as stream:
        scan = Scan(context, stream, source, asked.as_of, RowScope(prior=prior))
        for piece in scan:
            chunks = (chunk.with_columns(pl.col(CUID).alias("cuid")) for chunk in piece.chunks)
            new += [_cards(rows) for rows in (piece.others, *chunks)]
    counts, found = scan.counts, pl.concat(new)
    rows = f"{counts.read:,} rows, not compared since the ledger of that run was purged"
    with suppress(documents.LedgerPurgedError):
        parts = documents.read_ledger(store, documents.keys_of(last.run), last.ledger, CARD)
        old = pl.concat([pl.Series("card", dtype=pl.UInt64), *map(_cards, parts)])
        same, gone = int(found.is_in(old.implode()).sum()), int((~old.is_in(found.implode())).sum())
        rows = f"{same:,} rows are the same, {found.len() - same:,} new, {gone:,} gone"
    line, sent = submit_line(key, "--open", CHANGED_EXTRACT), f"{counts.submitted:,}"
    return ChangedExtractError(
        extract=key, run=last.run, rows=rows, submit=line, sent=sent, dismiss=dismiss_line(key)
    )


def _cards(rows: pl.DataFrame) -> pl.Series:
    """Return what a row's card is known by, in this process; a cuid that we made is another in each
    content.
    """
    cuid = pl.when(~pl.col("cuid_made")).then("cuid").alias("cuid")
    return rows.select(pl.struct(cuid, "last_4", "expiration").hash().alias("card")).to_series()
