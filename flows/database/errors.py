"""The errors of a database, and which of them a driver's error is."""

import errno
import os
import resource
import sqlite3
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from flows.errors import (
    BugError,
    CardlinkError,
    LimitError,
    OperatorError,
    TryAgainError,
    kind_and_place,
    reason_of,
)
from flows.steps import ISSUER, WHY, Sentence, Step


class DatabaseBusyError(TryAgainError):
    """Other processes held a lock for too long, or changed what an act had read each time."""

    message = "The database {place} was busy with other processes for too long ({code})."
    next_step = (
        "Nothing was changed by this step. Run {same_command} again when the other command is done."
    )


class DatabaseUnreachableError(TryAgainError):
    """The database does not respond, or ended the connection."""

    message = "The database {place} does not respond ({code})."
    next_step = "Run {same_command} again when the database or the network has recovered."


class NoBackupError(OperatorError):
    """A database that its own server copies."""

    message = "{place} is a PostgreSQL database: its server makes copies of it."
    next_step = "Use the server's own backups, or `pg_dump --format=custom`."


class DatabaseAddressError(OperatorError):
    """The address of the database is none; it may hold a password and is not shown."""

    message = "CARDLINK_DATABASE_URL is not the address of a database."
    next_step = (
        "Correct it: postgresql://USER:PASSWORD@HOST:PORT/NAME, or sqlite:////FOLDER/NAME.db; "
        "without it, the database is cardlink.db in the issuers' folder."
    )


class DatabaseDeniedError(OperatorError):
    """There is no such database, or this user may not use it."""

    message = "The database {place} cannot be opened or written ({code})."
    next_step = Sentence(
        "Check that it exists, with its folder, and what this user may do there: owner, mode and "
        "mount of the file and its folder, or the role and its rights. {check} tries it.",
        check=Step("check", ISSUER),
    )


class DatabaseDamagedError(OperatorError):
    """The file is no database, or is damaged."""

    message = "{place} is not a database, or is damaged ({code})."
    next_step = Sentence(
        "If the path is wrong, correct CARDLINK_DATABASE_URL. If it is the database, move it away "
        "with its -wal and -shm files, put the newest copy in its place, and apply what the store "
        "has since: {recover}.",
        recover=Step("recover", ISSUER, reason=WHY),
    )


class DatabaseFullError(OperatorError):
    """The disk or a quota is full."""

    message = "There is no room left for the database {place} ({code})."
    next_step = "Nothing was changed by this step. Make room there, then run {same_command} again."


class DatabaseRevisionError(OperatorError):
    """Another cardlink made or migrated the database."""

    message = (
        "The tables of the database {place} are at revision {revision}; this cardlink knows "
        "revisions up to {newest}."
    )
    next_step = (
        "Nothing was read or changed. Use the version of cardlink that made it, or a newer one."
    )


# by the beginning of SQLite's name of an error, or of PostgreSQL's SQLSTATE
_KINDS: Final[Mapping[str, type[CardlinkError]]] = {
    "SQLITE_BUSY": DatabaseBusyError,
    "SQLITE_LOCKED": DatabaseBusyError,
    "SQLITE_PROTOCOL": DatabaseBusyError,
    "SQLITE_IOERR": DatabaseUnreachableError,
    "SQLITE_CANTOPEN": DatabaseDeniedError,
    "SQLITE_PERM": DatabaseDeniedError,
    "SQLITE_READONLY": DatabaseDeniedError,
    "SQLITE_NOTADB": DatabaseDamagedError,
    "SQLITE_CORRUPT": DatabaseDamagedError,
    "SQLITE_FULL": DatabaseFullError,
    "40": DatabaseBusyError,  # serialization failure, deadlock
    "55P03": DatabaseBusyError,  # a lock was not available in time
    "57014": DatabaseBusyError,  # a time limit of the server
    "53100": DatabaseFullError,  # its disk
    "53200": DatabaseUnreachableError,  # its memory
    "53300": DatabaseUnreachableError,  # too many connections
    "08": DatabaseUnreachableError,  # the connection
    "57P": DatabaseUnreachableError,  # it is shut down, or starts
    "58": DatabaseUnreachableError,  # its system
    "25006": DatabaseDeniedError,  # a standby, which is read only
    "28": DatabaseDeniedError,  # user or password
    "3D": DatabaseDeniedError,  # no such database
    "42501": DatabaseDeniedError,  # rights
    "XX001": DatabaseDamagedError,
    "XX002": DatabaseDamagedError,
}
# bytes by which a file of SQLite grows at once, at most: its index of the log, and pages
_GROWTH: Final = 1 << 20
_FILES: Final = 4  # that SQLite has open: the database, its log and index, the folder
# what a server says of a connection that it refuses, for which there is no code
_REFUSALS = ("authentication failed", "no password supplied", "does not exist", "pg_hba.conf")


def is_conflict(error: BaseException) -> bool:
    """Return whether an error is of two transactions that were in each other's way: PostgreSQL's
    serialization failure or deadlock, after which the same transaction may succeed.
    """
    return _code(_of_driver(error)).startswith("40")


def error_of(error: Exception, place: str) -> CardlinkError:
    """Return our error for one of a driver or of SQLAlchemy, without its text: that may hold
    values.
    """
    cause = _of_driver(error)
    code = _code(cause)
    limit = _limit(code, place)
    if limit:
        return LimitError(place=f"work on the database {place}", reason=reason_of(limit))
    for beginning, kind in _KINDS.items():
        if code.startswith(beginning):
            return kind(place=place, code=code)
    if type(cause).__name__ in ("OperationalError", "ConnectionTimeout") and not code:
        return _of_connection(cause, place)
    return BugError(place=f"the database {place}", kind=f"{kind_and_place(error)} {code}".strip())


def _limit(code: str, place: str) -> int:
    """Return the number of the limit of this process that SQLite met, 0 for none: it does not say.

    A file larger than the limit is as an error of the disk to it, and no further file as one that
    it may not open.
    """
    if code == "SQLITE_NOMEM":
        return errno.ENOMEM
    if code.startswith("SQLITE_IOERR") and _is_near_limit(place):
        return errno.EFBIG
    if code.startswith("SQLITE_CANTOPEN"):
        return _limit_of_files()
    return 0


def _limit_of_files() -> int:
    """Return the number of the limit that the files of a database meet, 0 for none."""
    with ExitStack() as opened:
        try:
            for _ in range(_FILES):
                opened.enter_context(open(os.devnull, "rb"))  # noqa: PTH123  no file of ours
        except OSError as error:
            return error.errno or 0
    return 0


def _is_near_limit(place: str) -> bool:
    """Return whether one of the files of a database may not grow by its next page or index."""
    largest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if largest == resource.RLIM_INFINITY:
        return False
    files = [Path(f"{place}{ending}") for ending in ("", "-wal", "-shm")]
    sizes = [file.stat().st_size for file in files if file.exists()]
    return largest < max(sizes, default=0) + _GROWTH


def _of_driver(error: BaseException) -> BaseException:
    """Return the driver's own error, which SQLAlchemy wraps."""
    cause = getattr(error, "orig", None)
    return cause if isinstance(cause, BaseException) else error


def _code(error: BaseException) -> str:
    """Return the code of a driver's error, "" where it has none."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorname", "")
    return getattr(error, "sqlstate", None) or ""


def _of_connection(error: BaseException, place: str) -> CardlinkError:
    """Return our error where PostgreSQL gave no connection, or ended it."""
    text = str(error)
    if any(refusal in text for refusal in _REFUSALS):
        return DatabaseDeniedError(place=place, code="the server refused the connection")
    return DatabaseUnreachableError(place=place, code="no connection")
