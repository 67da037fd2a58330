"""Practice with the simulated partner: let it answer a store, or serve its whole interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date, datetime
from logging import getLogger
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

from flows.errors import OperatorError
from flows.extensions.simulator.answer import answer_store
from flows.extensions.simulator.answer_at_service import answer_at_service
from flows.extensions.simulator.portal import Behaviour, Portal
from flows.extensions.simulator.service_portal import ServicePortal, practice_http
from flows.runs.adapters import Adapters
from flows.runs.sealing import Opener
from flows.steps import FILE, Option, Sentence
from schemas import challenges
from schemas.issuer import Issuer

# names of a partner by which the practice service speaks
SPOKEN: Final = frozenset(
    {"path.login", "path.create_link", "login.session_token", "request.service"}
    | {"request.fi_key", "request.safe_key", "request.job_hydration"}
)


class NoS3ServerError(OperatorError):
    """The S3 store to practise with is an optional part of the installation."""

    message = "There is no S3 server: the package moto is not installed."
    next_step = (
        "Install cardlink[practice] (pipx inject cardlink 'moto[server]'), "
        "or practise on a directory."
    )


class NoKeyGivenError(OperatorError):
    """Sealed chunks can be opened only with the portal's secret key."""

    message = "Chunks are sealed for the portal, and its secret key was not given."
    next_step = Sentence(
        "Name the simulated portal's key with {secret_key}.",
        secret_key=Option("--secret-key", FILE, of="simulate"),
    )


class _NoOpener:
    def open(self, message: bytes, limit: int) -> bytes:
        raise NoKeyGivenError


@contextmanager
def portal_opener(secret_key: bytes | None) -> Iterator[Opener]:
    """Open what is sealed for the portal.

    Without its key the simulator accepts only unencrypted uploads.
    """
    from flows.adapters.gpg_opener import GpgOpener

    if secret_key is None:
        yield _NoOpener()
        return
    with GpgOpener([secret_key]) as opener:
        yield opener


def portal_key(folder: Path) -> tuple[Path, str]:
    """Make the simulated portal's key pair in a folder, once.

    Return the file of the secret key, and the fingerprint.
    """
    from flows.extensions.simulator.portal_key import make_portal_key

    secret = folder / "portal-secret.asc"
    fingerprint = folder / "portal.fingerprint"
    if not fingerprint.exists():
        key = make_portal_key()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "portal.asc").write_bytes(key.public)
        secret.write_bytes(key.secret)
        fingerprint.write_text(f"{key.fingerprint}\n", "utf-8")
    return secret, fingerprint.read_text("utf-8").strip()


@contextmanager
def s3_server(bucket: str) -> Iterator[dict[str, str]]:
    """Run an S3 server in memory with an empty bucket, on loopback.

    Yield the environment variables that lead boto3 to it.
    """
    server: Any = None
    with suppress(ImportError):
        from moto.server import ThreadedMotoServer

        server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    if server is None:
        raise NoS3ServerError
    getLogger("werkzeug").setLevel("WARNING")  # it would print every request
    server.start()
    try:
        endpoint = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
        # our own server on loopback
        make_bucket = Request(f"{endpoint}/{bucket}", method="PUT")  # noqa: S310 - as above
        urlopen(make_bucket).close()  # noqa: S310 - as above
        yield {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "practice",
            "AWS_SECRET_ACCESS_KEY": "practice",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    finally:
        server.stop()


def service_settings(issuer: Issuer | None) -> dict[str, Any]:
    """Return what an issuer's `[service]` sets; {} where its TOML has none."""
    service = getattr(issuer, "service", None)
    return dict(service.model_dump(exclude_defaults=True)) if service else {}


def unspoken_tables(settings: Mapping[str, Any]) -> list[str]:
    """Return the settings of a `[service]` that the practice service does not speak by.

    It has the interface's own shapes, and its own names but for SPOKEN.
    """
    others = [name for name in ("auth", "signing") if name in settings]
    others += [f"names.{name}" for name in sorted(settings.get("names", {}).keys() - SPOKEN)]
    return [f"service.{name}" for name in others]


def asked_challenges(issuer: Issuer | None) -> tuple[str, ...]:
    """Return what a link asks its cardholder: as the issuer's TOML has it, else what is usual."""
    return (issuer.rules.challenges if issuer else ()) or challenges.USUAL


def answer(
    issuer: Issuer,
    adapters: Adapters,
    header: list[str],
    opener: Opener,
    behaviour: Behaviour,
    today: date,
) -> dict[str, Any]:
    """Answer every committed chunk that has no result; return the counts and what was refused."""
    host = issuer.portal.allowed_hosts[0]
    portal = Portal(opener, host=host, header=header, today=today, **behaviour._asdict())
    answered = answer_store(adapters, issuer.issuer, portal)
    return {
        "issuer": issuer.issuer,
        "files": len(answered.delivered),
        "linked": answered.linked,
        "errors": answered.errors,
        "refused": [list(chunk) for chunk in answered.refused],
    }


def answer_by_service(
    issuer: Issuer, adapters: Adapters, base_url: str, behaviour: Behaviour
) -> dict[str, Any]:
    """Let the practice service at an address answer chunks; return what `answer` does.

    `restored`: how many chunks with results it has been told of. NoPracticeServiceError.
    """
    with practice_http(issuer, base_url) as http:
        carried = answer_at_service(adapters, issuer.issuer, ServicePortal(http), behaviour)
    return {
        "issuer": issuer.issuer,
        "service": base_url,
        "files": len(carried.results),
        "linked": carried.linked,
        "errors": carried.errors,
        "restored": len(carried.restored),
        "refused": [list(chunk) for chunk in carried.refused],
    }


def serve(
    issuer: Issuer | None,
    header: list[str],
    opener: Opener,
    behaviour: Behaviour,
    port: int,
    clock: Callable[[], datetime],
    announce: Callable[[str, dict[str, str]], None],
) -> dict[str, Any]:
    """Serve until SIGTERM or Ctrl-C; return the counts.

    The address and the client's credentials are announced first. Paths, fields and link hosts are
    the issuer's, without one those of the interface.
    """
    from flows.extensions.simulator.service.app import create_app
    from flows.extensions.simulator.service.books import Habits, ServiceState
    from flows.extensions.simulator.service.recount import totals
    from flows.extensions.simulator.service.serving import address, listen, serve_until_stopped
    from flows.extensions.simulator.service.wire import Spoken

    with listen(port) as listener:
        base_url = address(listener)
        settings = Spoken.model_validate(service_settings(issuer))
        host = issuer.portal.allowed_hosts[0] if issuer else "links.example.com"
        habits = Habits(
            host=host,
            fi_key=settings.fi_key,
            challenges=asked_challenges(issuer),
            **behaviour._asdict(),
        )
        books = ServiceState(opener, clock(), habits, header)
        announce(base_url, books.habits.client._asdict())
        serve_until_stopped(create_app(books, settings, clock), listener)
    return {"address": base_url, **totals(books)}
