"""How an extract proves itself whole, by the real command: what passes, what waits, what is
refused, and the way on.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from flows.adapters.gpg_sealer import GpgSealer
from flows.adapters.local import LocalStore
from flows.runs.commits import OvertakenError, refuse_overtaken
from flows.runs.sealing import Plain
from flows.runs.stored_runs import StoredRuns
from schemas.portal import columns
from tests import keys
from tests.builders import portal_rows, quick
from tests.night import edges, local_bench, portal_csv
from tests.test_command_line import bank, cardlink, drop

__all__ = ["bank"]  # the fixture

HEAD, ROW, OTHER = portal_csv(portal_rows({}, {"service_card.pan": "5555555555554444"})).splitlines(
    keepends=True
)
GOOD = HEAD + ROW + OTHER
TRAILER = "trailer = '^TRL,([0-9]+),([0-9]+)$'\nhash_total = 'service_card.pan'\n"
TOTAL = (4242424242424242 + 5555555555554444) % 10**12


def source(folder: Path, text: str) -> None:
    """Set [source] of the bank."""
    toml = folder / "bank.toml"
    toml.write_text(toml.read_text().partition("[source]")[0] + f"[source]\n{text}\n")


def beside(folder: Path, ending: str, text: str = "", name: str = "bank-20261120.csv") -> None:
    """Drop a file that belongs to an extract."""
    drop(folder, text.encode(), name + ending)


def tried(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Submit, after a dry run that must end alike; return exit code and facts."""
    dry = cardlink(folder, "--json", "submit", "bank", *arguments, "--dry-run")
    done = cardlink(folder, "--json", "submit", "bank", *arguments)
    assert dry.returncode == done.returncode, dry.stdout
    return done.returncode, json.loads(done.stdout)


def committed(folder: Path) -> list[dict[str, Any]]:
    """Return the manifests of the bank, by run."""
    runs = StoredRuns(edges(LocalStore(folder / "store")), "bank")
    return [manifest.model_dump(mode="json") for manifest in runs.manifests()]


def test_an_extract_without_its_last_newline_is_refused_until_the_settings_say_it_is_written_so(
    bank: Path,
) -> None:
    drop(bank, GOOD[:-1])

    refused = tried(bank)
    source(bank, "final_newline = false")
    passed = tried(bank)

    assert (refused[0], passed[0]) == (2, 0)
    assert "line 3, has no newline" in refused[1]["message"]


def test_a_last_record_with_fewer_fields_is_refused_as_cut(bank: Path) -> None:
    drop(bank, GOOD.rpartition(b",")[0] + b"\n")

    code, facts = tried(bank)

    assert (code, facts["error"]) == (2, "TruncatedError")
    fields = len(columns())
    assert f"line 3, has {fields - 1} instead of {fields} fields" in facts["message"]
    assert committed(bank) == []


@pytest.mark.slow
@pytest.mark.parametrize("share", quick(1, [0.5, 0.1, 0.99]))
def test_a_sealed_extract_that_was_cut_is_refused_as_cut(
    bank: Path, monkeypatch: Any, share: float
) -> None:
    key = keys.sound()
    with GpgSealer(
        [key.public], [key.fingerprint], armor=False, compression="zip", today=date.today()
    ) as sealer:
        message = sealer.seal([Plain("a.csv", GOOD)])[0].data
    monkeypatch.setenv("CARDLINK_PRIVATE_KEY_FILE", str(bank / "secret.asc"))
    drop(bank, message[: int(len(message) * share)])

    cut = tried(bank)
    drop(bank, message)
    whole = tried(bank)

    assert (cut[0], cut[1]["error"], whole[0]) == (2, "TruncatedError", 0)


@pytest.mark.slow
def test_a_hash_total_that_differs_refuses_the_extract_without_showing_it(bank: Path) -> None:
    source(bank, TRAILER)
    drop(bank, GOOD + f"TRL,2,{TOTAL + 1}\n".encode())

    refused = tried(bank)
    drop(bank, GOOD + f"TRL,2,{TOTAL}\n".encode())
    passed = tried(bank)

    assert (refused[0], refused[1]["error"], passed[0]) == (2, "TrailerError", 0)
    assert "2 rows" in refused[1]["message"]
    assert not [
        path
        for path in (bank / "store" / "bank" / "runs").rglob("*")
        if path.is_file() and str(TOTAL).encode() in path.read_bytes()
    ]


def test_an_extract_waits_for_its_checksum_and_must_have_it(bank: Path) -> None:
    source(bank, 'sidecar = "sha256"')
    drop(bank, GOOD)

    waiting, named = tried(bank), tried(bank, "--extract", "bank-20261120.csv")
    beside(bank, ".sha256", f"{hashlib.sha256(GOOD + ROW).hexdigest()}  bank-20261120.csv\n")
    other = tried(bank)
    beside(bank, ".sha256", f"{hashlib.sha256(GOOD).hexdigest()}  bank-20261120.csv\n")
    right, again = tried(bank), tried(bank)

    assert (waiting[0], waiting[1]["runs"], len(waiting[1]["waiting"]), named[0]) == (0, [], 1, 75)
    assert "there is no bank/extracts/bank-20261120.csv.sha256" in named[1]["message"]
    assert (other[0], other[1]["error"]) == (2, "SidecarError")
    assert (right[0], len(right[1]["runs"]), again[1]["runs"]) == (0, 1, [])


@pytest.mark.parametrize(
    ("text", "what"),
    [("count=3", "count is 2, expected 3"), ("bytes=1", f"bytes is {len(GOOD)}, expected 1")],
)
def test_a_ctl_that_says_otherwise_refuses_the_extract_with_what_was_found(
    bank: Path, text: str, what: str
) -> None:
    source(bank, 'sidecar = "ctl"')
    drop(bank, GOOD)
    beside(bank, ".ctl", f"{text}\n")

    refused = tried(bank)
    beside(bank, ".ctl", f"count=2\nbytes={len(GOOD)}\ndate=2026-11-20\n")
    passed = tried(bank)

    assert (refused[0], passed[0]) == (2, 0)
    assert what in refused[1]["message"]


@pytest.mark.slow
def test_an_extract_that_lost_all_its_rows_is_not_an_empty_one(bank: Path) -> None:
    source(bank, 'sidecar = "ctl"')
    drop(bank, HEAD)

    found = []
    for text in ("count=2\n", "count=0\n"):
        beside(bank, ".ctl", text)
        found.append(tried(bank)[1]["error"])

    assert found == ["SidecarError", "EmptyExtractError"]


def test_a_ctl_gives_the_business_date_and_may_not_contradict_another(bank: Path) -> None:
    source(bank, 'sidecar = "ctl"')
    drop(bank, GOOD, "cards.csv")
    beside(bank, ".ctl", "date=2026-11-19\n", "cards.csv")
    drop(bank, GOOD, "bank-20261120.csv")
    beside(bank, ".ctl", "date=2026-11-19\n")

    asked = tried(bank, "--extract", "cards.csv", "--date", "2026-11-20")
    named = tried(bank, "--extract", "bank-20261120.csv")
    passed = tried(bank, "--extract", "cards.csv")

    assert (asked[0], named[0], passed[0]) == (2, 2, 0)
    assert "date is 2026-11-20, expected 2026-11-19" in named[1]["message"]
    assert ["2026-11-19"] == [one["as_of"] for one in committed(bank)]


@pytest.mark.slow
def test_an_extract_waits_for_its_marker_and_for_its_age(bank: Path) -> None:
    source(bank, 'done_marker = ".done"\nmin_age_minutes = 5')
    drop(bank, GOOD)

    codes = [tried(bank, "--extract", "bank-20261120.csv")[0]]
    beside(bank, ".done")
    codes.append(tried(bank, "--extract", "bank-20261120.csv")[0])
    old = time.time() - 600
    os.utime(bank / "store" / "bank" / "extracts" / "bank-20261120.csv", (old, old))
    codes.append(tried(bank)[0])

    assert codes == [75, 75, 0]
    assert len(committed(bank)) == 1


def numbered(folder: Path, number: int, pan: str, day: int) -> str:
    """Drop extract `number`; return its name."""
    name = f"cards-202611{day:02}-{number:03}.csv"
    drop(folder, HEAD + ROW.replace(b"4242424242424242", pan.encode()), name)
    return name


@pytest.mark.slow
def test_an_extract_must_carry_the_number_after_the_last(bank: Path) -> None:
    source(bank, "sequence = '-([0-9]{3})[.]csv$'")
    pans = (
        "4242424242424242",
        "4111111111111111",
        "5555555555554444",
        "6011111111111117",
        "3566002020360505",
    )
    first, gap = numbered(bank, 201, pans[0], 18), numbered(bank, 203, pans[1], 20)

    codes = [tried(bank, "--extract", first)[0]]
    held = tried(bank, "--extract", gap)
    codes += [held[0], tried(bank, "--extract", gap, "--open", "sequence-gap")[0]]
    repeat = tried(bank, "--extract", numbered(bank, 201, pans[2], 21))
    late = tried(bank, "--extract", numbered(bank, 202, pans[3], 19))
    following = tried(bank, "--extract", numbered(bank, 204, pans[4], 21))

    assert codes == [0, 3, 0]
    assert "expected 202, after run bank-20261118" in held[1]["message"]
    assert f"cardlink submit bank --extract {gap} --open sequence-gap" in held[1]["message"]
    assert (repeat[0], repeat[1]["error"]) == (2, "SequenceError")
    assert "run bank-20261118" in repeat[1]["message"]
    assert (late[0], following[0]) == (3, 0)  # never used, but out of order
    assert [one["sequence"] for one in committed(bank)] == [201, 203, 204]


@pytest.mark.slow
def test_extracts_of_one_night_follow_each_other_also_in_a_dry_run(bank: Path) -> None:
    source(bank, "sequence = '-([0-9]{3})[.]csv$'")
    codes = [tried(bank, "--extract", numbered(bank, 201, "4242424242424242", 18))[0]]
    for at, pan in enumerate(("4111111111111111", "5555555555554444", "6011111111111117"), 19):
        name = numbered(bank, 183 + at, pan, at)
        os.utime(bank / "store" / "bank" / "extracts" / name, (at, at))

    codes.append(tried(bank)[0])

    assert codes == [0, 0]
    assert [one["sequence"] for one in committed(bank)] == [201, 202, 203, 204]


@pytest.mark.slow
def test_the_number_may_be_in_a_line_before_the_data_and_must_be_there(bank: Path) -> None:
    source(bank, "sequence = '^#SEQ ([0-9]+)'\nsequence_in = 'header'\ncomment = '#'")
    drop(bank, b"#SEQ 0007\n" + GOOD)

    passed = tried(bank)
    drop(bank, GOOD.replace(b"c-1", b"c-9"), "bank-20261121.csv")
    refused = tried(bank)

    assert (passed[0], refused[0], refused[1]["error"]) == (0, 2, "SequenceError")
    assert [one["sequence"] for one in committed(bank)] == [7]


def test_a_number_that_a_concurrent_process_committed_is_not_committed_twice(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path, source={"sequence": "-([0-9]{3})[.]csv$"})
    first = bench.submit(bench.drop(3, "a-20261119-001.csv")).manifest
    other = bench.submit(bench.drop(3, "b-20261120-002.csv", seed=1)).manifest
    second = other.model_copy(update={"run": first.run + "-r2", "source": first.source})

    with pytest.raises(OvertakenError, match=other.run):
        refuse_overtaken(bench.adapters, second, other, guarded=False)
