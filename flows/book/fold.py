"""How the attempts of a card add up: which of them say where it stands.

Of the many attempts of an issue of a card at most a handful still decide something: the last one,
the link that lasts longest, the last that awaits its answer, the last as the extract had it, and
the last that is a row of some run.
`fold` finds them; `compacted` keeps only them, with the number of those that they stand for, and
nothing that is asked of the book changes by it.
"""

from datetime import date
from typing import NamedTuple

import polars as pl

from flows.book.attempts import ATTEMPT, CANCELLED, SENT, active
from flows.runs.cards import ISSUE, hashes
from schemas.ledger import AWAITING, LINKED, REJECTED

# The places among the attempts of those that decide, of each issue of a card; null for none.
PLACES = ("last", "sent", "link", "waiting", "extract", "row")


class Folded(NamedTuple):
    """Attempts in order, and for each issue of a card the `places` (PLACES) of those that decide.

    `places` has also `first` (the place of the first one), `tries` and `sendings`, how often the
    card was tried and sent.
    """

    attempts: pl.DataFrame
    places: pl.DataFrame

    def with_place(self, place: str) -> "Folded":
        """Return those issues of cards that have an attempt at a place."""
        return Folded(self.attempts, self.places.filter(pl.col(place).is_not_null()))

    def attempt(self, place: str) -> pl.DataFrame:
        """Return one attempt an issue of a card, null where it has none at that place."""
        places = self.places[place]
        known = self.attempts[places.fill_null(0)] if self.attempts.height else self.attempts
        return known.select(pl.when(places.is_not_null()).then(pl.all()).name.keep())


def fold(attempts: pl.DataFrame) -> Folded:
    """Return attempts (ATTEMPT, in the order of their commits) with the places that decide.

    A later refusal by us or a cancelled chunk says less than anything that was sent in the same
    run. A decision that an answer cannot be used is the last word, but no answer of the partner.
    """
    rows = attempts.with_row_index("place")
    # by hash, which is faster; where two cards have one hash they are only grouped needlessly
    is_single = hashes(rows, ISSUE).is_unique()
    single = rows.filter(is_single)
    several = rows.filter(~is_single)
    return Folded(attempts, pl.concat([_of_single(single), _of_several(several)]))


def _of_single(rows: pl.DataFrame) -> pl.DataFrame:
    conditions = _conditions()
    places = [
        pl.when(conditions[name]).then("place").alias(name)
        if name in conditions
        else pl.col("place").alias(name)
        for name in PLACES
    ]
    return rows.select(*places, first="place", tries="tries", sendings="sendings").cast(_PLACED)


def _of_several(rows: pl.DataFrame) -> pl.DataFrame:
    conditions = _conditions()
    place = pl.col("place")
    longest = place.filter(conditions["link"]).sort_by(
        pl.col("expires_on").filter(conditions["link"]), maintain_order=True
    )
    return (
        rows.group_by(ISSUE, maintain_order=True)
        .agg(
            last=_last_word(),
            sent=place.filter(conditions["sent"]).last(),
            link=longest.last(),
            waiting=place.filter(conditions["waiting"]).last(),
            extract=place.filter(conditions["extract"]).last(),
            row=place.filter(conditions["row"]).last(),
            first=place.first(),
            tries=pl.col("tries").sum(),
            sendings=pl.col("sendings").sum(),
        )
        .drop(ISSUE)
        .cast(_PLACED)
    )


def _conditions() -> dict[str, pl.Expr]:
    """Return which attempts can stand at a place; `last` takes any."""
    is_sent = pl.col("state").is_in(SENT)
    return {
        "sent": is_sent & ~pl.col("decided"),
        "link": pl.col("state") == LINKED,
        "waiting": pl.col("state") == AWAITING,
        "extract": is_sent
        & ~pl.col("decided")
        & pl.col("origin").is_null()
        & pl.col("name_check").is_not_null(),
        "row": pl.col("run") != "",
    }


def _last_word() -> pl.Expr:
    """Return the place of the attempt that was made last.

    What was sent comes before what the same run refused, and a cancelled chunk says least of all.
    """
    place = pl.col("place")
    state = pl.col("state")
    turn = pl.col("turn")
    of_last_run = turn == turn.filter(state != CANCELLED).max()
    in_last_run = place.filter(of_last_run & ~state.is_in([CANCELLED, REJECTED])).last()
    tried = place.filter(state != CANCELLED).last()
    return pl.coalesce(in_last_run, tried, place.last())


_PLACED = pl.Schema(dict.fromkeys((*PLACES, "first", "tries", "sendings"), pl.UInt32()))


def compacted(attempts: pl.DataFrame, today: date) -> pl.DataFrame:
    """Return the attempts that still decide something, in order, with the counts of all.

    Those that wait and every link that can still be opened are kept as well, so that a card that is
    active twice is seen. What is asked about `today` or a later day has the same answer.
    The counts of attempts that are left out go to the last one of their issue that stays.
    """
    places = fold(attempts).places.with_row_index("issue")
    of_issue = places.unpivot([*PLACES, "first"], index="issue", value_name="place")
    deciding = of_issue.drop_nulls("place").select("issue", "place").unique()
    heaviest = deciding.group_by("issue").agg(pl.col("place").max())
    counts = places.select("issue", "tries", "sendings").join(heaviest, on="issue")
    is_active = attempts.select(active(today)).to_series().arg_true().cast(pl.UInt32)
    stay = pl.concat([deciding["place"], is_active.alias("place")]).unique().sort().to_frame()
    weights = stay.join(counts, on="place", how="left", maintain_order="left")
    return attempts[stay["place"]].with_columns(
        weights[name].fill_null(0).cast(ATTEMPT[name]) for name in ("tries", "sendings")
    )
