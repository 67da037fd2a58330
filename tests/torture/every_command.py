"""Kill, stop and race every command at each of its writes, repeat it, and compare with the quiet
run: what the store comes to, what the worklist says in between, and where the printed next steps
lead.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from flows.commands.context import Context
from flows.commands.result import Result
from flows.errors import CardlinkError
from flows.wiring import open_database
from tests.copies import copy_folder
from tests.mentions import pasted
from tests.stores import Place
from tests.torture.acts import ACTS, NAMED, Act, run
from tests.torture.harmed_store import Harm, HarmedDatabase, HarmedStore, KilledError, Writes
from tests.torture.nursery import Forkserver
from tests.torture.partner import served
from tests.torture.standing_facts import Facts, differences, facts_of_store
from tests.torture.tally import Tally

HARMS: tuple[Harm, ...] = (
    "killed before",
    "killed after",
    "stopped",
    "raced",
    "raced, claims run out",
    "listed late",
    "deleted late",
)
BEHIND = ("listed late", "deleted late")
BY_SIGNAL: tuple[Harm, ...] = ("SIGKILL before", "SIGKILL after")
LATER = timedelta(hours=1)  # the claims of the dead have run out
NEW_WORK = ("runs to finish", "runs left behind")  # lines about runs that a harm may add


class Case(NamedTuple):
    """An act on a store that is prepared for it."""

    act: Act
    folder: Path  # of the TOML file, and of the objects before the act
    arguments: dict[str, Any]


@dataclass
class Stage:
    """Where acts are harmed: each kind of case is prepared once, and lived through in quiet once."""

    folder: Path
    places: Iterator[Place]
    on_disk: bool
    born: Forkserver | None = None  # who starts the processes that SIGKILL ends
    cases: dict[str, Case] = field(default_factory=dict)
    quiet: dict[str, Quiet] = field(default_factory=dict)
    number: int = 0
    days: tuple[date, ...] = ()

    def business_days(self) -> tuple[date, ...]:
        """Return the days of an act and of its repetition; on others each case is prepared anew."""
        days = tuple((datetime.now(UTC) + offset).date() for offset in (timedelta(), LATER))
        if days != self.days:
            self.days = days
            self.cases.clear()
            self.quiet.clear()
        return days

    def case(self, name: str) -> Case:
        """Return a prepared case; each scenario works on a copy."""
        if name not in self.cases:
            self.number += 1
            folder = self.folder / f"case-{self.number}"
            folder.mkdir()
            self.cases[name] = Case(ACTS[name], folder, ACTS[name].prepare(folder))
        return self.cases[name]

    def scene(self, name: str) -> Scene:
        """Return a fresh copy of a case's store."""
        case = self.case(name)
        self.number += 1
        folder = self.folder / f"scene-{self.number}"
        if self.on_disk:
            copy_folder(case.folder, folder)
            return Scene(case, folder, Place("directory", str(folder), "store"))
        copy_folder(case.folder, folder, shutil.ignore_patterns("store"))
        place = next(self.places)
        store = place.open()
        for file in (case.folder / "store").rglob("*"):
            if file.is_file():
                store.create(str(file.relative_to(case.folder / "store")), file.read_bytes())
        return Scene(case, folder, place)

    def undisturbed(self, name: str) -> Quiet:
        """Return what a case comes to in quiet: its writes, and what is stored after it."""
        if name not in self.quiet:
            scene = self.scene(name)
            before = Quiet(scene.facts()["findings"], scene.first_steps(), [], {}, {})
            writes = Writes()
            result = scene.live(writes)
            assert isinstance(result, Result), f"{name}: {result}"
            after = before.seen(scene)
            scene.paste(str(result.next_step or ""))
            then = before.seen(scene)
            quiet = before._replace(writes=writes.keys, after=after, then=then)
            self.quiet[name] = quiet._replace(deletes=bool(writes.deleted))
            scene.remove()
        return self.quiet[name]


class Quiet(NamedTuple):
    """What an act writes, and what is stored after it, and after its next step.

    `findings`: those of the audit trail before it, where a case is of a damaged store; `firsts`:
    the first steps on the worklist before it.
    """

    findings: list[str]
    firsts: set[str]
    writes: list[str]
    after: Facts
    then: Facts
    deletes: bool = False

    @property
    def harms(self) -> list[Harm]:
        """What can be done to it."""
        return [harm for harm in HARMS if self.deletes or harm != "deleted late"]

    def seen(self, scene: Scene) -> Facts:
        """Return what a scene comes to, without findings that were there before."""
        facts = scene.facts()
        findings = [finding for finding in facts["findings"] if finding not in self.findings]
        return {**facts, "findings": findings}


@dataclass
class Scene:
    """One store, and the folder of its issuer."""

    case: Case
    folder: Path
    place: Place

    def live(self, writes: Writes, offset: timedelta = timedelta(), actor: str = "") -> object:
        """Run the act on the store; return its result, or what ended it."""
        with self.wired(writes, offset), _stoppable():
            return self._ended(actor)

    def rehearsed(self) -> object:
        """Return what a dry run of the act comes to, None where it has none."""
        dry = {**self.case.arguments, "dry_run": True}
        if "dry_run" not in {each.name for each in self.case.act.entry.parameters}:
            return None
        with self.wired(Writes(), LATER):
            try:
                return run(self.case.act, self.folder, dry)
            except CardlinkError as refusal:
                return refusal

    def killed(self, born: Forkserver, harm: Harm, nth: int) -> object:
        """Run the act as a process of its own until SIGKILL ends it; return how it ended."""
        line = str(self.case.act.entry.step(self.case.arguments))
        job = {
            "argv": ["--config", str(self.folder), *shlex.split(line)[1:]],
            "folder": str(self.folder),
            "place": self.place,
            "harm": (harm, nth),
        }
        code = born.wait(born.start(job))
        return KilledError() if code == -signal.SIGKILL else code

    def race(self, writes: Writes, away: timedelta, other: Scene | None = None) -> object:
        """Run the act; at the harmed write it is away so long, and another process does the same,
        or something else, meanwhile.
        """
        rivals = other or self

        def rival() -> None:
            with rivals.wired(Writes(), away):
                rivals._ended("rival")
            writes.offset = away

        writes.rival = rival
        return self.live(writes)

    def _ended(self, actor: str) -> object:
        try:
            return run(self.case.act, self.folder, self.case.arguments, actor)
        except (CardlinkError, KilledError, KeyboardInterrupt) as end:
            return end

    def facts(self, writes: Writes | None = None) -> Facts:
        """Return what the store comes to, as somebody sees it later."""
        with self.wired(writes or Writes(), LATER):
            return facts_of_store(self.folder)

    def misread(self, writes: Writes) -> list[str]:
        """Name what is read otherwise while what was deleted is listed still."""
        behind = self.facts(writes)
        behind.pop("objects")
        return [f"while it is listed: {loss}" for loss in differences(behind, self.facts())]

    def paste(self, line: str) -> str:
        """Do what was printed as a line; return the error that refused it, "" for none."""
        if not line:
            return ""
        desk = self.folder / "desk"
        desk.mkdir(exist_ok=True)
        if line.startswith('cardlink answers "FILE"'):
            (desk / "file.csv").write_text("id,rows,answer\n")  # nothing is answered yet
        before = Path.cwd()
        os.chdir(desk)
        try:
            with self.wired(Writes(), LATER):
                pasted(self.folder, line)
        except CardlinkError as error:
            return str(error)
        finally:
            os.chdir(before)
            shutil.rmtree(desk)
        return ""

    def first_steps(self) -> set[str]:
        """Return the first steps of the lines of the worklist."""
        with self.wired(Writes(), LATER):
            lines = NAMED["worklist"](Context(self.folder), issuer="bank").facts["worklist"]
        return {line["first"] for line in lines}

    def copy(self) -> Scene:
        """Return the same store once more; of a store on disk."""
        folder = self.folder.with_name(f"{self.folder.name}-copy")
        copy_folder(self.folder, folder)
        return Scene(self.case, folder, Place("directory", str(folder), "store"))

    @contextmanager
    def wired(self, writes: Writes, offset: timedelta) -> Iterator[None]:
        """Let commands work on this store, at a time that is so much later."""
        store = HarmedStore(self.place.open(), writes)
        database = HarmedDatabase(open_database(self.folder), writes)
        writes.offset = offset
        moment: Callable[[], datetime] = lambda: datetime.now(UTC) + writes.offset  # noqa: E731  a clock
        with (
            patch("flows.wiring.open_store", lambda *_: store),
            patch("flows.wiring.open_database", lambda *_: database),
            patch("flows.wiring.now", moment),
            served(self.folder),
        ):
            yield

    def remove(self) -> None:
        """Free the room that the scene takes."""
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let the first SIGINT interrupt a command, and none come after it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGINT, before)


def harm_every_command(
    stage: Stage, kind: str, harms: int, seed: int = 0, names: Iterable[str] = ACTS
) -> Tally:
    """Harm acts at their writes, `harms` times in all, each command in turn, by seed.

    Where processes can be started, each command is first ended once by SIGKILL.
    """
    chance = random.Random(seed)
    tally = Tally(f"every command {kind}")
    order = sorted(names)
    for name in order if stage.born else ():
        quiet = stage.undisturbed(name)
        nth = chance.randint(1, max(1, len(quiet.writes)))
        _harm(stage, name, chance.choice(BY_SIGNAL), nth, tally)
    harms += tally.nights
    while tally.nights < harms:
        chance.shuffle(order)
        for name in order[: harms - tally.nights]:
            quiet = stage.undisturbed(name)
            harm = chance.choice(quiet.harms)
            nth = chance.randint(1, max(1, len(quiet.writes)))
            _harm(stage, name, harm, nth, tally)
    return tally


def _harm(stage: Stage, name: str, harm: Harm, nth: int, tally: Tally) -> None:
    """Harm one write of an act, let its operator go on, and count what is lost; anew where midnight
    came in between, after which other things are due.
    """
    days = stage.business_days()
    quiet = stage.undisturbed(name)
    scene = stage.scene(name)
    ended, misread = _harmed(scene, stage.born, harm, nth)
    twice = harm.startswith("raced") or scene.case.act.adds_records
    where = f"{name} {harm} at write {nth} of {len(quiet.writes)}"
    one = Tally(where)
    one.check(where, lambda: [*misread, *_losses(scene, quiet, twice=twice)])
    scene.remove()
    if stage.business_days() != days:
        _harm(stage, name, harm, nth, tally)
        return
    tally.nights += 1
    tally.done[f"{name} {harm.partition(',')[0].partition(' ')[0]}"] += 1
    tally.ended[type(ended).__name__] += 1
    tally.losses += one.losses


def _harmed(
    scene: Scene, born: Forkserver | None, harm: Harm, nth: int
) -> tuple[object, list[str]]:
    """Harm one write; return what ended the act, and what is misread while listings are behind."""
    writes = Writes(harm, nth)
    if harm in BY_SIGNAL and born:
        ended = scene.killed(born, harm, nth)
    elif harm.startswith("raced"):
        ended = scene.race(writes, LATER if "run out" in harm else timedelta())
    else:
        ended = scene.live(writes)
        if harm in BEHIND:  # somebody comes while listings are behind, and the next night
            scene.live(writes)
            if "reports to finish" in {kind for kind, *_ in scene.facts()["work"]}:
                scene.paste("cardlink ingest bank")
    is_behind = writes.deleted and harm == "deleted late"
    return ended, scene.misread(writes) if is_behind else []


def _losses(scene: Scene, quiet: Quiet, *, twice: bool) -> list[str]:
    """Name what is lost after a harm, once the operator has gone on."""
    found = _unsaid(scene, quiet)
    rehearsed = scene.rehearsed()
    done = scene.live(Writes(), LATER)
    if isinstance(rehearsed, CardlinkError) and isinstance(done, Result):
        found.append(f"its dry run is refused, and it is done: {rehearsed}")
    repeated = quiet.seen(scene)
    if _is_unsure(scene.case.act, repeated):
        return [*found, *_requested_twice(quiet, repeated)]
    lost = differences(quiet.after, repeated, twice=twice)
    found += [f"after the repetition: {loss}" for loss in lost]
    if found:
        return found
    for line in _printed(done):
        scene.paste(line)
    then = quiet.seen(scene)
    if differences(quiet.after, then, twice=twice):
        lost = differences(quiet.then, then, twice=twice)
        found += [f"after what it says next: {loss}" for loss in lost]
    return found


def _is_unsure(act: Act, facts: Facts) -> bool:
    """Return whether the worklist asks a person what became of a request."""
    return act.unsure in {kind for kind, *_ in facts["work"]}


def _requested_twice(quiet: Quiet, facts: Facts) -> list[str]:
    """Name whom more links were requested for than in quiet."""
    more: Counter[str] = Counter(facts["requested"]) - Counter(quiet.after["requested"])
    return [f"a link was requested again for {cuid}" for cuid in more]


def _unsaid(scene: Scene, quiet: Quiet) -> list[str]:
    """Name what was begun, has not ended and is not on the worklist."""
    if scene.case.act.must_be_repeated:
        return []
    facts = scene.facts()
    listed = Counter(kind for kind, *_ in facts["work"])
    begun = [state for _, (state, *_) in facts["runs"] if state == "not committed"]
    expected = [state for _, (state, *_) in quiet.after["runs"] if state == "not committed"]
    lines = sum(listed[kind] for kind in NEW_WORK)
    if len(begun) - len(expected) > lines:
        return [f"{len(begun)} runs are begun, and {lines} are on the worklist"]
    found = [finding for finding in facts["findings"] if finding not in quiet.findings]
    if scene.case.act.half_done in listed:
        found = []
    return [f"in between: {finding}" for finding in [*found, *_refused_steps(scene, quiet)]]


def _refused_steps(scene: Scene, quiet: Quiet) -> Iterator[str]:
    """Yield which first steps are new on the worklist and are refused, each tried on a copy."""
    if scene.place.kind != "directory":
        return
    for line in sorted(scene.first_steps() - quiet.firsts):
        copy = scene.copy()
        refusal = copy.paste(line)
        copy.remove()
        if refusal:
            yield f"{line}: {refusal}"


def _printed(done: object) -> list[str]:
    """Return the steps that a command has printed at its end, as lines."""
    if isinstance(done, Result):
        return [str(done.next_step)] if done.next_step else []
    return list(map(str, done.text.steps)) if isinstance(done, CardlinkError) else []
