"""Race acts of one store with each other, one away for an hour at one of its writes: once the
operator has gone on, what is derived says the same as what is derived from scratch.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

from flows.wiring import wire
from tests.night import Bench, forget_results
from tests.stores import CleanableStore
from tests.test_dry_runs import HEAD, WHY, bank, facts_of, with_rows
from tests.torture.acts import Act
from tests.torture.every_command import LATER, Case, Scene, Stage
from tests.torture.harmed_store import Writes
from tests.torture.standing_facts import RUN, Facts, differences
from tests.torture.tally import Tally

MUTE = ",,,,[object Object]\n"  # a row of a result that says nothing of whom it is about
ANSWERS = ("https://links.example.com/{},2030-01-01,\n", ",,unknown city\n")
DERIVED = re.compile(r"bank/book/|bank/runs/[^/]+/(report/|book\.parquet)")
LISTS = re.compile(r"/report/(links|errors|awaiting|rejects|breaks)\.csv$")
TO_DO = {"result files to ingest", "reports to finish"}


def race_each_other(stage: Stage, kind: str, races: int, seed: int = 0) -> Tally:
    """Race two of the acts, drawn by seed, so many times."""
    chance = random.Random(seed)
    tally = Tally(f"crossed {kind}")
    cases = _cases(stage.folder / "crossed")
    stage.cases |= cases
    writes = {name: _writes(stage.scene(name)) for name in sorted(cases)}
    for _ in range(races):
        first, second = chance.sample(sorted(cases), 2)
        nth = chance.choice(writes[first])
        scene = stage.scene(first)
        other = Scene(cases[second], scene.folder, scene.place)
        where = f"{first}, with {second} at write {nth}"
        tally.check(where, lambda: _losses(scene, other, nth))  # noqa: B023  called at once
        scene.remove()
        tally.nights += 1
        tally.done[first] += 1
    return tally


def _cases(folder: Path) -> dict[str, Case]:
    """Prepare a store on which each of these acts can be done."""
    folder.mkdir()
    run = _answered(bank(folder), folder)
    errors = {"issuer": "bank", "result": "a.csv"}
    acts: dict[str, tuple[str, Facts]] = {
        "attribute": ("mend attribute", {**errors, "row": 4, "to": f"{run}:1", **WHY}),
        "attribute another": ("mend attribute", {**errors, "row": 5, "to": f"{run}:3", **WHY}),
        "attribute to the same": ("mend attribute", {**errors, "row": 5, "to": f"{run}:1", **WHY}),
        "withdraw": ("mend withdraw", {"issuer": "bank", "result": "b.csv", "row": 3, **WHY}),
        "ingest again": ("mend ingest-again", {"issuer": "bank", "result": "b.csv", **WHY}),
        "close": (
            "mend close",
            {"run": run, "break_name": "UNATTRIBUTED_ERROR", "rows": "1", **WHY},
        ),
        "give up": ("mend give-up", {"run": run, "row": (9,), **WHY}),
        "resubmit": ("resubmit", with_rows(folder, "resubmit", run=run, errors=True, **WHY)),
        "erase": ("person erase", {"target": run, "row": 6, **WHY}),
        "ingest": ("ingest", {"issuer": "bank"}),
        "reconcile": ("reconcile", {"issuer": "bank"}),
        "deliver": ("deliver", {"issuer": "bank"}),
    }
    return {
        name: Case(Act(command, lambda _: {}), folder, arguments)
        for name, (command, arguments) in acts.items()
    }


def _answered(bench: Bench, folder: Path) -> str:
    """Answer two chunks of a run, in part by errors that name nobody, of which one is attributed;
    drop the result of the third. Return the run.
    """
    run = bench.submit(bench.drop(25)).manifest.run
    sent = {row["row"]: row for row in bench.ledger(run).rows(named=True) if row["chunk"]}

    def drop(name: str, *rows: int, refused: tuple[int, ...] = (), mute: int = 0) -> None:
        lines = [
            f"{sent[row]['cuid']},{sent[row]['last_4']}," + ANSWERS[row in refused].format(row)
            for row in (*rows, *refused)
            if row in sent
        ]
        bench.drop_result("".join([HEAD, *lines, MUTE * mute]).encode(), name)

    drop("a.csv", 4, 5, 6, mute=2)
    drop("b.csv", 7, 8, mute=1)
    drop(f"card-links-{run}-00002-result.csv", 11, 12, 13, refused=(14, 15))
    bench.ingest()
    given = {"issuer": "bank", "result": "b.csv", "row": 3, "to": f"{run}:2"}
    facts_of(folder, "mend attribute", **given, **WHY)
    drop(f"card-links-{run}-00003-result.csv", *range(21, 26), mute=1)
    return run


def _writes(scene: Scene) -> list[int]:
    """Return the numbers of the writes of an act in quiet."""
    writes = Writes()
    scene.live(writes)
    scene.remove()
    return list(range(1, len(writes.keys) + 1))


def _losses(scene: Scene, other: Scene, nth: int) -> list[str]:
    """Name what is lost once another act is done at a write of this one."""
    scene.race(Writes("raced", nth), LATER, other)
    between = _seen(scene)
    scene.paste("cardlink ingest bank")
    then = _seen(scene)
    _remove(scene.place.open(), DERIVED.match)
    forget_results(wire(scene.folder, "bank").adapters.database)
    scene.paste("cardlink ingest bank")
    found = [f"found: {finding}" for finding in [*between["findings"], *then["findings"]]]
    truth = {**_seen(scene), "findings": then["findings"]}
    found += [f"not as from scratch: {difference}" for difference in differences(truth, then)]
    if TO_DO.isdisjoint(kind for kind, *_ in between["work"]):
        found += [f"without a line of work: {each}" for each in differences(then, between)]
    return found


def _seen(scene: Scene) -> Facts:
    """Return what people read of a store."""
    facts = scene.facts()
    lists = dict[str, list[str]]()
    store = scene.place.open()
    for entry in store.keys("bank/runs/"):
        if LISTS.search(entry.key):
            with store.open(entry.key) as source:
                lists[RUN.sub("RUN", entry.key)] = sorted(source.read().decode().splitlines())
    names = ("cards", "work", "outbox", "findings")
    return {name: facts[name] for name in names} | lists


def _remove(store: CleanableStore, is_derived: Callable[[str], object]) -> None:
    for entry in list(store.keys("bank/")):
        if is_derived(entry.key):
            store.delete(entry.key)
