"""In which format the store of an issuer is written, and what each version changed in that.

A version writes what the version before it reads and acts on, so that whoever installs it can go
back, until `cardlink upgrade` puts the next format in force: a create-only record below `formats/`,
named by its number; the first format has none. From then on earlier versions are refused, in one
sentence, before they do anything.

To change what is always written: a line of `CHANGES` with the next number. The new field is set
only where `IssuerContext.stored_format` has that number, and its document is written in the version
of `version_in`. What is written only where somebody uses something new, such as a setting, has a
line without a number: going back, one does without it. `flows/runs/versions.py` has how a document
is changed.
"""

from typing import Final, NamedTuple

from pydantic import BaseModel

from flows.errors import OperatorError
from flows.runs.chains import last_record
from flows.runs.keys import formats, link
from flows.runs.store import Store
from flows.runs.versions import RELEASE, read_document
from schemas.records import FormatInForce


class NewerStoreError(OperatorError):
    """What is stored of an issuer is written in a format of a later version."""

    message = (
        "{issuer} is stored in format {number}, which needs cardlink {release} or later; this is "
        "{installed}. Nothing was changed."
    )
    next_step = (
        "Install that version on this machine, then run {same_command} again; where it is not "
        "wanted any more, deploy/UPGRADE.md has the way back."
    )


class Change(NamedTuple):
    """What a version changed in what is stored, and what that means for going back.

    `number`: of the format that brings it, None where `what` says what brings it. `documents`: the
    versions that it raises, from and to, by kind.
    """

    release: str
    number: int | None
    documents: dict[str, tuple[int, int]]
    what: str
    back: str


FIRST: Final = 1
PLANNED_BY: Final = 2  # plans name the version that planned the run
CHANGES: Final = (
    Change(
        "0.2.0",
        PLANNED_BY,
        {"Plan": (3, 4)},
        "the plan of a run names the version of cardlink that planned it (`report --history`)",
        "0.1.0 does not finish a run that was begun since; what is committed it goes on with",
    ),
    Change(
        "0.2.0",
        None,
        {},
        "suppressed rows are listed in report/suppressed.csv, which was held.csv",
        "0.1.0 does not know that name: its purge leaves it, and after an erasure by 0.1.0 "
        "`report RUN` of this version writes it anew",
    ),
)
NEWEST: Final = max(change.number or FIRST for change in CHANGES)


def format_in_force(store: Store, issuer: str) -> int:
    """Return the format in which what is stored of an issuer is written; NewerStoreError."""
    prefix = formats(issuer)
    if read_document(store, link(prefix, NEWEST + 1), FormatInForce) is not None:
        number, record = last_record(store, prefix, FormatInForce)
        release = record.release if record else ""
        raise NewerStoreError(issuer=issuer, number=number, release=release, installed=RELEASE)
    for number in range(NEWEST, FIRST, -1):
        if read_document(store, link(prefix, number), FormatInForce) is not None:
            return number
    return FIRST


def version_in(kind: type[BaseModel], number: int) -> int:
    """Return the version in which a format has a kind of document."""
    version: int = kind.model_fields["format"].default
    for change in CHANGES:
        if (change.number or FIRST) > number and kind.__name__ in change.documents:
            version = min(version, change.documents[kind.__name__][0])
    return version


def brought_by(before: int, after: int = NEWEST) -> list[Change]:
    """Return what formats behind one of them bring, up to another, in their order."""
    numbered = [change for change in CHANGES if before < (change.number or FIRST) <= after]
    return sorted(numbered, key=lambda change: change.number or FIRST)
