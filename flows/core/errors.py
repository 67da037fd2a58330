"""The error tree, grouped by who has to do something.

CardlinkError
├── ExtractError        the issuer must resend or mend the extract      exit 2
├── GateError           a limit stopped the run before its commit        exit 3
├── OperatorError       configuration, key, store: an operator must act  exit 2
├── TryAgainError       passing trouble, run the same command again      exit 75
├── BalanceError        the numbers do not add up                        exit 4
└── BugError            ours: report it                                  exit 1

Every class says what happened and where in `says`, and what to do in `then`; `{0}`, `{1}` … are the
constructor's arguments, which equal `args`, so an error survives pickling. Arguments are names, counts,
row numbers and codes: never a cell of an extract.
"""

from __future__ import annotations

from typing import ClassVar


class CardlinkError(Exception):
    """The root: what, where, what next."""

    exit_code: ClassVar[int] = 1
    says: ClassVar[str] = "{0}"
    then: ClassVar[str] = ""

    def __str__(self) -> str:
        """Return the sentence an operator reads."""
        return f"{self.says} {self.then}".strip().format(*self.args)


class ExtractError(CardlinkError):
    """The issuer must resend or mend the extract."""

    exit_code = 2


class GateError(CardlinkError):
    """A limit stopped the run before anything was committed."""

    exit_code = 3


class OperatorError(CardlinkError):
    """Configuration, key or store: an operator must act."""

    exit_code = 2


class TryAgainError(CardlinkError):
    """Passing trouble: the same command again is the recovery."""

    exit_code = 75


class BalanceError(CardlinkError):
    """The numbers of a run do not add up."""

    exit_code = 4


class BugError(CardlinkError):
    """Our own mistake: nothing the operator did."""

    says = "cardlink went wrong in {0} ({1})."
    then = "Nothing was committed by this step; report it with the run id. Details stay out of messages on purpose."

    def __init__(self, place: str, kind: str) -> None:
        super().__init__(place, kind)
