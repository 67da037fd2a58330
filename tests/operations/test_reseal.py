"""Chunks sealed anew for a rotated key: the same rows in the same chunks, and of the old ciphertext
nothing is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from io import BytesIO
from pathlib import Path

import polars as pl
import pytest

from flows.adapters.gpg_opener import GpgOpener
from flows.adapters.local import LocalStore
from flows.operations.audit import verify
from flows.operations.history import history
from flows.operations.reread import RowsDifferError
from flows.operations.reseal import Resealed, reseal
from flows.resend.resubmission import Request
from flows.resend.resubmission_run import resubmit
from flows.resend.selected_run import SourceGoneError
from flows.resend.selection import RowSelection
from flows.resend.template import correction_template
from flows.runs.adapters import NoReasonError
from flows.runs.errors import NotFoundError, UnknownRunError
from flows.runs.identity import digest
from flows.runs.keys import keys_of
from flows.runs.outbox import ChunkStateError, fetch, move
from flows.runs.store import Entry, StoreDeniedError
from flows.submissions.plan import SettingsChangedError
from schemas.portal import CITY, CUID
from tests import keys
from tests.again import correct, of_rows
from tests.builders import portal_rows, quick
from tests.night import Bench, issuer, local_bench, made_once, portal_csv
from tests.planted import set_run
from tests.storms import FailingStore

WHY = "the portal has a new key"
OLD, NEW = keys.sound(), keys.sound(copy=2)
KEY = {"fingerprints": [NEW.fingerprint]}


class KilledError(BaseException):
    """Stands for a kill: nothing catches it."""


@pytest.fixture
def night(tmp_path: Path) -> tuple[Bench, str]:
    """A bench whose portal has a new key, and a run of three chunks sealed to the old one."""
    bench, run = sealed(tmp_path)
    return rotated(bench), run


@made_once
def sealed(folder: Path) -> tuple[Bench, str]:
    bench = local_bench(folder, portal={"rows_per_chunk": 20})
    return bench, bench.submit(bench.drop(55, bad=0.1, seed=3)).manifest.run


def rotated(bench: Bench, **portal: object) -> Bench:
    fresh = issuer(portal={"rows_per_chunk": 20, "fingerprints": [NEW.fingerprint], **portal})
    return replace(bench, issuer=fresh, key=NEW)


def cleaner(bench: Bench) -> LocalStore:
    assert isinstance(bench.store, LocalStore)
    return bench.store


def without_extract(bench: Bench) -> Bench:
    cleaner(bench).delete("bank/extracts/bank-20261120.csv")
    return bench


def again(bench: Bench, run: str, *numbers: int, dry_run: bool = False) -> Resealed:
    return reseal(bench.context, cleaner(bench), run, numbers, WHY, dry_run=dry_run)


def opened(bench: Bench, run: str) -> list[bytes]:
    """Return the plain CSV of every chunk that is given out for upload."""
    sealed: dict[str, bytes] = {}
    fetch(bench.context.adapters, run, sealed.__setitem__)
    sealed.pop("SHA256SUMS")
    with GpgOpener([bench.key.secret]) as opener:
        return [opener.open(data, 1 << 24) for _, data in sorted(sealed.items())]


def test_what_is_given_out_afterwards_are_the_same_rows_for_the_new_key(
    night: tuple[Bench, str],
) -> None:
    bench, run = night
    before = replace(bench, key=OLD).chunks(run)

    done = again(bench, run)

    assert done == Resealed((1, 2, 3), (NEW.fingerprint,), retired=3, left=0)
    assert opened(bench, run) == before
    assert bench.chunks(run) == before


def test_names_numbers_and_the_manifest_stay_and_the_old_objects_are_gone(
    night: tuple[Bench, str],
) -> None:
    bench, run = night
    there, manifest = bench.stored(run).outbox, bench.manifest(run)

    again(bench, run)

    now = bench.stored(run).outbox
    assert bench.manifest(run) == manifest
    assert [(one.chunk.number, one.chunk.name, one.chunk.rows, one.state) for one in now] == [
        (one.chunk.number, one.chunk.name, one.chunk.rows, one.state) for one in there
    ]
    assert {one.chunk.sha256 for one in now}.isdisjoint(one.chunk.sha256 for one in there)
    assert [key for key in bench.snapshot() if key.startswith(keys_of(run).chunks)] == []


@pytest.mark.slow
def test_the_night_goes_on_as_if_nothing_had_been(night: tuple[Bench, str]) -> None:
    bench, run = night
    again(bench, run)

    bench.answer(fail_share=0.2, seed=1)
    report = bench.ingest().reports[0]

    listed = pl.read_csv(bench.report(run, "chunks.csv"))["sha256"].to_list()
    assert report.summary["verdict"] == "balanced"
    assert listed == [one.chunk.sha256 for one in bench.stored(run).outbox]


def test_only_waiting_and_held_chunks_are_sealed_anew(night: tuple[Bench, str]) -> None:
    bench, run = night
    move(bench.context.adapters, run, "uploaded", [1])
    move(bench.context.adapters, run, "held", [2], "to be looked at")

    done = again(bench, run)

    assert done.chunks == (2, 3)
    with pytest.raises(ChunkStateError, match="is uploaded"):
        again(bench, run, 1)


def test_a_chunk_that_is_named_is_sealed_anew_even_to_the_same_key(
    night: tuple[Bench, str],
) -> None:
    bench, run = night
    again(bench, run)
    before = {one.chunk.number: one.chunk.sha256 for one in bench.stored(run).outbox}

    done = [again(bench, run), again(bench, run, 2)]

    now = {one.chunk.number: one.chunk.sha256 for one in bench.stored(run).outbox}
    assert [(one.chunks, one.retired) for one in done] == [((), 0), ((2,), 1)]
    assert [number for number in now if now[number] != before[number]] == [2]


def test_a_dry_run_reads_every_row_and_writes_nothing(night: tuple[Bench, str]) -> None:
    bench, run = night
    before = bench.snapshot()

    done = again(bench, run, dry_run=True)

    assert done == Resealed((1, 2, 3), (NEW.fingerprint,), retired=3)
    assert bench.snapshot() == before


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("prepare", "error"),
    [
        (
            lambda bench, run: replace(bench, issuer=rotated(bench, rows_per_chunk=10).issuer),
            SettingsChangedError,
        ),
        (lambda bench, run: without_extract(bench), SourceGoneError),
        (lambda bench, run: bench.drop(55, seed=4) and bench, SourceGoneError),
        (
            lambda bench, run: move(bench.context.adapters, run, "cancelled", [2], WHY) and bench,
            ChunkStateError,
        ),
    ],
)
def test_what_cannot_be_made_again_is_refused_and_nothing_is_published(
    night: tuple[Bench, str],
    prepare: Callable[[Bench, str], Bench],
    error: type[Exception],
    dry_run: bool,
) -> None:
    bench, run = night
    bench = prepare(bench, run)
    before = bench.snapshot()

    with pytest.raises(error):
        again(bench, run, 2, dry_run=dry_run)

    assert bench.snapshot() == before


@pytest.mark.parametrize("dry_run", [True, False])
def test_rows_that_come_out_otherwise_are_refused_before_anything_is_published(
    night: tuple[Bench, str], dry_run: bool
) -> None:
    bench, run = night
    rewrite_ledger(
        bench,
        run,
        pl.when(pl.col("row") % 9 == 0).then(pl.lit("other")).otherwise("cuid").alias("cuid"),
    )
    before = bench.snapshot()

    with pytest.raises(RowsDifferError, match="not those of the ledger"):
        again(bench, run, dry_run=dry_run)

    assert bench.snapshot() == before


def test_a_form_of_the_message_may_change_with_the_key(night: tuple[Bench, str]) -> None:
    bench, run = night
    before = replace(bench, key=OLD).chunks(run)
    armored = rotated(bench, armor=True)

    again(armored, run)

    assert armored.chunks(run) == before


@pytest.mark.parametrize(
    ("operation", "part"),
    quick(1, [("create", "/sealed/1/"), ("delete", "")]),
)
def test_killed_anywhere_the_same_command_finishes_and_leaves_one_ciphertext(
    night: tuple[Bench, str], operation: str, part: str
) -> None:
    bench, run = night
    before = replace(bench, key=OLD).chunks(run)

    def kill(what: str, key: str) -> Exception | None:
        if what == operation and part in key and not key.endswith("00001.csv.pgp"):
            raise KilledError
        return None

    dying = Dying(bench.store, kill)
    with pytest.raises(KilledError):
        reseal(replace(bench, store=dying).context, dying, run, (), WHY)

    again(bench, run)

    held = [key for key in bench.snapshot() if key.endswith(".pgp")]
    assert bench.chunks(run) == before
    assert len(held) == 3


def test_who_may_not_delete_leaves_the_old_objects_and_hears_of_it(
    night: tuple[Bench, str],
) -> None:
    bench, run = night
    barred = Dying(
        bench.store,
        lambda what, key: StoreDeniedError(place=key, code="403") if what == "delete" else None,
    )

    done = reseal(bench.context, barred, run, (), WHY)
    finished = again(bench, run)

    assert (done.chunks, done.retired, done.left) == ((1, 2, 3), 0, 3)
    assert (finished.chunks, finished.retired, finished.left) == ((), 3, 0)


@pytest.mark.slow
def test_rows_of_a_resubmission_with_corrections_are_sealed_anew_as_they_were_corrected(
    tmp_path: Path,
) -> None:
    bench, first = of_rows(tmp_path, {}, {CITY: None}, {CITY: None})
    blank = pl.concat(correction_template(bench.context, first))
    filled = blank.with_columns(correction=pl.when(pl.col("row") == 2).then(pl.lit("Salem")))
    name = correct(bench, filled.write_csv().encode())
    run = resubmit(
        bench.context, Request(first, RowSelection(), "corrected", corrections=name)
    ).manifest.run
    before = bench.chunks(run)
    new = replace(
        bench, issuer=issuer(limits=bench.issuer.limits.model_dump(), portal=KEY), key=NEW
    )

    again(new, run)

    assert b"Salem" in before[0]
    assert new.chunks(run) == before


def test_the_history_tells_what_was_sealed_anew_and_what_was_retired(
    night: tuple[Bench, str],
) -> None:
    bench, run = night

    again(bench, run)

    told = {one.what: one for one in history(bench.adapters, run)}
    assert told["sealed anew"].facts["sealed to"] == [NEW.fingerprint]
    assert told["sealed anew"].facts["reason"] == WHY
    assert told["retired"].facts["chunks"] == [
        f"chunks/{run}-{number:05d}.csv.pgp" for number in (1, 2, 3)
    ]
    assert not verify(bench.adapters, bench.issuer.issuer).findings


@pytest.mark.parametrize("dry_run", [True, False])
def test_what_is_not_there_is_not_sealed_anew(night: tuple[Bench, str], dry_run: bool) -> None:
    bench, run = night

    with pytest.raises(NotFoundError):
        again(bench, run, 4, dry_run=dry_run)
    with pytest.raises(UnknownRunError):
        again(bench, "bank-20261120-00000000", dry_run=dry_run)
    with pytest.raises(NoReasonError):
        reseal(bench.context, cleaner(bench), run, (), "", dry_run=dry_run)


@pytest.mark.slow
def test_rows_that_repeat_a_cuid_stand_in_the_chunks_they_stood_in(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, portal={"rows_per_chunk": 20})
    names = ("Ada", "Bea", "Cora", "Dora", "Eva")
    same_cuid = [
        {CUID: f"c-{at % 3}", "service_card.address.first_name": names[at % 5]} for at in range(9)
    ]
    run = bench.submit(bench.drop_bytes(portal_csv(portal_rows(*same_cuid)))).manifest.run
    before = bench.chunks(run)

    again(rotated(bench), run)

    assert rotated(bench).chunks(run) == before


def rewrite_ledger(bench: Bench, run: str, change: pl.Expr) -> None:
    """Let another version of cardlink have written the ledger of a run."""
    manifest, out = bench.manifest(run), BytesIO()
    bench.ledger(run).with_columns(change).write_parquet(out)
    [part] = manifest.ledger
    parts = (part.model_copy(update={"sha256": digest(out.getvalue())}),)
    bench.store.replace(keys_of(run).ledger + part.name, [out.getvalue()])
    rewritten = manifest.model_copy(update={"ledger": parts})
    set_run(bench.adapters, run, manifest=rewritten.model_dump(mode="json"))


@dataclass
class Dying(FailingStore):
    """A store that may also delete, and fails at it where `trouble` says so."""

    def delete(self, key: str) -> None:
        self._fail("delete", key)
        self._local.delete(key)

    def leftovers(self, prefix: str, before: datetime) -> list[Entry]:
        return self._local.leftovers(prefix, before)

    def discard(self, leftover: Entry) -> None:
        self._local.discard(leftover)

    def hides(self) -> bool | None:
        return self._local.hides()

    @property
    def _local(self) -> LocalStore:
        assert isinstance(self.store, LocalStore)
        return self.store
