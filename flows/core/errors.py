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

import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import PurePath
from typing import ClassVar, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


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

    says = "Internal error in {0} ({1})."
    then = "Nothing was committed by this step; report it with the run id. Details stay out of messages on purpose."

    def __init__(self, place: str, kind: str) -> None:
        super().__init__(place, kind)


def kind_and_place(error: BaseException) -> str:
    """Return what a foreign exception may be told by: its type and the last line of ours, never its text."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" not in frame.filename]
    if not ours:
        return type(error).__name__
    return f"{type(error).__name__} at {PurePath(ours[-1].filename).name}:{ours[-1].lineno}"


def guarded(run: Callable[P, T]) -> Callable[P, T]:
    """Let only our errors out of a step: a foreign one becomes a BugError without its text and without a chain.

    A foreign text can hold cells of an extract, and whoever runs the step keeps the texts of exceptions.
    """

    @wraps(run)
    def inner(*args: P.args, **options: P.kwargs) -> T:
        try:
            return run(*args, **options)
        except CardlinkError as error:
            ours = type(error)(*error.args)  # a fresh one: no chain and no frames that hold rows
        except Exception as error:  # noqa: BLE001 - the boundary itself
            ours = BugError(run.__name__, kind_and_place(error))
        raise ours

    return inner
