"""The proof of an issuer's journal: what was changed, removed or inserted in database and store."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from flows.operations.audit_contents import Gone, judged_contents
from flows.operations.audit_journal import (
    EMPTIED,
    INSERTED,
    NEVER_WRITTEN,
    REMOVED,
    UNPROVED,
    Accepted,
    Finding,
    JournaledRows,
    NamedObjects,
    StoredEntry,
    answer_findings,
    entry_findings,
    last_number,
    stored_entries,
    unverified,
)
from flows.operations.audit_objects import Snapshot
from flows.operations.checkpoints import Checkpoint
from flows.runs.adapters import Adapters
from flows.runs.audited_store import UNDER_WAY
from flows.runs.context import IssuerContext
from flows.runs.erased import Erasures, all_erasures
from flows.runs.errors import NotFoundError
from flows.runs.journal import Act, enter
from flows.runs.named_objects import is_named
from flows.runs.purges import purges
from flows.runs.store import ConflictError
from flows.steps import Step
from schemas.database import ANSWER, JOURNAL, METADATA

WHOLE = JOURNAL.name  # what the journal is called in findings
MISSING = "is missing, and {} records are there"


class Proof(NamedTuple):
    """What was compared and what does not fit, first in the order of the journal.

    `head` is number and digest of the last entry. `unfinished`: what was named and not written, by
    commands that failed or were killed. `unproved`: how many entries have a proof by a key that is
    not at hand. `erasures`: how many acts have made cardholders forgotten, and `erased`: the
    objects that are gone with them. `runs`: of how many the contents were compared. `gone`: the
    result files that are gone, after the ledgers of their runs were purged.
    """

    entries: int
    objects: int
    head: str
    findings: tuple[Finding, ...]
    accepted: tuple[str, ...]
    unfinished: tuple[Finding, ...] = ()
    unproved: int = 0
    erasures: int = 0
    erased: int = 0
    runs: int = 0
    gone: tuple[Gone, ...] = ()


def verify(
    adapters: Adapters, issuer: str, head: str = "", checkpoint: Checkpoint | None = None
) -> Proof:
    """Compare everything an issuer's journal names with what is stored; nothing is written.

    `head`, of an earlier proof, must be in the journal, which must go on from the `checkpoint` of
    a witness.
    """
    return _Verification(adapters, issuer).proof(head, checkpoint)


class _Verification:
    """One comparison of an issuer's journal with its tables and its store."""

    def __init__(self, adapters: Adapters, issuer: str) -> None:
        self._adapters = adapters
        self._issuer = issuer
        with adapters.database.snapshot() as connection:
            since = last_number(connection, issuer)
        # before the journal is read: what is written is named first
        objects = Snapshot(adapters.store, f"{issuer}/")
        listed = objects.digests([key for key in objects.below(f"{issuer}/") if is_named(key)])
        with adapters.database.snapshot() as connection:
            self._entries = stored_entries(connection, issuer)
            intact = [entry for entry in self._entries if entry.is_intact]
            rows = list(JournaledRows(intact).findings(connection, issuer))
            rows += answer_findings(intact, connection, issuer)
        named = NamedObjects(intact)
        self._objects = objects
        self._stored = listed | objects.digests([key for key in named if key not in listed])
        self._purges = _Purges(adapters, issuer)
        self._accepted = Accepted(intact)
        self._row_findings = [finding for finding, _ in rows]
        self._object_findings = [
            finding
            for key, sha256 in self._stored.items()
            if (finding := named.finding(key, sha256, since)) is not None
            and not (sha256 == "" and self._purges.took(finding, named.named_at(key)))
        ]
        # what may be accepted is accepted as it is now
        self.states = dict.fromkeys(named, "")
        self.states |= {entry.place: entry.sha256 for entry in self._entries}
        self.states |= {finding.key: sha256 for finding, sha256 in rows}
        self.states |= self._stored

    @property
    def made_later(self) -> list[str]:
        """The keys of objects that no entry names, and of rows that the journal does not repeat."""
        strays = [each.key for each in self._object_findings if each.what == INSERTED]
        lost = [
            finding.key
            for finding in self._row_findings
            if finding.what == EMPTIED
            or (finding.what == REMOVED and finding.key.startswith(f"{ANSWER.name}/"))
        ]
        return strays + lost

    @property
    def stored(self) -> dict[str, str]:
        """The digests of the stored objects that a journal names, by key."""
        return {key: sha256 for key, sha256 in self._stored.items() if sha256}

    @property
    def rows(self) -> dict[str, str]:
        """The digests of the rows that are not as entries have them, by place."""
        return {finding.key: self.states[finding.key] for finding in self._row_findings}

    def proof(self, head: str = "", checkpoint: Checkpoint | None = None) -> Proof:
        """Return what was compared and what does not fit."""
        entries = self._entries
        prover = self._adapters.prover
        records = len(self.stored) + len(self._row_findings)
        findings = [*_end_findings(entries, head, checkpoint, records)]
        findings += self._not_accepted(entry_findings(entries, prover))
        if entries:  # that they are missing is a finding of its own
            findings += self._not_accepted(self._row_findings)
        wrong = self._wrong_objects()
        contents = judged_contents(
            self._adapters, self._objects, self._issuer, {finding.key for finding in wrong}
        )
        findings += wrong
        findings += [each for each in contents.findings if not self._is_accepted_as_gone(each)]
        keys = {finding.key for finding in findings}
        return Proof(
            entries=len(entries),
            objects=len(self.stored),
            head=entries[-1].head if entries else "",
            findings=tuple(_in_journal_order(findings, len(entries))),
            accepted=tuple(sorted(set(self._accepted) - keys)),
            unfinished=tuple(self._not_written()),
            unproved=unverified(entries, prover),
            erasures=self._purges.erasures.acts,
            erased=len(self._purges.erasures.deleted),
            runs=contents.runs,
            gone=tuple(contents.gone),
        )

    def _is_accepted_as_gone(self, finding: Finding) -> bool:
        """Return whether a finding is a result file that somebody has accepted to be gone."""
        return finding.what == REMOVED and self._accepted.has(finding.key, "")

    def _wrong_objects(self) -> list[Finding]:
        """Return what is not as the journal names it, nor accepted."""
        if not self._entries:
            return []  # that it is missing is a finding of its own
        written = (each for each in self._object_findings if each.what != NEVER_WRITTEN)
        return list(self._not_accepted(written))

    def _not_accepted(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        for finding in findings:
            if not self._accepted.has(finding.key, self.states.get(finding.key, "")):
                yield finding

    def _not_written(self) -> Iterator[Finding]:
        """Yield what is named and was not written in time."""
        until = self._adapters.now() - UNDER_WAY
        for finding in self._object_findings:
            if finding.what == NEVER_WRITTEN and datetime.fromisoformat(finding.at) <= until:
                yield finding


def _end_findings(
    entries: Sequence[StoredEntry], head: str, checkpoint: Checkpoint | None, records: int
) -> Iterator[Finding]:
    """Yield that a journal is missing, or that its end is not where somebody has seen it."""
    length = len(entries)
    if not length and records:
        yield Finding(WHOLE, MISSING.format(f"{records:,}"))
    if head and head not in {entry.head for entry in entries}:
        yield Finding(WHOLE, f"lacks the entry {head} of an earlier proof", length)
    trouble = checkpoint.trouble(entries) if checkpoint is not None else ""
    if checkpoint is not None and trouble:
        seen = f"entry {checkpoint.number:,}, as a witness saw it: {trouble}"
        yield Finding(WHOLE, f"does not go on from {seen}", length)


class _Purges:
    """What retention and erasures have removed, by their records."""

    def __init__(self, adapters: Adapters, issuer: str) -> None:
        self._issuer = issuer
        self._of_no_run = [record for record in purges(adapters, issuer) if not record.run]
        self.erasures = Erasures(0, frozenset())
        with suppress(ConflictError):  # a decision that was changed is a finding already
            self.erasures = all_erasures(adapters, issuer)

    def took(self, finding: Finding, named_at: datetime | None) -> bool:
        """Return whether an object that is gone was removed by retention or by an erasure."""
        if finding.key in self.erasures.deleted:
            return True
        if not is_named(finding.key):
            return False
        kind = finding.key.removeprefix(f"{self._issuer}/").partition("/")[0]
        moments = [record.since for record in self._of_no_run if kind in record.objects]
        until = max(moments, default=None)
        return until is not None and (named_at is None or named_at <= until)


def made_later(adapters: Adapters, issuer: str) -> dict[str, str]:
    """Return how a database that was rebuilt differs from its journal: digests by key.

    Objects that no entry names yet; as gone, answers that the next ingest reads again; and requests
    without what they requested.
    """
    verification = _Verification(adapters, issuer)
    return {key: verification.states.get(key, "") for key in verification.made_later}


def accept(context: IssuerContext, key: str, reason: str) -> Finding:
    """Record why a finding is accepted; NotFoundError, NoReasonError.

    Those can be accepted that are about objects that the journal names and about rows, result files
    that are gone, entries without a proof, and that a journal is missing: another begins, with what
    is there now.
    """
    issuer = context.issuer.issuer
    adapters = context.adapters
    signed_reason = adapters.signed(reason)["reason"]
    verification = _Verification(adapters, issuer)
    findings = verification.proof().findings
    finding = next((finding for finding in findings if finding.key == key), None)
    if finding is None or not _can_be_accepted(finding):
        missing = f"finding {key} that can be accepted"
        raise NotFoundError(place=issuer, what=missing, command=Step("audit verify", issuer))
    accepted = {key: verification.states.get(key, "")}
    if key == WHOLE:
        accepted = verification.stored | verification.rows

    def work(act: Act) -> None:
        act.facts["accepted"] = accepted

    enter(adapters, issuer, "finding accepted", work, reason=signed_reason)
    return finding


def _can_be_accepted(finding: Finding) -> bool:
    """Return whether somebody may accept what is not as it was recorded."""
    if finding.key == WHOLE:
        return not finding.entry
    if finding.key.startswith(f"{WHOLE}/"):
        return finding.what == UNPROVED
    if finding.what == REMOVED and finding.key.split("/")[1:2] == ["results"]:
        return True
    table = finding.key.partition("/")[0]
    return is_named(finding.key) or table in METADATA.tables


def _in_journal_order(findings: Sequence[Finding], length: int) -> list[Finding]:
    """Return findings by the entry that first names them, last those that none names."""
    return sorted(findings, key=lambda finding: (finding.entry or length + 1, finding.key))
