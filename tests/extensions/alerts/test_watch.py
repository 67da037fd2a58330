"""Alerts and metrics of real nights: each opens once, is told once, and closes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from prometheus_client.openmetrics import parser

from flows.adapters.local import LocalStore
from flows.adapters.plain_sealer import PlainSealer
from flows.errors import CardlinkError
from flows.extensions.alerts.metrics import write_metrics
from flows.extensions.alerts.notices import Sending, open_notices
from flows.extensions.arrivals.beat import Beat, write_beat
from flows.extensions.deliveries.acknowledgement import acknowledge
from flows.extensions.deliveries.delivery import deliver
from flows.extensions.deliveries.reaching import hand_over
from flows.extensions.deliveries.settings import receivers_in
from flows.extensions.simulator.extract import write_sample
from flows.operations.break_decisions import close_break
from flows.operations.matters import IS_LATE, IS_OPEN, Failure, matters, watch
from flows.operations.remediation import dismiss
from flows.reports.rebuild import rebuild
from flows.runs.documents import read_facts
from flows.runs.keys import keys_of
from flows.runs.outbox import move
from flows.runs.store import StoreDeniedError, VerdictRefusedError
from schemas.portal import COUNTRY, EMAIL, columns
from tests import keys
from tests.adapters import key_kinds
from tests.again import again, night
from tests.builders import portal_rows, quick
from tests.late import late, told
from tests.night import BANK, DAY, NOON, Bench, issuer, local_bench, portal_csv, submitted
from tests.storms import FailingStore


def read_back(text: str) -> list[Any]:
    """Return the families the reference parser reads."""
    return list(parser.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]  # it has no types


def look(bench: Bench, *failures: Failure) -> list[tuple[str, bool]]:
    """Watch as the flow does: tell what is new, and keep that it was told."""
    return [(matter.kind, is_late) for matter, is_late in told(bench.context, *failures)]


def at(bench: Bench, moment: datetime, **tables: object) -> Bench:
    return replace(bench, now=lambda: moment, issuer=issuer(**tables) if tables else bench.issuer)


# the bench where the cause is there, then where it is gone
Shown = Iterator[Bench | tuple[Bench, Failure]]


def missing(folder: Path) -> Shown:
    bench = at(local_bench(folder), NOON, schedule={"extract_by": "03:00:00"})
    yield bench
    bench.drop(5)
    yield bench


def waiting(folder: Path) -> Shown:
    bench = at(
        local_bench(folder),
        NOON,
        schedule={"extract_by": "03:00:00"},
        source={"done_marker": ".done"},
    )
    extract = bench.drop(5)
    yield bench
    bench.drop_bytes(b"", f"{extract}.done")
    yield bench


def skipped(folder: Path) -> Shown:
    # NOON is a Friday
    bench = at(local_bench(folder), NOON, schedule={"days": ["mon", "tue", "wed", "thu"]})
    yield bench
    yield at(bench, NOON + timedelta(days=3))


def unknown_country(folder: Path) -> Shown:
    bench = at(local_bench(folder), NOON, schedule={"country": "US", "subdivision": "ZZ"})
    yield bench
    yield at(bench, NOON, schedule={"country": "US", "subdivision": "NY"})


def refused(folder: Path) -> Shown:
    """Refuse an extract; commit a corrected one of another name, and dismiss the refused one."""
    bench = local_bench(folder, limits={"max_reject_rate": 0.01})
    wrong = bench.drop(50, bad=0.3)
    with pytest.raises(CardlinkError):
        bench.submit(wrong)
    yield bench
    bench.submit(bench.drop(50, "bank-20261120-corrected.csv", seed=1))
    dismiss(bench.context, wrong, "another file came")
    yield bench


def changed(folder: Path) -> Shown:
    bench = local_bench(folder)
    bench.submit(bench.drop(5))
    extract = bench.drop(6)
    yield bench
    dismiss(bench.context, extract, "the first was right")
    yield bench


class Scanned(LocalStore):
    """A store whose files are not found clean until they are."""

    clean = False

    def ensure_clean(self, key: str) -> None:
        if not self.clean:
            raise VerdictRefusedError(key=key, tag="Scan", found="THREATS_FOUND", clean="CLEAN")


def unclean(folder: Path) -> Shown:
    store = Scanned(folder / "store")
    bench = replace(local_bench(folder), store=store)
    bench.drop(5)
    yield bench
    store.clean = True
    yield bench


def repeated(folder: Path) -> Shown:
    bench = local_bench(folder)
    bench.submit(bench.drop(5))
    extract = bench.drop(5, "bank-20261120-again.csv")
    yield bench
    dismiss(bench.context, extract, "sent by mistake")
    yield bench


def failed(folder: Path) -> Shown:
    bench = local_bench(folder)
    yield bench, ("nightly-bank", "Crashed")
    yield bench


def unbalanced(folder: Path) -> Shown:
    bench = local_bench(folder)
    run = bench.submit(bench.drop_bytes(portal_csv(portal_rows({})))).manifest.run
    link = "https://links.example.com/l/x"
    rows = f"c-1,4242,{link},2027-01-20,\nghost,4242,{link},2027-01-20,\n"
    bench.drop_result(f"cuid,last_4,url,expiration_date,error\n{rows}".encode())
    bench.ingest()
    yield bench
    for one in read_facts(bench.store, keys_of(run).report("summary.json"))["breaks"]:  # type: ignore[index]  # it is there
        close_break(bench.context, run, one["name"], "", "agreed with the partner")
    rebuild(bench.context, bench.stored(run))
    yield bench


def widened(folder: Path) -> Shown:
    bench = local_bench(folder, columns={name: name for name in columns()})
    bench.submit(bench.drop(5, "bank-20261101.csv"))
    for seed in (2, 3):
        out = BytesIO()
        write_sample(out, 5, seed=seed, as_of=DAY)
        wide = pl.read_csv(out.getvalue(), infer_schema=False).with_columns(SEGMENT=pl.lit("x"))
        name = bench.drop_bytes(wide.write_csv().encode(), f"bank-2026110{seed}.csv")
        bench.submit(name)
        yield bench


def departing(folder: Path) -> Shown:
    bench = local_bench(folder)
    for seed in range(5):
        bench.submit(bench.drop(80, f"bank-2026110{seed + 1}.csv", seed=seed))
    out = BytesIO()
    write_sample(out, 80, bad=0.0, seed=6, as_of=DAY)
    odd = pl.read_csv(out.getvalue(), infer_schema=False).with_columns(
        pl.lit(None, pl.String).alias(EMAIL)
    )
    odd_name = bench.drop_bytes(odd.write_csv().encode(), "bank-20261106.csv")
    bench.submit(odd_name)
    yield bench
    bench.submit(bench.drop(80, "bank-20261107.csv", seed=7))
    yield bench


def overdue(folder: Path) -> Shown:
    bench = at(local_bench(folder), NOON)
    move(bench.context.adapters, bench.submit(bench.drop(5)).manifest.run, "uploaded")
    late = at(bench, NOON + timedelta(hours=49))
    yield late
    late.answer()
    late.ingest()
    yield late


def ending(folder: Path) -> Shown:
    key = keys.lasting(10)
    bench = replace(local_bench(folder), now=lambda: datetime.now(UTC))
    yield replace(bench, key=key, issuer=issuer(portal={"fingerprints": [key.fingerprint]}))
    yield bench


def unusable(folder: Path) -> Shown:
    bench = local_bench(folder)
    yield replace(bench, key=keys.sound("curve25519", 2))
    yield bench


def deaf(folder: Path) -> Shown:
    bench = local_bench(folder)
    for trouble in ("HTTP 500", ""):
        sending = Sending(bench.context, [])
        sending.note("mail", trouble)
        sending.close()
        yield bench


def not_eligible(folder: Path) -> Shown:
    bench = local_bench(folder)
    bench.submit(bench.drop_bytes(portal_csv(portal_rows({}, {COUNTRY: "Mexico"}))))
    yield bench
    bench.submit(bench.drop(5, "bank-20261121.csv", seed=1), business_date=DAY + timedelta(days=1))
    yield bench


def untold(folder: Path) -> Shown:
    bench = local_bench(folder, acknowledgement={})
    bench.submit(bench.drop(5))
    later = replace(bench, now=lambda: datetime.now(UTC) + timedelta(hours=2))
    yield later
    acknowledge(later.context)
    yield later


def silent(folder: Path) -> Shown:
    bench = at(local_bench(folder, arrivals={}), NOON)
    write_beat(bench.store, BANK, Beat(at=NOON - timedelta(minutes=6)))
    yield bench
    write_beat(bench.store, BANK, Beat(at=NOON - timedelta(minutes=4)))
    yield bench


def not_taken(folder: Path) -> Shown:
    bench = local_bench(folder, deliveries={"one": {"webhook": "http://127.0.0.1:9/"}})
    bench.submit(bench.drop(5))
    bench.answer()
    bench.ingest()
    deliver(bench.context, "one")
    hand_over(bench.context, "one", at_once=True)
    later = replace(bench, now=lambda: NOON + timedelta(hours=1))
    yield later
    without = {
        name: table.model_copy(update={"webhook": None})
        for name, table in receivers_in(later.issuer).items()
    }
    reached = replace(later, issuer=later.issuer.model_copy(update={"deliveries": without}))
    hand_over(reached.context, "one", at_once=True)
    yield reached


STORIES: dict[str, Callable[[Path], Shown]] = {
    "business days without an extract": missing,
    "incomplete extracts": waiting,
    "unknown calendars": unknown_country,
    "skipped nights": skipped,
    "refused extracts": refused,
    "extracts held back": changed,
    "unclean extracts": unclean,
    "extracts that repeat another": repeated,
    "failed flows": failed,
    "break UNKNOWN_CUID": unbalanced,
    "unusual extracts": departing,
    "changed columns": widened,
    "ineligible rows": not_eligible,
    "results overdue": overdue,
    "failing channels": deaf,
    "processes down": silent,
    "expiring keys": ending,
    "extracts not acknowledged": untold,
    "receivers to reach": not_taken,
    "unusable keys": unusable,
}


@pytest.mark.parametrize("kind", quick(12, list(STORIES)))
def test_an_alert_of_each_kind_is_told_once_when_its_cause_comes_and_once_when_it_is_gone(
    tmp_path: Path, kind: str
) -> None:
    looks = []

    for bench in STORIES[kind](tmp_path):
        for _ in range(2):
            looks.append(
                [
                    one
                    for one in look(*(bench if isinstance(bench, tuple) else [bench]))
                    if one[0] == kind
                ]
            )

    assert looks == [[(kind, True)], [], [(kind, False)], []]


def test_a_refused_extract_is_not_over_with_one_that_had_come_before_it(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, limits={"max_reject_rate": 0.01})
    good, bad = bench.drop(50), bench.drop(50, "bank-20261120-2.csv", bad=0.3, seed=1)
    for name in (good, bad):
        os.utime(tmp_path / "store" / "bank" / "extracts" / name, (NOON.timestamp() - 60,) * 2)
    with pytest.raises(CardlinkError):
        bench.submit(bad)
    bench.submit(good)

    found = watch(bench.context)

    assert ["refused extracts"] == [one.kind for one in found if one.late]
    assert re.search(r"Refused.*bank-20261120-2.csv.* of 50 rows", found[0].text)


def test_a_quiet_night_has_nothing_to_tell(tmp_path: Path) -> None:
    bench, *_ = submitted(tmp_path, 20)

    assert look(bench) == []


def test_a_refused_run_is_told_once_and_closes_with_its_commit(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, limits={"max_reject_rate": 0.01})
    extract = bench.drop(50, bad=0.3)

    with pytest.raises(CardlinkError):
        bench.submit(extract)
    looks = [look(bench), look(bench)]
    bench.submit(extract, opened=["reject-rate"])
    looks += [look(bench), look(bench)]

    assert looks == [[("refused extracts", True)], [], [("refused extracts", False)], []]


def test_a_refused_run_closes_when_a_corrected_file_of_that_name_is_committed(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path, limits={"max_reject_rate": 0.01})
    with pytest.raises(CardlinkError):
        bench.submit(bench.drop(50, bad=0.3))

    looks = [look(bench)]
    extract = bench.drop(50, seed=1)
    looks.append(look(bench))
    bench.submit(extract)
    looks.append(look(bench))

    assert looks == [[("refused extracts", True)], [], [("refused extracts", False)]]


def test_a_run_that_was_planned_anew_takes_the_alert_of_the_one_before_with_it(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path, limits={"max_reject_rate": 0.01})
    extract = bench.drop(50, bad=0.3)
    with pytest.raises(CardlinkError):
        bench.submit(extract)
    looks = [look(bench)]
    smaller = replace(bench, issuer=issuer(portal={"rows_per_chunk": 5}))

    smaller.submit(extract, opened=["reject-rate"])
    looks.append(look(smaller))

    assert looks == [[("refused extracts", True)], [("refused extracts", False)]]


def test_a_refused_resubmission_is_told_though_it_is_of_no_whole_extract(tmp_path: Path) -> None:
    bench, run = night(tmp_path)
    refusing = FailingStore(bench.store, _foreign)

    with pytest.raises(CardlinkError):
        again(replace(bench, store=refusing), run)

    assert look(bench) == [("runs left behind", True)]


def _foreign(what: str, key: str) -> Exception | None:
    """Refuse to publish the chunk of a second run."""
    return (
        StoreDeniedError(place=key, code="403")
        if what == "create" and "-r2-00001.csv" in key
        else None
    )


@pytest.mark.parametrize("way", ["opened", "dismissed", "put back"])
def test_a_name_with_other_content_is_told_until_somebody_decides(tmp_path: Path, way: str) -> None:
    bench, extract, _ = submitted(tmp_path, 20)
    before = bench.content(f"bank/extracts/{extract}")

    bench.drop(21)
    looks = [look(bench), look(bench)]
    if way == "opened":
        bench.submit(extract, opened=["changed-extract"])
    elif way == "dismissed":
        dismiss(bench.context, extract, "the first was right")
    else:
        bench.drop_bytes(before)
    looks.append(look(bench))

    assert looks == [[("extracts held back", True)], [], [("extracts held back", False)]]


def test_yesterdays_extract_is_not_todays(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    bench.drop(5, "bank-20261119.csv")
    now = max(entry.modified for entry in bench.store.keys("")) + timedelta(days=3)
    later = at(bench, now, schedule={"extract_by": "00:00:00"})

    assert look(later) == [("business days without an extract", True)]


def test_an_issuer_that_never_had_an_extract_misses_its_first(tmp_path: Path) -> None:
    bench = at(
        local_bench(tmp_path), NOON, schedule={"extract_by": "03:00:00"}, source={"sidecar": "ctl"}
    )

    looks = [look(bench)]
    bench.drop_bytes(b"count=5\n", "bank-20261120.csv.ctl")  # no extract by itself
    looks.append(look(bench))

    assert looks == [[("business days without an extract", True)], []]


def test_an_extract_without_its_marker_is_told_by_its_hour_with_what_it_waits_for(
    tmp_path: Path,
) -> None:
    tables = {
        "schedule": {"extract_by": "03:00:00"},
        "source": {"sidecar": "ctl", "done_marker": ".done"},
    }
    bench = at(local_bench(tmp_path), NOON, **tables)
    bench.drop(5, "bank-20261120.csv")
    bench.drop_bytes(b"count=5\n", "bank-20261120.csv.ctl")

    told_of = [work.note for work in late(bench.context)]
    looks = [look(bench)]
    bench.drop_bytes(b"", "bank-20261120.csv.done")
    looks.append(look(bench))

    assert told_of == [
        "bank-20261120.csv is not taken yet: there is no bank/extracts/bank-20261120.csv.done."
    ]
    assert looks == [[("incomplete extracts", True)], [("incomplete extracts", False)]]


def test_a_whole_extract_of_the_day_leaves_one_that_came_later_its_time(tmp_path: Path) -> None:
    bench = at(
        local_bench(tmp_path),
        NOON,
        schedule={"extract_by": "03:00:00"},
        source={"done_marker": ".done"},
    )
    bench.drop(5, "bank-1.csv")
    bench.drop_bytes(b"", "bank-1.csv.done")
    bench.drop(5, "bank-2.csv", seed=1)
    for name, hours in (("bank-1.csv", 10), ("bank-2.csv", 0)):
        moment = (NOON - timedelta(hours=hours)).timestamp()
        os.utime(tmp_path / "store" / "bank" / "extracts" / name, (moment, moment))

    looks = [look(bench), look(at(bench, NOON + timedelta(days=1)))]

    assert looks == [[], [("incomplete extracts", True)]]


@pytest.mark.parametrize(
    ("policy", "told_of"), [("alert", [("refused extracts", True)]), ("allow", [])]
)
def test_an_empty_extract_is_told_by_policy(
    tmp_path: Path, policy: str, told_of: list[tuple[str, bool]]
) -> None:
    bench = at(local_bench(tmp_path), NOON, alerts={"empty_extract": policy})
    extract = bench.drop_bytes(portal_csv(portal_rows({})).splitlines(keepends=True)[0])

    with pytest.raises(CardlinkError):
        bench.submit(extract)

    assert look(bench) == told_of


def test_a_key_that_ends_soon_is_told_once(tmp_path: Path) -> None:
    key = keys.lasting(10)
    bench = replace(
        local_bench(tmp_path, portal={"fingerprints": [key.fingerprint]}),
        key=key,
        now=lambda: datetime.now(UTC),
    )

    found = watch(bench.context)

    assert [(matter.kind, matter.subject) for matter in found] == [
        ("expiring keys", key.fingerprint)
    ]


def test_a_subkey_that_ends_soon_is_told_as_such_and_unsealed_chunks_are_not(
    tmp_path: Path,
) -> None:
    key = key_kinds.key("ed25519", key_kinds.sub(ends="10d"))
    now = datetime.now(UTC)
    ending = local_bench(tmp_path, portal={"fingerprints": [key.fingerprint]})
    plain = replace(local_bench(tmp_path / "plain"), now=lambda: now)
    unsealed = plain.context._replace(sealer=lambda: nullcontext(PlainSealer()))

    found = watch(replace(ending, key=key, now=lambda: now).context)

    assert [
        ("expiring keys", f"Encryption subkey {found[0].subject[-16:]} of key {key.fingerprint}")
    ] == [(matter.kind, matter.text.partition(" expires on ")[0]) for matter in found]
    assert [] == watch(unsealed)


def test_a_watcher_killed_before_telling_leaves_it_to_the_next(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    failure = ("nightly-bank", "Crashed")

    killed = watch(bench.context, [failure])
    found = look(bench, failure)

    assert [matter.kind for matter in killed] == ["failed flows"]
    assert found == [("failed flows", True)]
    assert look(bench, failure) == []


def test_out_of_balance_is_told(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    bench.submit(bench.drop_bytes(portal_csv(portal_rows({}))))
    link = "https://links.example.com/l/x"
    bench.drop_result(
        f"cuid,last_4,url,expiration_date,error\nc-1,4242,{link},2027-01-20,\nghost,4242,{link},2027-01-20,\n".encode()
    )
    bench.ingest()

    looks = look(bench)

    assert looks == [("break UNKNOWN_CUID", True)]
    [alert] = matters(bench.adapters, BANK, IS_OPEN, IS_LATE)
    [notice] = open_notices(bench.adapters, BANK)
    assert alert.kind == "break UNKNOWN_CUID"
    assert "1 of 1 card has a link; nobody waits" in notice.text


def test_metrics_count_the_night_and_name_nobody(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    run = bench.submit(bench.drop(50, bad=0.1)).manifest
    look(bench, ("nightly-bank", "Crashed"))

    text = write_metrics(bench.context)

    samples = {
        (s.name, *sorted(s.labels.items())): s.value
        for family in read_back(text)
        for s in family.samples
    }
    name = ("issuer", BANK)
    assert samples["cardlink_rows", ("fate", "read"), name] == run.counts.read
    assert samples["cardlink_chunks", name, ("state", "waiting")] == len(run.chunks)
    counts = run.counts
    stood = [("not sent", counts.rejected), ("to upload", counts.submitted), ("placed", 0)]
    for standing, number in stood:
        assert samples["cardlink_cardholders", name, ("standing", standing)] == number
    assert samples["cardlink_cardholders_waiting", name, ("who", "operator")] == counts.submitted
    assert samples["cardlink_alerts_open", name, ("kind", "failed flows")] == 1
    assert bench.content(f"{BANK}/metrics/openmetrics.txt") == text.encode()
    assert run.run not in text


def test_a_gap_in_the_sequence_is_told_and_closes_when_it_is_filled(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, source={"sequence": "-([0-9]{3})[.]csv$"})
    first, missed, third = (
        bench.drop(20, f"bank-202611{18 + at}-00{at}.csv", seed=at) for at in range(3)
    )
    bench.submit(first)

    with pytest.raises(CardlinkError, match="expected 1"):
        bench.submit(third)
    looks = [look(bench)]
    bench.submit(missed)
    bench.submit(third)
    looks.append(look(bench))

    assert looks == [[("refused extracts", True)], [("refused extracts", False)]]
