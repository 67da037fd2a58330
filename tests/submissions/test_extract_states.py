"""What is pending goes by name and content: what was done stays done, wherever the store was copied
to.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from flows.adapters.local import LocalStore
from flows.adapters.s3 import S3Store
from flows.errors import CardlinkError
from flows.operations.remediation import abandon
from flows.runs.keys import extracts, identified
from flows.runs.store import Entry, Source
from flows.submissions.extract_states import extract_states, extracts_to_submit
from flows.submissions.gates import RejectRateError
from flows.submissions.plan import DuplicateExtractError
from tests import keys, servers
from tests.extensions.partner_api.town import town
from tests.night import BANK, DAY, Bench, issuer, local_bench, submitted
from tests.storms import FailingStore

NAMES = ("bank-20261118.csv", "bank-20261119.csv", "bank-20261120.csv")


@dataclass
class Reading(FailingStore):
    """Counts what is read of extracts."""

    read: list[str] = field(default_factory=list)

    def open(self, key: str, pin: Entry | None = None) -> Source:
        self.read += [key] if "/extracts/" in key else []
        return super().open(key, pin)


def waiting(bench: Bench) -> list[str]:
    return [entry.key.rpartition("/")[2] for entry in extracts_to_submit(bench.context)]


def states(bench: Bench) -> dict[str, str]:
    return {one.key.rpartition("/")[2]: one.state for one in extract_states(bench.context)}


def three_nights(bench: Bench) -> Bench:
    """Return the bench after three nights, the last of them committed by a gate that was opened,
    one abandoned.
    """
    for at, name in enumerate(NAMES):
        bench.submit(bench.drop(8 + at, name=name, seed=at))
    strict = replace(bench, issuer=issuer(limits={"max_reject_rate": 0.01}))
    with pytest.raises(RejectRateError):
        strict.submit(bench.drop(40, name="bank-20261121.csv", bad=0.3))
    [run] = [str(run) for run in bench.runs.ids if run.day > DAY]
    abandon(bench.context.adapters, run, "too many rejects")
    return bench


def rotated(bench: Bench) -> Bench:
    """Return the bench with another key of the portal."""
    key = keys.sound(copy=2)
    return replace(bench, issuer=issuer(portal={"fingerprints": [key.fingerprint]}), key=key)


def restored_directory(folder: Path) -> Bench:
    bench = three_nights(local_bench(folder))
    shutil.copytree(folder / "store", folder / "restored", copy_function=shutil.copy)
    for path in (folder / "restored").rglob("*.csv"):
        os.utime(path, (1, 1))
    return replace(bench, store=LocalStore(folder / "restored"))


@pytest.mark.slow
def test_a_directory_restored_from_a_backup_after_a_key_rotation_has_nothing_to_do(
    tmp_path: Path,
) -> None:
    restored = rotated(restored_directory(tmp_path))

    again = [restored.submit(name) for name in NAMES]

    assert [] == waiting(restored)
    assert [True] * 3 == [one.already for one in again]
    assert [("changed since that run: portal.fingerprints",)] * 3 == [one.remarks for one in again]
    assert 3 == len(list(restored.runs.manifests()))


@pytest.mark.slow
def test_a_bucket_copied_to_another_after_a_key_rotation_has_nothing_to_do(
    moto_server: servers.S3Server,
) -> None:
    store, client = servers.store(moto_server, "copied"), servers.client(moto_server.endpoint)
    bench = three_nights(Bench(store, issuer()))
    client.create_bucket(Bucket="restored")
    # in parts, as large objects are copied: their ETags are others
    for entry in list(store.keys("")):
        target = {"Bucket": "restored", "Key": f"copied/{entry.key}"}
        upload = client.create_multipart_upload(**target)["UploadId"]
        part = {"PartNumber": 1}
        part["ETag"] = client.upload_part(
            **target, UploadId=upload, PartNumber=1, Body=bench.content(entry.key)
        )["ETag"]
        client.complete_multipart_upload(
            **target, UploadId=upload, MultipartUpload={"Parts": [part]}
        )
    restored = rotated(replace(bench, store=S3Store("restored", "copied", client)))

    again = [restored.submit(name) for name in NAMES]

    assert {entry.version for entry in store.keys("")}.isdisjoint(
        entry.version for entry in restored.store.keys("")
    )
    assert [] == waiting(restored)
    assert [True] * 3 == [one.already for one in again]


@pytest.mark.slow
def test_what_was_read_once_to_be_recognised_is_remembered_and_a_dry_look_writes_nothing(
    tmp_path: Path,
) -> None:
    restored = restored_directory(tmp_path)
    counting = Reading(restored.store, lambda *_: None)
    before = restored.snapshot()

    looks = []
    for remember in (False, True, True):
        extracts_to_submit(replace(restored, store=counting).context, remember=remember)
        looks.append(len(counting.read))
        before |= {} if remember else {"": b"", **restored.snapshot()}

    assert [4, 8, 8] == looks
    assert {"", *restored.snapshot()} - before.keys() == {
        entry.key for entry in restored.store.keys(identified(BANK))
    }


def test_an_ordinary_new_extract_is_not_read_to_know_that_it_is_pending(tmp_path: Path) -> None:
    bench = three_nights(local_bench(tmp_path))
    counting = Reading(bench.store, lambda *_: None)
    fresh = bench.drop(100, name="bank-20261122.csv")

    found = waiting(replace(bench, store=counting))

    assert ([fresh], []) == (found, counting.read)


def test_the_same_bytes_under_a_second_name_stay_pending_and_are_refused_with_what_dismisses_them(
    tmp_path: Path,
) -> None:
    bench, _, manifest = submitted(tmp_path, 10)
    run = manifest.run
    copy = bench.drop(10, name="bank copy.csv")

    with pytest.raises(DuplicateExtractError, match=run) as refused:
        bench.submit(copy)

    assert "`cardlink dismiss bank 'bank copy.csv' --reason \"WHY\"`" in str(refused.value)
    assert [copy] == waiting(bench)
    assert {"bank-20261120.csv": "committed", copy: "repeated"} == states(bench)


@pytest.mark.slow
def test_a_renamed_extract_whose_run_was_never_committed_is_submitted_under_its_new_name(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path, limits={"max_reject_rate": 0.01})
    first = bench.drop(40, bad=0.3)
    with pytest.raises(RejectRateError):
        bench.submit(first)
    folder = tmp_path / "store" / extracts(BANK)
    (folder / first).rename(folder / "renamed.csv")

    done = bench.submit("renamed.csv", opened=["reject-rate"])

    assert "bank/extracts/renamed.csv" == done.manifest.source.key
    assert [] == waiting(bench)


@pytest.mark.slow
def test_two_names_of_the_same_bytes_that_fail_every_night_get_no_run_a_night(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path, limits={"max_reject_rate": 0.01})
    names = [bench.drop(40, bad=0.3, name=name) for name in ("a.csv", "b.csv")]

    for _ in range(3):
        for name in names:
            with pytest.raises(RejectRateError):
                bench.submit(name)

    assert 2 == len(bench.runs.ids)


@pytest.mark.slow
def test_a_corrected_file_of_a_name_that_was_never_committed_passes_without_a_gate(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path, limits={"max_reject_rate": 0.01})
    with pytest.raises(CardlinkError):
        bench.submit(bench.drop(40, bad=0.3))

    done = bench.submit(bench.drop(40, seed=1))

    assert not done.already
    assert {"committed", "replaced"} == {one.state for one in extract_states(bench.context)}


@pytest.mark.slow
@pytest.mark.parametrize("same_name", ["hold", "replace"])
def test_an_unchanged_portfolio_is_a_new_run_on_another_date_and_done_on_its_own(
    tmp_path: Path, same_name: str
) -> None:
    place = town(tmp_path, "a", "b")
    place.bench = replace(
        place.bench, issuer=issuer(full_portfolio=True, source={"same_name": same_name})
    )
    first = place.drop()
    place.day += timedelta(days=1)

    before, second = waiting(place.bench), place.drop()
    after = waiting(place.bench)
    done = place.bench.submit(second)

    assert ([], [second]) == (before, after)
    assert (False, 0) == (done.already, done.manifest.counts.submitted)
    assert {first: "committed", second: "committed"} == states(place.bench)
