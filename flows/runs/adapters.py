"""What the steps of a run need from outside: the store, the database, the clock, who is acting."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, Self

from sqlalchemy import Connection

from flows.database.connection import Transactions
from flows.database.within import Within
from flows.errors import OperatorError
from flows.redaction import redact
from flows.runs.store import Store
from flows.runs.trail_proof import NOT_PROVED, Prover
from flows.steps import Option, Sentence


class NoReasonError(OperatorError):
    """A decision of an operator was given without its reason."""

    message = "No reason given."
    next_step = Sentence(
        "Give it with {reason}; it is kept with the decision, your name and the time.",
        reason=Option("--reason"),
    )


class Adapters(NamedTuple):
    """Everything outside: storage, the clock, who is acting, and the database.

    `command`: a digest of the command line by which a person decides, "" where nobody does.
    """

    store: Store
    now: Callable[[], datetime]
    actor: str
    database: Transactions
    connections: int = 16  # requests at a time
    prover: Prover = NOT_PROVED  # of entries of the journal
    command: str = ""

    def within(self, connection: Connection) -> Self:
        """Return the same for whoever reads within the transaction of a connection."""
        return self._replace(database=Within(connection, self.database.place))

    def signed(self, reason: str) -> dict[str, Any]:
        """Return when, by whom and why, as a `Record` has it, card numbers masked.

        Raises NoReasonError where the reason is empty.
        """
        if not reason.strip():
            raise NoReasonError
        return {"at": self.now(), "by": redact(self.actor), "reason": redact(reason.strip())}
