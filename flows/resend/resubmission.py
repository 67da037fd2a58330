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
    Given,
    by_row,
    cells_of,
    corrected_cells,
    find_dropped,
    give,
    given_as,
    merge,
    take,
)
from flows.resend.selection import CARD, STANDING, STANDS, TRIED, Facts, Wanted, asked, cards, decide, standing
from flows.resend.sources import keep_selection, numbered, replaced_rows, rows_digest, source_again
from flows.results.lineage import committed, note_repeat, repeated, run_rows
from flows.runs.attempts import attempts, attempts_of
from flows.runs.chains import commits_since
from flows.runs.context import IssuerEdges, note
from flows.runs.documents import NoReasonError, NoSuchRowError, keys_of
from flows.runs.identity import canonical, digest, local_day
from flows.runs.probe import prove
from flows.runs.sealing import Sealer
from flows.runs.store import Entry
from flows.submissions.build import Job, Scan, Tell
from flows.submissions.plan import identify, plan_selection
from flows.submissions.rows import Choice
from flows.submissions.selection import PICK, Picked
from flows.submissions.submit import Submitted, carry_out, finish_turns
from schemas import ledger
from schemas.manifest import Manifest, Plan, Selection, SourceIdentity
from schemas.portal import CUID

SENT_AGAIN = "sent again"


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


def own_source(edges: IssuerEdges, manifest: Manifest, numbers: pl.Series) -> Source:
    """Return these rows of a run in the source it was made of; SourceGoneError."""
    entry, identity = source_again(edges, manifest.run, manifest.source)
    return Source(entry, identity, pl.DataFrame({"row": numbers, "origin": numbers}, PICK), numbers.clear())


def corrected_extract(edges: IssuerEdges, manifest: Manifest, name: str) -> Source:
    """Return the rows of a corrected extract that replace rows of a run; AmbiguousRowsError, what reading raises."""
    entry = find_dropped(edges, name)
    identity = identify(edges.edges.store, entry)
    picks, numbers = replaced_rows(edges, entry, identity, manifest)
    return Source(entry, identity, picks, numbers.filter(~numbers.is_in(picks["row"].implode())))


def try_rows(edges: IssuerEdges, source: Source, picked: Picked) -> pl.DataFrame:
    """Return what the rules say today of the rows as they would go out (`flows.resend.selection.TRIED`)."""
    if source.picks.is_empty():
        return pl.DataFrame(schema=TRIED)
    with open_extract(edges, source.entry, source.identity) as stream:
        scan = Scan(edges, stream, source.identity, _today(edges), Choice(picked=picked))
        return pl.concat(list(_tried(scan)))


def _tried(scan: Scan) -> Iterator[pl.DataFrame]:
    for piece in scan:
        good = [chunk.with_columns(cuid=CUID, fate=pl.lit(ledger.SUBMITTED)) for chunk in piece.chunks]
        for frame in (piece.others, *good):
            yield frame.select(pl.col(name).cast(kind) for name, kind in TRIED.items())


def standing_of_cards(
    edges: IssuerEdges, manifest: Manifest, cards: pl.DataFrame, links: Sequence[Manifest]
) -> pl.DataFrame:
    """Return what stands (STANDING) of these cards, in the run itself and in every run that still says something."""
    store, today = edges.edges.store, _today(edges)
    every = chain(attempts_of(store, manifest), attempts(store, edges.issuer.issuer, today, links))
    told = (one.rows.join(cards, on=CARD, how="semi").with_columns(run=pl.lit(one.run)) for one in every)
    return pl.concat([pl.DataFrame(schema=STANDING), *(standing(rows, today) for rows in told)])


def _today(edges: IssuerEdges) -> date:
    return local_day(edges.edges.now(), edges.issuer.time_zone)


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
    wanted: Wanted
    reason: str
    override: str = ""  # why cards that are linked or awaiting may go out again
    corrections: str = ""  # a filled-in template
    extract: str = ""  # a corrected extract


class Chosen(NamedTuple):
    """What a resubmission would do: `rows` as `flows.resend.selection.decide` gives them, of the run `of`."""

    of: Manifest
    source: Source
    rows: pl.DataFrame
    corrected: pl.DataFrame  # what is merged with the source, as Picked takes it
    given: Given | None  # the filled-in template
    commit: int  # the last one known
    already: Manifest | None  # the run that did just this before

    @property
    def going(self) -> pl.DataFrame:
        """The rows that go out."""
        return self.rows.filter(pl.col("why").is_null())

    @property
    def left(self) -> dict[str, int]:
        """How many rows stay, by reason."""
        told = self.rows.drop_nulls("why").get_column("why").value_counts()
        return dict(told.sort(["count", "why"], descending=[True, False]).iter_rows())


def choose(edges: IssuerEdges, request: Request, content: bytes | None = None) -> Chosen:
    """Say which rows would go out, and why the others stay: the dry run, which writes nothing.

    `content`: the filled-in template, where it is not dropped yet. Raises NothingAskedError, NoSuchRowError,
    StandingRowsError, SourceGoneError and what corrected files are refused with.
    """
    if not (any(request[4:]) or request.wanted.anything) or (request.corrections and request.extract):
        raise NothingAskedError(run=request.run)
    store, name = edges.edges.store, edges.issuer.issuer
    links = list(commits_since(store, name))  # first: what is committed after it is looked at at our own commit
    of = committed(store, request.run)
    given = _given(edges, request, content)
    fresh = corrected_cells(given, of, store) if given else None
    extract = corrected_extract(edges, of, request.extract) if request.extract else None
    spoken = _spoken_of(extract, fresh)
    named = _asked(edges, request, of, spoken)
    source = extract.only(named["row"]) if extract else own_source(edges, of, named["row"])
    corrected = by_row(_cells(edges, of, fresh, request))
    tried = try_rows(edges, source, Picked(source.picks, corrected))
    stands = standing_of_cards(edges, of, cards(named, source.picks, tried), links)
    alike = [link for link in links if _repeats(link.selection, request)]
    lifted = frozenset(link.run for link in alike) if request.override else None
    rows = decide(Facts(named, source.picks, tried, stands, spoken), lifted)
    return Chosen(of, source, rows, corrected, given, len(links), _refuse_standing(request, rows, alike))


def resubmit(
    edges: IssuerEdges, request: Request, tell: Tell = lambda _: None, content: bytes | None = None
) -> Submitted:
    """Send what `choose` chooses as a run of its own; the results that are there are taken up first.

    `content`: the filled-in template of that name, dropped here where it is not there yet. The same command again
    finishes the same run, and does nothing once it is committed. Raises NothingToSendError, OvertakenError and what
    a submit raises.
    """
    if not request.reason.strip():
        raise NoReasonError()
    finish_turns(edges)
    ingest(edges)
    chosen = choose(edges, request, content)
    if chosen.already is not None:
        return Submitted(chosen.already, already=True)
    if chosen.going.is_empty():
        left = ", ".join(f"{rows:,} {why}" for why, rows in chosen.left.items())
        raise NothingToSendError(run=request.run, reason=left or "no row is as asked for")
    if content is not None:
        given = give(edges, request.corrections, content)
        chosen = chosen._replace(given=given)
    with edges.sealer() as sealer:
        prove(edges)
        return _send(edges, request, chosen, sealer, tell)


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


def _send(edges: IssuerEdges, request: Request, chosen: Chosen, sealer: Sealer, tell: Tell) -> Submitted:
    """Plan the run, keep its rows, and carry it out."""
    plan = _plan(edges, request, chosen)
    keys, rows = keys_of(plan.run), chosen.going.select("row", "origin")
    keep_selection(edges, keys, rows)
    over = chosen.going.filter("over")
    if over.height:  # before the commit: a crash right after it would lose the record
        runs = sorted(over["where"].unique())
        note(edges.edges, keys, "overridden", rows=over.height, runs=runs, reason=request.override)
    note_repeat(edges.edges, request.run, plan.run, rows.height, request.reason)
    choice = Choice(picked=Picked(rows, chosen.corrected))
    job = Job(plan, chosen.source.entry, choice, (), command(request), since=chosen.commit)
    done = carry_out(edges, job, sealer, tell)
    for run in repeated(edges.edges.store, plan.run):  # their reports tell what became of their rows after all attempts
        rebuild(edges, run)
    return done


def _plan(edges: IssuerEdges, request: Request, chosen: Chosen) -> Plan:
    corrections = chosen.given.source if chosen.given else None
    rows = chosen.going.select("row", "origin")
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
        edges, chosen.source.identity, local_day(edges.edges.now(), edges.issuer.time_zone), selection
    )


def _given(edges: IssuerEdges, request: Request, content: bytes | None) -> Given | None:
    if not request.corrections:
        return None
    return take(edges, request.corrections) if content is None else given_as(edges, request.corrections, content)


def _cells(edges: IssuerEdges, of: Manifest, fresh: pl.DataFrame | None, request: Request) -> pl.DataFrame:
    """Return what was corrected of a run's rows, now and before; a corrected extract stands for itself."""
    if request.extract:
        return pl.DataFrame(schema=CELL)
    earlier = cells_of(edges, of)
    return earlier if fresh is None else merge(earlier, fresh)


def _spoken_of(extract: Source | None, fresh: pl.DataFrame | None) -> pl.Series:
    """Return the rows of the run that a corrected file speaks of."""
    if extract is not None:
        return extract.picks["origin"]
    return pl.Series(dtype=pl.UInt32) if fresh is None else fresh["row"]


def _asked(edges: IssuerEdges, request: Request, of: Manifest, spoken: pl.Series) -> pl.DataFrame:
    """Return the rows asked for; a corrected extract asks for its own only where nothing else is asked for."""
    also = frozenset() if request.extract and request.wanted.anything else frozenset(spoken)
    named = pl.concat([asked(rows, request.wanted, also) for rows in run_rows(edges.edges.store, of)])
    lacking = pl.Series(sorted(request.wanted.rows - set(named["row"])), dtype=pl.UInt32)
    if len(lacking):
        raise NoSuchRowError(place=request.run, rows=numbered(lacking))
    return named


def _repeats(selection: Selection | None, request: Request) -> bool:
    """Tell whether a run was made by the same words: its override is used up, and it may be what is asked for."""
    if selection is None or (selection.kind, selection.of) != ("resubmit", request.run):
        return False
    return (selection.reason, selection.override) == (redact(request.reason), redact(request.override))


def _refuse_standing(request: Request, rows: pl.DataFrame, alike: Sequence[Manifest]) -> Manifest | None:
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
