"""Send rows of a run again: choose them by what is known now, read them anew from their source, commit a run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import chain
from typing import NamedTuple

import polars as pl

from flows.errors import OperatorError
from flows.extracts.open import open_extract
from flows.redaction import redact
from flows.reports.ingest import ingest
from flows.reports.rebuild import rebuild
from flows.resend.corrections import (
    CELL,
    CorrectionFile,
    by_row,
    cells_of,
    corrected_cells,
    drop_corrections,
    find_dropped,
    given_as,
    merge_corrections,
    read_corrections,
)
from flows.resend.selection import (
    CARD,
    STANDING,
    STANDS,
    TRIED,
    RowFacts,
    RowSelection,
    active_attempts,
    asked,
    cards,
    decide,
)
from flows.resend.sources import numbered, reopen_source, replaced_rows, rows_digest, write_selection
from flows.results.lineage import committed, record_repeat, repeated_runs, run_rows
from flows.runs.attempts import attempts, attempts_of
from flows.runs.chains import commits_since
from flows.runs.context import IssuerContext, record_event
from flows.runs.documents import NoReasonError, NoSuchRowError, keys_of
from flows.runs.identity import canonical, digest, local_day
from flows.runs.probe import ensure_store_safe
from flows.runs.sealing import Sealer
from flows.runs.store import Entry
from flows.submissions.build import Job, OnProgress, Scan
from flows.submissions.plan import identify, plan_selection
from flows.submissions.rows import Choice
from flows.submissions.selection import PICK, Picked
from flows.submissions.submit import Submitted, execute, finish_commits
from schemas import ledger
from schemas.manifest import Manifest, Plan, Selection, SourceIdentity
from schemas.portal import CUID

RESENT = "sent again"


class Source(NamedTuple):
    """Where rows are read from; `picks`: row there, and origin, the run's row that it is; `strangers`: none of them."""

    entry: Entry
    identity: SourceIdentity
    picks: pl.DataFrame
    strangers: pl.Series

    def only(self, origins: pl.Series) -> Source:
        """Return the source with the picks of these rows of the run alone; the others are strangers."""
        asked = pl.col("origin").is_in(origins.implode())
        others = self.picks.filter(~asked)["row"]
        return self._replace(picks=self.picks.filter(asked), strangers=pl.concat([self.strangers, others]).sort())


def run_source(context: IssuerContext, manifest: Manifest, numbers: pl.Series) -> Source:
    """Return these rows of a run in the source it was made of; SourceGoneError."""
    entry, identity = reopen_source(context, manifest.run, manifest.source)
    return Source(entry, identity, pl.DataFrame({"row": numbers, "origin": numbers}, PICK), numbers.clear())


def corrected_extract(context: IssuerContext, manifest: Manifest, name: str) -> Source:
    """Return the rows of a corrected extract that replace rows of a run; AmbiguousRowsError, what reading raises."""
    entry = find_dropped(context, name)
    identity = identify(context.adapters.store, entry)
    picks, numbers = replaced_rows(context, entry, identity, manifest)
    return Source(entry, identity, picks, numbers.filter(~numbers.is_in(picks["row"].implode())))


def recheck_rows(context: IssuerContext, source: Source, picked: Picked) -> pl.DataFrame:
    """Return what the rules say today of the rows as they would go out (`flows.resend.selection.TRIED`)."""
    if source.picks.is_empty():
        return pl.DataFrame(schema=TRIED)
    with open_extract(context, source.entry, source.identity) as stream:
        scan = Scan(context, stream, source.identity, _today(context), Choice(picked=picked))
        return pl.concat(list(_tried(scan)))


def _tried(scan: Scan) -> Iterator[pl.DataFrame]:
    for piece in scan:
        good = [chunk.with_columns(cuid=CUID, fate=pl.lit(ledger.SUBMITTED)) for chunk in piece.chunks]
        for frame in (piece.others, *good):
            yield frame.select(pl.col(name).cast(kind) for name, kind in TRIED.items())


def active_attempts_of(
    context: IssuerContext, manifest: Manifest, cards: pl.DataFrame, links: Sequence[Manifest]
) -> pl.DataFrame:
    """Return what stands (STANDING) of these cards, in the run itself and in every run that still says something."""
    store, today = context.adapters.store, _today(context)
    every = chain(attempts_of(store, manifest), attempts(store, context.issuer.issuer, today, links))
    reported = (one.rows.join(cards, on=CARD, how="semi").with_columns(run=pl.lit(one.run)) for one in every)
    return pl.concat([pl.DataFrame(schema=STANDING), *(active_attempts(rows, today) for rows in reported)])


def _today(context: IssuerContext) -> date:
    return local_day(context.adapters.now(), context.issuer.time_zone)


class NothingAskedError(OperatorError):
    """A resubmission that does not say which rows, or says it in two ways."""

    message = "{run}: rows to resubmit are not given, or given in two ways."
    next_step = "Select them by errors, codes, actions, missing, rejects or rows, and name at most one corrected file."


class StandingRowsError(OperatorError):
    """Rows asked for by name have a link already, or wait for their answer."""

    message = (
        "{run}: {count} of the selected rows are linked or awaiting their result (rows {rows}; in {where}). Nothing "
        "was sent."
    )
    next_step = "Select the others; to send these cards a second time on purpose: --override REASON, which is recorded."


class NothingToSendError(OperatorError):
    """None of the rows asked for goes out."""

    message = "{run}: nothing to send: {reason}."
    next_step = "The same command with --dry-run lists every row and why it is left out."


class Request(NamedTuple):
    """Which rows of which run, why, and, by name below the issuer's corrections, a corrected file to take them from."""

    run: str
    wanted: RowSelection
    reason: str
    override: str = ""  # why cards that are linked or awaiting may go out again
    corrections: str = ""  # a filled-in template
    extract: str = ""  # a corrected extract


class ResendPlan(NamedTuple):
    """What a resubmission would do: `rows` as `flows.resend.selection.decide` gives them, of the run `of`."""

    of: Manifest
    source: Source
    rows: pl.DataFrame
    corrected: pl.DataFrame  # what is merged with the source, as Picked takes it
    given: CorrectionFile | None  # the filled-in template
    commit: int  # the last one known
    already: Manifest | None  # the run that did just this before

    @property
    def outgoing(self) -> pl.DataFrame:
        """The rows that go out."""
        return self.rows.filter(pl.col("why").is_null())

    @property
    def left(self) -> dict[str, int]:
        """How many rows stay, by reason."""
        reported = self.rows.drop_nulls("why").get_column("why").value_counts()
        return dict(reported.sort(["count", "why"], descending=[True, False]).iter_rows())


def plan_resubmit(context: IssuerContext, request: Request, content: bytes | None = None) -> ResendPlan:
    """Say which rows would go out, and why the others stay: the dry run, which writes nothing.

    `content`: the filled-in template, where it is not dropped yet. Raises NothingAskedError, NoSuchRowError,
    StandingRowsError, SourceGoneError and what corrected files are refused with.
    """
    if not (any(request[4:]) or request.wanted.anything) or (request.corrections and request.extract):
        raise NothingAskedError(run=request.run)
    store, name = context.adapters.store, context.issuer.issuer
    links = list(commits_since(store, name))  # first: what is committed after it is looked at at our own commit
    of = committed(store, request.run)
    given = _given_corrections(context, request, content)
    fresh = corrected_cells(given, of, store) if given else None
    extract = corrected_extract(context, of, request.extract) if request.extract else None
    spoken = _spoken_of(extract, fresh)
    named = _selected_rows(context, request, of, spoken)
    source = extract.only(named["row"]) if extract else run_source(context, of, named["row"])
    corrected = by_row(_cells(context, of, fresh, request))
    tried = recheck_rows(context, source, Picked(source.picks, corrected))
    stands = active_attempts_of(context, of, cards(named, source.picks, tried), links)
    alike = [link for link in links if _is_repeat(link.selection, request)]
    lifted = frozenset(link.run for link in alike) if request.override else None
    rows = decide(RowFacts(named, source.picks, tried, stands, spoken), lifted)
    return ResendPlan(of, source, rows, corrected, given, len(links), _refuse_active(request, rows, alike))


def resubmit(
    context: IssuerContext, request: Request, on_progress: OnProgress = lambda _: None, content: bytes | None = None
) -> Submitted:
    """Send what `plan_resubmit` chooses as a run of its own; the results that are there are taken up first.

    `content`: the filled-in template of that name, dropped here where it is not there yet. The same command again
    finishes the same run, and does nothing once it is committed. Raises NothingToSendError, OvertakenError and what
    a submit raises.
    """
    if not request.reason.strip():
        raise NoReasonError()
    finish_commits(context)
    ingest(context)
    chosen = plan_resubmit(context, request, content)
    if chosen.already is not None:
        return Submitted(chosen.already, already=True)
    if chosen.outgoing.is_empty():
        left = ", ".join(f"{rows:,} {why}" for why, rows in chosen.left.items())
        raise NothingToSendError(run=request.run, reason=left or "no row is as asked for")
    if content is not None:
        given = drop_corrections(context, request.corrections, content)
        chosen = chosen._replace(given=given)
    with context.sealer() as sealer:
        ensure_store_safe(context)
        return _send(context, request, chosen, sealer, on_progress)


def command(request: Request) -> str:
    """Return the command line of a resubmission, ready to paste into a shell."""
    wanted = request.wanted
    words = ["cardlink", "resubmit", request.run]
    words += [f"--{flag}" for flag in ("errors", "missing", "rejects") if getattr(wanted, flag)]
    for option, values in (("--code", wanted.codes), ("--action", wanted.actions), ("--row", wanted.rows)):
        words += [word for value in sorted(values) for word in (option, str(value))]
    for option in ("corrections", "extract", "reason", "override"):
        said = redact(getattr(request, option))
        words += [f"--{option}", said] if said else []
    return shlex.join(words)


def _send(
    context: IssuerContext, request: Request, chosen: ResendPlan, sealer: Sealer, on_progress: OnProgress
) -> Submitted:
    """Plan the run, keep its rows, and carry it out."""
    plan = _plan(context, request, chosen)
    keys, rows = keys_of(plan.run), chosen.outgoing.select("row", "origin")
    write_selection(context, keys, rows)
    over = chosen.outgoing.filter("over")
    if over.height:  # before the commit: a crash right after it would lose the record
        runs = sorted(over["where"].unique())
        record_event(context.adapters, keys, "overridden", rows=over.height, runs=runs, reason=request.override)
    record_repeat(context.adapters, request.run, plan.run, rows.height, request.reason)
    choice = Choice(picked=Picked(rows, chosen.corrected))
    job = Job(plan, chosen.source.entry, choice, (), command(request), since=chosen.commit)
    done = execute(context, job, sealer, on_progress)
    for run in repeated_runs(
        context.adapters.store, plan.run
    ):  # their reports tell what became of their rows after all attempts
        rebuild(context, run)
    return done


def _plan(context: IssuerContext, request: Request, chosen: ResendPlan) -> Plan:
    corrections = chosen.given.source if chosen.given else None
    rows = chosen.outgoing.select("row", "origin")
    of_what = {"of": request.run, "rows": rows_digest(rows), "override": request.override}
    sha256 = digest(canonical({**of_what, "corrections": corrections.sha256 if corrections else ""}))
    selection = Selection(
        kind="resubmit",
        of=request.run,
        rows=rows.height,
        sha256=sha256,
        reason=redact(request.reason),
        override=redact(request.override),
        corrections=corrections,
    )
    return plan_selection(
        context, chosen.source.identity, local_day(context.adapters.now(), context.issuer.time_zone), selection
    )


def _given_corrections(context: IssuerContext, request: Request, content: bytes | None) -> CorrectionFile | None:
    if not request.corrections:
        return None
    return (
        read_corrections(context, request.corrections)
        if content is None
        else given_as(context, request.corrections, content)
    )


def _cells(context: IssuerContext, of: Manifest, fresh: pl.DataFrame | None, request: Request) -> pl.DataFrame:
    """Return what was corrected of a run's rows, now and before; a corrected extract stands for itself."""
    if request.extract:
        return pl.DataFrame(schema=CELL)
    earlier = cells_of(context, of)
    return earlier if fresh is None else merge_corrections(earlier, fresh)


def _spoken_of(extract: Source | None, fresh: pl.DataFrame | None) -> pl.Series:
    """Return the rows of the run that a corrected file speaks of."""
    if extract is not None:
        return extract.picks["origin"]
    return pl.Series(dtype=pl.UInt32) if fresh is None else fresh["row"]


def _selected_rows(context: IssuerContext, request: Request, of: Manifest, spoken: pl.Series) -> pl.DataFrame:
    """Return the rows asked for; a corrected extract asks for its own only where nothing else is asked for."""
    also = frozenset() if request.extract and request.wanted.anything else frozenset(spoken)
    named = pl.concat([asked(rows, request.wanted, also) for rows in run_rows(context.adapters.store, of)])
    lacking = pl.Series(sorted(request.wanted.rows - set(named["row"])), dtype=pl.UInt32)
    if len(lacking):
        raise NoSuchRowError(place=request.run, rows=numbered(lacking))
    return named


def _is_repeat(selection: Selection | None, request: Request) -> bool:
    """Tell whether a run was made by the same words: its override is used up, and it may be what is asked for."""
    if selection is None or (selection.kind, selection.of) != ("resubmit", request.run):
        return False
    return (selection.reason, selection.override) == (redact(request.reason), redact(request.override))


def _refuse_active(request: Request, rows: pl.DataFrame, alike: Sequence[Manifest]) -> Manifest | None:
    """Return the run that did just this before; StandingRowsError where rows were named that may not go out."""
    stand = rows.filter(pl.col("why").is_in(STANDS))
    where = set(stand["where"])
    before = next((link for link in alike[::-1] if {link.run} == where), None)
    named = stand.filter("named")
    if named.height and not where <= {link.run for link in alike}:
        runs = named["where"].unique().sort().to_list()
        raise StandingRowsError(
            run=request.run, count=named.height, rows=numbered(named["origin"]), where=", ".join(runs[:5])
        )
    return before if rows.drop_nulls("why").height == rows.height else None
