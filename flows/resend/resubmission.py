"""What a resubmission would do: which rows of a run go out again, and why the others stay.

Rows are selected by their state now. They are judged by today's rules, and compared with all live
attempts for their issue, as it was and as it would be (`blocking.py`). Nothing is written here.

An override is used once: repeating the command cannot send a card a third time.
"""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import NamedTuple

import polars as pl

from flows.book.book import Book, read_book
from flows.book.given_up import is_given_up
from flows.errors import OperatorError
from flows.extracts.opening import open_extract
from flows.redaction import redact
from flows.reports.link_work import WITHIN
from flows.resend import corrections as templates
from flows.resend import selection as choice
from flows.resend.blocking import (
    active_attempts,
    as_sent,
    blocking,
    family,
    identified,
    later_rows,
    reissued,
    replacing,
    superseded,
    with_twins,
)
from flows.resend.corrected_extract import replaced_rows
from flows.resend.ending_links import ending_links
from flows.resend.selected_run import StoredSource, reopen_source
from flows.results.row_states import run_rows
from flows.runs.business_date import local_day
from flows.runs.cards import CARD, CARD_WITHOUT_TWIN, is_among
from flows.runs.commits import read_commits
from flows.runs.context import IssuerContext
from flows.runs.errors import NoSuchRowError, numbered
from flows.runs.frames import shaped
from flows.runs.stored_run import StoredRun
from flows.steps import REASON, ROW, RUN, WHY, Option, Sentence, Step
from flows.submissions.extract_lookup import identify
from flows.submissions.row_scope import PICK, RowScope, SelectedRows
from flows.submissions.scan import Scan
from schemas import ledger
from schemas.ledger import AWAITING, LINKED
from schemas.manifest import Manifest, Selection, SourceIdentity
from schemas.portal import CUID
from schemas.reasons import EXCLUDED


class NothingAskedError(OperatorError):
    """The rows to resubmit are not given, or given in two ways."""

    message = "{run}: rows to resubmit are not given, or given in two ways."
    next_step = (
        "Select them by errors, codes, actions, missing, rejects or rows, "
        "and name at most one corrected file."
    )


class StandingRowsError(OperatorError):
    """Rows selected by number are linked or awaiting, or their card needs no link."""

    message = (
        "{run}: {count} of the selected rows are linked, awaiting their result, given up, left out "
        "by [status] since, or have left (rows {rows}; in {where}). Nothing was sent."
    )
    next_step = Sentence(
        "Select the others; to send these cards on purpose: {override}, which is recorded; to take "
        "one up again: {take_up}.",
        take_up=Step("mend give-up", RUN, row=ROW, undo=True, reason=WHY),
        override=Option("--override", REASON, of="resubmit"),
    )


class Request(NamedTuple):
    """Which rows of which run to resubmit, and why.

    Corrected files are named as below the issuer's corrections.
    """

    run: str
    selection: choice.RowSelection
    reason: str
    override: str = ""  # why cards that are linked or awaiting may go out again
    corrections: str = ""  # a filled-in template
    extract: str = ""  # a corrected extract


class Source(NamedTuple):
    """Where rows are read from."""

    stored: StoredSource
    picks: pl.DataFrame  # row there, and origin, the row of the run
    strangers: pl.Series  # all other rows


class ResendPlan(NamedTuple):
    """What a resubmission would do with the rows of the run `of`."""

    of: Manifest
    source: Source
    rows: pl.DataFrame  # as of `flows.resend.selection.decide`
    corrected: pl.DataFrame  # the corrections to merge, as SelectedRows takes them
    given: SourceIdentity | None  # the filled-in template
    last_turn: int  # of the last run that was known
    already: Manifest | None  # the run that did just this before
    refused: pl.DataFrame  # row and reasons of the corrected rows that are still refused

    @property
    def outgoing(self) -> pl.DataFrame:
        """The rows of the new run: those that go out, and its rejects."""
        return self.rows.filter(pl.col("why").is_null())

    @property
    def confirmed(self) -> pl.Series:
        """The rows of the run that a corrected file makes what the link of their card is made from:
        the link is kept.
        """
        return self.rows.filter(why=choice.CONFIRMED)["origin"]

    @property
    def file(self) -> SourceIdentity:
        """The corrected file, or the source of the run."""
        return self.given or self.source.stored.identity

    @property
    def left(self) -> dict[str, int]:
        """How many rows stay, by reason."""
        counts = self.rows.drop_nulls("why")["why"].value_counts()
        return dict(counts.sort(["count", "why"], descending=[True, False]).iter_rows())

    @property
    def fates(self) -> pl.DataFrame:
        """How many rows go out, are still refused, or stay, each with its reason."""
        code = pl.col("reasons").list.first().str.split("|").list.last()
        fate = (
            pl.when(pl.col("why").is_not_null())
            .then(pl.format("stay: {}", "why"))
            .when(code.is_not_null())
            .then(pl.lit("corrected, but still refused"))
            .otherwise(pl.lit("sent again"))
        )
        rows = self.rows.join(self.refused, on="row", how="left", maintain_order="left")
        counts = rows.group_by(fate.alias("fate"), pl.coalesce(code, "reason").fill_null("")).len()
        return counts.sort("len", "fate", descending=[True, False])

    @property
    def sent(self) -> int:
        """How many rows would be sent: those that go out and are not still refused."""
        return 0 if self.already else self.outgoing.height - self.refused.height

    @property
    def nothing(self) -> bool:
        """Whether no row would be sent: none goes out, or all are still refused."""
        return self.outgoing.height == self.refused.height


class _Known(NamedTuple):
    """What the book has of the run whose rows are selected."""

    book: Book
    # its rows that are the last word on cards whose link is to be replaced: they have changed, or
    # were refused; those that we refused, once they are corrected
    replacing: pl.Series
    # of those that we refused, whose link does not end soon or is kept, what the link was made
    # from: row, and fingerprints
    linked: pl.DataFrame


class _Chosen(NamedTuple):
    """The selected rows of a run, and what a corrected file changes of them."""

    rows: pl.DataFrame  # as of `flows.resend.selection.select_rows`
    source: Source
    changed: pl.Series  # rows of the run that a corrected file changes
    cells: pl.DataFrame  # corrections to merge (CELL)
    template: SourceIdentity | None = None


def plan_resubmit(context: IssuerContext, request: Request) -> ResendPlan:
    """Return which rows go out, and why the others stay.

    Raises NothingAskedError, NoSuchRowError, StandingRowsError, SourceGoneError and what corrected
    files are refused with.
    """
    _refuse_unclear(request)
    # first: those committed later are looked at when ours is committed
    commits = read_commits(context.adapters, context.issuer.issuer)
    manifests = [commit.manifest for commit in commits]
    run = StoredRun.by_id(context.adapters, request.run)
    of = run.committed()
    known = _known(context, run)
    choose = _from_corrected_extract if request.extract else _from_own_source
    chosen = choose(context, request, run, known)
    corrected = templates.by_row(chosen.cells)
    picks = chosen.source.picks
    rechecked = _recheck(context, chosen.source, SelectedRows(picks, corrected))
    is_as_linked = pl.col("row").is_in(_as_linked(known, picks, rechecked).implode())
    is_replacing = pl.col("replaces") & ~is_as_linked
    chosen = chosen._replace(rows=chosen.rows.with_columns(replaces=is_replacing))
    repeats = [manifest for manifest in manifests if _is_repeat(manifest.selection, request)]
    lifted = frozenset(repeat.run for repeat in repeats) if request.override else None
    blocked = _blocked(context, run, known, chosen, rechecked, manifests, lifted or frozenset())
    rows = choice.decide(chosen.rows, picks, rechecked, blocked, chosen.changed, lifted)
    is_confirmed = pl.col("origin").is_in(chosen.rows.filter(is_as_linked)["row"].implode())
    is_confirmed &= (pl.col("why") == LINKED) & pl.col("origin").is_in(chosen.changed.implode())
    why = pl.when(is_confirmed).then(pl.lit(choice.CONFIRMED)).otherwise("why")
    rows = rows.with_columns(why=why)
    _refuse_standing(request, rows, repeats)
    outgoing = rows.filter(pl.col("why").is_null())
    rejected = rechecked.filter(pl.col("fate") == ledger.REJECTED).select("row", "reasons")
    return ResendPlan(
        of,
        chosen.source,
        rows,
        corrected,
        given=chosen.template,
        last_turn=max((commit.turn for commit in commits), default=0),
        already=_sent_already(rows, repeats),
        refused=rejected.join(outgoing, on="row", how="semi"),
    )


def _refuse_unclear(request: Request) -> None:
    """Raise NothingAskedError where no rows are selected, or in two ways."""
    files = [name for name in (request.corrections, request.extract) if name]
    if len(files) > 1 or not (any(request.selection) or files):
        raise NothingAskedError(run=request.run)


def _known(context: IssuerContext, run: StoredRun) -> _Known:
    """Return what the book has of a run."""
    book = read_book(context.adapters, context.issuer.issuer)
    parts = [_known_of_part(part, run, _today(context)) for part in book.parts()]
    replacing = pl.concat([part.replacing for part in parts])
    return _Known(book, replacing, pl.concat([part.linked for part in parts]))


def _known_of_part(book: Book, run: StoredRun, today: date) -> _Known:
    """Return what a part of the book has of a run."""
    cards = book.cards(today)
    ending = ending_links(book, cards, today, today + timedelta(WITHIN))
    not_updated = book.not_updated(cards)
    unfit = ending.filter(~pl.col("fit"))
    replacing = [book.changes(cards), book.not_replaced(cards), not_updated, unfit]
    if book.kept.height:
        undecided = book.without_kept
        not_updated = undecided.not_updated(undecided.cards(today))
    linked = not_updated.filter(run=run.id).join(ending, on=CARD, how="anti", nulls_equal=True)
    return _Known(
        book,
        pl.concat([rows.filter(run=run.id)["row"] for rows in replacing]),
        linked.select(origin="row", name_check="name_linked", address_check="address_linked"),
    )


def _from_corrected_extract(
    context: IssuerContext, request: Request, run: StoredRun, known: _Known
) -> _Chosen:
    """Select rows of a run that are read from a corrected extract: all it has, unless some are."""
    entry = templates.find_corrected_extract(context, request.extract)
    identity = identify(context.adapters.store, entry)
    picks, numbers = replaced_rows(context, entry, identity, run)
    changed = picks["origin"]
    selects_all = not any(request.selection)
    rows = _selected_rows(request, run, frozenset(changed) if selects_all else frozenset(), known)
    picks = picks.filter(pl.col("origin").is_in(rows["row"].implode()))
    strangers = numbers.filter(~numbers.is_in(picks["row"].implode())).sort()
    source = Source(StoredSource(entry, identity), picks, strangers)
    return _Chosen(rows, source, changed, pl.DataFrame(schema=templates.CELL))


def _from_own_source(
    context: IssuerContext, request: Request, run: StoredRun, known: _Known
) -> _Chosen:
    """Select rows of a run that are read from its own source, with a template's corrections."""
    of = run.committed()
    template: SourceIdentity | None = None
    cells = pl.DataFrame(schema=templates.CELL)
    if request.corrections:
        template, content = templates.read_corrections(context, request.corrections)
        name = template.key.rpartition("/")[2]
        cells = templates.corrected_cells(name, content, run)
    changed = cells["row"]
    rows = _selected_rows(request, run, frozenset(changed), known)
    numbers = rows["row"]
    stored = reopen_source(context, of.run, of.source)
    picks = pl.DataFrame({"row": numbers, "origin": numbers}, PICK)
    cells = pl.concat([templates.cells_of(context, of), cells])
    return _Chosen(rows, Source(stored, picks, numbers.clear()), changed, cells, template)


def _selected_rows(
    request: Request, run: StoredRun, corrected: frozenset[int], known: _Known
) -> pl.DataFrame:
    """Return the selected rows, and those that a corrected file changes; NoSuchRowError."""
    selection = request.selection
    parts = run_rows(run)
    rows = pl.concat(
        [choice.select_rows(part, selection, corrected, known.replacing) for part in parts]
    )
    lacking = pl.Series(sorted(selection.rows - set(rows["row"])), dtype=pl.UInt32)
    if len(lacking):
        raise NoSuchRowError(place=request.run, rows=numbered(lacking))
    return rows


def _recheck(context: IssuerContext, source: Source, selected: SelectedRows) -> pl.DataFrame:
    """Return the verdict of today's rules (RECHECKED) on the rows as they would go out."""
    if source.picks.is_empty():
        return pl.DataFrame(schema=choice.RECHECKED)
    entry, identity = source.stored
    scope = RowScope(selected=selected)
    frames: list[pl.DataFrame] = []
    with open_extract(context, entry, identity) as stream:
        for piece in Scan(context, stream, identity, _today(context), scope):
            good = [
                chunk.with_columns(cuid=CUID, fate=pl.lit(ledger.SUBMITTED))
                for chunk in piece.chunks
            ]
            frames += [shaped(rows, choice.RECHECKED) for rows in (piece.others, *good)]
    return pl.concat(frames)


def _as_linked(known: _Known, picks: pl.DataFrame, rechecked: pl.DataFrame) -> pl.Series:
    """Return the selected rows that would go out with just what their link was made from."""
    would_be = rechecked.filter(fate=ledger.SUBMITTED).join(picks, on="row", maintain_order="left")
    return would_be.filter(is_among(would_be, known.linked, known.linked.columns))["origin"]


def _blocked(
    context: IssuerContext,
    run: StoredRun,
    known: _Known,
    chosen: _Chosen,
    rechecked: pl.DataFrame,
    manifests: Sequence[Manifest],
    first: frozenset[str],
) -> pl.DataFrame:
    """Return which active attempt of any run blocks each selected row (`blocking`)."""
    would_be = rechecked.join(chosen.source.picks, on="row", maintain_order="left")
    replaces = chosen.rows.filter("replaces")["row"]
    issues = pl.concat([as_sent(run, chosen.rows["row"]), identified(would_be["origin"], would_be)])
    book = known.book
    of_holders = book.of_holders(issues["holder"])
    of_cards = of_holders.sent().join(
        issues, on=CARD_WITHOUT_TWIN, how="semi", maintain_order="left"
    )
    standing = active_attempts(of_cards, _today(context), family(run.id, manifests))
    rows = with_twins(issues, book.attempts, run.id)
    is_replacing = pl.col("origin").is_in(replaces.implode())
    blocked = blocking(rows.filter(~is_replacing), standing, first)
    if len(replaces):
        settled = replaces.filter(~replaces.is_in(known.replacing.implode()))
        awaited = blocking(rows.filter(is_replacing), standing.filter(state=AWAITING), first)
        blocked = replacing(blocked, awaited, settled)
    to_send = identified(would_be["origin"], would_be)
    later = later_rows(of_holders.attempts, run.id, manifests, book.extract_days)
    for others in (superseded(to_send, standing), reissued(to_send, later)):
        blocked = pl.concat([blocked, others.join(blocked, on="origin", how="anti")])
    is_excluded = pl.col("origin").is_in(_left_out_itself(chosen).implode())
    excluded = to_send.filter(~is_excluded).join(
        book.excluded, on=CARD_WITHOUT_TWIN, how="semi", nulls_equal=True
    )
    blocked = _with_ended(blocked, excluded, choice.EXCLUDED_SINCE, first)
    has_left = to_send.join(book.departed, on=CARD_WITHOUT_TWIN, how="semi", nulls_equal=True)
    blocked = _with_ended(blocked, has_left, choice.LEFT, first)
    given_up = issues.filter(is_given_up(book.given_up))
    return _with_ended(blocked, given_up, choice.GIVEN_UP, first)


def _left_out_itself(chosen: _Chosen) -> pl.Series:
    """Return the selected rows that `[status]` left out: other settings may send them."""
    is_left_out = pl.col("reasons").list.contains(f"|{EXCLUDED}")
    return chosen.rows.filter(is_left_out.fill_null(value=False))["row"]


def _with_ended(
    blocked: pl.DataFrame, ended: pl.DataFrame, state: str, first: frozenset[str]
) -> pl.DataFrame:
    """Return which rows are blocked, also those whose card needs no link, by no run."""
    if ended.is_empty():
        return blocked
    is_lifted = pl.col("where").is_in(sorted(first))
    origins = ended.select("origin").unique(maintain_order=True)
    origins = origins.join(blocked.filter(is_lifted), on="origin", how="anti")
    others = blocked.join(origins, on="origin", how="anti")
    facts = {"stands": pl.lit(state), "where": pl.lit("")}
    return pl.concat([others, origins.with_columns(**facts).select(others.columns)])


def _today(context: IssuerContext) -> date:
    return local_day(context.adapters.now(), context.issuer.time_zone)


def _is_repeat(selection: Selection | None, request: Request) -> bool:
    """Return whether a run has the same reason and override.

    It used the override up, and may be what is requested.
    """
    if selection is None or (selection.kind, selection.of) != ("resubmit", request.run):
        return False
    why = (redact(request.reason), redact(request.override))
    return (selection.reason, selection.override) == why


def _refuse_standing(request: Request, rows: pl.DataFrame, repeats: Sequence[Manifest]) -> None:
    """Raise StandingRowsError for rows selected by name that may not go out.

    Not where all that stands was sent by the same request before.
    """
    without_need = [choice.GIVEN_UP, choice.LEFT, choice.EXCLUDED_SINCE]
    needs_none = pl.col("why").is_in(without_need) & pl.col("named")
    standing = rows.filter(pl.col("why").is_in(choice.STANDS) | needs_none)
    named = standing.filter("named")
    sent_before = set(standing["where"]) <= {repeat.run for repeat in repeats}
    if named.is_empty() or sent_before:
        return
    runs = ", ".join(named["where"].filter(named["where"] != "").unique().sort().head(5))
    raise StandingRowsError(
        run=request.run,
        count=named.height,
        rows=numbered(named["origin"]),
        where=runs or "no run",
    )


def _sent_already(rows: pl.DataFrame, repeats: Sequence[Manifest]) -> Manifest | None:
    """Return the run that did just this before: no row goes out, and all that stands is its."""
    if rows["why"].null_count():
        return None
    where = set(rows.filter(pl.col("why").is_in(choice.STANDS))["where"])
    return next((repeat for repeat in repeats if {repeat.run} == where), None)
