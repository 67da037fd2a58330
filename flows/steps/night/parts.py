"""An extract read in parts, by several workers: each looks at its part, then seals it; only references travel.

The first look gives the number of rows of each part and keyed hashes of its cards; from them the one who leads tells
repeats across parts and where the chunks of each part begin. So the run is the one a single pass would have made, but
that the last chunk of a part may be short. The commit is one, at the end.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from io import BytesIO
from typing import NamedTuple, Protocol, TypeVar

import polars as pl

from flows.core.errors import OperatorError
from flows.core.extract.blocks import Begin
from flows.core.extract.extract_errors import TrailerError
from flows.core.extract.mapping import map_rows, plan_mapping
from flows.core.extract.reader import read_extract
from flows.core.names import RunKeys
from flows.core.ports import Entry
from flows.core.rows.duplicates import SeenRows
from flows.core.rows.foreseen import VERDICT, Foretold, Keeping, chunk_count
from flows.core.rows.normalise import normalise
from flows.core.rows.refine import Choice
from flows.core.rows.repairs import Decided, decide
from flows.steps.edges import IssuerEdges, read
from flows.steps.night.cut import PartStream
from flows.steps.night.ledger import LedgerWriter
from flows.steps.night.making import Job, Made, Progress, Tell, work_off
from flows.steps.night.publish import Publisher
from flows.steps.night.scan import Scan
from flows.steps.rows import write_parquet
from flows.steps.runs import UnknownRunError, keys_of, read_plan
from schemas.manifest import Counts, Cut, Plan

T = TypeVar("T")
R = TypeVar("R")
NO_TIME = datetime.fromtimestamp(0, UTC)


class WorkersDifferError(OperatorError):
    """Two workers have different versions of a library, so that their keys cannot be compared."""

    says = "Workers of run {0} have different versions of polars: {1}."
    then = "Install the same versions on all of them (constraints.txt names them), then run the same command again."

    def __init__(self, run: str, versions: str) -> None:
        super().__init__(run, versions)


class Secret(bytes):
    """A key that no message shows; it lives in memory only, as long as the process of the run does."""

    def __repr__(self) -> str:
        return "<secret>"


class Look(NamedTuple):
    """The task of a first look at one part."""

    issuer: str
    run: str
    version: str  # of the extract, where it lies now
    number: int  # of the part, from 0
    token: str  # keeps the keys of two processes apart
    secret: Secret
    decided: Decided


class Seen(NamedTuple):
    """What a first look gave: how many rows the part has; their keys lie in the store."""

    rows: int
    polars: str


class Place(NamedTuple):
    """Where a part stands among the others: rows and chunks before it."""

    rows: int
    chunks: int


class Crew(Protocol):
    """Those who read and seal the parts, in any order, on any machine; results come in the order of the tasks."""

    def look(self, tasks: Sequence[Look]) -> Iterator[Seen]:
        """Have `look` done for each."""
        ...

    def seal(self, tasks: Sequence[tuple[Look, Place]]) -> Iterator[Made]:
        """Have `seal` done for each."""
        ...


class Threads:
    """A crew within this process."""

    def __init__(self, edges: IssuerEdges) -> None:
        self._edges = edges

    def look(self, tasks: Sequence[Look]) -> Iterator[Seen]:
        """Look at parts side by side."""
        return self._each(lambda task: look(self._edges, task), tasks)

    def seal(self, tasks: Sequence[tuple[Look, Place]]) -> Iterator[Made]:
        """Seal parts side by side."""
        return self._each(lambda task: seal(self._edges, *task), tasks)

    def _each(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        with ThreadPoolExecutor(self._edges.issuer.scale.workers, "part") as workers:
            yield from workers.map(work, tasks)


def make_in_parts(edges: IssuerEdges, job: Job, cut: Cut, crew: Crew, tell: Tell) -> Made:
    """Lead a crew over an extract; what it makes is the sum of what the parts made."""
    store, plan, keys = edges.edges.store, job.plan, keys_of(job.plan.run)
    token, secret = secrets.token_hex(8), Secret(secrets.token_bytes(32))
    decided = _decide(edges, job.entry, cut, plan)
    tasks = [
        Look(edges.issuer.issuer, plan.run, job.entry.version, number, token, secret, decided)
        for number in range(len(cut.parts))
    ]
    try:
        seen = list(crew.look(tasks))
        versions = {one.polars for one in seen}
        if len(versions) > 1:
            raise WorkersDifferError(plan.run, ", ".join(sorted(versions)))
        places = list(_places(edges, plan, tasks, seen))
        made: list[Made] = []
        for number, one in enumerate(crew.seal(list(zip(tasks, places, strict=True)))):
            made.append(one)
            done = cut.parts[number].end / plan.source.size
            tell(Progress(sum(part.counts.read for part in made), sum(len(part.chunks) for part in made), done))
    finally:
        for task in tasks:  # what was exchanged has served
            for name in _KEYS, _VERDICTS:
                store.replace(_exchanged(keys, task, name), [b""])
    return _sum(plan, cut, made)


def look(edges: IssuerEdges, task: Look) -> Seen:
    """Check every row of a part, seal none, and leave the keys of the good ones."""
    plan, keeping = _plan(edges, task), Keeping(task.secret)
    scan = _scan(edges, task, plan, Choice(repeats=keeping, decided=task.decided), rows=0)
    for _ in scan:
        pass
    write_parquet(edges.edges.store, _exchanged(keys_of(task.run), task, _KEYS), keeping.keys())
    return Seen(scan.counts.read, pl.__version__)


def seal(edges: IssuerEdges, task: Look, place: Place) -> Made:
    """Read a part once more, knowing what repeats, and seal, publish and record its rows."""
    store, plan, keys = edges.edges.store, _plan(edges, task), keys_of(task.run)
    verdicts = pl.read_parquet(BytesIO(read(store, _exchanged(keys, task, _VERDICTS))))
    scan = _scan(edges, task, plan, Choice(repeats=Foretold(verdicts), decided=task.decided), place.rows)
    with (
        edges.sealer() as sealer,
        closing(Publisher(edges, sealer, keys, place.chunks)) as publisher,
        closing(LedgerWriter(store, keys, name=f"part-{task.number + 1:04d}")) as ledger,
    ):
        again = f"cardlink submit {task.issuer}"
        return work_off(plan, scan, publisher, ledger, lambda: None, again)


def _decide(edges: IssuerEdges, entry: Entry, cut: Cut, plan: Plan) -> Decided:
    """Decide the repairs from the first block, as a single pass would."""
    issuer = edges.issuer
    extract = read_extract(PartStream(edges.edges.store, entry, cut, 0), issuer.source, plan.source.key)
    mapping = plan_mapping(
        extract.header, issuer.columns, plan.source.key, where=issuer.filter, strict=issuer.source.strict
    )
    mapped, _ = map_rows(next(iter(extract)).rows, mapping)
    return decide(normalise(mapped, issuer.rules), issuer.repairs, plan.source.key)


def _places(edges: IssuerEdges, plan: Plan, tasks: Sequence[Look], seen: Sequence[Seen]) -> Iterator[Place]:
    """Tell repeats across the parts, in order, leave each part its verdicts, and yield where it stands."""
    store, keys, issuer = edges.edges.store, keys_of(plan.run), edges.issuer
    repeats = SeenRows(issuer.rules, expected=plan.source.newlines)
    rows = chunks = 0
    for task, one in zip(tasks, seen, strict=True):
        found = pl.read_parquet(BytesIO(read(store, _exchanged(keys, task, _KEYS))))
        found = found.with_columns(pl.col("row") + rows)
        verdicts = repeats.mark_keys(found["row"], found["key"].to_numpy(), found["tag"].to_numpy())
        write_parquet(store, _exchanged(keys, task, _VERDICTS), verdicts.cast(VERDICT))  # type: ignore[arg-type]  # polars takes a mapping of names
        yield Place(rows, chunks)
        rows += one.rows
        chunks += chunk_count(found, verdicts, issuer.portal.rows_per_chunk)


def _plan(edges: IssuerEdges, task: Look) -> Plan:
    plan = read_plan(edges.edges.store, keys_of(task.run))
    if plan is None or plan.cut is None:
        raise UnknownRunError(task.run)
    return plan


def _scan(edges: IssuerEdges, task: Look, plan: Plan, choice: Choice, rows: int) -> Scan:
    cut, source = plan.cut, plan.source.model_copy(update={"version": task.version})
    assert cut is not None  # noqa: S101 - `_plan` has looked
    entry = Entry(source.key, source.size, NO_TIME, source.version)
    stream = PartStream(edges.edges.store, entry, cut, task.number)
    begin = Begin(cut.parts[task.number].line, rows, last=task.number + 1 == len(cut.parts))
    return Scan(edges, stream, source, plan.as_of, choice, begin)


def _sum(plan: Plan, cut: Cut, made: Sequence[Made]) -> Made:
    """Add up what the parts made; a trailer may stand in the last one only."""
    if any(one.counts.trailer is not None for one in made[:-1]):
        raise TrailerError(plan.source.key, "data follow it")
    fates = ("read", "submitted", "rejected", "duplicate", "suppressed")
    counts = Counts(
        lines=cut.parts[0].line + sum(one.counts.lines for one in made),
        trailer=made[-1].counts.trailer,
        **{fate: sum(getattr(one.counts, fate) for one in made) for fate in fates},
    )
    return Made(
        counts,
        dict(sum((Counter(one.reasons) for one in made), Counter())),
        dict(sum((Counter(one.repairs) for one in made), Counter())),
        sum(one.test_cards for one in made),
        sum(one.other_cards for one in made),
        tuple(chunk for one in made for chunk in one.chunks),
        tuple(part for one in made for part in one.ledger),
    )


_KEYS, _VERDICTS = "keys", "verdicts"


def _exchanged(keys: RunKeys, task: Look, name: str) -> str:
    return f"{keys.exchanged}{task.token}-{task.number + 1:04d}-{name}.parquet"
