"""`cardlink demo`: from an extract to placed cards on sample data, through the real Prefect flows.

A throwaway portal key, the sample extract in a local store, an embedded Prefect server, the flow
`nightly`, the results of the practice service's portal, the flow `ingest`, cardholders who open
their links, the flow `placements`, balance and funnel. Everything is below one folder, which each
demo recreates.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import date
from itertools import chain
from pathlib import Path
from socket import socket
from typing import Annotated, Any, NamedTuple

from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.parameters import Field, Number
from flows.commands.result import Part, Result, Table
from flows.configuration import load_issuer
from flows.errors import OperatorError
from flows.extensions.simulator.commands import answer_by_practice
from flows.steps import Option, Sentence, Step
from flows.wiring import now, shipped, wire

ISSUER = "sample-bank"
# the sample's business date: its cards are valid on it whenever the demo runs
AS_OF = date(2026, 11, 20)
SERVICE = """
# the demo's practice service, which has ended; to go on: `cardlink --config {folder} practice
# {issuer} --dir {folder} --port {port}`, then `simulate` tells it of the links
[service]
base_url = "{base_url}"
follow_cardholders = true
requests_per_second = 1000
"""
TRAILER = "#TRAILER,{rows}"  # as the sample issuer writes it
MARKER = ".cardlink-demo"

PREFECT = {
    # a new database takes its time on a slow disk, the first import of Prefect on a busy machine
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "600",
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_LEVEL": "WARNING",
}


class NotADemoError(OperatorError):
    """The folder holds something the demo did not create."""

    message = "{folder} exists and is not a demo."
    next_step = Sentence(
        "Name another folder with {dir}; the demo removes its own folder first.",
        dir=Option("--dir", of="demo"),
    )


@entry("demo", form="it runs the flows itself")
def demo(
    context: Context,
    *,
    rows: Number | None = None,
    folder: Annotated[Path, Field("--dir", folder=True)] = Path("demo"),
) -> Result:
    """Run from an extract to placed cards on sample data with a simulated partner: Prefect flows,
    real gpg, no network.

    Args:
        rows: Generate an extract of this size instead of using the sample.
        folder: Where everything is written; an earlier demo there is removed.

    Example:
        cardlink demo --rows 200
    """
    home = folder.resolve()
    say = context.terminal.say
    make_room(home)
    say("· creating a throwaway portal key")
    secret = prepare(home, rows)
    from flows.extensions.simulator.service.serving import listen

    with listen() as listener:
        _embed(home, listener)
        say("· running the nightly flow: Prefect, embedded server, about ten seconds to start")
        from flows.nightly import nightly

        nightly(ISSUER)
        outcome = _from_links_to_cards(home, listener, secret, say)
    from flows.commands.results import report_of
    from flows.runs.keys import keys_of

    reports = [report_of(wire(home, ISSUER), summary) for summary in outcome.summaries]
    base = home / "store" / keys_of(outcome.summaries[0]["run"]).base if reports else home
    shown: list[Part] = [*chain.from_iterable(report.shown for report in reports)]
    return Result(
        {"runs": [report.facts for report in reports], "folder": str(base)},
        [*shown, "", *outcome.funnel, f"Everything is below {folder / base.relative_to(home)}"],
        Step("worklist", config=home),
        max((report.exit_code for report in reports), default=1),
    )


class _Outcome(NamedTuple):
    """The summaries of the reports of the ingest, and the funnel of the placements."""

    summaries: list[dict[str, Any]]
    funnel: list[Part]


def _from_links_to_cards(
    folder: Path, listener: socket, secret: Path, say: Callable[[str], None]
) -> _Outcome:
    """Let the simulated partner answer, cardholders act, and the flows take up what came of it."""
    from flows import forms
    from flows.extensions.simulator.demo_service import SEED, demo_service
    from flows.extensions.simulator.portal import Behaviour, two_months_after
    from flows.reports.sections import sections

    # counted from today: a demo years from now still has links to show
    ends = two_months_after(now().date())
    issuer = load_issuer(folder, ISSUER)
    behaviour = Behaviour(fail_share=0.1, shuffle=True, seed=SEED)
    with demo_service(issuer, listener, secret.read_bytes(), AS_OF, ends) as service:
        say("· the simulated portal answers")
        answer_by_practice(wire(folder, ISSUER), service.base_url, behaviour)
        say("· running the ingest flow")
        summaries = forms.ingest(ISSUER)["reports"]
        if not hasattr(forms, "placements"):  # nothing asks the partner what came of links
            return _Outcome(summaries, [])
        say("· cardholders open their links and place their cards")
        service.play_people()
        say("· running the placements flow")
        facts = forms.placements(ISSUER)
    [section] = sections(facts)
    table = section.tables[0]  # the others say how old links are by now
    title = f"{ISSUER}: from link to placed card"
    return _Outcome(summaries, [Table(table.head, table.rows, title=title), ""])


def make_room(folder: Path) -> None:
    """Empty the folder of an earlier demo; NotADemoError if it holds anything else."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARKER).exists():
            raise NotADemoError(folder=str(folder))
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).touch()


def prepare(folder: Path, rows: int | None) -> Path:
    """Write the issuer's TOML, a throwaway portal key and the extract.

    Return the path of the secret key.
    """
    from flows.extensions.simulator.extract import Dialect, write_sample
    from flows.extensions.simulator.practice import portal_key

    secret, fingerprint = portal_key(folder)
    sample_data = shipped("sample_data")
    toml = (sample_data / f"{ISSUER}.toml").read_text("utf-8")
    (folder / f"{ISSUER}.toml").write_text(toml.replace("0" * 40, fingerprint), "utf-8")
    extract = folder / "store" / ISSUER / "extracts" / f"{ISSUER}-{AS_OF:%Y%m%d}.csv"
    extract.parent.mkdir(parents=True)
    if rows is None:
        shutil.copyfile(sample_data / "extracts" / extract.name, extract)
        return secret
    dialect = Dialect(trailer=TRAILER)
    with extract.open("wb") as out:
        write_sample(out, rows, bad=0.02, seed=1, as_of=AS_OF, dialect=dialect)
    return secret


def _embed(folder: Path, listener: socket) -> None:
    """Lead the issuer to the practice service, and give Prefect a home below the demo's folder.

    That is before Prefect is first imported.
    """
    from flows.extensions.simulator.demo_service import client_variables
    from flows.extensions.simulator.service.serving import address
    from schemas.issuer import Issuer

    base_url = address(listener)
    port = listener.getsockname()[1]
    if "service" in Issuer.model_fields:
        service = SERVICE.format(base_url=base_url, folder=folder, issuer=ISSUER, port=port)
        with (folder / f"{ISSUER}.toml").open("a", encoding="utf-8") as toml:
            toml.write(service)
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        del os.environ[name]
    os.environ.update(
        PREFECT,
        **client_variables(),
        PREFECT_HOME=str(folder / "prefect"),
        CARDLINK_CONFIG=str(folder),
        # Prefect's own, with our redaction on every handler
        PREFECT_LOGGING_SETTINGS_PATH=str(shipped("deploy") / "logging.yaml"),
    )
