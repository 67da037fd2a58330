"""The opening balance: how many cardholders and cards retention has removed from the book.

The record of each purge says how many left the book with a ledger, by the state they stood in
(`removals.py` counts them). The opening balance is the sum over these records, so it survives a
rebuild of the book. There are counts only: nobody can be recognised in it. Somebody who is named
again afterwards is counted as new. Who was erased (`flows/runs/erased.py`) is counted beside them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from pydantic import BaseModel, ConfigDict
from sqlalchemy import select

from flows.runs.adapters import Adapters
from flows.runs.decisions import ERASURE, decisions
from flows.runs.documents import record_of_row
from schemas.database import PURGE
from schemas.records import Erasure, Removed


class OpeningBalance(BaseModel):
    """How many `people` and `cards` were removed, by state, up to so many `purges`.

    `erased_people` and `erased_cards`: those who were erased.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    people: dict[str, int] = {}
    cards: dict[str, int] = {}
    purges: int = 0
    erased_people: int = 0
    erased_cards: int = 0

    @property
    def total(self) -> int:
        """The cardholders that were removed or erased."""
        return sum(self.people.values()) + self.erased_people

    @property
    def sentence(self) -> str:
        """Whom retention removed, and who is forgotten; "" where that is nobody."""
        return " ".join(filter(None, (self._removed, self._erased)))

    @property
    def _removed(self) -> str:
        removed = sum(self.people.values())
        if not removed:
            return ""
        states = ", ".join(f"{number:,} {state}" for state, number in self.people.items())
        return f"Retention removed {removed:,} more ({states})."

    @property
    def _erased(self) -> str:
        if not self.erased_people:
            return ""
        verb = "is" if self.erased_people == 1 else "are"
        return f"{self.erased_people:,} more {verb} forgotten (erasures)."

    @property
    def facts(self) -> dict[str, object]:
        """The opening balance as plain facts."""
        return {"sentence": self.sentence, **self.model_dump(mode="json", exclude={"purges"})}


NOBODY_REMOVED = OpeningBalance()


def opening_balance(adapters: Adapters, issuer: str, kept: OpeningBalance) -> OpeningBalance:
    """Return the opening balance: as it is kept, with those who were removed since."""
    query = select(PURGE.c.number, PURGE.c.removed).where(
        PURGE.c.issuer == issuer, PURGE.c.number > kept.purges, PURGE.c.removed.is_not(None)
    )
    with adapters.database.snapshot() as connection:
        later = connection.execute(query.order_by(PURGE.c.number)).all()
    removed = [record_of_row(row.removed, f"Purge {row.number}", Removed) for row in later]
    acts = decisions(adapters, issuer, ERASURE, Erasure)
    return OpeningBalance(
        people=added(kept.people, *(counts.people for counts in removed)),
        cards=added(kept.cards, *(counts.cards for counts in removed)),
        purges=later[-1].number if later else kept.purges,
        erased_people=sum(act.people for act in acts),
        erased_cards=sum(act.cards for act in acts),
    )


def all_removed(balances: Iterable[OpeningBalance]) -> OpeningBalance:
    """Return the opening balance of several issuers."""
    issuers = list(balances)
    return OpeningBalance(
        people=added(*(issuer.people for issuer in issuers)),
        cards=added(*(issuer.cards for issuer in issuers)),
        erased_people=sum(issuer.erased_people for issuer in issuers),
        erased_cards=sum(issuer.erased_cards for issuer in issuers),
    )


def added(*counts: Mapping[str, int]) -> dict[str, int]:
    """Return the sum of counts by state."""
    total = Counter[str]()
    for by_state in counts:
        total.update(by_state)
    return dict(sorted(total.items()))
