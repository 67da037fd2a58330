"""What runs inside the processes of a night: each in the folder of its place, with everything
logged at DEBUG.

Errors are kept in every form a framework may keep them: text, traceback, arguments, pickle.
"""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import FunctionType
from typing import cast

from flows.cli.main import main
from flows.errors import CardlinkError, guarded
from flows.extensions.simulator.answer import answer_store
from flows.extensions.simulator.portal import Portal
from flows.redaction import Redaction
from flows.reports.ingestion import ingest
from flows.runs.context import IssuerContext
from flows.submissions.submit import Request, submit
from flows.wiring import now, wire
from tests.extracts import damaged
from tests.leaks.failing import broken, called
from tests.leaks.place import BANK, rows
from tests.night import portal_csv

HERE = Path()
_NUMBERS = count(1)


def log_everything() -> None:
    """Log every logger's every word to a file, without our filter: the first line has to hold
    alone.
    """
    logging.basicConfig(filename="debug.log", level=logging.DEBUG, encoding="utf-8")


def keep(error: BaseException) -> None:
    """Keep an exception as frameworks do."""
    folder = HERE / "errors"
    folder.mkdir(exist_ok=True)
    name = f"{next(_NUMBERS):04d}"
    told = "".join(traceback.format_exception(error))
    (folder / f"{name}.txt").write_text(
        f"{told}\n{error!r}\n{error.args!r}\n{vars(error)!r}", "utf-8", "replace"
    )
    (folder / f"{name}.pickle").write_bytes(pickle.dumps(error))


def attempt(work: Callable[[], object]) -> bool:
    """Do something behind the boundary; keep what comes through it and tell whether all went
    well.
    """
    try:
        guarded(work)()
    except CardlinkError as error:
        keep(error)
        return False
    return True


def damage(every: int) -> None:
    """Submit an extract of every n-th kind of damage, each as a run of its own, by one sealer."""
    log_everything()
    context = wire(HERE, BANK)
    kinds = [*damaged.line_kinds(), *damaged.whole_kinds(), *damaged.sound_kinds()]
    with context.sealer() as sealer:
        for at, kind in enumerate(kinds[::every], 1):
            settings = context.issuer.model_copy(update={"source": kind.settings})
            one = context._replace(issuer=settings, sealer=lambda: nullcontext(sealer))
            _submit_content(one, f"bank-20261120-{at}.csv", kind.data)


def _submit_content(context: IssuerContext, name: str, content: bytes) -> None:
    (HERE / "store" / BANK / "extracts" / name).write_bytes(content)
    attempt(lambda: submit(context, Request(name)))


def night(at: int) -> None:
    """Take one extract all the way through the steps: submit, answer, ingest."""
    context = wire(HERE, BANK)
    name = f"bank-202611{at % 28 + 1:02d}-{at}.csv"
    # another digest: another run
    content = portal_csv(rows({"service_card.nickname": f"night {at}"}))
    (HERE / "store" / BANK / "extracts" / name).write_bytes(content)
    submit(context, Request(name))
    answer(context)
    ingest(context)


def answer(context: IssuerContext) -> None:
    """Let the simulated portal answer."""
    from flows.adapters.gpg_opener import GpgOpener

    with GpgOpener([keys_secret()]) as opener:
        answer_store(context.adapters, BANK, Portal(opener, today=now().date(), fail_share=0.3))


def keys_secret() -> bytes:
    """Return the portal's secret key as the place has it."""
    return (HERE / "secret.asc").read_bytes()


def chosen(functions: list[FunctionType], number: int) -> list[FunctionType]:
    """Return so many of the functions, evenly spread; all of them for 0."""
    return functions[:: max(1, len(functions) // number)] if number else functions


def break_steps(number: int) -> None:
    """Run a night for so many of the functions that a night calls, with that function raising what
    it was given.
    """
    log_everything()
    functions = chosen(called(lambda: night(0)), number)
    for at, function in enumerate(functions, 1):
        with broken(function):
            # mypy cannot infer the lambda's default
            attempt(lambda at=at: night(at))  # type: ignore[misc]
    Path("broken.txt").write_text(
        "\n".join(f"{one.__module__}.{one.__qualname__}" for one in functions)
    )


def fail_flows(number: int) -> None:
    """Run the flows on an embedded Prefect server, each time with another function failing, so many
    in all.

    Everything is logged at DEBUG and our log filter is off: the first line has to hold alone.
    """
    functions = chosen(called(lambda: night(0)), number)
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    from flows import forms
    from flows import nightly as submitting
    from flows.commands import results

    Redaction.filter = lambda self, record: True  # type: ignore[method-assign]  # see above
    submitting.submit.retries = 0  # what passes as trouble would wait for minutes
    forms.ingest = forms.form(
        "ingest", [replace(results.ingest, form=results.INGEST._replace(retries=()))]
    )
    # its thread costs a second a flow
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        flow_night(0)
        for at, function in enumerate(functions, 1):
            with broken(function):
                # mypy cannot infer the lambda's default
                attempt(lambda at=at: flow_night(at))  # type: ignore[misc]
            for extract in (HERE / "store" / BANK / "extracts").iterdir():
                extract.unlink()  # else the next night would work on it too
    Path("broken.txt").write_text(
        "\n".join(f"{one.__module__}.{one.__qualname__}" for one in functions)
    )


def bare_flow() -> None:
    """Run one failing flow with the boundary taken away: what a scan must find, or it finds nothing
    anywhere.
    """
    from flows import errors
    from flows.submissions.rows import Route

    errors.guarded = lambda run: run  # before the flows are imported
    with broken(cast("FunctionType", Route.process)), suppress(Exception):
        flow_night(0)


def flow_night(at: int) -> None:
    """Take one extract all the way through the flows."""
    from flows.forms import ingest as ingest_flow
    from flows.nightly import nightly

    content = portal_csv(rows({"service_card.nickname": f"flow {at}"}))
    (HERE / "store" / BANK / "extracts" / f"bank-flow-{at}.csv").write_bytes(content)
    nightly(BANK, on_any_day=True)
    answer(wire(HERE, BANK))
    ingest_flow(BANK)


def run_commands(lines: list[list[str]]) -> None:
    """Run command lines one after another in this process, as `cardlink` runs one: a second saved
    for each.
    """
    for line in lines:
        print("$ cardlink", *line, flush=True)
        try:
            main(["-v", *line])
        except SystemExit as end:
            print("ended with", end.code, flush=True)
