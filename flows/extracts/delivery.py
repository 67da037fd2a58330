"""An extract as it is delivered: what must be beside it, when it is taken, and reading it,
decrypted and proven.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import date, datetime, timedelta
from fnmatch import fnmatchcase
from io import BytesIO
from typing import Any, NamedTuple

from flows.errors import ExtractError, OperatorError, TryAgainError
from flows.extracts.decode import Readable
from flows.extracts.errors import TruncatedError
from flows.redaction import redact
from flows.runs.business_date import date_in_name, local_day
from flows.runs.context import IssuerContext
from flows.runs.openpgp import is_cut_off, looks_like_message
from flows.runs.store import Entry, ObjectChangedError, Screened, Store, VerdictAwaitedError
from schemas.issuer import SourceSettings
from schemas.manifest import SourceIdentity

LARGEST = 1 << 16  # bytes of a sidecar
LARGEST_SEALED = 2 << 30  # bytes of a decrypted extract: it is decrypted in memory
_SUM = re.compile(r"\\?(?P<sha256>[0-9A-Fa-f]{64})(?:\s+\*?(?P<path>\S.*))?")
# How a ctl file writes each fact; no number has the digits of a card, since errors show them.
_FACTS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "count": ("[0-9]{1,12}", int),
    "bytes": ("[0-9]{1,12}", int),
    "sha256": ("[0-9A-Fa-f]{64}", str.lower),
    "date": ("20[0-9]{2}-[0-9]{2}-[0-9]{2}|20[0-9]{6}", date.fromisoformat),
}


class ExtractWaitsError(TryAgainError):
    """The delivery of an extract is not complete yet."""

    message = "{extract} is not taken yet: {missing}."
    next_step = "Wait for it, or ask the issuer; then run the same command again. [source] says what an extract needs."


class SidecarError(ExtractError):
    """A sidecar cannot be read, or an extract is not what its sidecar says."""

    message = "{extract} is not proven by its sidecar: {problem}. Nothing was committed."
    next_step = (
        "Ask the issuer to send both files again, or compare `sidecar` in [source] with the file. A date given with "
        "--date must be that of the sidecar."
    )


class Sidecar(NamedTuple):
    """The facts that a sidecar gives of its extract: count, bytes, sha256, date, as far as it has
    them.
    """

    extract: str
    facts: dict[str, Any]

    def prove(self, **found: Any) -> None:
        """Raise SidecarError where a fact is another than found."""
        for what, value in found.items():
            if (said := self.facts.get(what, value)) != value:
                raise SidecarError(
                    extract=self.extract, problem=f"{what} is {value}, expected {said}"
                )


def companions(source: SourceSettings) -> tuple[str, ...]:
    """Return the endings of the files that come beside an extract, and are never extracts
    themselves.
    """
    return tuple(filter(None, (f".{source.sidecar}" if source.sidecar else "", source.done_marker)))


def is_extract(name: str, source: SourceSettings) -> bool:
    """Return whether a file of this name is an extract: it matches the pattern, and belongs to no
    other file.
    """
    return fnmatchcase(name, source.pattern) and not name.endswith(companions(source))


def missing(entry: Entry, keys: Collection[str], source: SourceSettings, now: datetime) -> str:
    """Return what an extract still waits for, "" where it can be taken; `keys` are those of the
    listing it is in.
    """
    lacking = [
        f"{entry.key}{ending}"
        for ending in companions(source)
        if f"{entry.key}{ending}" not in keys
    ]
    if lacking:
        return f"there is no {' and no '.join(lacking)}"
    if source.min_age_minutes and now - entry.modified < timedelta(minutes=source.min_age_minutes):
        return f"it was modified at {entry.modified:%H:%M:%S %Z}, less than {source.min_age_minutes} minutes ago"
    return ""


def waits_for(context: IssuerContext, entry: Entry, keys: Collection[str]) -> str:
    """Return what an extract still waits for, a malware verdict too, "" where it can be taken;
    VerdictRefusedError.
    """
    store, source = context.adapters.store, context.issuer.source
    lacking = missing(entry, keys, source, context.adapters.now())
    if lacking or not isinstance(store, Screened):
        return lacking
    try:
        for ending in ("", *companions(source)):
            store.ensure_clean(entry.key + ending)
    except VerdictAwaitedError as error:
        return f"{error.fields['key']} has no malware verdict (tag {error.fields['tag']})"
    return ""


def business_date(context: IssuerContext, entry: Entry, asked: date | None = None) -> date:
    """Return the date asked for, else that of the name, the sidecar, the day of the drop;
    SidecarError.
    """
    sidecar, named = (
        read_sidecar(context.adapters.store, context.issuer.source, entry.key),
        date_in_name(entry.key),
    )
    for day in filter(None, (named, asked)):
        sidecar.prove(date=day)
    return (
        asked
        or named
        or sidecar.facts.get("date")
        or local_day(entry.modified, context.issuer.time_zone)
    )


def read_sidecar(store: Store, source: SourceSettings, extract: str) -> Sidecar:
    """Return the facts of an extract's sidecar, none where the issuer has no sidecars;
    SidecarError.
    """
    key, text = f"{extract}.{source.sidecar}", ""
    if source.sidecar is None:
        return Sidecar(extract, {})
    with store.open(key) as stream, suppress(UnicodeError):
        text = stream.read(LARGEST).decode("utf-8-sig")
    facts = (_checksum if source.sidecar == "sha256" else _facts)(
        text.splitlines(), extract.rpartition("/")[2]
    )
    if isinstance(facts, str):
        raise SidecarError(extract=extract, problem=f"{key}: {facts}")
    return Sidecar(extract, facts)


def _checksum(lines: list[str], name: str) -> dict[str, Any] | str:
    """Read what sha256sum writes, in text or binary mode, also of other files; else say what is
    wrong.
    """
    found = [_SUM.fullmatch(line.strip()) for line in lines if line.strip()]
    named = [one for one in found if one and re.split(r"[/\\]", one["path"] or name)[-1] == name]
    if not all(found) or len(named) != 1:
        return (
            f"it is not one line of sha256sum for {name}: 64 hex digits, two spaces, the file name"
        )
    return {"sha256": named[0]["sha256"].lower()}


def _facts(lines: list[str], _: str) -> dict[str, Any] | str:
    """Read `key=value` lines, blank ones and comments between them; else say what is wrong."""
    facts: dict[str, Any] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, _, value = (part.strip() for part in line.partition("="))
        if key not in _FACTS:
            return f"line {number} has the unknown key {redact(key)[:40]!r}; known: {', '.join(_FACTS)}"
        shape, convert = _FACTS[key]
        if key in facts or not re.fullmatch(shape, value):
            return f"line {number} has {'a second' if key in facts else 'no valid'} {key}"
        try:
            facts[key] = convert(value)
        except ValueError:  # 20260231 is not a date
            return f"line {number} has no valid {key}"
    return facts or f"it has none of {', '.join(_FACTS)}"


class Digesting:
    """A stream that hashes what is read of it; `head`: its first bytes, which are still to be
    read.
    """

    def __init__(self, source: Readable) -> None:
        self._source, self._running, self._done, self._rest = source, hashlib.sha256(), 0, b""
        self.head = self._rest = self.read(64)

    def tell(self) -> int:
        """Return how many bytes were read."""
        return self._done

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, as many as asked for unless it ends."""
        if head := self._rest:
            self._rest = b"" if size < 0 else head[size:]
            return head + self.read() if size < 0 else head[:size]
        data = self._source.read(size)
        while 0 < len(data) < size and (more := self._source.read(size - len(data))):
            # always full reads, so that the same extract gives the same blocks each time
            data += more
        self._running.update(data)
        self._done += len(data)
        return data

    def hexdigest(self) -> str:
        """Read what the reader did not need, such as bytes after a gzip member, and return the
        SHA-256 of all.
        """
        while self.read(1 << 20):
            pass
        return self._running.hexdigest()


class NoKeyForExtractError(OperatorError):
    """The extract is PGP-encrypted, and no private key is configured."""

    message = "{extract} is PGP-encrypted and no private key is configured."
    next_step = "Set CARDLINK_PRIVATE_KEY_FILE to the file of the private key it was encrypted for."


@contextmanager
def open_extract(
    context: IssuerContext, entry: Entry, source: SourceIdentity
) -> Iterator[Digesting | BytesIO]:
    """Open the extract again, pinned; ObjectChangedError at its end if it has not the digest of the
    first reading.
    """
    with context.adapters.store.open(entry.key, entry) as stored:
        digesting = Digesting(stored)
        if looks_like_message(digesting.head):
            message = digesting.read()
            if is_cut_off(message):
                raise TruncatedError(
                    name=entry.key, problem=f"its PGP message has no end after {len(message)} bytes"
                )
            with context.opener() as opener:
                if opener is None:
                    raise NoKeyForExtractError(extract=entry.key)
                plain = opener.open(message, LARGEST_SEALED)
            yield BytesIO(plain)
        else:
            yield digesting
        if digesting.hexdigest() != source.sha256:
            raise ObjectChangedError(key=entry.key)
