"""Withdrawals that nobody decided wait above a share, in whatever way links are delivered."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from flows.extensions.deliveries.delivery import deliver
from flows.extensions.deliveries.matters import TO_DELIVER, WITHDRAWALS
from flows.extensions.deliveries.reaching import deliver_after_ingest
from flows.extensions.deliveries.receivers import confirm
from flows.reports.survey import survey
from flows.runs.context import overlaid
from tests.extensions.partner_api.town import Population, town

ALL = [f"c-{number:02}" for number in range(30)]
BOTH = ("leavers", "newcomers")
AUTOMATIC: dict[str, Any] = {"deliveries": {"crm": {}}}


def left(folder: Path, number: int, *, confirmed: bool = True, lives: int = 60) -> Population:
    """Return a town whose links were delivered before so many left, and one moved in."""
    place = town(folder, settings=AUTOMATIC)
    place.settle(*ALL)
    place.bench.submit(place.drop())
    place.answer(lives=lives)
    assert 1 == deliver(place.bench.context, "crm").number
    if confirmed:
        confirm(place.bench.context, 1, "receipt", "crm")
    for cuid in ALL[:number]:
        del place.people[cuid]
    place.settle("e-1")
    place.day += timedelta(days=1)
    place.bench.submit(place.drop(), opened=BOTH)
    place.answer(lives=lives)
    return place


@pytest.mark.parametrize("confirmed", [True, False])
def test_more_withdrawals_than_the_share_wait_and_what_is_new_is_delivered(
    tmp_path: Path, *, confirmed: bool
) -> None:
    place = left(tmp_path, 20, confirmed=confirmed)

    [outcome] = deliver_after_ingest(place.bench.context)
    by_hand = deliver(place.bench.context, "crm")

    record = outcome.delivered.record
    assert record is not None
    new = 1 if confirmed else 11
    assert (new, 0, 31) == (record.new, record.withdrawn, record.living)
    assert (20, False) == (by_hand.waiting, by_hand.fresh)


def test_an_opened_gate_withdraws_them_once_and_its_reason_is_recorded(tmp_path: Path) -> None:
    place = left(tmp_path, 20)
    context = place.bench.context

    rehearsed = deliver(overlaid(context), "crm", opened="the issuer said so")
    done = deliver(context, "crm", opened="the issuer said so")
    repeated = [deliver(context, "crm") for _ in range(2)]

    assert rehearsed.record is not None
    assert done.record is not None
    assert (20, 11, "the issuer said so") == (
        done.record.withdrawn,
        done.record.living,
        done.record.opened,
    )
    assert rehearsed.record.withdrawn == done.record.withdrawn
    assert [(2, 0, False)] * 2 == [(each.number, each.waiting, each.fresh) for each in repeated]


def test_a_few_are_withdrawn_without_a_decision(tmp_path: Path) -> None:
    place = left(tmp_path, 3)

    done = deliver(place.bench.context, "crm")

    assert done.record is not None
    assert (0, 3, "") == (done.waiting, done.record.withdrawn, done.record.opened)


def test_links_that_end_are_withdrawn_however_many_they_are(tmp_path: Path) -> None:
    place = left(tmp_path, 0, lives=30)
    place.day += timedelta(days=40)

    done = deliver(place.bench.context, "crm")

    assert done.record is not None
    assert (0, 30) == (done.waiting, done.record.withdrawn)


def test_the_worklist_has_what_waits_apart_until_it_is_decided(tmp_path: Path) -> None:
    place = left(tmp_path, 20)

    before = {work.kind: work for work in survey(place.bench.context).work}
    deliver(place.bench.context, "crm")
    waiting = {work.kind: work for work in survey(place.bench.context).work}
    deliver(place.bench.context, "crm", opened="the issuer said so")
    after = {work.kind for work in survey(place.bench.context).work}

    assert (20, 1) == (before[WITHDRAWALS.name].rows, before[TO_DELIVER.name].rows)
    assert "20 of the 30 links that were delivered." == before[WITHDRAWALS.name].note
    names = {WITHDRAWALS.name, TO_DELIVER.name}
    assert {WITHDRAWALS.name} == waiting.keys() & names
    assert not after & names
