"""Checkpoints of journals: where each ended, signed by a witness, kept where it alone writes.

Whoever writes to a database can cut the end off a journal, put an earlier copy back, or delete all
of it: nothing that is left shows it. So somebody else, in another account, looks from time to time
(`cardlink audit witness`): the journal must go on where the last checkpoint says it ended, then
where it ends now is signed and kept. One witness is enough.

A checkpoint is a signed note (`flows/runs/signed_note.py`) of four lines: what it is about, the
number of the last entry, its SHA-256 in Base64, and when it was made. Checkpoints are created once
and numbered, so the newest one counts.
"""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

from flows.errors import OperatorError
from flows.operations.audit_journal import StoredEntry, entry_findings, stored_entries
from flows.runs.adapters import Adapters
from flows.runs.signed_note import Signer, Verifier
from flows.runs.store import ConflictError, Store, StoreBusyError, read
from flows.runs.trail_proof import NOT_PROVED
from flows.steps import Sentence, Step

UNWITNESSED = "unwitnessed"
WITNESSED = "witnessed"
STALE = "stale"


class NotExtendedError(OperatorError):
    """A journal that is not the one a witness saw, with more behind it."""

    message = "The journal of {issuer} does not go on from the checkpoint at entry {number}: {why}."
    next_step = (
        "Nothing was signed. Keep a copy of database and checkpoints, tell security, and restore "
        "what was deleted since {at}."
    )


class NoWitnessError(OperatorError):
    """No witness is named for an issuer."""

    message = "The settings of {issuer} name no place for the checkpoints of a witness."
    next_step = "Set `witness` and `witness_key` in [audit]; deploy/RUNBOOK.md, The audit trail."


class WitnessKeyError(OperatorError):
    """What should be the key of a witness is none."""

    message = "{place} has no key of a witness."
    next_step = Sentence(
        "Make one with {new}: it prints what [audit] witness_key needs, and the file that it "
        "writes, which only the witness has, is named in CARDLINK_WITNESS_KEY_FILE.",
        new=Step("audit witness-key", "NAME", "FILE"),
    )


class Checkpoint(NamedTuple):
    """Where a journal ended: number and SHA-256 (hexadecimal) of its last entry, and when that was
    seen.
    """

    issuer: str
    number: int
    sha256: str
    at: datetime

    @property
    def text(self) -> str:
        """What is signed."""
        encoded = b64encode(bytes.fromhex(self.sha256)).decode()
        seen = f"seen {self.at:%Y-%m-%dT%H:%M:%SZ}"
        return f"{_origin(self.issuer)}\n{self.number}\n{encoded}\n{seen}\n"

    def trouble(self, entries: Sequence[StoredEntry]) -> str:
        """Return why these entries do not go on from here, "" where they do."""
        if self.number > len(entries):
            return f"it has {len(entries):,} entries" if entries else "it is gone"
        if self.number and entries[self.number - 1].digest != self.sha256:
            return "that entry is another one"
        return ""


def checkpoint_of(text: str, issuer: str) -> Checkpoint | None:
    """Return the checkpoint that a text gives, None where it is none of that issuer."""
    lines = text.split("\n")
    try:
        origin, number, encoded, seen, *_ = lines
        moment = datetime.fromisoformat(seen.removeprefix("seen "))
        checkpoint = Checkpoint(issuer, int(number), b64decode(encoded).hex(), moment)
    except ValueError:
        return None
    return checkpoint if origin == _origin(issuer) and checkpoint.text == text else None


def _origin(issuer: str) -> str:
    return f"cardlink/journal/{issuer}"


def verifier_of(line: str) -> Verifier:
    """Return the key of the witness that `[audit] witness_key` gives; WitnessKeyError."""
    with suppress(ValueError):
        return Verifier.of(line)
    raise WitnessKeyError(place="[audit] witness_key")


def signer_of(line: str, place: str) -> Signer:
    """Return the witness's own key, as it was read from `place`; WitnessKeyError."""
    with suppress(ValueError):
        return Signer.of(line)
    raise WitnessKeyError(place=place)


def last_checkpoint(place: Store, issuer: str, key: Verifier) -> Checkpoint | None:
    """Return the newest checkpoint that a witness keeps, None where it has none.

    Raises ConflictError where that is not what the key has signed.
    """
    names = [entry.key for entry in place.keys(_prefix(issuer))]
    if not names:
        return None
    text = key.text_of(read(place, names[-1]).decode("utf-8", "replace"))
    checkpoint = checkpoint_of(text, issuer) if text is not None else None
    if checkpoint is None:
        raise ConflictError(key=names[-1])
    return checkpoint


def witness(adapters: Adapters, place: Store, issuer: str, signer: Signer) -> Checkpoint:
    """Sign where an issuer's journal ends, and keep it, if it goes on from the last time.

    Raises NotExtendedError, ConflictError, StoreBusyError where another process is doing the same.
    """
    now = adapters.now()
    with adapters.database.snapshot() as connection:
        entries = stored_entries(connection, issuer)
    last = last_checkpoint(place, issuer, signer.verifier)
    why = last.trouble(entries) if last is not None else ""
    why = why or _trouble(entries)
    if why:
        known = last or Checkpoint(issuer, 0, "", now)
        raise NotExtendedError(
            issuer=issuer, number=known.number, why=why, at=f"{known.at:%Y-%m-%d %H:%M}"
        )
    sha256 = entries[-1].digest if entries else ""
    checkpoint = Checkpoint(issuer, len(entries), sha256, now.replace(microsecond=0))
    key = f"{_prefix(issuer)}{_next_number(place, issuer):06d}.txt"
    if not place.create(key, signer.signed(checkpoint.text).encode()):
        raise StoreBusyError(place=key, code="contested")
    return checkpoint


def _trouble(entries: Sequence[StoredEntry]) -> str:
    """Return what is wrong with the first of the entries that do not fit, "" where all do."""
    finding = next(entry_findings(entries, NOT_PROVED), None)
    return f"{finding.key}: {finding.what}" if finding else ""


def _prefix(issuer: str) -> str:
    return f"{issuer}/checkpoints/"


def _next_number(place: Store, issuer: str) -> int:
    names = [entry.key for entry in place.keys(_prefix(issuer))]
    return int(names[-1].rpartition("/")[2].removesuffix(".txt")) + 1 if names else 1


def witnessed(checkpoint: Checkpoint | None, now: datetime, hours: int) -> str:
    """Return whether a journal is witnessed: UNWITNESSED, WITNESSED, or STALE."""
    if checkpoint is None:
        return UNWITNESSED
    return STALE if now - checkpoint.at > timedelta(hours=hours) else WITNESSED
