"""An issuer of the twenty nights: what it delivers, corrects and is delivered."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from flows.runs.keys import results
from schemas.portal import CITY, CUID, POSTAL_CODE
from tests.lives.deliveries import Row, as_csv
from tests.lives.place import Place
from tests.lives.portal import Letter, Portal

AGAIN = 0.2  # of the rows of a delta file stood in earlier ones
UNFIT = 0.06  # of the new rows lack their city
HOPELESS = 0.3  # of those can never be corrected
Line = dict[str, Any]  # of a worklist


@dataclass
class Bank:
    """One issuer: its cardholders, what it delivered, its portal, and what it was delivered."""

    place: Place
    name: str
    portfolio: bool
    everybody: list[Row]
    portal: Portal
    chance: random.Random
    known: int = 0
    owed: bytes = b""  # an extract that was cut: it comes whole the next night
    # the cities that are missing, by cuid
    unfit: dict[str, str | None] = field(default_factory=dict)
    # what the receiving side has, by URL
    delivered: dict[str, dict[str, str]] = field(default_factory=dict)
    left: list[Line] = field(default_factory=list)  # of the last worklist
    cancelled: set[str] = field(default_factory=set)  # chunks

    def extract(self, rows: int) -> bytes:
        """Return tonight's extract: new people and some of the known ones, or everybody."""
        new = self.everybody[self.known : self.known + rows]
        old = self.everybody[: self.known]
        if not self.portfolio:
            old = self.chance.sample(old, min(len(old), round(rows * AGAIN)))
        self.known += len(new)
        for row in new:
            if self.chance.random() < UNFIT:
                self.unfit[str(row[CUID])] = row[CITY]
                row[CITY] = None
        return as_csv([*new, *old])

    def bring(self, letter: Letter) -> None:
        """Drop a result file that was downloaded."""
        self.place.store.replace(results(self.name) + letter.name, [letter.content])

    def fill_in(self, template: list[dict[str, str]]) -> bool:
        """Fill in what the issuer knows by now: a city that was missing, another postal code; False
        where it is nothing.
        """
        by_cuid = {str(person[CUID]): person for person in self.everybody}
        for row in template:
            person = by_cuid[row["cuid"].removeprefix("'")]
            luck = random.Random(row["cuid"]).random()
            if row["column"] == CITY and row["cuid"] in self.unfit and luck >= HOPELESS:
                row["correction"] = person[CITY] = self.unfit.pop(row["cuid"]) or ""
            elif row["column"] == POSTAL_CODE:
                row["correction"] = person[POSTAL_CODE] = _other_code(str(person[POSTAL_CODE]))
        return any(row["correction"] for row in template)


def _other_code(code: str) -> str:
    """Return a postal code with another last digit."""
    last = max(place for place, character in enumerate(code) if character.isdigit())
    return f"{code[:last]}{(int(code[last]) + 1) % 10}{code[last + 1 :]}"
