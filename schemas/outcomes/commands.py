"""The facts of each command, by its name. Which of them an outcome has depends on the options."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Final

from typing_extensions import TypedDict

from schemas.outcomes import parts


class Submit(TypedDict, total=False):
    """Extracts that were submitted, or would be."""

    issuer: str
    dry_run: bool
    runs: list[parts.CommittedRun]
    extracts: list[parts.CheckedExtract]
    refused: list[str]
    waiting: list[str]
    remarks: list[str]


class Moved(TypedDict, total=False):
    """What was recorded for chunks of a run."""

    issuer: str
    run: str
    move: str
    dry_run: bool
    chunks: list[parts.Chunk]


class Uploaded(Moved, total=False):
    """Chunks that were recorded as uploaded; of an issuer, run by run."""

    runs: list[Moved]


class Upload(Uploaded, total=False):
    """Chunks to upload, copied to a folder, or recorded as uploaded."""

    folder: str


class Ingest(TypedDict, total=False):
    """What an ingest did, and the report of each run it concerns."""

    issuer: str
    files: int
    rows: int
    breaks: list[str]
    reports: list[parts.Report]
    open_files: int
    unjudged: int
    deliveries: list[Delivered]
    not_delivered: str


class RunReport(parts.Report, total=False):
    """The summary of a run's report, and what it rests on; `files` were brought to `folder`."""

    folder: str
    files: list[str]
    source: dict[str, Any]
    how: Any
    recipients: Any
    results: Any
    newest_results: Any
    links: Any
    shapes: Any
    repairs: Any
    attempts: Any
    closed: Any
    settings_sha256: str | None
    settings_in_force: Any
    versions: dict[str, Any]


class Worklist(TypedDict, total=False):
    """What is to be done: line by line, and together for several issuers."""

    cardholders: dict[str, dict[str, Any]]
    arrivals: dict[str, dict[str, Any]]
    extracts: list[parts.ExtractState]
    runs: list[parts.RunStatus]
    worklist: list[parts.WorkLine]
    together: list[parts.WorkLine]


class History(TypedDict, total=False):
    """The audit trail of a run."""

    run: str
    history: list[parts.Event]


class Delivered(TypedDict, total=False):
    """What a receiver of links was delivered, and why it has not got it, if it has not."""

    receiver: str
    number: int
    fresh: bool
    doubts: list[str]
    waiting: int
    problem: str
    after: int
    at: datetime
    by: str
    reason: str
    files: dict[str, str]
    new: int
    replaced: int
    withdrawn: int
    living: int
    sealed_to: str | None
    opened: str


class Delivery(Delivered, total=False):
    """A delivery of links, or its confirmation; of several receivers one entry each."""

    issuer: str
    dry_run: bool
    deliveries: list[Delivered]


class Acknowledgement(TypedDict, total=False):
    """What an issuer was told, or its receipt."""

    issuer: str
    dry_run: bool
    number: int
    at: datetime
    by: str
    reason: str
    told: list[dict[str, Any]]


class Check(TypedDict, total=False):
    """What a check found."""

    issuer: str
    store: str
    fingerprints: list[str]
    warnings: list[str]
    columns: list[parts.CheckedColumn]
    settings: dict[str, dict[str, Any]]
    links: list[parts.LinkForm]
    checks: list[parts.CheckedPart]
    extract: parts.CheckedExtract


class Agree(TypedDict, total=False):
    """Settings that are in force from now on."""

    issuer: str
    record: int
    sha256: str
    changes: list[str]
    dry_run: bool


class Changelog(TypedDict, total=False):
    """What is new in versions of cardlink."""

    installed: str
    releases: list[dict[str, str]]


class Decided(TypedDict, total=False):
    """A decision as it was recorded, or would be."""

    issuer: str
    at: datetime
    by: str
    reason: str
    what: str
    dry_run: bool


class Dismissed(Decided, total=False):
    """An extract that is not to be sent, or is again."""

    key: str
    size: int


class LinkForm(Decided, total=False):
    """A form of links that was confirmed, or taken back."""

    form: str
    links: int


class Abandoned(Decided, total=False):
    """A run that was abandoned."""

    run: str
    abandoned: bool


class FileDecided(Decided, total=False):
    """What was decided about a result file, or a row of it."""

    result: str
    digest: str
    runs: list[str]
    position: int
    run: str
    row: int
    last_4_confirmed: bool
    outcome: dict[str, Any] | None
    files: int | list[str]
    rows: int
    breaks: list[str]
    reports: list[parts.Report]
    open_files: int
    unjudged: int


class BreaksDecided(Decided, total=False):
    """Breaks that were closed or reopened."""

    run: str
    breaks: list[parts.NamedBreak]
    runs: list[Any]
    report: parts.Report


class TakenOver(TypedDict, total=False):
    """A claim that was ended."""

    run: str
    holder: str
    since: datetime
    until: datetime
    dry_run: bool


class Resealed(TypedDict, total=False):
    """Chunks that were sealed again."""

    run: str
    chunks: list[int]
    recipients: list[str]
    retired: int
    left: int
    dry_run: bool


class CardsDecided(TypedDict, total=False):
    """Cards that were given up, or links that were kept."""

    target: str
    what: str
    cards: int
    links: int
    standing: dict[str, int]
    sha256: str
    reason: str
    dry_run: bool


class Resubmitted(TypedDict, total=False):
    """Rows that were sent again, or would be."""

    issuer: str
    of: str
    run: str
    dry_run: bool
    rows: int
    counts: parts.Counts
    reasons: dict[str, int]
    repairs: dict[str, int]
    already: bool | None
    chunks: int
    remarks: list[str]
    refused: int | list[str]
    overridden: int
    left: dict[str, int]
    each: list[dict[str, Any]]
    strangers: list[int]
    runs: list[dict[str, Any]]


class Renewed(TypedDict, total=False):
    """Links that were replaced, or would be."""

    issuer: str
    dry_run: bool
    until: date
    rows: int
    left_out: dict[str, int]
    gone: dict[str, int]
    runs: list[dict[str, Any]]


class Backfilled(TypedDict, total=False):
    """Days that were missed, and what was sent."""

    issuer: str
    digest: str
    list: str
    missed: list[parts.CheckedExtract]
    runs: list[Any]
    refused: list[str]


class FileWritten(TypedDict, total=False):
    """A file or folder that was written."""

    run: str
    file: str
    folder: str
    lines: int
    questions: int
    rows: int
    bytes: int
    files: int


class Answers(TypedDict, total=False):
    """What was decided by the partner's answers."""

    dry_run: bool
    decided: list[dict[str, Any]]
    settled: Any
    refused: list[str]


class Trace(TypedDict, total=False):
    """What is known of a cardholder."""

    cuid: str
    forgotten: list[str]
    attempts: list[dict[str, Any]]
    stands: list[dict[str, Any]]
    deliveries: list[dict[str, Any]]
    purged: list[str]


class Issuers(TypedDict, total=False):
    """Facts of each issuer, as its report has them."""

    issuers: list[dict[str, Any]]


class Programme(Issuers, total=False):
    """All issuers together: where their cardholders stand, how long it took, and why not.

    `issuers`, `all` and `weeks` have a line each of the same counts; `hours` and `hours_of_weeks`
    say how long it took to the link and to the placed card.
    """

    seen: str
    cardholders: dict[str, Any]
    waiting: list[str]
    all: dict[str, Any]
    weeks: list[dict[str, Any]]
    weeks_of_issuers: list[dict[str, Any]]
    hours: dict[str, Any]
    hours_of_weeks: list[dict[str, Any]]
    reasons: list[dict[str, Any]]


class Person(Issuers, total=False):
    """What is stored of a person."""

    cuid: str


class Erased(TypedDict, total=False):
    """A person who was forgotten."""

    target: str
    row: int | None
    single: str
    dry_run: bool
    cardholders: int
    cards: int
    removed: dict[str, int]
    withdraws: Any
    kept: list[dict[str, Any]]
    reason: str


class Purge(Issuers, total=False):
    """What was deleted, issuer by issuer, and what stays."""

    dry_run: bool


class Verified(TypedDict, total=False):
    """What a proof of the audit trail found."""

    issuer: str
    entries: int
    objects: int
    older: int
    head: str
    findings: list[parts.Finding]
    accepted: list[str]
    unfinished: list[str]
    unproved: int
    erasures: int
    erased: int
    read: int
    runs: int
    proven_entries: int
    proven_runs: int
    proven_objects: int
    proven_at: datetime | None
    kept: bool
    witness: str
    checkpoint: int | None


class Accepted(TypedDict, total=False):
    """A finding that was accepted."""

    issuer: str
    key: str
    what: str
    entry: int
    by: str
    at: datetime
    dry_run: bool


class Evidence(TypedDict, total=False):
    """The evidence of a run."""

    run: str
    key: str
    files: list[str]
    head: str
    findings: int


class Job(TypedDict, total=False):
    """How a job at the partner ended."""

    issuer: str
    job_id: str
    status: str
    termination_type: str
    meaning: str
    answered: int


class SingleLinks(TypedDict, total=False):
    """Links that were requested one by one."""

    issuer: str
    dry_run: bool
    attempt: str
    outcome: str
    at: datetime
    link_id: str | None
    url: str | None
    expires_on: date | None
    expires_raw: str | None
    reasons: list[str]
    message: str
    cuid: str
    balance: dict[str, int]
    each: list[dict[str, Any]]
    problem: dict[str, str]


class Placements(TypedDict, total=False):
    """What became of links."""

    issuer: str
    at: datetime
    runs: list[str]
    looked: list[dict[str, Any]]
    coverage: list[dict[str, Any]]
    stopped: str
    rebuilt: list[str]
    transactions: dict[str, Any]
    breaks: list[Any]
    doubts: list[Any]
    funnel: dict[str, Any]
    problem: dict[str, str]


class Record(TypedDict, total=False):
    """The partner's record of a link."""

    issuer: str
    run: str | None
    row: int | None
    record: dict[str, Any]
    fields: dict[str, str]
    doubts: list[str]


class Probe(TypedDict, total=False):
    """The shape of the partner's answers."""

    issuer: str
    run: str
    row: int
    link: dict[str, str]
    job: dict[str, str]
    profile: str
    doubts: list[str]
    file: str


class Settings(TypedDict, total=False):
    """Keys of the TOML."""

    keys: list[dict[str, str]]
    file: str


class Init(TypedDict, total=False):
    """The TOML that was written, and its doubts."""

    file: str
    doubts: list[Any]
    extract: dict[str, Any]  # as a dry run has it; empty where it could not be mapped
    proven_by: list[str]


class Witnessed(TypedDict, total=False):
    """Where the trail ends, as the witness signed it; or a key that was made."""

    issuer: str
    entry: int
    sha256: str
    key: str
    file: str


class Simulated(TypedDict, total=False):
    """What the simulated portal answered."""

    issuer: str
    files: int
    linked: int
    errors: int
    refused: list[list[str]]
    service: str
    restored: int


class Practice(TypedDict, total=False):
    """Counts of what the practice service was asked, by name; or of what its people did."""

    issuer: str
    service: str
    links: int
    opened: int
    authenticated: int
    jobs: int
    ends: dict[str, int]


class Demo(TypedDict, total=False):
    """The reports of the demo."""

    runs: list[parts.Report]
    folder: str


class Installed(TypedDict, total=False):
    """What was put on the Prefect server."""

    issuers: list[str]
    channels: list[str]
    automations: list[str]


class Completion(TypedDict, total=False):
    """The script of a shell."""

    shell: str
    script: str


class Analysis(TypedDict, total=False):
    """What an export for analysts wrote, and where."""

    issuer: str
    place: str
    runs: int
    rows: int
    cards: int | None
    is_book_due: bool


FACTS: Final[Mapping[str, Any]] = {
    "init": Init,
    "settings": Settings,
    "check": Check,
    "agree": Agree,
    "changelog": Changelog,
    "submit": Submit,
    "upload": Upload,
    "outbox uploaded": Uploaded,
    "outbox hold": Moved,
    "outbox release": Moved,
    "outbox cancel": Moved,
    "ingest": Ingest,
    "report": RunReport | History,
    "analysis": Analysis,
    "acknowledge": Acknowledgement,
    "reconcile": Issuers,
    "worklist": Worklist,
    "programme": Programme,
    "cardholders": Issuers,
    "questions": FileWritten,
    "answers": Answers,
    "link-form": LinkForm,
    "deliver": Delivery,
    "trace": Trace,
    "resubmit": Resubmitted,
    "corrections": FileWritten,
    "renew": Renewed,
    "backfill": Backfilled,
    "mend abandon": Abandoned,
    "mend take-over": TakenOver,
    "mend reseal": Resealed,
    "mend ingest-again": FileDecided,
    "mend attribute": FileDecided,
    "mend withdraw": FileDecided,
    "mend close": BreaksDecided,
    "mend reopen": BreaksDecided,
    "mend give-up": CardsDecided,
    "mend keep-link": CardsDecided,
    "dismiss": Dismissed,
    "person export": Person,
    "person erase": Erased,
    "purge": Purge,
    "audit verify": Verified,
    "audit accept": Accepted,
    "audit witness": Witnessed,
    "audit witness-key": Witnessed,
    "audit export": Evidence,
    "link": SingleLinks,
    "record": Record,
    "job follow": Job,
    "job watch": Job,
    "placements": Placements,
    "service probe": Probe,
    "sample": FileWritten,
    "simulate": Simulated,
    "practice": Practice,
    "practice people": Practice,
    "demo": Demo,
    "install": Installed,
    "deploy-files": FileWritten,
    "completion": Completion,
}
