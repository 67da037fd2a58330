from pathlib import Path

import pytest
from sqlalchemy import update

from flows.commands.context import Context
from flows.commands.worklist import worklist
from flows.database.connection import Database
from flows.extensions.deliveries.commands import deliver
from flows.extensions.deliveries.tables import DELIVERY
from flows.runs.adapters import NoReasonError
from tests.cli.test_reconcile import bank


def test_a_delivery_is_tried_written_confirmed_and_then_there_is_nothing_new(
    tmp_path: Path,
) -> None:
    bench = bank(tmp_path)
    bench.answer()
    bench.ingest()
    here = Context(tmp_path)

    told = [
        deliver(here, "bank", dry_run=True),
        deliver(here, "bank"),
        deliver(here, "bank"),
        deliver(here, "bank", confirm=1, reason="receipt 4711", dry_run=True),
        deliver(here, "bank", confirm=1, reason="receipt 4711"),
        deliver(here, "bank"),
    ]

    heads = [one.lines[0].partition(" confirmed 2")[0] for one in told]
    counts = "20 new, 0 replaced, 0 withdrawn; 20 living links"
    assert [
        f"dry run, nothing was written: bank: delivery 1 would be written: {counts}",
        f"bank: delivery 1 written: {counts}",
        f"bank: delivery 1 not confirmed yet, nothing new since: {counts}",
        "dry run, nothing was written: bank: delivery 1",
        "bank: delivery 1",
        "bank: nothing new since the last confirmed delivery",
    ] == heads
    assert [
        "cardlink deliver bank",
        *['cardlink deliver bank --confirm 1 --reason "RECEIPT"'] * 2,
        "cardlink deliver bank --confirm 1 --reason 'receipt 4711'",
        "cardlink worklist bank",
    ] == [str(one.next_step) for one in told[:5]]
    assert [0] * 6 == [one.exit_code for one in told]


def test_a_delivery_whose_files_are_missing_is_finished_before_it_is_confirmed(
    tmp_path: Path,
) -> None:
    bench = bank(tmp_path)
    bench.answer()
    bench.ingest()
    deliver(Context(tmp_path), "bank")
    (tmp_path / "store/bank/deliveries/000001/links.csv").unlink()
    unwritten = update(DELIVERY).values(done_at=None)
    Database(tmp_path / "cardlink.db").act(
        "bank", lambda connection: connection.execute(unwritten).close()
    )

    rehearsed = deliver(Context(tmp_path), "bank", dry_run=True)
    done = deliver(Context(tmp_path), "bank")

    assert "delivery 1 would be finished, since its command had ended" in rehearsed.lines[0]
    assert "delivery 1 finished, since its command had ended" in done.lines[0]
    assert ["cardlink deliver bank", 'cardlink deliver bank --confirm 1 --reason "RECEIPT"'] == [
        str(rehearsed.next_step),
        str(done.next_step),
    ]


def test_where_there_are_several_receivers_the_default_one_is_named_in_what_confirms(
    tmp_path: Path,
) -> None:
    bench = bank(tmp_path)
    bench.answer()
    bench.ingest()
    with (tmp_path / "bank.toml").open("a") as toml:
        toml.write("[deliveries.default]\n[deliveries.crm]\n")

    done = deliver(Context(tmp_path), "bank")
    [first, *_] = [
        line["first"]
        for line in worklist(Context(tmp_path), "bank").facts["worklist"]
        if line["kind"] == "links to confirm"
    ]

    assert ['cardlink deliver bank default --confirm 1 --reason "RECEIPT"'] * 2 == [
        str(done.next_step),
        first,
    ]


def test_a_confirmation_without_a_reason_is_refused(tmp_path: Path) -> None:
    bench = bank(tmp_path)
    bench.answer()
    bench.ingest()
    deliver(Context(tmp_path), "bank")

    with pytest.raises(NoReasonError):
        deliver(Context(tmp_path), "bank", confirm=1)
