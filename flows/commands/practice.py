"""Practice: generate an extract, let the simulated partner answer its chunks, or serve the partner's interface."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from flows.commands.entry import Context, entry
from flows.commands.parameters import Day, Issuer, Number, Range, Share
from flows.commands.result import Result
from flows.errors import OperatorError
from flows.wiring import now, read_file, wire

if TYPE_CHECKING:
    from flows.runs.context import IssuerContext
    from flows.runs.sealing import Opener
    from flows.simulator.practice import Behaviour

NO_FORM = "practice is for a terminal"


class NoKeyGivenError(OperatorError):
    """Sealed chunks can be opened only with the portal's secret key."""

    message = "Chunks are sealed for the portal, and its secret key was not given."
    next_step = "Name the simulated portal's key with --secret-key FILE."


@entry("sample", form=NO_FORM)
def sample(
    context: Context,
    file: Path,
    *,
    rows: Number = 1000,
    bad: Share = 0.0,
    seed: int = 0,
    business_date: Day = None,
    published: bool = False,
) -> Result:
    """Generate an extract with test cards only.

    Args:
        file: Where to write it.
        rows: Number of rows.
        bad: Share of rows with a defect.
        seed: The same seed gives the same extract.
        business_date: Date on which the cards are valid (default: today).
        published: Only published test cards, over and over, which `portal.sealed = false` takes.
    """
    from flows.simulator.extract import write_sample

    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as out:
        write_sample(out, rows, bad=bad, seed=seed, as_of=business_date or now().date(), published=published)
    facts = {"file": str(file), "rows": rows, "bytes": file.stat().st_size}
    lines = [f"{file}: {rows:,} rows, {facts['bytes']:,} bytes, test cards only"]
    return Result(facts, lines, "put it in <root>/<issuer>/extracts/, then: cardlink submit ISSUER")


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
    speed: Annotated[float, Range(0.001)] = 1.0,
) -> Result:
    """Let the simulated portal answer every committed chunk without a result, or serve the partner's interface.

    Args:
        issuer: Whose chunks.
        secret_key: The simulated portal's secret key.
        fail: Share of rows that fail.
        shuffle: Return the rows in another order than sent.
        seed: The same seed gives the same results.
        serve: Serve the partner's whole interface on the loopback address until Ctrl-C.
        port: With --serve: the port (default: any free one).
        speed: With --serve: how many times faster than real time its clock runs.
    """
    from flows.simulator import practice

    behaviour, issuer_context = practice.Behaviour(fail, shuffle, seed), wire(context.folder, issuer)
    if not serve:
        return answer_chunks(issuer_context, secret_key, behaviour, now().date())
    began, say = now(), context.terminal.say

    def clock() -> datetime:
        return began + (now() - began) * speed

    def announce(base_url: str, client: dict[str, str]) -> None:
        context.terminal.show(base_url)
        say(f"{base_url}/openapi.json describes it. To use it, add this to {issuer}.toml and the environment:")
        say(f"  [service]\n  base_url = {json.dumps(base_url)}")
        for field, value in client.items():
            say(f"  export CARDLINK_SERVICE_{field.upper()}={value}")

    with _opener(secret_key) as opener:
        header = list(issuer_context.header.names.values())
        facts = practice.serve(issuer_context.issuer, header, opener, behaviour, port, clock, announce)
    counts = [f"{value} {what}" for what, value in facts.items() if isinstance(value, int)]
    return Result(facts, [f"ended: {', '.join(counts)}"])


def answer_chunks(
    context: IssuerContext, secret_key: Path | None, behaviour: Behaviour, today: date, expires: date | None = None
) -> Result:
    """Let the simulated portal answer every committed chunk without a result; NoKeyGivenError without its key."""
    from flows.simulator.practice import answer

    if secret_key is None and context.issuer.portal.sealed:
        raise NoKeyGivenError
    with _opener(secret_key) as opener:
        facts = answer(
            context.issuer,
            context.adapters.store,
            list(context.header.names.values()),
            opener,
            behaviour,
            today,
            expires,
        )
    lines = [f"{facts['files']} result files: {facts['linked']:,} links, {facts['errors']:,} errors"]
    lines += [f"refused {chunk}: {why}" for chunk, why in facts["refused"]]
    return Result(facts, lines, f"cardlink ingest {context.issuer.issuer}", 2 if facts["refused"] else 0)


class _NoOpener:
    def open(self, message: bytes, limit: int) -> bytes:
        raise NoKeyGivenError


@contextmanager
def _opener(secret_key: Path | None) -> Iterator[Opener]:
    """Open what is sealed for the portal; without its key the simulator accepts only unencrypted uploads."""
    from flows.adapters.gpg_sealer import GpgOpener

    if secret_key is None:
        yield _NoOpener()
        return
    with GpgOpener([read_file(secret_key, "--secret-key")]) as opener:
        yield opener
