"""Practice: generate an extract, and let the simulated partner answer its chunks or serve its whole interface."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from flows.commands.entry import Context, Day, Issuer, Number, Range, Share, entry
from flows.commands.result import Result
from flows.core.errors import OperatorError
from flows.wiring import now, read_file, wire

if TYPE_CHECKING:
    from flows.core.ports import Opener
    from flows.simulator.portal import Portal
    from flows.simulator.service.books import Books
    from flows.steps.edges import IssuerEdges

NO_FORM = "practice is for a terminal"


class NoKeyGivenError(OperatorError):
    """What is sealed for the portal can be opened with its secret key only."""

    says = "Chunks are sealed for the portal, and its secret key was not given."
    then = "Name the simulated portal's key with --secret-key FILE."


@entry("sample", form=NO_FORM)
def sample(
    context: Context, file: Path, *, rows: Number = 1000, bad: Share = 0.0, seed: int = 0, business_date: Day = None
) -> Result:
    """Generate an extract with test cards only.

    Args:
        file: Where to write it.
        rows: How many rows.
        bad: Share of rows to be refused.
        seed: Same seed, same extract.
        business_date: Business date the cards are valid on (default: today).
    """
    from flows.simulator.extract import write_sample

    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as out:
        write_sample(out, rows, bad=bad, seed=seed, as_of=business_date or now().date())
    facts = {"file": str(file), "rows": rows, "bytes": file.stat().st_size}
    lines = [f"{file}: {rows:,} rows, {facts['bytes']:,} bytes, test cards only"]
    return Result(facts, lines, "put it below <root>/<issuer>/extracts/ and run cardlink submit ISSUER")


class Simulation(NamedTuple):
    """How the simulated partner behaves; without a key it takes uploads in the clear only, and port 0 is a free one."""

    secret_key: Path | None
    fail_share: float
    shuffle: bool
    seed: int
    port: int = 0
    speed: float = 1.0


@entry("simulate", form=NO_FORM)
def simulate(
    context: Context,
    issuer: Issuer,
    *,
    secret_key: Path | None = None,
    fail: Share = 0.05,
    shuffle: bool = False,
    seed: int = 0,
    serve: bool = False,
    port: Annotated[int, Range(0, 65535)] = 0,
    speed: Annotated[float, Range(0, above=True)] = 1.0,
) -> Result:
    """Let the simulated portal answer every committed chunk that has no result yet, or serve its whole interface.

    Args:
        issuer: Whose chunks.
        secret_key: The simulated portal's secret key.
        fail: Share of rows that fail.
        shuffle: Answer rows in another order than sent.
        seed: Same seed, same answers.
        serve: Serve the partner's whole interface on loopback until told to end.
        port: With --serve; default: a free one.
        speed: With --serve: how many times as fast as real time its clock runs.
    """
    simulation = Simulation(secret_key, fail, shuffle, seed, port, speed)
    return _serve(context, issuer, simulation) if serve else answer_chunks(context.folder, issuer, simulation)


def answer_chunks(
    folder: Path, name: str, simulation: Simulation, today: date | None = None, expires: date | None = None
) -> Result:
    """Let the simulated portal answer every committed chunk that has no result yet."""
    if simulation.secret_key is None:
        raise NoKeyGivenError
    from flows.simulator.answer import answer_store

    edges = wire(folder, name)
    with _opener(simulation.secret_key) as opener:
        done = answer_store(edges.edges.store, name, _portal(edges, opener, simulation, today or now().date(), expires))
    facts = {
        "issuer": name,
        "files": len(done.delivered),
        "linked": done.linked,
        "errors": done.errors,
        "refused": [list(one) for one in done.refused],
    }
    lines = [f"{len(done.delivered)} result files: {done.linked:,} links, {done.errors:,} errors"]
    lines += [f"refused {chunk}: {why}" for chunk, why in done.refused]
    return Result(facts, lines, f"cardlink ingest {name}", 2 if done.refused else 0)


def _portal(edges: IssuerEdges, opener: Opener, simulation: Simulation, today: date, expires: date | None) -> Portal:
    from flows.simulator.portal import Portal

    return Portal(
        opener,
        host=edges.issuer.portal.allowed_hosts[0],
        header=_header(edges),
        fail_share=simulation.fail_share,
        shuffle=simulation.shuffle,
        seed=simulation.seed,
        today=today,
        expires=expires,
    )


def _header(edges: IssuerEdges) -> list[str]:
    return next(csv.reader([edges.header.line.decode()]))


def _serve(context: Context, name: str, simulation: Simulation) -> Result:
    """Serve until SIGTERM or Ctrl-C, the address first; then report what the books hold."""
    from flows.simulator.service.app import create_app
    from flows.simulator.service.recount import recount
    from flows.simulator.service.serving import address, listen, serve_until_told
    from schemas.service import ServiceSettings

    edges = wire(context.folder, name)
    with _opener(simulation.secret_key) as opener, listen(simulation.port) as listener:
        base_url = address(listener)
        spoken = edges.issuer.service.model_dump() if edges.issuer.service else {}
        settings = ServiceSettings.model_validate({**spoken, "base_url": base_url})
        books = _books(edges, opener, simulation, settings.fi_key)
        _announce(context, name, base_url, books)
        serve_until_told(create_app(books, settings, _clock(now(), simulation.speed)), listener)
    totals = {what: value for what, value in recount(books).items() if what != "cardholders"}
    lines = [f"ended: {', '.join(f'{value} {what}' for what, value in totals.items() if isinstance(value, int))}"]
    return Result({"issuer": name, "address": base_url, **totals}, lines)


def _books(edges: IssuerEdges, opener: Opener, simulation: Simulation, fi_key: str) -> Books:
    from flows.simulator.service.books import Books, Habits

    habits = Habits(
        host=edges.issuer.portal.allowed_hosts[0],
        fi_key=fi_key,
        fail_share=simulation.fail_share,
        shuffle=simulation.shuffle,
        seed=simulation.seed,
    )
    return Books(opener, now(), habits, _header(edges))


def _announce(context: Context, name: str, base_url: str, books: Books) -> None:
    """Show the address on stdout, and beside it how the commands find it."""
    context.terminal.show(base_url)
    context.terminal.say(f"{base_url}/openapi.json describes it; {name}.toml and the environment lead there with:")
    context.terminal.say(f"  [service]\n  base_url = {json.dumps(base_url)}")
    for field, value in books.habits.client._asdict().items():
        context.terminal.say(f"  export CARDLINK_SERVICE_{field.upper()}={value}")


def _clock(start: datetime, speed: float) -> Callable[[], datetime]:
    """Return a clock that goes `speed` times as fast as the wall's."""
    return lambda: start + (now() - start) * speed


class _NoOpener:
    def open(self, message: bytes, limit: int) -> bytes:
        raise NoKeyGivenError


@contextmanager
def _opener(secret_key: Path | None) -> Iterator[Opener]:
    from flows.edge.pgp import GpgOpener

    if secret_key is None:
        yield _NoOpener()
        return
    with GpgOpener([read_file(secret_key, "--secret-key")]) as opener:
        yield opener
