"""Connect the steps to the real adapters; the one reader of the environment.

CARDLINK_CONFIG            folder of the issuers' TOML files (default: the current folder)
CARDLINK_PRIVATE_KEY_FILE  private key that opens PGP-encrypted extracts and results
CARDLINK_PASSPHRASE_FILE   its passphrase, if it has one
CARDLINK_ACTOR             who is acting, for the audit trail (default: user@host)
CARDLINK_WORK_POOL         Prefect work pool of the deployments (default: cardlink)
CARDLINK_REPORTS_URL       address of the page server (`python -m flows.pages`) with its token, as a browser reaches it
CARDLINK_PURGE_PROFILE     AWS profile whose role may delete, for `purge` alone (default: the process's own)
CARDLINK_SERVICE_*         our credentials at the partner's service: APP_NAME, APP_KEY, USERNAME, PASSWORD, each as a
                           value or, as ..._FILE, as the file that holds it
CARDLINK_ALERT_*           where alerts go: WEBHOOK, SLACK (addresses), PAGERDUTY (integration key), EMAIL with
                           SENDER and SENDGRID (key); read when deployments are installed
AWS_*                      boto3's own: credentials, region, AWS_ENDPOINT_URL
"""

from __future__ import annotations

import csv
import getpass
import hashlib
import os
import random
import re
import socket
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from flows.errors import OperatorError
from flows.partner_api.service import NoServiceError, ServiceSecretsError
from flows.redaction import harden_process, hiding, redact

if TYPE_CHECKING:
    from flows.adapters.local import LocalStore
    from flows.adapters.s3 import S3Store
    from flows.partner_api.client import ServiceClient
    from flows.runs.context import Adapters, IssuerContext
    from flows.runs.sealing import Opener, Sealer
    from flows.runs.store import Cleaner, Store
    from schemas.issuer import Issuer
    from schemas.manifest import Manifest


class NoIssuerError(OperatorError):
    """The issuer has no TOML."""

    message = "No issuer {issuer} in {folder}. Available: {available}."
    next_step = "Create one with `cardlink init {issuer}`, or name the folder with --config or CARDLINK_CONFIG."


class IssuerNameError(OperatorError):
    """Something that cannot be an issuer's name, such as a path, stands where an issuer is named."""

    message = "{issuer!r} is no name of an issuer: lower case, digits and hyphens, at most 41."
    next_step = "Name it as its TOML file is named, without the folder; the folder is --config or CARDLINK_CONFIG."


class ConfigurationError(OperatorError):
    """The issuer's TOML has an unknown or wrong key."""

    message = "{file}: {problems}."
    next_step = "Correct the file; `cardlink check` shows the settings in effect."


class FileUnreadableError(OperatorError):
    """A file named in the configuration or the environment cannot be read."""

    message = "{file} ({purpose}) cannot be read: {reason}."
    next_step = "Correct the path or the permissions of the file."


class FileThereError(OperatorError):
    """The command would overwrite a file."""

    message = "{path} already exists. Nothing was written."
    next_step = "Move it away first, or name another."


PUBLISHERS = 32  # S3 connections: uploads of two sealing groups at a time
LOCAL_CONNECTIONS = 4  # a disk responds at once: more threads only wait for each other, and cost a third more CPU


def config_folder() -> Path:
    """Return the folder of the issuers' TOML files."""
    return Path(os.environ.get("CARDLINK_CONFIG") or ".")


def issuers(folder: Path) -> list[str]:
    """Return the names of the issuers configured in a folder: its TOML files with `issuer` and `root`."""
    named = []
    for file in sorted(folder.glob("*.toml")):
        try:
            content = tomllib.loads(file.read_text("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            continue
        if {"issuer", "root"} <= content.keys():
            named.append(file.stem)
    return named


def issuer_file(folder: Path, name: str) -> Path:
    """Return where an issuer's TOML is; IssuerNameError for anything but a plain name."""
    from schemas.issuer import ISSUER

    if not re.fullmatch(ISSUER, name):
        raise IssuerNameError(issuer=redact(name))
    return folder / f"{name}.toml"


def load_issuer(folder: Path, name: str) -> Issuer:
    """Read `<folder>/<name>.toml`; ConfigurationError names every wrong or unknown key."""
    from pydantic import ValidationError

    from schemas.issuer import Issuer

    file = issuer_file(folder, name)
    if not file.is_file():
        raise NoIssuerError(issuer=redact(name), folder=str(folder), available=", ".join(issuers(folder)) or "none")
    try:
        given = tomllib.loads(file.read_text("utf-8"))
        issuer = Issuer.model_validate({**given, **_with_lookups({"columns": given.get("columns", {})}, folder)})
        if issuer.issuer == name:
            return issuer
        problem = f'issuer = "{issuer.issuer}", but a TOML file is named after its issuer'
    except tomllib.TOMLDecodeError as error:
        problem = str(error)
    except ValidationError as error:
        places = ((".".join(map(str, one["loc"])), one["msg"]) for one in error.errors(include_input=False))
        problem = "; ".join(f"{place}: {message.removeprefix('Value error, ')}" for place, message in places)
    raise ConfigurationError(file=str(file), problems=problem)


def _with_lookups(given: Any, folder: Path) -> Any:
    """Return `[columns]` with the content of each lookup file in its place; ConfigurationError names a wrong line."""
    if isinstance(given, list):
        return [_with_lookups(one, folder) for one in given]
    if not isinstance(given, dict):
        return given
    filled = {key: _with_lookups(value, folder) for key, value in given.items()}
    if isinstance(name := given.get("lookup"), str):
        filled["lookup"] = table = {}
        text = read_file(folder / name, "a lookup of [columns]").decode("utf-8-sig", "replace")
        for number, row in enumerate(csv.reader(text.splitlines()), 1):
            if len(row) != 2 or row[0].strip() in table or "\ufffd" in "".join(row):
                problem = f"line {number} is not a text and its replacement in UTF-8, or a text a second time"
                raise ConfigurationError(file=str(folder / name), problems=problem)
            table[row[0].strip()] = row[1].strip()
    return filled


def effective_settings(folder: Path, issuer: Issuer) -> list[Setting]:
    """Return every setting in effect and its origin; of secrets only that they are set."""
    given = tomllib.loads(read_file(issuer_file(folder, issuer.issuer), "the issuer's TOML").decode("utf-8"))
    return settings_in_effect(issuer.model_dump(mode="json"), given, os.environ)


def open_store(issuer: Issuer, folder: Path) -> Store:
    """Open an issuer's `s3://bucket/prefix`, or directory (a relative one from the folder of the TOML)."""
    return _open(issuer, folder, None)


def reports_url() -> str:
    """Return the address of the page server with its token, "" where there is none."""
    return os.environ.get("CARDLINK_REPORTS_URL", "").rstrip("/")


def report_link(context: IssuerContext, key: str) -> str:
    """Return where a browser opens a report: a web server, else a presigned link; "" where there is neither."""
    from flows.runs.store import Presigner

    alerts, store = context.issuer.alerts, context.adapters.store
    if base := alerts.report_url.rstrip("/") or reports_url():
        return f"{base}/{key}"
    return store.presigned(key, alerts.presigned_hours) if isinstance(store, Presigner) else ""


def cleaner(issuer: Issuer, folder: Path) -> Cleaner:
    """Open a store with the right to delete, for retention alone; on S3 with a profile of its own."""
    return _open(issuer, folder, os.environ.get("CARDLINK_PURGE_PROFILE") or None)


def _open(issuer: Issuer, folder: Path, profile: str | None) -> S3Store | LocalStore:
    if urlsplit(issuer.root).scheme == "s3":
        from flows.adapters import s3

        return s3.connect(issuer.root, threads=PUBLISHERS, profile=profile, settings=issuer.store)
    from flows.adapters.local import LocalStore

    return LocalStore(folder / Path(issuer.root).expanduser())


def begin_process() -> None:
    """Harden the process, and remove the gpg homes, keys and agents that killed ones left; every command calls this."""
    from flows.adapters.gpg_home import remove_dead_homes

    harden_process()
    remove_dead_homes()


def wire(folder: Path, name: str, root: Path | None = None) -> IssuerContext:
    """Return an issuer's context with the real adapters, `root` instead of its own; nothing is connected before use."""
    from flows.runs.context import IssuerContext
    from flows.runs.identity import default_header, header_from_template

    issuer = load_issuer(folder, name)
    issuer = issuer if root is None else issuer.model_copy(update={"root": str(root)})
    header = default_header()
    if template := issuer.portal.template:
        header = header_from_template(read_file(folder / template, "[portal] template").decode("utf-8"), template)
    adapters = edges(issuer, folder)
    return IssuerContext(issuer, adapters, header, lambda: _sealer(issuer, folder), _opener, _funnel, _opener_key)


def _funnel(store: Store, manifest: Manifest, today: date) -> dict[str, Any] | None:
    from flows.partner_api.funnel import run_funnel

    return run_funnel(store, manifest, today)


def edges(issuer: Issuer, folder: Path) -> Adapters:
    """Return what every step shares: the store, the clock, the actor, the probe; begins the process."""
    from flows.runs.context import Adapters
    from flows.runs.probe import race

    begin_process()  # here, because every flow calls this
    connections = PUBLISHERS // 2 if urlsplit(issuer.root).scheme == "s3" else LOCAL_CONNECTIONS
    return Adapters(open_store(issuer, folder), now, actor(), race, connections)


@contextmanager
def service_client(issuer: Issuer) -> Iterator[ServiceClient]:
    """Open the client of an issuer's [service]; NoServiceError, ServiceSecretsError, FileUnreadableError."""
    from flows.partner_api.client import open_client
    from flows.partner_api.transport import Credentials
    from flows.runs.store import Retry

    begin_process()
    settings = issuer.service
    if settings is None:
        raise NoServiceError(issuer=issuer.issuer)
    names = {name: f"CARDLINK_SERVICE_{name.upper()}" for name in ("app_name", "app_key", "username", "password")}
    secrets = {name: _secret(variable) for name, variable in names.items()}
    missing = [names[name] for name, value in secrets.items() if not value]
    if missing:
        raise ServiceSecretsError(names=", ".join(missing))
    retry = Retry(time.monotonic, time.sleep, random.random, attempts=settings.tries)
    with (
        hiding(secrets["app_key"], secrets["password"]),
        open_client(settings, Credentials(**secrets), retry) as client,
    ):
        yield client


def _secret(variable: str) -> str:
    """Return a secret given as a value, or as the file that holds it."""
    if file := os.environ.get(f"{variable}_FILE"):
        return read_file(Path(file), f"{variable}_FILE").decode("utf-8", "replace").strip()
    return os.environ.get(variable, "")


class Channels(NamedTuple):
    """Where alerts go; an empty channel is not used."""

    webhook: str = ""
    slack: str = ""
    pagerduty: str = ""
    email: str = ""
    sender: str = ""
    sendgrid: str = ""


def channels() -> Channels:
    """Return where alerts go."""
    return Channels(*(os.environ.get(f"CARDLINK_ALERT_{name.upper()}", "") for name in Channels._fields))


def work_pool() -> str:
    """Return the name of the work pool of the deployments."""
    return os.environ.get("CARDLINK_WORK_POOL") or "cardlink"


def now() -> datetime:
    """Return the moment, in UTC."""
    return datetime.now(UTC)


def actor() -> str:
    """Return who is acting: CARDLINK_ACTOR, else user@host; the process; the Prefect flow run, if any."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        user = str(os.getuid())
    who = os.environ.get("CARDLINK_ACTOR") or f"{user}@{socket.gethostname()}"
    flow_run = os.environ.get("PREFECT__FLOW_RUN_ID")
    return f"{who}:{os.getpid()}" + (f":flow-run-{flow_run}" if flow_run else "")


@contextmanager
def _sealer(issuer: Issuer, folder: Path) -> Iterator[Sealer]:
    from flows.adapters.gpg_sealer import GpgSealer, trial_seal
    from flows.adapters.unsealed import PlainSealer

    portal = issuer.portal
    if not portal.sealed:
        yield PlainSealer()
        return
    files = (portal.key_file,) if isinstance(portal.key_file, str) else portal.key_file
    keys = [read_file(folder / file, "[portal] key_file") for file in files]
    form = partial(GpgSealer, armor=portal.armor, compression=portal.compression)
    with form(keys, portal.fingerprints, curves=portal.key_curves, today=now().date()) as sealer:
        trial_seal(sealer)
        yield sealer


@contextmanager
def _opener() -> Iterator[Opener | None]:
    from flows.adapters.gpg_sealer import GpgOpener

    key_file, passphrase_file = os.environ.get("CARDLINK_PRIVATE_KEY_FILE"), os.environ.get("CARDLINK_PASSPHRASE_FILE")
    if not key_file:
        yield None
        return
    key, passphrase = read_file(Path(key_file), "CARDLINK_PRIVATE_KEY_FILE"), None
    if passphrase_file:
        passphrase = read_file(Path(passphrase_file), "CARDLINK_PASSPHRASE_FILE").decode().strip()
    with GpgOpener([key], passphrase) as opener:
        yield opener


def _opener_key() -> str:
    """Return a digest of the private key's file, never of its passphrase."""
    key_file = os.environ.get("CARDLINK_PRIVATE_KEY_FILE")
    return hashlib.sha256(read_file(Path(key_file), "CARDLINK_PRIVATE_KEY_FILE")).hexdigest() if key_file else ""


def read_file(path: Path, purpose: str) -> bytes:
    """Return the bytes of a file an operator named; FileUnreadableError."""
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
    raise FileUnreadableError(file=str(path), purpose=purpose, reason=reason)


OURS: Final = ("CARDLINK_", "AWS_", "PREFECT_API_", "PREFECT_HOME", "PREFECT_LOGGING_")
# Variables whose values are no secrets; of the others only that they are set is shown.
REPORTED: Final = ("_FILE", "_CONFIG", "_ACTOR", "_POOL", "_REGION", "_PROFILE", "_HOME", "_PATH", "_LEVEL")


class Setting(NamedTuple):
    """One setting in effect: its dotted name, its value, its origin."""

    name: str
    value: Any
    origin: Literal["file", "default", "environment"]


def settings_in_effect(
    effective: Mapping[str, Any], given: Mapping[str, Any], environment: Mapping[str, str]
) -> list[Setting]:
    """Return every setting of an issuer, then those of the environment, without any secret.

    `effective` is the issuer's whole model as plain values, `given` the content of its TOML.
    """
    named = sorted(name for name in environment if name.startswith(OURS))
    added = [Setting(name, _shown(name, environment[name]), "environment") for name in named]
    return [*_flat(effective, given), *added]


def _flat(effective: Mapping[str, Any], given: Any, prefix: str = "") -> Iterator[Setting]:
    for name, value in effective.items():
        in_file = isinstance(given, Mapping) and name in given
        below = given[name] if in_file else {}
        if isinstance(value, Mapping) and value:
            yield from _flat(value, below, f"{prefix}{name}.")
        else:
            yield Setting(f"{prefix}{name}", value, "file" if in_file else "default")


def _shown(name: str, value: str) -> str:
    if name.endswith("_URL"):
        url = urlsplit(value)
        return url._replace(netloc=url.netloc.rpartition("@")[2], path="", query="", fragment="").geturl()
    return value if name.endswith(REPORTED) else "(set)"
