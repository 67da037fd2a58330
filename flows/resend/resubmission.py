"""Resubmit rows of a run: select them by their state now, read them again from their source, commit
a run.
"""

import shlex
from collections.abc import Sequence
from datetime import date
from itertools import chain
from typing import NamedTuple

import polars as pl

from flows.errors import OperatorError
from flows.extracts.errors import checked_name
from flows.extracts.opening import open_extract
from flows.redaction import redact
from flows.reports.ingestion import ingest
from flows.reports.rebuild import rebuild
from flows.resend import corrections as templates
from flows.resend import selection as choice
from flows.results.lineage import repeated_runs
from flows.results.row_states import run_rows
from flows.runs.adapters import NoReasonError
from flows.runs.attempts import attempts, attempts_of
from flows.runs.business_date import local_day
from flows.runs.commits import commits_since
from flows.runs.context import IssuerContext, overlaid
from flows.runs.documents import committed
from flows.runs.errors import NoSuchRowError
from flows.runs.events import record_event
from flows.runs.frames import shaped
from flows.runs.identity import canonical, digest
from flows.runs.keys import corrections, keys_of
from flows.runs.probe import ensure_store_safe
from flows.runs.store import Entry, write_once
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.submissions.build import Job, OnProgress
from flows.submissions.commit import finish_commits
from flows.submissions.plan import identify
from flows.submissions.rehearsal import NO_ROWS, Checked, check_selection
from flows.submissions.row_scope import PICK, RowScope, SelectedRows
from flows.submissions.scan import Scan
from flows.submissions.submit import Submitted, execute
from schemas import ledger
from schemas.manifest import Manifest, Selection, SourceIdentity
from schemas.portal import CUID


class NothingAskedError(OperatorError):
    """The rows to resubmit are not given, or given in two ways."""

    message = "{run}: rows to resubmit are not given, or given in two ways."
    next_step = "Select them by errors, codes, actions, missing, rejects or rows, and name at most one corrected file."


class StandingRowsError(OperatorError):
    """Rows selected by number are linked or awaiting their result."""

    message = (
        "{run}: {count} of the selected rows are linked or awaiting their result (rows {rows}; in {where}). Nothing "
        "was sent."
    )
    next_step = "Select the others; to send these cards a second time on purpose: --override REASON, which is recorded."


class NothingToSendError(OperatorError):
    """None of the selected rows would go out."""

    message = "{run}: nothing to send: {reason}."
    next_step = "The same command with --dry-run lists every row and why it is left out."


class Request(NamedTuple):
    """Which rows of which run to resubmit, and why; corrected files are named as below the issuer's
    corrections.
    """

    run: str
    wanted: choice.RowSelection
    reason: str
    override: str = ""  # why cards that are linked or awaiting may go out again
    corrections: str = ""  # a filled-in template
    extract: str = ""  # a corrected extract


class Source(NamedTuple):
    """Where rows are read from; `picks`: row there, and origin, the row of the run; `strangers`:
    all other rows.
    """

    entry: Entry
    identity: SourceIdentity
    picks: pl.DataFrame
    strangers: pl.Series


class ResendPlan(NamedTuple):
    """What a resubmission would do with the rows of the run `of` (columns:
    `flows.resend.selection.decide`).
    """

    of: Manifest
    source: Source
    rows: pl.DataFrame
    corrected: pl.DataFrame  # the corrections to merge, as SelectedRows takes them
    given: SourceIdentity | None  # the filled-in template
    commit: int  # number of the last known one
    already: Manifest | None  # the run that did just this before
    refused: pl.DataFrame  # row and reasons of the corrected rows that are still refused

    @property
    def outgoing(self) -> pl.DataFrame:
        """The rows of the new run: those that go out, and its rejects."""
        return self.rows.filter(pl.col("why").is_null())

    @property
    def left(self) -> dict[str, int]:
        """How many rows stay, by reason."""
        counts = self.rows.drop_nulls("why")["why"].value_counts()
        return dict(counts.sort(["count", "why"], descending=[True, False]).iter_rows())

    @property
    def fates(self) -> pl.DataFrame:
        """How many rows go out, are still refused, or stay, each with its reason."""
        code = pl.col("reasons").list.first().str.split("|").list.last()
        what = (
            pl.when(pl.col("why").is_not_null()).then(pl.format("stay: {}", "why"))
            .when(code.is_not_null()).then(pl.lit("corrected, but still refused"))
            .otherwise(pl.lit("sent again"))
        )  # fmt: skip
        rows = self.rows.join(self.refused, on="row", how="left", maintain_order="left")
        return (
            rows.group_by(what.alias("what"), pl.coalesce(code, "reason").fill_null(""))
            .len()
            .sort("len", "what", descending=[True, False])
        )

    @property
    def nothing(self) -> bool:
        """Whether no row would be sent: none goes out, or all are still refused."""
        return self.outgoing.height == self.refused.height


def rehearse_resubmit(
    context: IssuerContext, request: Request, content: bytes | None = None
) -> tuple[ResendPlan, Checked]:
    """Return what a resubmission would do, and what its run would come to; nothing is written."""
    dry = _given(context, request, content)
    finish_commits(dry)
    ingest(dry)
    plan = plan_resubmit(dry, request)
    if plan.already is not None or plan.nothing:
        return plan, NO_ROWS
    return plan, check_selection(dry, _job(dry, request, plan))


def _given(context: IssuerContext, request: Request, content: bytes | None) -> IssuerContext:
    """Return a context whose writes stay in memory, with the filled-in template, if it is not in
    the store yet.
    """
    dry = overlaid(context)
    if content is not None:
        write_once(
            dry.adapters.store,
            corrections(context.issuer.issuer) + checked_name(request.corrections),
            content,
        )
    return dry


def plan_resubmit(context: IssuerContext, request: Request) -> ResendPlan:
    """Return which rows go out, and why the others stay.

    Raises NothingAskedError, NoSuchRowError, StandingRowsError, SourceGoneError and what corrected
    files are refused with.
    """
    if not (any(request[4:]) or any(request.wanted)) or (request.corrections and request.extract):
        raise NothingAskedError(run=request.run)
    store = context.adapters.store
    # first: our own commit checks what is committed later
    links = list(commits_since(store, context.issuer.issuer))
    of = committed(store, request.run)
    given, cells, changed = None, pl.DataFrame(schema=templates.CELL), pl.Series(dtype=pl.UInt32)
    if name := request.corrections:
        given, content = templates.read_corrections(context, name)
        cells = templates.corrected_cells(given.key.rpartition("/")[2], content, of, store)
        changed = cells["row"]
    if request.extract:
        entry = templates.find_dropped(context, request.extract)
        identity = identify(store, entry)
        picks, numbers = choice.replaced_rows(context, entry, identity, of)
        changed = picks["origin"]
        named = _selected_rows(
            context, request, of, frozenset() if any(request.wanted) else frozenset(changed)
        )
        picks = picks.filter(pl.col("origin").is_in(named["row"].implode()))
        source = Source(
            entry, identity, picks, numbers.filter(~numbers.is_in(picks["row"].implode())).sort()
        )
    else:
        named = _selected_rows(context, request, of, frozenset(changed))
        numbers = named["row"]
        entry, identity = choice.reopen_source(context, of.run, of.source)
        source = Source(
            entry,
            identity,
            pl.DataFrame({"row": numbers, "origin": numbers}, PICK),
            numbers.clear(),
        )
        cells = pl.concat([templates.cells_of(context, of), cells])
    corrected = templates.by_row(cells)
    tried = _recheck(context, source, SelectedRows(source.picks, corrected))
    stands = _active(context, of, choice.cards(named, source.picks, tried), links)
    alike = [link for link in links if _is_repeat(link.selection, request)]
    lifted = frozenset(link.run for link in alike) if request.override else None
    rows = choice.decide(named, source.picks, tried, stands, changed, lifted)
    refused = tried.filter(pl.col("fate") == ledger.REJECTED).select("row", "reasons")
    refused = refused.join(rows.filter(pl.col("why").is_null()), on="row", how="semi")
    return ResendPlan(
        of,
        source,
        rows,
        corrected,
        given,
        len(links),
        _refuse_active(request, rows, alike),
        refused,
    )


def _selected_rows(
    context: IssuerContext, request: Request, of: Manifest, also: frozenset[int]
) -> pl.DataFrame:
    """Return the rows asked for, and `also`: those of a corrected file."""
    repeated = StoredRun.of(context.adapters.store, of)
    named = pl.concat([choice.asked(rows, request.wanted, also) for rows in run_rows(repeated)])
    lacking = pl.Series(sorted(request.wanted.rows - set(named["row"])), dtype=pl.UInt32)
    if len(lacking):
        raise NoSuchRowError(place=request.run, rows=choice.numbered(lacking))
    return named


def _recheck(context: IssuerContext, source: Source, picked: SelectedRows) -> pl.DataFrame:
    """Return the verdict of today's rules (TRIED) on the rows as they would go out."""
    if source.picks.is_empty():
        return pl.DataFrame(schema=choice.TRIED)
    with open_extract(context, source.entry, source.identity) as stream:
        frames = []
        for piece in Scan(
            context, stream, source.identity, _today(context), RowScope(selected=picked)
        ):
            good = [
                chunk.with_columns(cuid=CUID, fate=pl.lit(ledger.SUBMITTED))
                for chunk in piece.chunks
            ]
            frames += [shaped(one, choice.TRIED) for one in (piece.others, *good)]
        return pl.concat(frames)


def _active(
    context: IssuerContext, manifest: Manifest, cards: pl.DataFrame, links: Sequence[Manifest]
) -> pl.DataFrame:
    """Return the active attempts (STANDING) with these cards, in the run itself and in every run
    that still counts.
    """
    store, today = context.adapters.store, _today(context)
    mine = attempts_of(StoredRun.by_id(store, manifest.run))
    every = chain(mine, attempts(StoredRuns(store, context.issuer.issuer), today, links))
    ours = (
        one.rows.join(cards, on=choice.CARD, how="semi").with_columns(run=pl.lit(one.run))
        for one in every
    )
    return pl.concat(
        [
            pl.DataFrame(schema=choice.STANDING),
            *(choice.active_attempts(rows, today) for rows in ours),
        ]
    )


def _today(context: IssuerContext) -> date:
    return local_day(context.adapters.now(), context.issuer.time_zone)


def _is_repeat(selection: Selection | None, request: Request) -> bool:
    """True where a run has the same reason and override: it used the override up, and may be what
    is asked for.
    """
    if selection is None or (selection.kind, selection.of) != ("resubmit", request.run):
        return False
    return (selection.reason, selection.override) == (
        redact(request.reason),
        redact(request.override),
    )


def _refuse_active(
    request: Request, rows: pl.DataFrame, alike: Sequence[Manifest]
) -> Manifest | None:
    """Return the run that did just this before; StandingRowsError for rows asked for by name that
    may not go out.
    """
    stand = rows.filter(pl.col("why").is_in(choice.STANDS))
    where = set(stand["where"])
    before = next((link for link in alike[::-1] if {link.run} == where), None)
    named = stand.filter("named")
    if named.height and not where <= {link.run for link in alike}:
        runs = named["where"].unique().sort().to_list()
        raise StandingRowsError(
            run=request.run,
            count=named.height,
            rows=choice.numbered(named["origin"]),
            where=", ".join(runs[:5]),
        )
    return before if rows.drop_nulls("why").height == rows.height else None


def resubmit(
    context: IssuerContext,
    request: Request,
    on_progress: OnProgress = lambda _: None,
    content: bytes | None = None,
) -> Submitted:
    """Send what `plan_resubmit` selects as a run of its own; results that arrived meanwhile are
    ingested first.

    `content`: the filled-in template of that name, if it is to be stored first. The same command again finishes the
    same run, and does nothing once it is committed. Raises NothingToSendError, OvertakenError and
    what a submit raises.
    """
    if not request.reason.strip():
        raise NoReasonError()
    finish_commits(context)
    ingest(context)
    chosen = plan_resubmit(
        context if content is None else _given(context, request, content), request
    )
    if chosen.already is not None:
        return Submitted(chosen.already, already=True)
    if chosen.nothing:
        left = [f"{rows:,} {why}" for why, rows in chosen.left.items()]
        left += (
            [f"{chosen.refused.height:,} corrected but still refused"]
            if chosen.refused.height
            else []
        )
        raise NothingToSendError(
            run=request.run, reason=", ".join(left) or "no row is as asked for"
        )
    if content is not None and chosen.given is not None:
        write_once(context.adapters.store, chosen.given.key, content)
        chosen = chosen._replace(given=templates.read_corrections(context, request.corrections)[0])
    with context.sealer() as sealer:
        ensure_store_safe(context)
        done = execute(context, _job(context, request, chosen), sealer, on_progress)
    for repeated in repeated_runs(StoredRun.of(context.adapters.store, done.manifest)):
        rebuild(context, repeated.id)
    return done


def command(request: Request) -> str:
    """Return the command line of a resubmission, ready to paste into a shell."""
    wanted = request.wanted
    words = ["cardlink", "resubmit", request.run]
    words += [f"--{flag}" for flag in ("errors", "missing", "rejects") if getattr(wanted, flag)]
    for option, values in (
        ("--code", wanted.codes),
        ("--action", wanted.actions),
        ("--row", wanted.rows),
    ):
        words += [word for value in sorted(values) for word in (option, str(value))]
    for option in ("corrections", "extract", "reason", "override"):
        value = redact(getattr(request, option))
        words += [f"--{option}", value] if value else []
    return shlex.join(words)


def _job(context: IssuerContext, request: Request, chosen: ResendPlan) -> Job:
    """Plan the run, store its selection, and record what it repeats and overrides."""
    rows = chosen.outgoing.select("row", "origin")
    of_what = {"of": request.run, "rows": choice.rows_digest(rows), "override": request.override}
    selection = Selection(
        kind="resubmit",
        of=request.run,
        rows=rows.height,
        sha256=digest(
            canonical({**of_what, "corrections": chosen.given.sha256 if chosen.given else ""})
        ),
        reason=redact(request.reason),
        override=redact(request.override),
        corrections=chosen.given,
    )
    source = (chosen.source.entry, chosen.source.identity)
    job = choice.selection_job(
        context,
        source,
        SelectedRows(rows, chosen.corrected),
        selection,
        command(request),
        chosen.commit,
    )
    run, over = job.plan.run, chosen.outgoing.filter("over")
    if over.height:  # before the commit: a crash right after it would lose the record
        runs = sorted(over["where"].unique())
        record_event(
            context.adapters,
            keys_of(run),
            "overridden",
            rows=over.height,
            runs=runs,
            reason=request.override,
        )
    # with the run that is repeated, however often this one is started
    once = f"resubmitted-{run}.json"
    facts: dict[str, str | int] = {"run": run, "rows": rows.height, "reason": request.reason}
    record_event(context.adapters, keys_of(request.run), "resubmitted", once, **facts)
    return job
