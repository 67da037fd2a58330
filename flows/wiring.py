"""Connect the steps to the real adapters; the one reader of the environment (its variables:
`deploy/SETTINGS.md`).
"""

from __future__ import annotations

import getpass
import hashlib
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from flows import __version__
from flows.configuration import issuer_file, load_issuer, read_file, read_toml
from flows.errors import CardlinkError, OperatorError, TryAgainError
from flows.extensions import hooks
from flows.hardening import harden_process
from flows.json_logs import log_as_json
from flows.redaction import redact
from flows.steps import Option, Sentence, Text
from flows.tracing import EXTRA, can_trace, flush_traces, start_tracing

if TYPE_CHECKING:
    from flows.adapters.local import LocalStore
    from flows.adapters.s3 import S3Store
    from flows.database.connection import Database
    from flows.runs.adapters import Adapters
    from flows.runs.context import IssuerContext
    from flows.runs.sealing import Opener, Sealer
    from flows.runs.store import Cleaner, Store
    from flows.runs.trail_proof import Prover
    from schemas.issuer import Issuer


class ActorError(OperatorError):
    """The name given for who is acting is none that this installation accepts."""

    message = "{actor!r} is not an accepted actor name; names must match {rule}."
    next_step = Sentence(
        "Give your own name with {option}; CARDLINK_ACTORS says which names are accepted.",
        option=Option("--actor"),
    )


class ActorsRuleError(OperatorError):
    """What CARDLINK_ACTORS says of the names of persons is no rule."""

    message = "CARDLINK_ACTORS is not a regular expression: {reason}."
    next_step = "Correct it, or leave it out: then names are letters, with digits at their end."


class SettingsMovedError(TryAgainError):
    """The TOML was changed while a command worked with it."""

    message = "{issuer}: its settings were changed while the command ran. It went no further."
    next_step = "Run {same_command} again: it has the settings as they are now."


class Governing:
    """What a command that changes something works with: the contexts that are wired for it.

    `remarks` is what a person should know of their settings. Nothing is recorded in a rehearsal.
    """

    def __init__(self, *, is_rehearsal: bool) -> None:
        self.remarks: list[Text] = []
        self._is_rehearsal = is_rehearsal
        self._admitted: dict[str, IssuerContext] = {}  # by issuer

    def admit(self, context: IssuerContext) -> None:
        """Let the command work with a context.

        It must have the journal of its store, and what extensions want of it (`govern`), which
        raise what they do; SettingsMovedError where its settings are not those that the command
        began with.
        """
        from flows.runs.stored_journal import refuse_other_journal

        issuer = context.issuer.issuer
        known = self._admitted.get(issuer)
        if known is None:
            refuse_other_journal(context.adapters, issuer)
            for govern in hooks("govern"):
                self.remarks += govern(context, is_rehearsal=self._is_rehearsal)
            self._admitted[issuer] = context
        elif (known.issuer, known.header) != (context.issuer, context.header):
            # what was agreed to is not what would be done
            raise SettingsMovedError(issuer=issuer)

    def end(self) -> None:
        """Store what the command has entered in journals; where that fails, the next one does."""
        from flows.runs.stored_journal import flush_journal

        for issuer, context in self._admitted.items():
            with suppress(CardlinkError):
                flush_journal(context.adapters, issuer)


_PERSON: ContextVar[str] = ContextVar("person", default="")
_COMMAND: ContextVar[str] = ContextVar("command", default="")
_GOVERNING: ContextVar[Governing | None] = ContextVar("governing", default=None)
OTHERS_CURVES = ("Curve25519", "P-256", "P-384", "P-521")  # of keys that others give us
# what the older and what the newer UI of Prefect read of an address, and both
BY_HAND = "deployments.tags.name=by-hand&tags=%5B%22by-hand%22%5D&limit=50"
PUBLISHERS = 32  # S3 connections: uploads of two sealing groups at a time
# a disk responds at once: more threads only wait for each other, and cost a third more CPU
LOCAL_CONNECTIONS = 4


def config_folder() -> Path:
    """Return the folder of the issuers' TOML files."""
    return Path(os.environ.get("CARDLINK_CONFIG") or ".")


def effective_settings(folder: Path, issuer: Issuer) -> dict[str, dict[str, Any]]:
    """Return value and origin of every setting in effect; of secrets only that they are set."""
    from schemas.settings_in_effect import settings_in_effect

    content, _ = read_toml(issuer_file(folder, issuer.issuer))
    return settings_in_effect(issuer.model_dump(mode="json"), content, os.environ)


def kept_from_others(issuer: Issuer, folder: Path) -> list[str]:
    """Return which files of a run not everybody can read: not the process at night, if it is
    another user.
    """
    named = [f"{issuer.issuer}.toml", *_key_files(issuer), *filter(None, [issuer.portal.template])]
    files = [folder / name for name in named]
    files += [
        Path(file) for name, file in os.environ.items() if re.fullmatch("CARDLINK_.*_FILE", name)
    ]
    warnings = []
    for file in files:
        with suppress(OSError):  # what cannot be read at all is an error of its own
            if readers := _only_readers(file.stat()):
                warnings.append(
                    f"{file}: only {readers} can read it; "
                    "run this check as the nightly process's user too"
                )
    return warnings


def _only_readers(status: os.stat_result) -> str:
    """Return who alone can read a file of this status, "" where everybody can."""
    if status.st_mode & 0o004:
        return ""
    group = f" and group {status.st_gid}" if status.st_mode & 0o040 else ""
    return f"user {status.st_uid}{group}"


def _key_files(issuer: Issuer) -> tuple[str, ...]:
    files = issuer.portal.key_file
    return (files,) if isinstance(files, str) else files


def open_store(issuer: Issuer, folder: Path, profile: str | None = None) -> S3Store | LocalStore:
    """Open an issuer's `s3://bucket/prefix`, or directory (a relative one from the folder of the
    TOML).
    """
    if _is_s3(issuer):
        from flows.adapters import s3

        return s3.connect(issuer.root, threads=PUBLISHERS, profile=profile, settings=issuer.store)
    from flows.adapters.local import LocalStore

    return LocalStore(_directory(issuer, folder))


def open_database(folder: Path) -> Database:
    """Return the database; all of this process share it."""
    return _database(secret("CARDLINK_DATABASE_URL") or folder.resolve() / "cardlink.db")


@cache
def _database(address: str | Path) -> Database:
    from flows.database.connection import Database

    return Database(address)


def root_of(issuer: Issuer, folder: Path) -> str:
    """Return an issuer's root, the same for all issuers that share it."""
    if _is_s3(issuer):
        return issuer.root.rstrip("/")
    return str(_directory(issuer, folder).resolve())


def _is_s3(issuer: Issuer) -> bool:
    return urlsplit(issuer.root).scheme == "s3"


def _directory(issuer: Issuer, folder: Path) -> Path:
    return folder / Path(issuer.root).expanduser()


def reports_url() -> str:
    """Return the address of the page server with its token, "" where there is none."""
    return os.environ.get("CARDLINK_REPORTS_URL", "").rstrip("/")


def clear_token_problems() -> Iterator[str]:
    """Yield what is wrong where the page server's token goes through a network in clear."""
    from schemas.settings import LOOPBACK

    try:
        address = urlsplit(reports_url())
    except ValueError:  # no address: the page server says so
        return
    if address.scheme == "http" and address.hostname not in LOOPBACK:
        yield (
            "CARDLINK_REPORTS_URL is http on another machine: its token goes through the network "
            "in clear; let a proxy end TLS, and set its https address"
        )


def forms_url() -> str:
    """Return where a browser finds the forms in Prefect's UI, "" without PREFECT_UI_URL."""
    base = os.environ.get("PREFECT_UI_URL", "").rstrip("/")
    is_address = urlsplit(base).scheme in ("http", "https")
    return f"{base}/deployments?{BY_HAND}" if is_address else ""


def report_link(context: IssuerContext, key: str) -> str:
    """Return where a browser opens a report: a web server, else a presigned link; "" where there is
    neither.
    """
    from flows.runs.store import Presigner

    alerts = context.issuer.alerts
    store = context.adapters.store
    if base := alerts.report_url.rstrip("/") or reports_url():
        return f"{base}/{key}"
    return store.presigned(key, alerts.presigned_hours) if isinstance(store, Presigner) else ""


def cleaner(issuer: Issuer, folder: Path) -> Cleaner:
    """Open a store with the right to delete, for retention alone; on S3 with a profile of its
    own.
    """
    return open_store(issuer, folder, os.environ.get("CARDLINK_PURGE_PROFILE") or None)


def witness_store(issuer: Issuer, folder: Path) -> Store | None:
    """Open the place where the witness keeps its checkpoints; None where there is no witness."""
    if issuer.audit.witness is None:
        return None
    return open_store(issuer.model_copy(update={"root": issuer.audit.witness}), folder)


def shipped(name: str) -> Path:
    """Return what the wheel carries inside `flows`, and a checkout beside it: `deploy`,
    `sample_data` or `CHANGELOG.md`.
    """
    package = Path(str(files("flows")))
    return next(place / name for place in (package, package.parent) if (place / name).exists())


def begin_observation() -> None:
    """Begin what this process says of itself to machines: JSON logs and traces, where wanted."""
    if os.environ.get("CARDLINK_LOGS") == "json":
        log_as_json()
    if os.environ.get("CARDLINK_TRACES") == "otlp":
        start_tracing(__version__)


def observation_problems() -> Iterator[str]:
    """Yield what is wrong with the variables of logs and traces."""
    for name, value in (("CARDLINK_LOGS", "json"), ("CARDLINK_TRACES", "otlp")):
        if os.environ.get(name, value) != value:
            yield f"{name} must be {value}, or not be set; it is ignored"
    if os.environ.get("CARDLINK_TRACES") == "otlp" and not can_trace():
        yield f"CARDLINK_TRACES: no traces are sent, since a package is missing: {EXTRA}"


def begin_process() -> None:
    """Harden the process, and remove the gpg homes, keys and agents that killed ones left; every
    command calls this.
    """
    from flows.adapters.gpg_home import remove_dead_homes

    begin_observation()
    harden_process()
    remove_dead_homes()


def wire(
    folder: Path, name: str, issuer: Issuer | None = None, *, dry_run: bool = False
) -> IssuerContext:
    """Return an issuer's context with the real adapters; nothing is connected before a step uses
    it.

    In a dry run everything is read and done as it is without one, and what is written stays in
    memory. For a command that changes something (`governing`) it must be one that it may work
    with.
    """
    from flows.runs.context import IssuerContext, overlaid
    from flows.runs.header import default_header, header_from_template

    issuer = issuer or load_issuer(folder, name)
    header = default_header()
    if template := issuer.portal.template:
        header = header_from_template(
            read_file(folder / template, "[portal] template").decode("utf-8"), template
        )
    adapters = edges(issuer, folder)
    context = IssuerContext(
        issuer=issuer,
        adapters=adapters,
        header=header,
        sealer=lambda: _sealer(issuer, folder),
        opener=private_key,
        opener_key=_opener_key,
        sealer_to=lambda file, fingerprint: _sealer_to(folder / file, fingerprint),
        place_of=cache(lambda root: _place(root, issuer, folder)),
        forms_url=forms_url(),
    )
    governing = _GOVERNING.get()
    if governing is not None:
        governing.admit(context)
    return overlaid(context) if dry_run else context


def edges(issuer: Issuer, folder: Path) -> Adapters:
    """Return what every step shares: the store, the database, the clock, the actor; begins the
    process.
    """
    from flows.runs.adapters import Adapters
    from flows.runs.audited_store import audited

    begin_process()  # here, because every flow calls this
    connections = PUBLISHERS // 2 if _is_s3(issuer) else LOCAL_CONNECTIONS
    store = open_store(issuer, folder)
    database = open_database(folder)
    proving = prover(issuer)
    return audited(Adapters(store, now, actor(), database, connections, proving, _COMMAND.get()))


def prover(issuer: Issuer) -> Prover:
    """Return what proves entries of the journal, as far as the process has a key."""
    from flows.runs.trail_proof import HmacProver

    if issuer.audit.kms_key:
        from flows.adapters.kms_prover import KmsProver

        return KmsProver(issuer.audit.kms_key)
    return HmacProver.of(secret("CARDLINK_AUDIT_KEY"))


@contextmanager
def one_command() -> Iterator[None]:
    """Run a command; what has to be said at its end is said however it ends."""
    begin_observation()
    try:
        yield
    finally:
        flush_traces()


def secret(variable: str) -> str:
    """Return a secret given as a value, or as the file that holds it."""
    if file := os.environ.get(f"{variable}_FILE"):
        return read_file(Path(file), f"{variable}_FILE").decode("utf-8", "replace").strip()
    return os.environ.get(variable, "")


def work_pool() -> str:
    """Return the name of the work pool of the deployments."""
    return os.environ.get("CARDLINK_WORK_POOL") or "cardlink"


def now() -> datetime:
    """Return the moment, in UTC."""
    return datetime.now(UTC)


def actor() -> str:
    """Return who is acting: the person, if one is named; the worker, its process and Prefect flow
    run, if any.
    """
    who = os.environ.get("CARDLINK_ACTOR") or f"{_user()}@{socket.gethostname()}"
    flow_run = os.environ.get("PREFECT__FLOW_RUN_ID")
    worker = f"{who}:{os.getpid()}" + (f":flow-run-{flow_run}" if flow_run else "")
    return f"{_PERSON.get()} via {worker}" if _PERSON.get() else worker


def actors() -> str:
    """Return the regular expression that the name of a person must match; by default it cannot hold
    a card number.
    """
    return (
        os.environ.get("CARDLINK_ACTORS")
        or r"[A-Za-z][A-Za-z.+-]{0,30}[0-9]{0,8}(@[A-Za-z.-]{1,60})?"
    )


def person(named: str, *, at_terminal: bool) -> str:
    """Return the name of the person who acts, "" for a schedule; at a terminal by default the user;
    ActorError, ActorsRuleError.
    """
    usual = (os.environ.get("CARDLINK_ACTOR") or _user()) if at_terminal and not named else ""
    name = redact(named or usual)
    try:
        accepted = re.fullmatch(actors(), name)
    except re.error as error:
        raise ActorsRuleError(reason=error.msg) from None
    checked = named or (at_terminal and os.environ.get("CARDLINK_ACTORS"))
    if checked and not accepted:
        raise ActorError(actor=name, rule=actors())
    return name


@contextmanager
def acting(who: str) -> Iterator[None]:
    """Let everything that is recorded meanwhile name these persons beside the worker."""
    token = _PERSON.set(who)
    try:
        yield
    finally:
        _PERSON.reset(token)


@contextmanager
def deciding(command: str) -> Iterator[None]:
    """Let everything that is decided meanwhile say that this command line decided it; within
    another one, that that did.
    """
    token = _COMMAND.set(_COMMAND.get() or command)
    try:
        yield
    finally:
        _COMMAND.reset(token)


@contextmanager
def governing(*, is_rehearsal: bool) -> Iterator[list[Text]]:
    """Let every context that is wired meanwhile be one that a command may work with.

    Yields what a person should know of its settings, which is complete at the end.
    """
    governs = Governing(is_rehearsal=is_rehearsal)
    token = _GOVERNING.set(governs)
    try:
        yield governs.remarks
    finally:
        _GOVERNING.reset(token)
        if not is_rehearsal:
            governs.end()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return str(os.getuid())


@contextmanager
def _sealer(issuer: Issuer, folder: Path) -> Iterator[Sealer]:
    from flows.adapters.gpg_sealer import GpgSealer, trial_seal
    from flows.adapters.plain_sealer import PlainSealer

    portal = issuer.portal
    if not portal.sealed:
        yield PlainSealer()
        return
    keys = [read_file(folder / file, "[portal] key_file") for file in _key_files(issuer)]
    form = partial(GpgSealer, armor=portal.armor, compression=portal.compression)
    with form(keys, portal.fingerprints, curves=portal.key_curves, today=now().date()) as sealer:
        trial_seal(sealer)
        yield sealer


@contextmanager
def _sealer_to(file: Path, fingerprint: str) -> Iterator[Sealer]:
    """Open the sealer to a key of others."""
    from flows.adapters.gpg_sealer import GpgSealer, trial_seal

    key = read_file(file, "key_file of whom files are handed to")
    form = partial(GpgSealer, armor=False, compression="zip", curves=OTHERS_CURVES)
    with form([key], [fingerprint], today=now().date()) as sealer:
        trial_seal(sealer)
        yield sealer


def _place(root: str, issuer: Issuer, folder: Path) -> Store:
    """Open the place where others take what they are handed."""
    from schemas.settings import StoreSettings

    elsewhere = {"root": root, "store": StoreSettings()}  # what [store] says is of `root`
    return open_store(issuer.model_copy(update=elsewhere), folder)


@contextmanager
def private_key() -> Iterator[Opener | None]:
    """Open what is PGP-encrypted to us with the private key of the environment, if there is one."""
    from flows.adapters.gpg_opener import GpgOpener

    key_file = os.environ.get("CARDLINK_PRIVATE_KEY_FILE")
    passphrase_file = os.environ.get("CARDLINK_PASSPHRASE_FILE")
    if not key_file:
        yield None
        return
    key = read_file(Path(key_file), "CARDLINK_PRIVATE_KEY_FILE")
    passphrase: str | None = None
    if passphrase_file:
        passphrase = read_file(Path(passphrase_file), "CARDLINK_PASSPHRASE_FILE").decode().strip()
    with GpgOpener([key], passphrase) as opener:
        yield opener


def _opener_key() -> str:
    """Return a digest of the private key's file, never of its passphrase."""
    key_file = os.environ.get("CARDLINK_PRIVATE_KEY_FILE")
    if not key_file:
        return ""
    return hashlib.sha256(read_file(Path(key_file), "CARDLINK_PRIVATE_KEY_FILE")).hexdigest()
