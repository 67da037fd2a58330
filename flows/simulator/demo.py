"""`cardlink demo`: a whole night on sample data, through the real Prefect flows.

A throwaway portal key, the sample extract in a local store, an embedded Prefect server, the flow
`nightly`, the simulated portal's results, the flow `ingest`, the balance. Everything is below one
folder, which each demo recreates.
"""

from __future__ import annotations

import os
import shutil
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Annotated

from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.parameters import Field, Number
from flows.commands.result import Part, Result
from flows.errors import OperatorError
from flows.simulator.commands import answer_chunks
from flows.steps import Option, Sentence, Step
from flows.wiring import now, shipped, wire

ISSUER = "sample-bank"
# the sample's business date: its cards are valid on it whenever the demo runs
AS_OF = date(2026, 11, 20)
TRAILER = "#TRAILER,{rows}"  # as the sample issuer writes it
MARKER = ".cardlink-demo"

PREFECT = {
    # a new database takes its time on a slow disk
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
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
    """Run the whole pipeline on sample data with a simulated partner: Prefect flows, real gpg, no
    network.

    Args:
        rows: Generate an extract of this size instead of using the sample.
        folder: Where everything is written; an earlier demo there is removed.
    """
    home = folder.resolve()
    say = context.terminal.say
    make_room(home)
    say("· creating a throwaway portal key")
    secret = prepare(home, rows)
    _embed_prefect(home)
    say("· running the nightly flow: Prefect, embedded server, about ten seconds to start")
    from flows.nightly import nightly

    nightly(ISSUER)
    say("· the simulated portal answers")
    _answer(home, secret)
    say("· running the ingest flow")
    from flows.commands.results import report_of
    from flows.forms import ingest
    from flows.runs.keys import keys_of

    summaries = ingest(ISSUER)["reports"]
    reports = [report_of(wire(home, ISSUER), summary) for summary in summaries]
    base = home / "store" / keys_of(summaries[0]["run"]).base if summaries else home
    shown: list[Part] = [*chain.from_iterable(report.shown for report in reports)]
    return Result(
        {"runs": [report.facts for report in reports], "folder": str(base)},
        [*shown, "", f"Everything is below {folder / base.relative_to(home)}"],
        Step("status", config=home),
        max((report.exit_code for report in reports), default=1),
    )


def _answer(folder: Path, secret: Path) -> None:
    """Let the simulated portal answer the chunks of the night."""
    from flows.simulator.portal import two_months_after
    from flows.simulator.practice import Behaviour

    # counted from today: a demo years from now still has links to show
    ends = two_months_after(now().date())
    behaviour = Behaviour(fail_share=0.1, shuffle=True, seed=1)
    answer_chunks(wire(folder, ISSUER), secret, behaviour, AS_OF, ends)


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
    from flows.simulator.extract import Dialect, write_sample
    from flows.simulator.practice import portal_key

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


def _embed_prefect(folder: Path) -> None:
    """Give Prefect a home below the demo's folder, before it is first imported."""
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        del os.environ[name]
    os.environ.update(
        PREFECT,
        PREFECT_HOME=str(folder / "prefect"),
        CARDLINK_CONFIG=str(folder),
        # Prefect's own, with our redaction on every handler
        PREFECT_LOGGING_SETTINGS_PATH=str(shipped("deploy") / "logging.yaml"),
    )
