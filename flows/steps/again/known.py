"""What is known of rows that are to go out again: where they are read from, what the rules say now, what stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from itertools import chain
from typing import NamedTuple

import polars as pl

from flows.core.life.choose import CARD, STANDING, TRIED, standing
from flows.core.ports import Entry
from flows.core.rows.picked import PICK, Picked
from flows.core.run.calendar import local_day
from flows.steps.again.attempts import attempts, attempts_of
from flows.steps.again.corrections import find_dropped
from flows.steps.again.replaced import replaced_rows
from flows.steps.again.reread import source_again
from flows.steps.edges import IssuerEdges
from flows.steps.night.plan import identify
from flows.steps.night.scan import Scan, open_extract
from flows.submissions.rows import Choice
from schemas import ledger
from schemas.manifest import Manifest, SourceIdentity
from schemas.portal import CUID


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
    """Return what the rules say today of the rows as they would go out (`flows.core.life.choose.TRIED`)."""
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
