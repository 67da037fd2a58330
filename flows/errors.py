"""The error tree, grouped by who has to act.

CardlinkError
├── ExtractError        the issuer must resend or correct the extract    exit 2
├── GateError           a limit stopped the run before its commit        exit 3
├── OperatorError       configuration, key, store: an operator must act  exit 2
├── TryAgainError       a temporary failure: run the same command again  exit 75
├── BalanceError        the numbers do not add up                        exit 4
└── BugError            ours: report it                                  exit 1

A class is a `message`, which says what happened and where, and a `next_step`. Their `{fields}` are
given by name when the error is raised, and kept, so that it survives pickling. Fields are names,
counts, row numbers and codes: never a cell of an extract. A text that names a command or an option
is a `Sentence` (`flows.steps`), so that a form can put them in its own words.
"""

import errno
import os
import resource
import traceback
from collections.abc import Callable
from functools import partial, wraps
from pathlib import PurePath
from typing import Any, ClassVar, ParamSpec, Self, TypeVar

from flows.steps import Sentence, Text, joined

P = ParamSpec("P")
T = TypeVar("T")


class CardlinkError(Exception):
    """The root: takes exactly the fields of its class's message and next step.

    Anything else is a TypeError.
    """

    exit_code: ClassVar[int] = 1
    message: ClassVar[Text] = ""
    next_step: ClassVar[Text] = ""

    def __init__(self, **fields: Any) -> None:
        expected = fields_of(type(self))
        if fields.keys() != expected:
            raise TypeError(f"{type(self).__name__} takes {sorted(expected)}, not {sorted(fields)}")
        self.fields = fields
        self.advice: list[Sentence] = []  # what a command adds: what else can be done there
        super().__init__()

    def __str__(self) -> str:
        """Return its message and next step; only then, since most errors are never shown."""
        return str(self.sentence)

    def __reduce__(self) -> tuple[partial[Self], tuple[()]]:
        """Pickle by the named fields."""
        return partial(type(self), **self.fields), ()

    @property
    def sentence(self) -> Sentence:
        """Its message and next step."""
        return sentence_of(type(self)).filled(self.fields)

    @property
    def what_happened(self) -> str:
        """Its message alone."""
        return str(joined(self.message).filled(self.fields))

    @property
    def what_next(self) -> str:
        """Its next step alone."""
        return str(joined(self.next_step).filled(self.fields))

    @property
    def text(self) -> Sentence:
        """Its message and next step, and the advice that was added."""
        return joined(self.sentence, *self.advice)


# found once: an object that is not stored is looked for often, and each time an error says so
_FIELDS: dict[type[CardlinkError], frozenset[str]] = {}


def sentence_of(kind: type[CardlinkError]) -> Sentence:
    """Return a class's message and next step."""
    return joined(kind.message, kind.next_step)


def fields_of(kind: type[CardlinkError]) -> frozenset[str]:
    """Return the names of the fields in a class's message and next step."""
    if kind not in _FIELDS:
        _FIELDS[kind] = sentence_of(kind).fields
    return _FIELDS[kind]


class ExtractError(CardlinkError):
    """The issuer must resend or correct the extract."""

    exit_code = 2


class GateError(CardlinkError):
    """A limit stopped the run before anything was committed."""

    exit_code = 3


class OperatorError(CardlinkError):
    """Configuration, key or store: an operator must act."""

    exit_code = 2


class TryAgainError(CardlinkError):
    """A temporary failure: the same command again is the recovery."""

    exit_code = 75


class BalanceError(CardlinkError):
    """The numbers of a run do not add up."""

    exit_code = 4


class BugError(CardlinkError):
    """An error of our own: nothing the operator did."""

    message = "Internal error in {place} ({kind})."
    next_step = (
        "Nothing was committed by this step; report it with the run id. "
        "Its text is withheld on purpose."
    )


def kind_and_place(error: BaseException) -> str:
    """Return what may be shown of a foreign exception: its type and our last line on its way, never
    its text.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in frame.filename
    ]
    kind = type(error).__name__
    if not frames:
        return kind
    last = frames[-1]
    return f"{kind} at {PurePath(last.filename).name}:{last.lineno}"


class LimitError(TryAgainError):
    """The machine, or a limit of this process, gave no more memory, room, files, processes or
    threads.
    """

    message = "{place} could not go on: {reason}."
    next_step = (
        "Free some or raise the limit (ulimit -a), then run {same_command} again; it resumes."
    )


LIMITS = (
    errno.ENOMEM,
    errno.EAGAIN,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
)


def reason_of(number: int) -> str:
    """Return which limit an error number of the system is about."""
    largest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if number == errno.EFBIG and largest != resource.RLIM_INFINITY:
        return f"no file may have more than {largest:,} bytes (ulimit -f)"
    return os.strerror(number).lower()


def translated(place: str, error: BaseException) -> CardlinkError:
    """Return our error for any one, without its text: itself, the limit that was met, or an error
    of our own.
    """
    if isinstance(error, CardlinkError):
        return error
    number = errno.ENOMEM if isinstance(error, MemoryError) else getattr(error, "errno", 0)
    if number in LIMITS:
        return LimitError(place=place, reason=reason_of(number))
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return LimitError(place=place, reason="no thread could be started (ulimit -u or -v)")
    return BugError(place=place, kind=kind_and_place(error))


def guarded(run: Callable[P, T]) -> Callable[P, T]:
    """Let only our errors out of a flow or task: a foreign one becomes a BugError without its text
    and chain.

    A foreign text can hold cells of an extract, and Prefect stores the texts of exceptions. Ours is
    raised outside the `except`, so that Python does not keep the foreign one as its `__context__`.
    """

    @wraps(run)
    def inner(*args: P.args, **options: P.kwargs) -> T:
        try:
            return run(*args, **options)
        except CardlinkError as error:
            # a fresh one: no chain and no frames that hold rows
            reported = type(error)(**error.fields)
        except BaseException as error:  # the boundary itself; stop signals and cancellations pass
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            reported = translated(run.__name__, error)
        raise reported

    return inner
