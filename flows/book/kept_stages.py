"""What is kept of how far links came: deliveries, placements of each run, transaction reports.

It is kept as the book is (`kept.py`), beside it: `book/stages.json` says what each part was made
from, and a part is believed where that is still what is stored, and it has exactly those bytes. Of
placements only the runs that were checked since are read again: each check marks its run before it
begins and when it has ended (`flows/runs/placements.py`). Of a check that has not ended nothing is
believed.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from io import BytesIO

import polars as pl
from pydantic import BaseModel, ConfigDict, ValidationError

from flows.book.attempts import NO_ATTEMPTS
from flows.book.deliveries import (
    CHANGE,
    NO_DELIVERIES,
    Deliveries,
    KnownDelivery,
    delivered_links,
    read_deliveries,
)
from flows.book.head import CODE, generation
from flows.book.stages import NO_STAGES, Stages, followed_links, reported_ends
from flows.runs.identity import canonical, digest
from flows.runs.keys import book, placements
from flows.runs.placements import check_marks, is_checked, read_placements
from flows.runs.store import Store, read_if_stored
from flows.runs.stored_run import StoredRun
from flows.runs.threads import concurrently
from flows.runs.transactions import reported
from schemas.tables import parquet

_NONE: Mapping[str, str] = {}
_COLUMNS = [
    *("row", "opened", "opened_seen", "authenticated"),
    *("running", "termination_type", "settled", "seen", "moved"),
]


class _Part(BaseModel):
    """What a part was made from (by run for placements), and the SHA-256 of its bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    made_of: dict[str, str] = {}
    sha256: str = ""


class StagesHead(BaseModel):
    """What the kept stages consist of (`stages.json`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    code: str = CODE
    generation: int = 0  # of the book: it is not read any more once that was discarded
    known_deliveries: tuple[KnownDelivery, ...] = ()
    delivered: _Part = _Part()  # the changes of these deliveries
    followed: _Part = _Part()
    reported: _Part = _Part()


class KeptStages:
    """The stages of an issuer's links as they are now, from what is kept and what is new.

    `known_runs`: those that the book has. `attempts_of` returns the attempts of one of them.
    """

    def __init__(
        self,
        store: Store,
        issuer: str,
        known_runs: Iterable[str],
        attempts_of: Callable[[str], pl.DataFrame],
    ) -> None:
        self._store = store
        self._issuer = issuer
        self._runs = set(known_runs)
        self._attempts_of = attempts_of
        self._kept = _read_head(store, issuer)
        self._made: dict[str, tuple[dict[str, str], pl.DataFrame]] = {}
        self._deliveries = self._kept.known_deliveries

    def read(self) -> Stages:
        """Return what is known of links."""
        reports = f"{placements(self._issuer)}reports/"
        delivered = self.deliveries()
        return Stages(
            delivered=delivered_links(delivered.changes),
            followed=self._followed(),
            reported=self._whole("reported", reports, self._reported),
            deliveries=delivered,
        )

    def deliveries(self) -> Deliveries:
        """Return all deliveries of links; only those are read that are not kept as they are."""
        part = self._kept.delivered
        changes = self._believed("delivered", part) if part.sha256 else None
        kept = NO_DELIVERIES
        if changes is not None:
            known = {each.id: each for each in self._kept.known_deliveries}
            kept = Deliveries(known, changes.cast(CHANGE))
        now = read_deliveries(self._store, self._issuer, kept)
        if now is not kept:
            self._deliveries = tuple(now.known.values())
            self._made["delivered"] = {}, now.changes
        return now

    def keep(self) -> None:
        """Write the parts that are others than those that are kept, then the head."""
        self.read()
        if not self._made:
            return
        parts: dict[str, _Part] = {}
        for name, (made_of, frame) in self._made.items():
            content = parquet(frame, compression="zstd", compression_level=1)
            self._store.replace(_key(self._issuer, name), [content])
            parts[name] = _Part(made_of=made_of, sha256=digest(content))
        head = self._kept.model_copy(update={**parts, "known_deliveries": self._deliveries})
        self._store.replace(stages_key(self._issuer), [canonical(head)])

    def _whole(self, name: str, prefix: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """Return a part that is made of everything below a prefix, as it is kept or made anew."""
        listed = [f"{entry.key} {entry.size} {entry.version}" for entry in self._store.keys(prefix)]
        if not listed:
            empty: pl.DataFrame = getattr(NO_STAGES, name)
            return empty
        made_of = {"": digest("\n".join(listed).encode())}
        part: _Part = getattr(self._kept, name)
        kept = self._believed(name, part) if part.made_of == made_of else None
        if kept is not None:
            return kept
        frame = make()
        self._made[name] = made_of, frame
        return frame

    def _believed(self, name: str, part: _Part) -> pl.DataFrame | None:
        """Return a part as it is kept; None where that is not what the head names."""
        content = read_if_stored(self._store, _key(self._issuer, name))
        if content is None or digest(content) != part.sha256:
            return None
        return pl.read_parquet(BytesIO(content))

    def _followed(self) -> pl.DataFrame:
        """Return what the service says of links, of the runs that the book has."""
        part = self._kept.followed
        kept = self._believed("followed", part)
        marks = check_marks(self._store, self._issuer)
        now = {run: version for run, version in marks.items() if run in self._runs}
        if kept is None:
            return self._made_of(now, NO_STAGES.followed)
        gone = part.made_of.keys() - self._runs
        changed = {run: version for run, version in now.items() if part.made_of.get(run) != version}
        if not changed and not gone:
            return kept
        stays = ~pl.col("run").is_in([*changed, *gone])
        stayed = {run: version for run, version in part.made_of.items() if run not in gone}
        return self._made_of(changed, kept.filter(stays), stayed)

    def _made_of(
        self, changed: Mapping[str, str], others: pl.DataFrame, made_of: Mapping[str, str] = _NONE
    ) -> pl.DataFrame:
        """Return what the service says of the links of some runs, and of others as it is kept."""
        fresh = concurrently(self._links_of, sorted(changed))
        frame = pl.concat([others, *fresh]).sort("run", "row")
        versions = {
            run: version
            for run, version in changed.items()
            if is_checked(self._store, self._issuer, run)
        }
        stayed = {run: version for run, version in made_of.items() if run not in changed}
        self._made["followed"] = {**stayed, **versions}, frame
        return frame

    def _links_of(self, run_id: str) -> pl.DataFrame:
        run = StoredRun.by_id(self._store, run_id)
        parts = run.committed().ledger
        known = [read_placements(run, part, _COLUMNS) for part in parts]
        return followed_links(pl.concat(known), self._attempts_of(run_id))

    def _reported(self) -> pl.DataFrame:
        return reported_ends(reported(self._store, self._issuer, pl.lit(value=True)))


def known_deliveries(store: Store, issuer: str) -> Deliveries:
    """Return all deliveries of links of an issuer."""
    return KeptStages(store, issuer, (), lambda _: NO_ATTEMPTS).deliveries()


def _read_head(store: Store, issuer: str) -> StagesHead:
    """Return the stored head, an empty one where there is none that can be believed."""
    content = read_if_stored(store, stages_key(issuer))
    current = generation(store, issuer)
    with suppress(ValidationError):
        head = StagesHead.model_validate_json(content or b"")
        if head.code == CODE and head.generation == current:
            return head
    return StagesHead(generation=current)


def stages_key(issuer: str) -> str:
    """Return the key of what the kept stages consist of."""
    return f"{book(issuer)}stages.json"


def _key(issuer: str, part: str) -> str:
    return f"{book(issuer)}{part}.parquet"
