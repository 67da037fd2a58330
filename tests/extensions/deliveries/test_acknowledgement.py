"""An issuer is told what became of each extract: once it is committed, after answers, or refused."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, cast, get_args

import polars as pl
import pytest

from flows.adapters.gpg_opener import GpgOpener
from flows.adapters.gpg_sealer import GpgSealer
from flows.adapters.local import LocalStore
from flows.book.book import read_book
from flows.database.connection import Database
from flows.errors import CardlinkError, GateError
from flows.extensions.deliveries import acknowledgement
from flows.extensions.deliveries.acknowledgement import (
    Told,
    acknowledge,
    acknowledgements,
    acknowledgements_to,
    confirm,
    not_told,
    rows_told,
    take_receipts,
)
from flows.extensions.deliveries.formats import (
    AcknowledgedRows,
    Acknowledgement,
    AcknowledgementFile,
    status_of,
)
from flows.extensions.deliveries.handover import HandedOverMeanwhileError, NotReachedError, handed
from flows.extensions.deliveries.receipts import late_receipt
from flows.extensions.deliveries.settings import acknowledging
from flows.extensions.privacy.erasure import OfRows, erase
from flows.operations.purge import purge
from flows.operations.remediation import dismiss
from flows.reports.across import reconcile_runs
from flows.runs.context import IssuerContext, overlaid
from flows.runs.errors import NotFoundError
from flows.runs.journal import entries
from flows.runs.store import StoreBusyError
from schemas.actions import GATE_OF, Gate
from schemas.database import JOURNAL
from schemas.portal import CUID, PAN, POSTAL_CODE
from tests import keys
from tests.again import PANS, again
from tests.builders import portal_rows
from tests.extensions.deliveries.test_delivery import Killed, Mortal
from tests.extensions.privacy.test_erasure import cleaner
from tests.late import late
from tests.memory import MemoryStore
from tests.night import NOON, Bench, local_bench, made_once, moved_to, portal_csv
from tests.storms import FailingStore

PREFIX = acknowledgements("bank")
WANTED: dict[str, Any] = {"acknowledgement": {"receipt_within_hours": 24}}
LOOSE: dict[str, Any] = {"limits": {"max_reject_rate": 1.0, "max_error_rate": 1.0}}


@made_once
def submitted(folder: Path, /) -> Bench:
    """Return a bench with one night: rows 1 to 3 are sent, row 4 is refused, row 5 repeats row 1."""
    bench = local_bench(folder, **WANTED, **LOOSE)
    cells = [{CUID: f"C-{number}", PAN: PANS[number]} for number in range(4)]
    cells[3] |= {POSTAL_CODE: "ABC"}
    bench.submit(bench.drop_bytes(portal_csv(portal_rows(*cells, cells[0]))))
    return bench


def files_of(bench: Bench, told: Told) -> dict[str, bytes]:
    folder = f"{PREFIX}{told.number:06d}/"
    return {name: bench.content(folder + name) for name in told.record.names}


def json_of(bench: Bench, told: Told) -> AcknowledgementFile:
    """Return what the JSON says; the model is the published schema."""
    content = files_of(bench, told)["acknowledgement.json"]
    return AcknowledgementFile.model_validate_json(content)


def placed(bench: Bench, place: Path) -> IssuerContext:
    """Return a context whose issuer takes its files at a place of its own."""
    place.mkdir(exist_ok=True)
    settings = acknowledging(bench.issuer)
    assert settings is not None
    elsewhere = settings.model_copy(update={"to": str(place)})
    issuer = bench.issuer.model_copy(update={"acknowledgement": elsewhere})
    return bench.context._replace(issuer=issuer, place_of=lambda _: LocalStore(place))


def test_a_committed_extract_is_told_with_each_row_and_its_reason(tmp_path: Path) -> None:
    bench = submitted(tmp_path)

    [told] = acknowledge(bench.context)

    file = json_of(bench, told)
    statuses = [(row.cuid, row.status, row.link, row.reason) for row in file.rows]
    assert [
        ("C-0", "PEND", "to upload", None),
        ("C-1", "PEND", "to upload", None),
        ("C-2", "PEND", "to upload", None),
        ("C-3", "RJCT", "not sent", "address.postal_code.format"),
        ("C-0", "RJCT", "to upload", "row.content.repeated"),
    ] == statuses
    assert "PEND" == file.status
    assert {"RJCT": 2, "PEND": 3, "ACCP": 0} == told.record.rows


@pytest.mark.slow
def test_answers_change_what_is_told_and_nothing_new_is_told_twice(tmp_path: Path) -> None:
    bench = submitted(tmp_path)
    acknowledge(bench.context)
    bench.answer()
    bench.ingest()

    [told] = acknowledge(bench.context)
    nothing = acknowledge(bench.context)

    file = json_of(bench, told)
    assert ["ACCP", "ACCP", "ACCP", "RJCT", "RJCT"] == [row.status for row in file.rows]
    assert (2, "PART", []) == (told.number, file.status, nothing)
    assert all(row.link_ends for row in file.rows[:3])


def test_the_totals_are_those_of_the_rows(tmp_path: Path) -> None:
    bench = submitted(tmp_path)

    [told] = acknowledge(bench.context)

    file = json_of(bench, told)
    last_4 = dict.fromkeys(("ACCP", "RJCT", "PEND"), 0)
    for row in file.rows:
        last_4[row.status] += int(row.last_4 or 0)
    assert last_4 == {total.status: total.last_4_total for total in file.totals}
    assert file.file is not None
    assert 5 == file.file.rows_read == sum(total.rows for total in file.totals)


def test_csv_and_json_say_the_same_and_the_template_can_be_filled_in(tmp_path: Path) -> None:
    bench = submitted(tmp_path)

    [told] = acknowledge(bench.context)

    files = files_of(bench, told)
    csv = pl.read_csv(BytesIO(files["acknowledgement.csv"]), schema=AcknowledgedRows.dtypes())
    AcknowledgedRows.validate(csv)
    rows = json.loads(files["acknowledgement.json"])["rows"]
    assert csv.with_columns(pl.col("link_ends").cast(pl.String)).to_dicts() == rows
    assert b"C-3" in files["corrections.csv"]


@pytest.mark.slow
def test_a_row_that_is_corrected_is_done_in_what_is_told_next(tmp_path: Path) -> None:
    bench = submitted(tmp_path)
    bench.answer()
    bench.ingest()
    [first] = acknowledge(bench.context)
    template = pl.read_csv(files_of(bench, first)["corrections.csv"], infer_schema=False)
    filled = template.filter(cuid="C-3").with_columns(
        correction=pl.lit(portal_rows({})[POSTAL_CODE].item())
    )
    dropped = bench.issuer.issuer + "/corrections/corrections.csv"
    bench.store.replace(dropped, [filled.write_csv().encode()])
    run = first.record.run
    again(bench, run, corrections="corrections.csv")
    bench.answer()
    bench.ingest()

    told = acknowledge(bench.context)

    last = json_of(bench, told[-1])
    assert ("ACCP", None) == next((r.status, r.reason) for r in last.rows if r.cuid == "C-3")


def refused_by_gate(folder: Path) -> tuple[Bench, str]:
    """Return a bench with an extract of which too many rows are refused, and its key."""
    bench = local_bench(folder, **WANTED)
    cells = [{CUID: f"C-{number}", POSTAL_CODE: "ABC"} for number in range(3)]
    extract = bench.drop_bytes(portal_csv(portal_rows(*cells)))
    with pytest.raises(CardlinkError):
        bench.submit(extract)
    return bench, extract


def test_a_refused_extract_is_told_with_the_sentence_that_refused_it(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, source={"trailer": "^T([0-9]+)$"}, **WANTED)
    with pytest.raises(CardlinkError):
        bench.submit(bench.drop_bytes(portal_csv(portal_rows({})) + b"T7\n"))

    [told] = acknowledge(bench.context)

    file = json_of(bench, told)
    assert ("RJCT", True, ()) == (file.status, "counts 7 rows" in str(file.refusal), file.rows)


def test_an_extract_that_a_gate_stops_is_open_until_it_is_dismissed(tmp_path: Path) -> None:
    bench, extract = refused_by_gate(tmp_path)
    [held] = acknowledge(bench.context)
    dismiss(bench.context, extract, "sent by mistake")

    [over] = acknowledge(bench.context)

    first, last = json_of(bench, held), json_of(bench, over)
    assert ("PEND", True) == (first.status, "gate reject-rate" in str(first.waits))
    assert b"C-2" in files_of(bench, held)["rejects.csv"]
    assert ("RJCT", True) == (last.status, "dismissed" in str(last.refusal))
    assert [] == acknowledge(bench.context)


def test_an_extract_that_is_held_back_is_refused_once_it_is_dismissed(tmp_path: Path) -> None:
    bench = submitted(tmp_path)
    other = bench.drop_bytes(portal_csv(portal_rows({CUID: "C-9"})))
    assert {"PEND"} == {told.record.status for told in acknowledge(bench.context)}
    dismiss(bench.context, other, "sent by mistake")

    [over] = acknowledge(bench.context)

    assert (f"bank/extracts/{other}", "RJCT") == (over.record.extract, over.record.status)
    assert [] == acknowledge(bench.context)


def test_every_error_of_a_gate_has_its_gate() -> None:
    of_submit = [
        kind for kind in GateError.__subclasses__() if kind.__module__.startswith("flows.submis")
    ]
    errors = {kind.__name__ for kind in of_submit}

    assert errors == {*GATE_OF}
    assert {*get_args(Gate)} == {*GATE_OF.values()}


def test_an_issuer_that_wants_none_is_told_nothing(tmp_path: Path) -> None:
    bench = replace(submitted(tmp_path), issuer=local_bench(tmp_path / "plain").issuer)

    told = acknowledge(bench.context)

    assert ([], []) == (told, [key for key in bench.snapshot() if key.startswith(PREFIX)])


def test_files_are_sealed_to_the_issuers_own_key(tmp_path: Path) -> None:
    own = keys.sound()
    bench = submitted(tmp_path)
    sealing = {"key_file": "bank.asc", "fingerprint": own.fingerprint}
    settings = acknowledging(bench.issuer)
    assert settings is not None
    issuer = bench.issuer.model_copy(
        update={"acknowledgement": settings.model_copy(update=sealing)}
    )
    context = replace(bench, issuer=issuer).context._replace(
        sealer_to=lambda *_: GpgSealer(
            [own.public], [own.fingerprint], armor=False, compression="zip", today=NOON.date()
        )
    )

    [told] = acknowledge(context)

    files = files_of(bench, told)
    assert {"acknowledgement.csv.pgp", "acknowledgement.json.pgp", "corrections.csv.pgp"} == set(
        files
    )
    with GpgOpener([own.secret]) as opener:
        opened = opener.open(files["acknowledgement.json.pgp"], 1 << 20)
    assert 5 == len(AcknowledgementFile.model_validate_json(opened).rows)


def test_the_files_are_copied_to_where_the_issuer_takes_them_and_the_mark_comes_last(
    tmp_path: Path,
) -> None:
    bench = submitted(tmp_path)
    place = tmp_path / "inbox"

    [told] = acknowledge(placed(bench, place))

    copies = {
        path.name: path.read_bytes()
        for path in (place / f"bank/acknowledgements/{told.number:06d}").iterdir()
    }
    mark = copies.pop("done.json")
    assert files_of(bench, told) == copies
    assert told.record == Acknowledgement.model_validate_json(mark)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("writes", range(4))  # three files and done.json
def test_what_a_killed_process_did_not_tell_the_next_command_tells_once(
    tmp_path: Path, database: Database, writes: int, late: bool
) -> None:
    bench = moved_to(submitted(tmp_path), database)
    mortal = Mortal(bench.store, writes, late=late)
    with pytest.raises(Killed):
        acknowledge(placed(replace(bench, store=cast(Any, mortal)), tmp_path / "inbox"))

    acknowledge(placed(bench, tmp_path / "inbox"))

    is_whole = (writes, late) == (3, True)
    taken = list((tmp_path / "inbox").glob("bank/acknowledgements/*/done.json"))
    assert [1 if is_whole else 2] == [int(path.parent.name[:6]) for path in taken]
    assert 1 == len([key for key in bench.snapshot() if key.endswith("done.json")])
    assert [] == acknowledge(bench.context)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("writes", [0, 1])  # made and done
def test_a_process_that_dies_at_a_transaction_leaves_what_the_next_command_goes_on_with(
    tmp_path: Path, database: Database, writes: int, late: bool
) -> None:
    bench = moved_to(submitted(tmp_path), database)
    read_book(bench.adapters, "bank")
    mortal = Mortal(database, writes, late=late)
    with pytest.raises(Killed):
        acknowledge(replace(bench, database=cast(Any, mortal)).context)

    acknowledge(placed(bench, tmp_path / "inbox"))

    number = 2 if (writes, late) == (0, True) else 1
    taken = list((tmp_path / "inbox").glob("bank/acknowledgements/*/done.json"))
    assert [number] == [int(path.parent.name[:6]) for path in taken]
    assert [] == acknowledge(bench.context)


def test_of_two_processes_one_tells_and_the_other_writes_nothing(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = moved_to(submitted(tmp_path), database)
    contents = acknowledgement._contents

    def meanwhile(*given: Any) -> Any:
        with monkeypatch.context() as alone:
            alone.setattr(acknowledgement, "_contents", contents)
            acknowledge(bench.context)
        return contents(*given)

    monkeypatch.setattr(acknowledgement, "_contents", meanwhile)

    with pytest.raises(HandedOverMeanwhileError):
        acknowledge(bench.context)

    assert 1 == len([key for key in bench.snapshot() if key.endswith("done.json")])
    assert 1 == len(entries(bench.adapters, "bank", JOURNAL.c.what == "acknowledgement made"))


def test_a_dry_run_says_what_would_be_told_and_writes_nothing(tmp_path: Path) -> None:
    bench = submitted(tmp_path)
    before = bench.snapshot()

    told = acknowledge(overlaid(placed(bench, tmp_path / "inbox")))

    assert (1, before) == (len(told), bench.snapshot())
    assert [] == list((tmp_path / "inbox").iterdir())


@pytest.mark.parametrize("at_place", [False, True])
def test_a_receipt_that_names_all_files_confirms_it_and_those_before(
    tmp_path: Path, at_place: bool
) -> None:
    bench = submitted(tmp_path)
    context = placed(bench, tmp_path / "inbox")
    acknowledge(context)
    bench.answer()
    bench.ingest()
    [told] = acknowledge(context)
    folder = tmp_path / ("inbox" if at_place else "store") / PREFIX / f"{told.number:06d}"
    digests = list(told.record.files.values())

    (folder / "received").write_text(digests[0])
    partly = take_receipts(context)
    (folder / "received").write_text("\n".join(digests))
    wholly = take_receipts(context)

    settings = acknowledging(bench.issuer)
    assert settings is not None
    now = NOON + timedelta(days=9)
    late = late_receipt(bench.context, acknowledgements_to("bank"), settings, now)
    assert (0, 2, None) == (partly, wholly, late)


def test_a_receipt_that_is_late_is_an_alert_until_it_is_confirmed(tmp_path: Path) -> None:
    bench = submitted(tmp_path)
    acknowledge(bench.context)
    later = replace(bench, now=lambda: NOON + timedelta(hours=25))

    waiting = [
        alert for alert in late(later.context) if alert.kind == "acknowledgements to confirm"
    ]
    confirm(later.context, 1, "they have it")
    then = [alert for alert in late(later.context) if alert.kind == "acknowledgements to confirm"]

    assert (["000001"], []) == ([alert.subject[-6:] for alert in waiting], then)


def test_a_number_that_nobody_was_told_cannot_be_confirmed(tmp_path: Path) -> None:
    bench = submitted(tmp_path)

    with pytest.raises(NotFoundError):
        confirm(bench.context, 1, "they have it")


def test_an_extract_of_which_the_issuer_was_not_told_is_found_once_its_time_is_over(
    tmp_path: Path,
) -> None:
    bench = submitted(tmp_path)

    before = not_told(bench.context, NOON - timedelta(days=10_000))
    after = not_told(bench.context, NOON + timedelta(days=10_000))
    acknowledge(bench.context)
    done = not_told(bench.context, NOON + timedelta(days=10_000))

    assert ([], 1, []) == (before, len(after), done)


def test_old_files_that_name_rows_are_purged_and_the_record_of_them_stays(tmp_path: Path) -> None:
    bench = submitted(tmp_path)
    [told] = acknowledge(bench.context)
    old = replace(bench, now=lambda: datetime.now(UTC) + timedelta(days=400))

    purge(old.context, cleaner(bench))

    left = {key.removeprefix(PREFIX) for key in bench.snapshot() if key.startswith(PREFIX)}
    assert {f"{told.number:06d}/done.json"} == left
    assert handed(bench.adapters, acknowledgements_to("bank"), 1) is not None


def test_a_forgotten_cardholder_is_in_no_file_that_told_of_them(tmp_path: Path) -> None:
    bench = submitted(tmp_path)
    bench.answer()
    bench.ingest()
    [told] = acknowledge(bench.context)

    lost = f"{PREFIX}000002/acknowledgement.csv"  # of a database that was lost
    bench.store.create(lost, files_of(bench, told)["acknowledgement.csv"])

    erase(bench.context, cleaner(bench), OfRows(told.record.run, [4]), "asked for it")

    texts = [text for key, text in bench.snapshot().items() if key.startswith(PREFIX)]
    assert (1, []) == (len(texts), [text for text in texts if b"C-3" in text])


def test_what_a_killed_process_did_not_tell_whole_counts_as_not_told(tmp_path: Path) -> None:
    bench = submitted(tmp_path)
    with pytest.raises(Killed):
        acknowledge(replace(bench, store=cast(Any, Mortal(bench.store, 3))).context)

    lacking = not_told(bench.context, NOON + timedelta(days=10_000))
    acknowledge(bench.context)
    done = not_told(bench.context, NOON + timedelta(days=10_000))

    assert (1, []) == (len(lacking), done)


def test_a_place_that_is_away_is_named_alerted_and_reached_once_it_is_back(tmp_path: Path) -> None:
    bench = submitted(tmp_path)
    busy = FailingStore(MemoryStore(), lambda *_: StoreBusyError(place="inbox", code="503"))
    away = placed(bench, tmp_path / "inbox")._replace(place_of=lambda _: busy)
    with pytest.raises(NotReachedError) as first:
        acknowledge(away)
    later = replace(bench, now=lambda: NOON + timedelta(hours=1))
    alerted = [alert.subject for alert in late(later.context)]

    acknowledge(placed(later, tmp_path / "inbox"))

    assert f"{NOON:%Y-%m-%d %H:%M} UTC" == first.value.fields["since"]
    assert "place" in alerted
    assert ["000001"] == [path.name for path in (tmp_path / "inbox" / PREFIX).iterdir()]
    assert "place" not in [alert.subject for alert in late(later.context)]


def test_a_late_receipt_is_a_line_of_the_worklist_with_the_number_to_confirm(
    tmp_path: Path,
) -> None:
    bench = submitted(tmp_path)
    acknowledge(bench.context)
    bench.answer()
    bench.ingest()
    acknowledge(bench.context)
    later = replace(bench, now=lambda: NOON + timedelta(hours=25))

    reconcile_runs(later.context)

    text = bench.content("bank/reconciliation/worklist.csv").decode()
    assert "acknowledgements to confirm" in text
    assert "(000001, the newest is 000002)" in text
    assert 'cardlink acknowledge bank --confirm 2 --reason ""RECEIPT""' in text


@pytest.mark.parametrize(
    ("done", "refused", "pending", "status"),
    [
        (0, 0, 0, "ACCP"),
        (3, 0, 0, "ACCP"),
        (0, 3, 0, "RJCT"),
        (0, 0, 3, "PEND"),
        (0, 1, 2, "PEND"),
        (1, 2, 0, "PART"),
        (1, 0, 2, "PART"),
    ],
)
def test_the_status_of_an_extract_follows_from_its_rows(
    done: int, refused: int, pending: int, status: str
) -> None:
    assert status == status_of({"ACCP": done, "RJCT": refused, "PEND": pending})


@pytest.mark.slow
def test_corrections_are_told_while_they_wait_and_by_the_run_that_sends_them(
    tmp_path: Path,
) -> None:
    bench = submitted(tmp_path)
    bench.answer()
    bench.ingest()
    [first] = acknowledge(bench.context)
    template = pl.read_csv(files_of(bench, first)["corrections.csv"], infer_schema=False)
    filled = template.filter(cuid="C-3").with_columns(
        correction=pl.lit(portal_rows({})[POSTAL_CODE].item())
    )
    dropped = "bank/corrections/back.csv"
    bench.store.replace(dropped, [filled.write_csv().encode()])

    [waiting] = acknowledge(bench.context)
    nothing = acknowledge(bench.context)
    again(bench, first.record.run, corrections="back.csv")
    told = {one.record.extract: json_of(bench, one) for one in acknowledge(bench.context)}

    file = json_of(bench, waiting)
    assert (dropped, "PEND", "", []) == (file.extract, file.status, file.run, nothing)
    assert "nobody has sent them" in str(file.waits)
    assert (first.record.run, ["C-3"]) == (
        told[dropped].corrects,
        [row.cuid for row in told[dropped].rows],
    )


def test_an_extract_that_is_held_back_is_told_with_the_gate_that_holds_it(tmp_path: Path) -> None:
    bench = submitted(tmp_path)
    acknowledge(bench.context)
    bench.drop_bytes(portal_csv(portal_rows({CUID: "C-9"})))

    [held] = acknowledge(bench.context)

    file = json_of(bench, held)
    assert ("PEND", None, True) == (
        file.status,
        file.business_date,
        "gate changed-extract" in str(file.waits),
    )


def test_the_balance_has_the_rows_that_the_issuer_was_told_of(tmp_path: Path) -> None:
    bench = submitted(tmp_path)
    [told] = acknowledge(bench.context)
    bench.answer()

    bench.ingest()

    summary = json.loads(bench.report(told.record.run, "summary.json"))
    lines = {line["name"]: (line["left"], line["right"]) for line in summary["balance"]}
    assert (5, 5) == lines["rows acknowledged = rows read"]


def test_the_rows_that_were_told_last_of_a_run_count(tmp_path: Path) -> None:
    bench = submitted(tmp_path)
    before = rows_told(bench.adapters, "bank", "bank-20261120-00000000")
    [told] = acknowledge(bench.context)
    bench.answer()
    bench.ingest()
    acknowledge(bench.context)

    assert (None, 5) == (before, rows_told(bench.adapters, "bank", told.record.run))
