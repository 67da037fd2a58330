"""Renew links that are about to end or have ended: a run for each extract that has their cards.

A card is renewed from the newest extract that has it. In a full portfolio that is the latest one,
and who is not in it is not renewed. Of an issuer that sends only what is new it is the source of
the card's newest attempt, with the corrections that this took from templates.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from typing import NamedTuple

import polars as pl

from flows.book.book import Book, read_book
from flows.errors import BalanceError, CardlinkError, ExtractError, GateError
from flows.reports.link_work import WITHIN, is_work
from flows.reports.unlinked import ENDING, NONE_ENDING
from flows.resend.corrections import by_row, cells_of
from flows.resend.ending_links import RECORD, ending_links, in_extract, judged
from flows.resend.selected_run import (
    SourceGoneError,
    StoredSource,
    reopen_source,
    rows_digest,
    selection_job,
)
from flows.runs.business_date import local_day
from flows.runs.cards import CARD
from flows.runs.context import IssuerContext, overlaid
from flows.runs.errors import NotFoundError
from flows.runs.identity import canonical, digest
from flows.runs.shown_rows import refuse_other_rows
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.steps import Step
from flows.submissions.begun import end_begun
from flows.submissions.build import Job, OnProgress
from flows.submissions.commit import finish_commits
from flows.submissions.rehearsal import Checked, check_selection
from flows.submissions.row_scope import SelectedRows
from flows.submissions.submit import Submitted, execute
from schemas.manifest import Manifest, Selection
from schemas.reasons import ABSENT, GONE, TYPED_IN, UNFIT

# why a card is left out whose link has to be replaced: somebody must act
STUCK = (GONE, TYPED_IN, UNFIT)


class RenewalSource(NamedTuple):
    """The cards that one run renews: their rows in one source, sent before by the run `of`."""

    of: Manifest
    stored: StoredSource
    cards: pl.DataFrame  # holder, cuid, last_4, ends, row
    cells: pl.DataFrame  # what templates have corrected of these rows (`cells_of`)


class RenewalPlan(NamedTuple):
    """Which cards are renewed, in a run for each source."""

    until: date
    sources: tuple[RenewalSource, ...]
    left_out: Mapping[str, int]  # cards by reason
    gone: Mapping[str, int]  # cards by the key of an extract that is not stored any more
    last_turn: int  # of the last run that was known
    links: pl.DataFrame  # every link that ends (ENDING), also those left out

    @property
    def due(self) -> int:
        """How many cards are renewed."""
        return sum(source.cards.height for source in self.sources)

    @property
    def stuck(self) -> int:
        """How many cards need a new link and cannot be renewed before somebody acts."""
        return sum(self.left_out.get(code, 0) for code in STUCK)


class Renewed(NamedTuple):
    """The runs that renewed cards, and the errors that kept sources from being renewed.

    `remarks`: what of earlier commands was finished or ended.
    """

    plan: RenewalPlan
    runs: tuple[Submitted, ...]
    errors: tuple[CardlinkError, ...] = ()
    remarks: tuple[str, ...] = ()


def renewals(context: IssuerContext, within_days: int) -> RenewalPlan:
    """Return the cards whose link ends in so many days, or has ended; nothing is written.

    Raises NotFoundError for a full portfolio without an extract.
    """
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    until = today + timedelta(days=within_days)
    book = read_book(context.adapters, context.issuer.issuer)
    parts = [ending_links(part, part.cards(today), today, until) for part in book.parts()]
    links = _judged_links(context, book, pl.concat(parts), today)
    return _plan(context, links, until, book.last_turn)


def ending(
    context: IssuerContext, book: Book, cards: pl.DataFrame, within_days: int
) -> pl.DataFrame:
    """Return the links (ENDING) that end in so many days or have ended, as a renewal judges them.

    `cards`: all of the book's, as they stand today.
    """
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    until = today + timedelta(days=within_days)
    return judged_ending(context, book, ending_links(book, cards, today, until), until)


def refused_rows(context: IssuerContext, book: Book, cards: pl.DataFrame) -> pl.DataFrame:
    """Return the rows (run, row) that we refused of cards whose links end within a week or ended.

    `cards`: all of the book's, as they stand today. They are those of the worklist's line.
    """
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    links = ending_links(book, cards, today, today + timedelta(days=WITHIN))
    counts = links.filter(is_work())
    if counts.is_empty():
        return counts.select("run", "row")
    with suppress(NotFoundError):  # of a portfolio without an extract no row is known
        counts = _judged_links(context, book, counts, today)
    return counts.filter(why=UNFIT).select("run", "row")


def judged_ending(
    context: IssuerContext, book: Book, links: pl.DataFrame, until: date
) -> pl.DataFrame:
    """Return links that end by a day (`ending_links`) as a renewal judges them (ENDING).

    Of a full portfolio without an extract none can be renewed.
    """
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    if links.is_empty():
        return NONE_ENDING
    try:
        judged_links = _judged_links(context, book, links, today)
    except NotFoundError:
        judged_links = judged(links, today, TYPED_IN)
    return _plan(context, judged_links, until, book.last_turn).links


def _plan(context: IssuerContext, links: pl.DataFrame, until: date, last_turn: int) -> RenewalPlan:
    """Return the runs that renew what is due of these links, which are judged already."""
    sources = list[RenewalSource]()
    gone = Counter[str]()
    without_source = [NONE_ENDING.select(*CARD, "extract")]
    for group in _by_source(context, links.filter(pl.col("why").is_null())):
        source = _reopened(context, group)
        if source is None:
            key = group[0].of.source.key
            cards = pl.concat([rows.cards for rows in group]).select(*CARD, extract=pl.lit(key))
            gone[key] += cards.height
            without_source.append(cards)
        else:
            sources.append(source)
    everything = links.join(
        pl.concat(without_source), on=CARD, how="left", nulls_equal=True, maintain_order="left"
    )
    is_gone = pl.col("extract").is_not_null()
    why = pl.when(is_gone).then(pl.lit(GONE)).otherwise("why").alias("why")
    everything = everything.with_columns(why).select(*ENDING).cast(ENDING)
    left_out = dict(Counter(everything["why"].drop_nulls()).most_common())
    return RenewalPlan(until, tuple(sources), left_out, gone, last_turn, everything)


def _judged_links(
    context: IssuerContext, book: Book, links: pl.DataFrame, today: date
) -> pl.DataFrame:
    """Return the links that end, with the newest row of each card, and why it is left out."""
    if not context.issuer.full_portfolio:
        return judged(links, today, TYPED_IN)
    latest = _latest_extract(book)
    records = pl.concat(StoredRun.by_id(context.adapters, latest).ledger(RECORD))
    return judged(in_extract(links, records, latest), today, ABSENT)


def _latest_extract(book: Book) -> str:
    """Return the run of the latest whole extract; NotFoundError."""
    whole = [plan for plan in book.runs.committed if plan.is_whole]
    if not whole:
        command = Step("worklist", book.issuer)
        raise NotFoundError(
            place=book.issuer, what="committed run of a whole extract", command=command
        )
    return max(whole, key=lambda plan: (plan.as_of, plan.turn or 0)).run


class _Rows(NamedTuple):
    """Cards to renew whose rows are those of one run; `cells` None where its template is gone."""

    of: Manifest
    cards: pl.DataFrame
    cells: pl.DataFrame | None


def _by_source(context: IssuerContext, due: pl.DataFrame) -> list[list[_Rows]]:
    """Return the cards that are due by the source of their rows.

    Rows that a template has corrected are apart: their corrections are found by their run.
    """
    groups = defaultdict[tuple[str, str], list[_Rows]](list)
    for (run,), cards in due.group_by("run", maintain_order=True):
        manifest = StoredRun.by_id(context.adapters, str(run)).committed()
        cells = _cells(context, manifest, cards["row"])
        is_plain = cells is not None and cells.is_empty()
        groups[manifest.source.sha256, "" if is_plain else manifest.run].append(
            _Rows(manifest, cards, cells)
        )
    whole_first = [
        sorted(group, key=lambda rows: (rows.of.selection is not None, rows.of.run))
        for group in groups.values()
    ]
    return sorted(whole_first, key=lambda group: group[0].of.run)


def _cells(context: IssuerContext, manifest: Manifest, rows: pl.Series) -> pl.DataFrame | None:
    """Return what templates have corrected of these rows; None where one is gone."""
    try:
        cells = cells_of(context, manifest)
    except SourceGoneError:
        return None
    return cells.filter(pl.col("row").is_in(rows.implode()))


def _reopened(context: IssuerContext, group: Sequence[_Rows]) -> RenewalSource | None:
    """Return what one run renews of a source, which may have several names.

    None where it is gone.
    """
    cards = pl.concat([rows.cards for rows in group]).sort("row")
    for rows in group:
        if rows.cells is None:
            return None
        try:
            stored = reopen_source(context, rows.of.run, rows.of.source)
        except SourceGoneError:
            continue
        return RenewalSource(rows.of, stored, cards, rows.cells)
    return None


def renew(
    context: IssuerContext,
    within_days: int,
    on_progress: OnProgress = lambda _: None,
    expected: str | None = None,
) -> Renewed:
    """Commit the runs that renew what is due, if anything; OtherRowsError where these are not just
    so many links as were shown.

    Repeated after a crash it finishes the same runs. A source that is refused keeps no other from
    being renewed; where none is left, its error is raised.
    """
    finished = finish_commits(context)
    plan = renewals(context, within_days)
    if not plan.sources:
        runs_left = StoredRuns(context.adapters, context.issuer.issuer)
        return Renewed(plan, (), remarks=(*finished, *end_begun(context, runs_left)))
    issuer = context.issuer.issuer
    refuse_other_rows(issuer, issuer, plan.due, expected)
    runs = list[Submitted]()
    errors = list[CardlinkError]()
    with context.sealer() as sealer:
        for source in plan.sources:
            try:
                job = _job(context, within_days, plan, source)
                runs.append(execute(context, job, sealer, on_progress))
            except (ExtractError, GateError, BalanceError) as error:
                errors.append(error)
    if not runs:
        raise errors[0]
    return Renewed(plan, tuple(runs), tuple(errors), finished)


def rehearse_renew(
    context: IssuerContext, within_days: int
) -> tuple[RenewalPlan, tuple[Checked, ...]]:
    """Return what a renewal would do, and what its runs would come to; nothing is written."""
    dry = overlaid(context)
    finish_commits(dry)
    plan = renewals(dry, within_days)
    jobs = [_job(dry, within_days, plan, source) for source in plan.sources]
    return plan, tuple(check_selection(dry, job) for job in jobs)


def _job(context: IssuerContext, within_days: int, plan: RenewalPlan, source: RenewalSource) -> Job:
    """Plan the run of what is due of one source."""
    rows = source.cards.select("row", origin="row")
    sha256 = rows_digest(rows)
    if source.cells.height:  # the same rows without the corrections are another run
        sha256 = digest(canonical({"of": source.of.run, "rows": sha256}))
    selection = Selection(
        kind="renew",
        of=source.of.run,
        rows=rows.height,
        sha256=sha256,
        reason=f"links that end by {plan.until}",
    )
    retry_command = Step("renew", context.issuer.issuer, within=f"{within_days}d", rows=plan.due)
    return selection_job(
        context,
        source.stored,
        SelectedRows(rows, by_row(source.cells)),
        selection,
        retry_command,
        plan.last_turn,
    )
