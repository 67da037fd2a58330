"""What a store comes to, without what each process makes anew: times, numbers of entries, sealing.

Two stores come to the same where all of it is equal: what was sent and what is to be uploaded,
where each cardholder stands, what happened, what was decided, what is to be done, and that the
audit trail is whole.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from flows.book.book import read_book
from flows.commands.context import Context
from flows.runs.business_date import local_day
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.submissions.begun import LEFT, OVERTAKEN
from flows.wiring import wire
from tests.torture.acts import NAMED
from tests.torture.partner import requested

Facts = dict[str, Any]
# each process makes them anew, or they are derived, or about the work and not what came of it
PASSING = re.compile(
    r"bank/(journal|identified)/"
    r"|bank/runs/[^/]+/(chunks|selection|ledger)"
    r"|/report/held|bank/acknowledgements/\d{6}/"
)
NUMBER = re.compile(r"(?<=/)\d+(?=[./])")
HEX = re.compile(r"[0-9a-f]{12,}")
RUN = re.compile(r"bank-\d{8}-[0-9a-f]{8}(-r\d+)?")
TIME = re.compile(r"\d{8}T\d+")
STANDING = ["cuid", "last_4", "standing", "reason"]
# that a command was refused or interrupted before, and that a run was begun and left
ON_THE_WAY = {"refused", "replaced", "taken over"}


def facts_of_store(folder: Path) -> Facts:
    """Return what the store of a folder's issuer comes to."""
    context = wire(folder, "bank")
    store = context.adapters.store
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    runs = [run for run in StoredRuns(context.adapters, "bank") if not _is_left(run.status.why)]
    cards = read_book(context.adapters, "bank").cards(today).select(STANDING)
    return {
        "runs": sorted((str(run.keys.run.day), run.status[1:]) for run in runs),
        "outbox": sorted(
            (item.chunk.rows, item.state) for run in runs if run.manifest for item in run.outbox
        ),
        "cards": sorted(map(str, cards.rows())),
        "events": sorted({kind for run in runs for kind in _kinds(run)}),
        "objects": Counter(_shape(entry.key) for entry in store.keys("")),
        "work": _work(folder),
        "findings": _findings(folder),
        "requested": requested(folder),
    }


def _is_left(why: str) -> bool:
    return why in (LEFT, OVERTAKEN)


def _kinds(run: StoredRun) -> set[str]:
    return {entry.what for entry in run.history} - ON_THE_WAY


def _shape(key: str) -> str:
    """Return the key of an object without what is different each time; "" for what is passing."""
    if PASSING.search(key):
        return ""
    return TIME.sub("TIME", HEX.sub("DIGEST", NUMBER.sub("N", RUN.sub("RUN", key))))


def _work(folder: Path) -> list[tuple[str, int, str]]:
    lines = NAMED["worklist"](Context(folder), issuer="bank").facts["worklist"]
    return sorted((line["kind"], line["rows"], line["who"]) for line in lines)


def _findings(folder: Path) -> list[str]:
    proof = NAMED["audit verify"](Context(folder), issuer="bank").facts
    return [f"{finding['key']}: {finding['what']}" for finding in proof["findings"]]


def differences(quiet: Facts, harmed: Facts, *, twice: bool = False) -> list[str]:
    """Name what two stores do not have in common.

    `twice`: two processes did it, so that a record may be there of each.
    """
    found: list[str] = []
    for name, expected in quiet.items():
        actual = harmed[name]
        if actual == expected:
            continue
        if isinstance(expected, Counter):
            surplus = Counter({key: n for key, n in actual.items() if not expected[key]})
            different = {**(expected - actual), **(surplus if twice else actual - expected)}
            different.pop("", None)
            found += [f"{name}: {different}"] if different else []
        else:
            only = [part for part in [*expected, *actual] if (part in expected) != (part in actual)]
            found.append(f"{name}: {only[:4] or (len(expected), len(actual))}")
    return found
