"""One issuer of a life: what it delivers and is delivered, its portal, and its runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, NamedTuple

from flows.runs.keys import extracts, results
from flows.runs.store import read
from flows.runs.stored_runs import StoredRuns
from schemas.manifest import Manifest
from tests.lives.census import Census
from tests.lives.command_line import Output
from tests.lives.deliveries import Deliverer, Drop
from tests.lives.findings import Findings
from tests.lives.place import Place
from tests.lives.portal import Letter, Portal
from tests.lives.profile import Profile
from tests.lives.town import Town

WorkLine = dict[str, Any]  # of a worklist


class Run(NamedTuple):
    """One committed run, when it was, until when its store knew answers then, and what its submit
    printed, where it lived to print it.
    """

    moment: datetime
    manifest: Manifest
    known: datetime
    output: str = ""


@dataclass
class Bank:
    """One issuer, and everything that was dropped, committed and delivered."""

    place: Place
    profile: Profile
    town: Town
    portal: Portal
    deliverer: Deliverer
    # by SHA-256, as they first came, without their content
    drops: dict[str, Drop] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)  # SHA-256 of the last file of a name
    kinds: Counter[str] = field(default_factory=Counter)  # of files
    keys: set[str] = field(default_factory=set)  # of extracts and results: not ours to delete
    runs: dict[str, Run] = field(default_factory=dict)
    # until when its store knows answers, where it was put back and none was ingested since
    behind: datetime | None = None
    dismissed: set[str] = field(default_factory=set)  # SHA-256 of files
    # what the receiving side has, by URL
    delivered: dict[str, dict[str, str]] = field(default_factory=dict)
    left: list[WorkLine] = field(default_factory=list)  # of the last worklist
    last_submit: Output | None = None  # after the last night
    is_over: bool = False  # the last night is: the issuer has said that no file is due any more
    gone: set[str] = field(default_factory=set)  # runs whose ledger is purged
    purged: list[dict[str, Any]] = field(default_factory=list)  # lots
    census: Census = field(default_factory=Census)
    # what was wrong on a day, and with what was purged before it was
    witnessed: Findings = field(default_factory=Findings)

    @property
    def name(self) -> str:
        """The issuer's name."""
        return self.town.feed.issuer

    @property
    def stored(self) -> StoredRuns:
        """Its runs as they are stored now."""
        return StoredRuns(self.place.adapters, self.name)

    @property
    def last_day(self) -> date:
        """The day of the last file."""
        return max(drop.day for drop in self.drops.values())

    def drop(self, drop: Drop) -> None:
        """Drop an extract."""
        key = extracts(self.name) + drop.name
        self.place.store.replace(key, [drop.content])
        self.keys.add(key)
        self.kinds[drop.kind] += 1
        self.names[drop.name] = drop.sha256
        self.drops.setdefault(drop.sha256, drop._replace(content=b""))

    def bring(self, letter: Letter) -> None:
        """Drop a result file that was downloaded."""
        key = results(self.name) + letter.name
        self.place.store.replace(key, [letter.content])
        self.keys.add(key)

    def take_away(self, result: str) -> None:
        """Take a result file away that fits nothing."""
        key = results(self.name) + result
        self.place.store.delete(key)
        self.keys.remove(key)

    def fill_in(self, template: list[dict[str, str]]) -> bool:
        """Fill in what the issuer knows by now; False where it is nothing."""
        for row in template:
            row["correction"] = (
                self.town.correct(row["cuid"].removeprefix("'"), row["column"]) or ""
            )
        return any(row["correction"] for row in template)

    def note_runs(self, output: str = "") -> None:
        """Note the runs that were committed since the last time, and what their submit printed."""
        for manifest in self.stored.manifests(apart=self.runs.keys()):
            printed = f"{manifest.run}: {manifest.counts.read:,} read" in output
            text = output if printed else ""
            now = self.place.clock.now()
            self.runs[manifest.run] = Run(now, manifest, self.behind or now, text)

    def content(self, key: str) -> bytes:
        """Return what is stored under a key."""
        return read(self.place.store, key)

    def kept_runs(self) -> Iterator[Run]:
        """Yield the runs whose ledger is there."""
        return (run for name, run in self.runs.items() if name not in self.gone)
