"""Practice: generate an extract, let the simulated partner answer, or serve its interface."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.parameters import Day, Field, Issuer, Number, Share
from flows.commands.result import Result
from flows.configuration import read_file
from flows.extensions.simulator.link_styles import STYLES, USUAL
from flows.steps import ISSUER, Option, Sentence, Step, Text, counted
from flows.wiring import now, wire

if TYPE_CHECKING:
    from flows.extensions.simulator.portal import Behaviour
    from flows.runs.context import IssuerContext

NO_FORM = "practice is for a terminal"
SECRET_KEY = Option("--secret-key", of="simulate")


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

    Example:
        cardlink sample cards.csv --rows 200
    """
    from flows.extensions.simulator.extract import write_sample

    as_of = business_date or now().date()
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as out:
        write_sample(out, rows, bad=bad, seed=seed, as_of=as_of, published=published)
    size = file.stat().st_size
    facts = {"file": str(file), "rows": rows, "bytes": size}
    lines = [
        f"{file}: {counted(rows, 'row')}, {size:,} bytes, test cards only",
        "put it in <root>/<issuer>/extracts/",
    ]
    return Result(facts, lines, Step("submit", ISSUER))


@entry("simulate", form=NO_FORM)
def simulate(
    context: Context,
    issuer: Issuer,
    *,
    secret_key: Path | None = None,
    fail: Share = 0.05,
    shuffle: bool = False,
    seed: int = 0,
    links: Annotated[str, Field(names=lambda: list(STYLES), checked=True)] = USUAL,
    alone: bool = False,
) -> Result:
    """Let the simulated portal answer every committed chunk that has no result.

    Where `[service]` leads to `cardlink practice`, its portal answers: it then has a record of each
    link, and jobs. Started anew, it is told of earlier chunks, too: the same seed and share of
    failures give the same links.

    Args:
        issuer: Whose chunks.
        secret_key: The simulated portal's secret key; `cardlink practice` has its own.
        fail: Share of rows that fail.
        shuffle: Return the rows in another order than sent.
        seed: The same seed gives the same results.
        links: What its links look like.
        alone: Answer without `cardlink practice`, which then knows none of these links.

    Example:
        cardlink simulate first-bank --secret-key practice/portal-secret.asc
    """
    from flows.extensions.simulator.portal import Behaviour
    from flows.extensions.simulator.service_portal import practice_address

    behaviour = Behaviour(fail, shuffle, seed, links)
    issuer_context = wire(context.folder, issuer)
    base_url = None if alone else practice_address(issuer_context.issuer)
    if base_url is None:
        return answer_chunks(issuer_context, secret_key, behaviour)
    return answer_by_practice(issuer_context, base_url, behaviour)


@entry("practice", form=NO_FORM)
def practice(
    context: Context,
    issuer: Issuer = "",
    *,
    s3: bool = False,
    folder: Annotated[Path, Field("--dir", folder=True)] = Path("practice"),
    fail: Share = 0.05,
    shuffle: bool = False,
    seed: int = 0,
    port: Annotated[int, Field(least=0, most=65535)] = 0,
    speed: Annotated[float, Field(least=0.001)] = 1.0,
) -> Result:
    """Serve the simulated partner, and with --s3 an S3 store, on the loopback address until Ctrl-C.

    Its key pair is made in the folder, once, and `env.sh`: what another terminal must know, as
    lines to load.

    Args:
        issuer: Whose template, link hosts and `[service]` it takes (default: those of the partner's
            interface).
        s3: Serve an S3 store with an empty bucket `cards`; it is in memory, and gone at the end.
        folder: Where key pair and `env.sh` are written.
        fail: Share of rows that fail.
        shuffle: Return the rows in another order than sent.
        seed: The same seed gives the same results.
        port: The partner's port (default: any free one).
        speed: How many times faster than real time its clock runs.

    Example:
        cardlink practice --s3
    """
    from flows.extensions.simulator import practice as simulator
    from flows.extensions.simulator.portal import Behaviour
    from schemas.portal import columns

    issuer_context = wire(context.folder, issuer) if issuer else None
    began = now()
    secret, fingerprint = simulator.portal_key(folder)
    environment = folder / "env.sh"

    def clock() -> datetime:
        return began + (now() - began) * speed

    def announce(base_url: str, client: dict[str, str]) -> None:
        variables = store | {
            f"CARDLINK_SERVICE_{field.upper()}": value for field, value in client.items()
        }
        exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        environment.write_text("\n".join([*exports, ""]), "utf-8")
        # at the end, what it names is gone
        stack.callback(environment.unlink, missing_ok=True)
        context.terminal.show(base_url)
        for line in _instructions(base_url, secret, fingerprint, exports):
            context.terminal.say(line)
        service = simulator.service_settings(issuer_context.issuer if issuer_context else None)
        unspoken = simulator.unspoken_tables(service)
        if unspoken:
            tables = ", ".join(unspoken)
            context.terminal.say(f"It speaks as the interface does: practise without {tables}.")

    with ExitStack() as stack:
        store = stack.enter_context(simulator.s3_server("cards")) if s3 else {}
        opener = stack.enter_context(simulator.portal_opener(read_file(secret, SECRET_KEY)))
        served_issuer = None
        header = list(columns())
        if issuer_context is not None:
            served_issuer = issuer_context.issuer
            header = list(issuer_context.header.names.values())
        behaviour = Behaviour(fail, shuffle, seed)
        facts = simulator.serve(served_issuer, header, opener, behaviour, port, clock, announce)
    counts = [f"{count} {name}" for name, count in facts.items() if isinstance(count, int)]
    return Result(facts, [f"ended: {', '.join(counts)}"])


def _instructions(
    base_url: str, secret_key: Path, fingerprint: str, exports: Sequence[str]
) -> list[Text]:
    """Return what an issuer's settings and another terminal need for the simulated partner."""
    folder = secret_key.parent
    return [
        f"{base_url}/openapi.json describes it; Ctrl-C ends it.",
        f"In an issuer's TOML, beside {folder}/portal.asc:",
        "  [portal]",
        '  key_file = "portal.asc"',
        f'  fingerprints = ["{fingerprint}"]',
        "  [service]",
        f'  base_url = "{base_url}"',
        f"In another terminal, or at once by `. {folder}/env.sh`:",
        *(f"  {line}" for line in exports),
        "What was submitted is answered by:",
        Sentence("  {step:bare}", step=Step("simulate", ISSUER, secret_key=secret_key)),
    ]


def answer_chunks(context: IssuerContext, secret_key: Path | None, behaviour: Behaviour) -> Result:
    """Let the simulated portal answer every committed chunk without a result.

    NoKeyGivenError without its key.
    """
    from flows.extensions.simulator.practice import NoKeyGivenError, answer, portal_opener

    if secret_key is None and context.issuer.portal.sealed:
        raise NoKeyGivenError
    key = read_file(secret_key, SECRET_KEY) if secret_key else None
    header = list(context.header.names.values())
    with portal_opener(key) as opener:
        today = now().date()
        return _answered(answer(context.issuer, context.adapters, header, opener, behaviour, today))


def answer_by_practice(context: IssuerContext, base_url: str, behaviour: Behaviour) -> Result:
    """Let the practice service at an address answer every committed chunk without a result."""
    from flows.extensions.simulator.practice import answer_by_service

    facts = answer_by_service(context.issuer, context.adapters, base_url, behaviour)
    lines = [f"answered by the practice service at {base_url}"]
    if facts["restored"]:
        lines.append(f"it was told of {facts['restored']} chunks that had results already")
    return _answered(facts, lines)


def _answered(facts: dict[str, Any], remarks: Sequence[str] = ()) -> Result:
    refused = facts["refused"]
    lines = [
        f"{counted(facts['files'], 'result file')}: {counted(facts['linked'], 'link')}, "
        f"{counted(facts['errors'], 'error')}",
        *(f"refused {chunk}: {reason}" for chunk, reason in refused),
    ]
    exit_code = 2 if refused else 0
    return Result(facts, [*lines, *remarks], Step("ingest", facts["issuer"]), exit_code)
