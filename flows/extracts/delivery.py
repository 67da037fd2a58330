"""How an extract is delivered: what must be beside it, when it can be taken, of which day it is."""

from collections.abc import Collection, Mapping
from datetime import date, datetime, timedelta
from fnmatch import fnmatchcase
from itertools import product

from flows.errors import TryAgainError
from flows.extracts.opening import together
from flows.extracts.sidecar import read_sidecar
from flows.runs.business_date import date_in_name, local_day
from flows.runs.context import IssuerContext
from flows.runs.store import Entry, Screened, VerdictAwaitedError
from schemas.source import SourceSettings


class ExtractWaitsError(TryAgainError):
    """The delivery of an extract is not complete yet."""

    message = "{extract} is not taken yet: {missing}."
    next_step = (
        "Wait for it, or ask the issuer; then run {same_command} again. "
        "[source] says what an extract needs."
    )


def companions(source: SourceSettings) -> tuple[str, ...]:
    """Return the endings of the files beside an extract, which are never extracts themselves."""
    endings = []
    if source.sidecar:
        endings.append(f".{source.sidecar}")
    if source.done_marker:
        endings.append(source.done_marker)
    return tuple(endings)


def is_extract(name: str, source: SourceSettings) -> bool:
    """Return whether a file of this name is an extract: it fits, and belongs to no other file."""
    is_other = name.endswith(companions(source)) or source.is_second(name)
    return fnmatchcase(name, source.pattern) and not is_other


def with_second_file(entry: Entry, files: Mapping[str, Entry], source: SourceSettings) -> Entry:
    """Return an extract as listed, together with its second file where it has one in `files`."""
    second = files.get(source.second_of(entry.key) or "")
    return entry if second is None else together((entry, second))


def _needed(key: str, source: SourceSettings) -> list[str]:
    """Return the keys of the files that an extract needs beside it."""
    files = [key]
    second = source.second_of(key)
    if second is not None:
        files.append(second)
    endings = companions(source)
    beside = [file + ending for file, ending in product(files, endings)]
    return [*files[1:], *beside]


def missing(entry: Entry, keys: Collection[str], source: SourceSettings, now: datetime) -> str:
    """Return what an extract still waits for, "" where it can be taken.

    `keys` are those of the listing it is in.
    """
    lacking = [key for key in _needed(entry.key, source) if key not in keys]
    if lacking:
        return f"there is no {' and no '.join(lacking)}"
    age = now - entry.modified
    if source.min_age_minutes and age < timedelta(minutes=source.min_age_minutes):
        return (
            f"it was modified at {entry.modified:%H:%M:%S %Z}, "
            f"less than {source.min_age_minutes} minutes ago"
        )
    return ""


def waits_for(context: IssuerContext, entry: Entry, keys: Collection[str]) -> str:
    """Return what an extract still waits for, a malware verdict too, "" where it can be taken.

    Raises VerdictRefusedError.
    """
    store = context.adapters.store
    source = context.issuer.source
    lacking = missing(entry, keys, source, context.adapters.now())
    if lacking or not isinstance(store, Screened):
        return lacking
    try:
        for key in (entry.key, *_needed(entry.key, source)):
            store.ensure_clean(key)
    except VerdictAwaitedError as error:
        return f"{error.fields['key']} has no malware verdict (tag {error.fields['tag']})"
    return ""


def business_date(context: IssuerContext, entry: Entry, requested: date | None = None) -> date:
    """Return the requested date, else that of the name, the sidecar, or the day of the drop.

    Raises SidecarError where the sidecar has another.
    """
    sidecar = read_sidecar(context.adapters.store, context.issuer.source, entry.key)
    named = date_in_name(entry.key)
    for day in filter(None, (named, requested)):
        sidecar.prove(date=day)
    dropped = local_day(entry.modified, context.issuer.time_zone)
    return requested or named or sidecar.facts.get("date") or dropped
