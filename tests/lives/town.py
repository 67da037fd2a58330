"""A town of cardholders over months: who lives there each night, what changed when, and whose row
is bad.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date

import numpy as np
import polars as pl

from schemas.portal import ADDRESS1, CITY, CUID, LAST_NAME, YEAR
from tests.lives.deliveries import people

# of the town, each day
SHARES = {"moved": 0.004, "married": 0.001, "renewed": 0.002, "left": 0.002}
COMING = 0.003
BAD = 0.05  # of those who come: their city is missing until the issuer corrects it
MENDED_AFTER = 12  # days


@dataclass
class Population:
    """Everybody who ever lives in a town, in one frame of the portal's columns; `at` says who is
    there.
    """

    everybody: pl.DataFrame
    living: np.ndarray
    chance: np.random.Generator
    born: int  # how many of everybody have come so far
    # of rows that are bad, as they ought to be
    cities: dict[str, str] = field(default_factory=dict)
    bad_until: dict[int, date] = field(default_factory=dict)
    changes: dict[str, list[date]] = field(default_factory=lambda: defaultdict(list))

    def extract(self) -> bytes:
        """Return tonight's extract: everybody who is there."""
        return self.everybody.filter(pl.Series(self.living)).write_csv().encode()

    def cuids(self) -> frozenset[str]:
        """Return who is there."""
        return frozenset(self.everybody.filter(pl.Series(self.living))[CUID])

    def cell(self, cuid: str, column: str) -> str:
        """Return what stands in a cell of somebody's row."""
        return str(self.everybody.row(by_predicate=pl.col(CUID) == cuid, named=True)[column])

    def live(self, day: date, days: int = 1) -> None:
        """Let days go by up to `day`."""
        there = np.flatnonzero(self.living)
        counts = {
            kind: self.chance.binomial(len(there), min(1.0, share * days))
            for kind, share in SHARES.items()
        }
        who = {
            kind: self.chance.choice(there, count, replace=False) for kind, count in counts.items()
        }
        self._change(who["moved"], ADDRESS1, pl.lit(f"{day.toordinal() % 10_000} New St"), day)
        self._change(
            who["married"], LAST_NAME, pl.lit(f"Roy-{'ABCDEFGHIJ'[day.toordinal() % 10]}"), day
        )
        self._change(who["renewed"], YEAR, (pl.col(YEAR).cast(pl.Int32) + 1).cast(pl.String), day)
        self.living[who["left"]] = False
        self._mend(day)
        self._come(int(self.chance.binomial(len(there), min(1.0, COMING * days))), day)

    def _change(self, who: np.ndarray, column: str, new: pl.Expr, day: date) -> None:
        hit = pl.Series(np.isin(np.arange(self.everybody.height), who))
        self.everybody = self.everybody.with_columns(
            pl.when(hit).then(new).otherwise(column).alias(column)
        )
        for cuid in self.everybody.filter(hit)[CUID]:
            self.changes[cuid].append(day)

    def _come(self, count: int, day: date) -> None:
        new = np.arange(self.born, min(self.born + count, self.everybody.height))
        self.living[new] = True
        self.born += len(new)
        for number in new[self.chance.random(len(new)) < BAD]:
            cuid = self.everybody[CUID][int(number)]
            self.cities[cuid] = self.everybody[CITY][int(number)]
            self.bad_until[int(number)] = date.fromordinal(day.toordinal() + MENDED_AFTER)
            self._change(np.array([number]), CITY, pl.lit(None, pl.String), day)

    def _mend(self, day: date) -> None:
        for number in [number for number, until in self.bad_until.items() if until <= day]:
            cuid = self.everybody[CUID][number]
            self._change(np.array([number]), CITY, pl.lit(self.cities[cuid]), day)
            del self.bad_until[number]


def found_town(rows: int, days: int, first: date, seed: int) -> Population:
    """Found a town of `rows` people, with enough people to come in `days` days."""
    everybody = people(rows + int(rows * COMING * days * 2) + 50, first, seed)
    living = np.arange(everybody.height) < rows
    return Population(everybody, living, np.random.default_rng(seed), rows)
