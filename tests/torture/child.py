"""What a child process does: one submit or one ingest, on real gpg and a real store, until it is
done or killed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from flows.cli.__main__ import run
from flows.errors import CardlinkError, guarded
from flows.extensions.simulator.portal_key import PortalKey
from flows.runs.sealing import Sealer
from flows.wiring import open_database
from schemas.issuer import Issuer
from tests.night import Bench
from tests.stores import Place
from tests.torture.crash import (
    Boundaries,
    Crash,
    CrashingDatabase,
    CrashingSealer,
    CrashingStore,
)
from tests.torture.harmed_store import HarmedDatabase, HarmedStore, Writes
from tests.torture.partner import served


@dataclass
class CrashingBench(Bench):
    """A bench whose store, database and sealer pass boundaries."""

    boundaries: Boundaries = field(default_factory=Boundaries)

    @contextmanager
    def _sealer(self) -> Iterator[Sealer]:
        with super()._sealer() as sealer:
            yield CrashingSealer(sealer, self.boundaries)


def work(job: dict[str, Any]) -> int:
    """Do a job; leave what it came to, and the boundaries it passed, in its file."""
    boundaries = Boundaries(Crash(*job["crash"]) if job["crash"] else None)
    public, secret, fingerprint = job["key"]
    place = Place(*job["place"])
    bench = CrashingBench(
        CrashingStore(place.open(), boundaries),
        Issuer.model_validate(job["issuer"]),
        lambda: datetime.fromisoformat(job["now"]),
        PortalKey(public.encode(), secret.encode(), fingerprint),
        job["actor"],
        database=CrashingDatabase(place.database(), boundaries),
        boundaries=boundaries,
    )
    try:
        told = guarded(_do)(bench, job)
    except CardlinkError as error:
        told = type(error).__name__
    Path(job["answer"]).write_text(json.dumps({"told": told, "passed": boundaries.passed}))
    return 0


def _do(bench: Bench, job: dict[str, Any]) -> str:
    if job["do"] == "ingest":
        bench.ingest()
        return "ingested"
    return "already" if bench.submit(job["extract"]).already else "committed"


def killed(job: dict[str, Any]) -> int:
    """Be the command line until the write at which SIGKILL ends it."""
    sys.argv = ["cardlink", *job["argv"]]
    writes = Writes(*job["harm"])
    place = Place(*job["place"])
    store = HarmedStore(place.open(), writes)
    database = HarmedDatabase(open_database(Path(job["folder"])), writes)
    with (
        patch("flows.wiring.open_store", lambda *_: store),
        patch("flows.wiring.open_database", lambda *_: database),
        served(Path(job["folder"])),
    ):
        run()
    return 0


def command(job: dict[str, Any]) -> int:
    """Be the command line on a store and a database that pass boundaries; leave what it printed in
    files.
    """
    folder = Path(job["folder"])
    os.chdir(folder)
    sys.argv = ["cardlink", *job["argv"]]
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115  until the end
    boundaries = Boundaries(Crash(*job["crash"]) if job["crash"] else None)
    place = Place(*job["place"])
    store = CrashingStore(place.open(), boundaries)
    database = CrashingDatabase(place.database(), boundaries)
    code: Any = 1
    try:
        with (
            patch("flows.wiring.open_store", lambda *_: store),
            patch("flows.wiring.open_database", lambda *_: database),
        ):
            run()
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    sys.stderr.flush()
    (folder / "passed.json").write_text(json.dumps(boundaries.passed))
    return int(code or 0)
