"""An issuer whose extract repeats everybody, small enough to name who lives there, who is sent and
who is held back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from flows.submissions.submit import Submitted
from schemas.portal import COLUMNS, CUID, NICKNAME
from tests.builders import portal_rows
from tests.copies import copy_folder
from tests.night import DAY, Bench, kept_folder, local_bench, portal_csv

ALL_EQUAL = dict.fromkeys(COLUMNS, 1.0)  # people differ by what the test says of them alone


@dataclass
class Population:
    """An issuer whose nightly extract repeats everybody: `people` by cuid, each as changes of a
    good row.
    """

    bench: Bench
    day: date = DAY
    people: dict[str, dict[str, str | None]] = field(default_factory=dict)
    dated: bool = False  # no two extracts have the same bytes

    def settle(self, *cuids: str) -> None:
        """Let people move in."""
        self.people |= {cuid: {CUID: cuid} for cuid in cuids}

    def drop(self, name: str = "") -> str:
        """Drop tonight's extract."""
        rows = portal_rows(*self.people.values())
        if self.dated:
            rows = rows.with_columns(pl.lit(f"{self.day:%d %B}").alias(NICKNAME))
        return self.bench.drop_bytes(portal_csv(rows), name or f"bank-{self.day:%Y%m%d}.csv")

    def night(self, days: int = 1) -> Submitted:
        """Let days go by and submit the extract of the last one."""
        self.day += timedelta(days=days)
        return self.bench.submit(self.drop())

    def answer(self, errors: Iterable[str] = (), lives: int = 60) -> None:
        """Answer every chunk that waits: an error for these, a link for the rest."""
        refused = set(errors)
        there = {entry.key for entry in self.bench.store.keys("bank/results/")}
        for run in committed(self.bench):
            name = f"bank/results/card-links-{run}-00001-result.csv"
            if name not in there and self.bench.manifest(run).chunks:
                self.bench.store.replace(name, [self._result(run, refused, lives)])
        self.bench.ingest()

    def sent(self, done: Submitted) -> set[str]:
        """Return who was sent."""
        ledger = self.bench.ledger(done.manifest.run)
        return set(ledger.filter(fate="submitted")["cuid"])

    def held_back(self, done: Submitted) -> dict[str, str]:
        """Return who was not sent, and why."""
        ledger = self.bench.ledger(done.manifest.run).filter(pl.col("fate") != "submitted")
        return {
            cuid: reasons[-1].rpartition("|")[2]
            for cuid, reasons in ledger.select("cuid", "reasons").rows()
        }

    def _result(self, run: str, refused: set[str], lives: int) -> bytes:
        ends = self.day + timedelta(days=lives)
        ledger = self.bench.ledger(run).filter(fate="submitted").sort("position")
        lines = ["cuid,last_4,url,expiration_date,error"]
        for cuid, last_4 in ledger.select("cuid", "last_4").rows():
            fault = f'"{{""cuid"":""{cuid}"",""error"":""unavailable""}}"'
            linked = f"{cuid},{last_4},https://links.example.com/{run}-{cuid},{ends},"
            lines.append(f",,,,{fault}" if cuid in refused else linked)
        return ("\n".join(lines) + "\n").encode()


def town(
    folder: Path, *cuids: str, settings: dict[str, Any] | None = None, **portfolio: Any
) -> Population:
    """Return a town of these people with one answered night behind them."""
    made = _founded(folder, {"full_portfolio": True, "portfolio": portfolio} | (settings or {}))
    made.settle(*cuids)
    if cuids:
        first_night = _first_night(made.bench.issuer.full_portfolio, *cuids)
        made.bench.database.close()  # of the file that another takes the place of
        copy_folder(first_night, folder)
    return made


def _founded(folder: Path, settings: dict[str, Any]) -> Population:
    limits = {"max_reject_rate": 0.5, "max_row_jump": 0.5, "max_one_value": ALL_EQUAL}
    made = Population(local_bench(folder, **{"limits": limits} | settings))
    made.bench = replace(
        made.bench,
        now=lambda: datetime(made.day.year, made.day.month, made.day.day, 12, tzinfo=UTC),
    )
    return made


@cache
def _first_night(full_portfolio: bool, *cuids: str) -> Path:
    """Return the folder of a town after its first night, made once in a test process: other
    settings do not change it.
    """
    folder = kept_folder("town-")
    made = _founded(folder, {"full_portfolio": full_portfolio})
    made.settle(*cuids)
    made.bench.submit(made.drop())
    made.answer()
    return folder


def committed(bench: Bench) -> set[str]:
    """Return the runs that are committed."""
    return {manifest.run for manifest in bench.runs.manifests()}
