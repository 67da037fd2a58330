"""An extract read in parts by the workers of Prefect's task runner: threads, or a Dask cluster. Thin on purpose."""

# Annotations stay real objects here: Prefect makes the form of a flow from them, through the guard around it.
from collections.abc import Iterator, Sequence
from datetime import date
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from flows.core.errors import OperatorError, guarded
from flows.shown import Progressing, show_submitted
from flows.steps.night.making import Made
from flows.steps.night.parts import Look, Place, Seen, look, seal
from flows.steps.night.submit import Request, submit
from flows.wiring import config_folder, wire
from schemas.scale import Scale

RETRIES = 3  # of a part whose worker died


class DaskMissingError(OperatorError):
    """The settings ask for Dask, which is not installed."""

    says = "[scale] runner = 'dask' of {0}, and prefect-dask is not installed."
    then = "Install it on every machine that works (pip install 'cardlink[dask]'), or set runner = 'threads'."

    def __init__(self, issuer: str) -> None:
        super().__init__(issuer)


@task(
    name="look at a part",
    task_run_name=lambda: "look at a part",  # its argument holds a secret, so nothing is made of it
    persist_result=False,
    cache_policy=NO_CACHE,
    retries=RETRIES,
)
@guarded
def look_at(work: Look) -> Seen:
    """Check every row of a part on whatever machine this is."""
    return look(wire(config_folder(), work.issuer), work)


@task(
    name="seal a part",
    task_run_name=lambda: "seal a part",
    persist_result=False,
    cache_policy=NO_CACHE,
    retries=RETRIES,
)
@guarded
def seal_it(work: Look, place: Place) -> Made:
    """Seal and publish the rows of a part on whatever machine this is."""
    return seal(wire(config_folder(), work.issuer), work, place)


class Tasks:
    """A crew of Prefect tasks: their arguments and results are names, counts and digests, never rows."""

    def look(self, tasks: Sequence[Look]) -> Iterator[Seen]:
        """Have each part looked at."""
        yield from [future.result() for future in [look_at.submit(work) for work in tasks]]

    def seal(self, tasks: Sequence[tuple[Look, Place]]) -> Iterator[Made]:
        """Have each part sealed."""
        for future in [seal_it.submit(work, place) for work, place in tasks]:
            yield future.result()


def runner(issuer: str, scale: Scale) -> TaskRunner[Any]:
    """Return who does the tasks; DaskMissingError where the settings ask for what is not installed."""
    if scale.runner == "threads":
        return ThreadPoolTaskRunner(max_workers=scale.workers)
    if find_spec("prefect_dask") is None:
        raise DaskMissingError(issuer)
    dask = import_module("prefect_dask.task_runners")  # by name: it is an extra, and takes a second
    here = {"n_workers": scale.workers, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    where = {"address": scale.scheduler} if scale.scheduler else {"cluster_kwargs": here}
    found: TaskRunner[Any] = dask.DaskTaskRunner(**where)
    return found


@flow(name="submit in parts", flow_run_name="{extract} in parts", persist_result=False, log_prints=False)
@guarded
def in_parts(issuer: str, extract: str, opened: list[str], new_run: str = "", day: str = "") -> str:
    """Take one extract to its manifest, its parts read side by side.

    Args:
        issuer: Whose extract.
        extract: Its file name below the issuer's extracts.
        opened: Gates opened on purpose.
        new_run: Why an extract that already has a run gets another one.
        day: The business date, where the extract's name does not say it.
    """
    edges = wire(config_folder(), issuer)
    request = Request(extract, date.fromisoformat(day) if day else None, tuple(opened), new_run)
    done = submit(edges, request, Progressing(extract), Tasks())
    show_submitted(edges, done)
    return done.manifest.run
