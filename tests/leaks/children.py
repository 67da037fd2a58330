"""What runs inside the processes of a night: each in the folder of its place, with everything logged at DEBUG.

Errors are kept in every form a framework may keep them: text, traceback, arguments, pickle.
"""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from pathlib import Path

from flows.core.errors import CardlinkError, guarded
from flows.edge.local import LocalStore
from flows.simulator.answer import answer_store
from flows.simulator.portal import Portal
from flows.steps.edges import IssuerEdges
from flows.steps.ingest import ingest
from flows.steps.submit import Request, submit
from flows.wiring import now, wire
from tests.core import damaged
from tests.leaks.failing import broken, called
from tests.leaks.place import BANK, rows
from tests.night import portal_csv

HERE = Path()
_NUMBERS = count(1)


def log_everything() -> None:
    """Log every logger's every word to a file, without our filter: the first line has to hold alone."""
    logging.basicConfig(filename="debug.log", level=logging.DEBUG, encoding="utf-8")


def keep(error: BaseException) -> None:
    """Keep an exception as frameworks do."""
    folder = HERE / "errors"
    folder.mkdir(exist_ok=True)
    name = f"{next(_NUMBERS):04d}"
    told = "".join(traceback.format_exception(error))
    (folder / f"{name}.txt").write_text(f"{told}\n{error!r}\n{error.args!r}\n{vars(error)!r}", "utf-8", "replace")
    (folder / f"{name}.pickle").write_bytes(pickle.dumps(error))


def attempt(work: Callable[[], object]) -> bool:
    """Do something behind the boundary; keep what comes through it and tell whether all went well."""
    try:
        guarded(work)()
    except CardlinkError as error:
        keep(error)
        return False
    return True


def damage(every: int) -> None:
    """Submit an extract of every n-th kind of damage, each as a run of its own, by one sealer."""
    log_everything()
    edges = wire(HERE, BANK)
    kinds = [*damaged.line_kinds(), *damaged.whole_kinds(), *damaged.sound_kinds()]
    with edges.sealer() as sealer:
        for at, kind in enumerate(kinds[::every], 1):
            settings = edges.issuer.model_copy(update={"source": kind.settings})
            one = edges._replace(issuer=settings, sealer=lambda: nullcontext(sealer))
            _submit_content(one, f"bank-20261120-{at}.csv", kind.data)


def _submit_content(edges: IssuerEdges, name: str, content: bytes) -> None:
    (HERE / "store" / BANK / "extracts" / name).write_bytes(content)
    attempt(lambda: submit(edges, Request(name)))


def night(at: int) -> None:
    """Take one extract all the way through the steps: submit, answer, ingest."""
    edges = wire(HERE, BANK)
    name = f"bank-202611{at % 28 + 1:02d}-{at}.csv"
    content = portal_csv(rows({"service_card.nickname": f"night {at}"}))  # another digest: another run
    (HERE / "store" / BANK / "extracts" / name).write_bytes(content)
    submit(edges, Request(name))
    answer(edges)
    ingest(edges)


def answer(edges: IssuerEdges) -> None:
    """Let the simulated portal answer."""
    from flows.edge.pgp import GpgOpener

    with GpgOpener([keys_secret()]) as opener:
        answer_store(LocalStore(HERE / "store"), BANK, Portal(opener, today=now().date(), fail_share=0.3))


def keys_secret() -> bytes:
    """Return the portal's secret key as the place has it."""
    return (HERE / "secret.asc").read_bytes()


def break_steps(share: int) -> None:
    """Run a night for every n-th function that a night calls, with that function raising what it was given."""
    log_everything()
    functions = called(lambda: night(0))[::share]
    for at, function in enumerate(functions, 1):
        with broken(function):
            attempt(lambda at=at: night(at))  # type: ignore[misc]  # mypy cannot infer the lambda's default
    Path("broken.txt").write_text("\n".join(f"{one.__module__}.{one.__qualname__}" for one in functions))
