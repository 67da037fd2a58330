"""`cardlink simulate --serve`: the partner's whole interface as a service on loopback, for practice and tests."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from flows.cli.answer import Answer
from flows.cli.practice import NoKeyGivenError
from flows.wiring import now, read_file, wire

if TYPE_CHECKING:
    from flows.core.ports import Opener
    from flows.simulator.service.books import Books, Client
    from flows.steps.edges import IssuerEdges


class Serving(NamedTuple):
    """How the service is run: without a key it takes uploads in the clear only; port 0 is a free one."""

    secret_key: Path | None
    fail_share: float
    shuffle: bool
    seed: int
    port: int
    speed: float


class _NoOpener:
    def open(self, message: bytes, limit: int) -> bytes:
        raise NoKeyGivenError


def serve_issuer(folder: Path, name: str, serving: Serving) -> Answer:
    """Serve until SIGTERM or Ctrl-C, the address on stdout first; then say what the books hold."""
    from flows.simulator.service.app import create_app
    from flows.simulator.service.recount import recount
    from flows.simulator.service.serving import address, listen, serve_until_told
    from schemas.service import ServiceSettings

    edges = wire(folder, name)
    with _opener(serving.secret_key) as opener, listen(serving.port) as listener:
        base_url = address(listener)
        spoken = edges.issuer.service.model_dump() if edges.issuer.service else {}
        settings = ServiceSettings.model_validate({**spoken, "base_url": base_url})
        books = _books(edges, opener, serving, settings.fi_key)
        _announce(name, base_url, books.habits.client)
        serve_until_told(create_app(books, settings, _clock(now(), serving.speed)), listener)
    totals = {what: value for what, value in recount(books).items() if what != "cardholders"}
    lines = [f"ended: {', '.join(f'{value} {what}' for what, value in totals.items() if isinstance(value, int))}"]
    return Answer({"issuer": name, "address": base_url, **totals}, lines)


def _books(edges: IssuerEdges, opener: Opener, serving: Serving, fi_key: str) -> Books:
    from flows.simulator.service.books import Books, Habits

    habits = Habits(
        host=edges.issuer.portal.allowed_hosts[0],
        fi_key=fi_key,
        fail_share=serving.fail_share,
        shuffle=serving.shuffle,
        seed=serving.seed,
    )
    return Books(opener, now(), habits, next(csv.reader([edges.header.line.decode()])))


def _announce(name: str, base_url: str, client: Client) -> None:
    """Print the address on stdout, and on stderr how the commands find it."""
    click.echo(base_url)
    click.echo(f"{base_url}/openapi.json describes it; {name}.toml and the environment lead there with:", err=True)
    click.echo(f"  [service]\n  base_url = {json.dumps(base_url)}", err=True)
    for field, value in client._asdict().items():
        click.echo(f"  export CARDLINK_SERVICE_{field.upper()}={value}", err=True)


def _clock(start: datetime, speed: float) -> Callable[[], datetime]:
    """Return a clock that goes `speed` times as fast as the wall's."""
    return lambda: start + (now() - start) * speed


@contextmanager
def _opener(secret_key: Path | None) -> Iterator[Opener]:
    from flows.edge.pgp import GpgOpener

    if secret_key is None:
        yield _NoOpener()
        return
    with GpgOpener([read_file(secret_key, "--secret-key")]) as opener:
        yield opener
