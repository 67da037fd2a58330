"""Requests for a second person: until when they count, and how often."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from flows.adapters.local import LocalStore
from flows.operations import four_eyes
from flows.operations.four_eyes import (
    ApprovalError,
    Command,
    NobodyError,
    _changed_files,
    _versions,
    carrying_out,
    request,
)
from flows.operations.stored_requests import open_requests, stopped, unexpired_requests
from flows.runs.keys import approvals, corrections, extracts, results
from flows.runs.store import StoreBusyError
from tests.memory import KilledError
from tests.memory_bench import memory_bench
from tests.night import NOON, Bench, local_bench

MOMENT = timedelta(microseconds=1)
LINE = "cardlink outbox release bank-20261120-01234567 1"


def command(actor: str) -> Command:
    """Return a command with one parameter, which takes effect on nothing."""
    return Command("release", LINE, {"chunks": [1]}, (), {}, actor, "agreed", hours=2)


def bench_at(folder: Path) -> tuple[Bench, Callable[[timedelta], None]]:
    """Return a bench, and what sets its clock to so long after NOON."""
    bench = local_bench(folder)
    moments = [NOON]

    def now() -> datetime:
        return moments[-1]

    bench.now = now
    return bench, lambda passed: moments.append(NOON + passed)


def carried_out(bench: Bench, number: str, actor: str = "bert") -> str:
    """Carry a request out; return who made it, or why it was not carried out."""
    try:
        with carrying_out(bench.context, number, command(actor)) as maker:
            return maker
    except ApprovalError as error:
        return str(error.fields["why"])


def test_a_request_counts_until_the_moment_it_expires(tmp_path: Path) -> None:
    bench, after = bench_at(tmp_path)
    number, _ = request(bench.context, command("anna"))
    hours = timedelta(hours=2)

    told = []
    for passed in (hours + MOMENT, hours, hours - MOMENT):
        after(passed)
        open_ones = [one.number for one in open_requests(bench.context)]
        told.append((open_ones, carried_out(bench, number)))

    nothing: list[str] = []
    expired = (nothing, "it expired on 2026-11-20 14:00")
    assert [expired, expired, ([number], "anna")] == told
    assert [] == open_requests(bench.context)
    assert "bert used it on 2026-11-20 13:59" == carried_out(bench, number, "carl")


def test_a_request_whose_command_failed_can_be_carried_out_by_anybody_but_its_maker(
    tmp_path: Path,
) -> None:
    bench, _ = bench_at(tmp_path)
    number, _ = request(bench.context, command("anna"))

    with pytest.raises(KeyboardInterrupt), carrying_out(bench.context, number, command("bert")):
        raise KeyboardInterrupt

    assert [number] == [one.number for one in open_requests(bench.context)]
    for name in ("anna", "ANNA", "an.na "):
        assert carried_out(bench, number, name).startswith("anna made it; a different person")
    assert "anna" == carried_out(bench, number, "bert")
    assert "there is no such request" == carried_out(bench, "0" * 12)


def test_a_request_whose_command_has_not_ended_is_known_until_it_expires_or_is_made_again(
    tmp_path: Path,
) -> None:
    bench, after = bench_at(tmp_path)
    number, _ = request(bench.context, command("anna"))

    def not_ended() -> list[str]:
        return [one.number for one in stopped(unexpired_requests(bench.context))]

    under_way = carrying_out(bench.context, number, command("bert"))
    told = [not_ended()]
    under_way.__enter__()
    told.append(not_ended())
    after(timedelta(hours=2))
    told.append(not_ended())
    after(timedelta(hours=1))
    again, _ = request(bench.context, command("anna"))
    told.append(not_ended())

    assert [[], [number], [], []] == told
    assert ["anna", []] == [carried_out(bench, again), not_ended()]
    under_way.__exit__(None, None, None)


def test_what_is_requested_again_while_it_waits_is_the_same_request(tmp_path: Path) -> None:
    bench, after = bench_at(tmp_path)
    number, record = request(bench.context, command("anna"))
    after(timedelta(hours=1))
    others = [command("carl"), command("anna")._replace(reason="another")]
    bench.actor = "tester:2"

    again = request(bench.context, command("anna"))
    numbers = {number, *(request(bench.context, other)[0] for other in others)}

    assert (number, record) == again
    assert numbers == {waiting.number for waiting in open_requests(bench.context)}
    assert 3 == len(numbers)


def test_a_request_whose_command_ended_is_not_one_that_was_stopped(tmp_path: Path) -> None:
    bench, _ = bench_at(tmp_path)
    number, _ = request(bench.context, command("anna"))

    assert "anna" == carried_out(bench, number)

    assert ([], []) == (open_requests(bench.context), stopped(unexpired_requests(bench.context)))
    assert carried_out(bench, number, "carl").startswith("bert used it on")


def test_of_two_who_carry_out_a_request_at_the_same_moment_one_is_refused_with_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, _ = bench_at(tmp_path)
    number, _ = request(bench.context, command("anna"))
    monkeypatch.setattr(four_eyes, "add_next", lambda *_: False)

    with (
        pytest.raises(ApprovalError, match="somebody else is carrying it out") as refused,
        carrying_out(bench.context, number, command("bert")),
    ):
        pass

    assert number == refused.value.fields["number"]


def test_a_request_whose_carrying_out_could_not_be_recorded_can_be_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, _ = bench_at(tmp_path)
    number, _ = request(bench.context, command("anna"))
    create = LocalStore.create

    def create_none_there(store: LocalStore, key: str, data: bytes) -> bool:
        if key.startswith(approvals("bank")):
            raise StoreBusyError(place=key, code="busy")
        return create(store, key, data)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(LocalStore, "create", create_none_there)
        with pytest.raises(StoreBusyError):
            carried_out(bench, number)

    assert "anna" == carried_out(bench, number)


def test_a_request_whose_second_person_was_killed_before_it_was_recorded_is_not_called_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, set_clock = bench_at(tmp_path)
    number, _ = request(bench.context, command("anna"))
    create = LocalStore.create
    dead = list[str]()

    def mortal(store: LocalStore, key: str, data: bytes) -> bool:
        dead.extend([key] if key.startswith(approvals("bank")) else [])
        if dead:
            raise KilledError
        return create(store, key, data)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(LocalStore, "create", mortal)
        with pytest.raises(KilledError):
            carried_out(bench, number)

    at_once = carried_out(bench, number)
    set_clock(timedelta(minutes=16))

    assert "somebody is carrying it out, or was killed doing so" in at_once
    assert "anna" == carried_out(bench, number)


@pytest.mark.parametrize("name", ["", "  ", "--"])
def test_nobody_makes_or_carries_out_a_request(tmp_path: Path, name: str) -> None:
    bench, _ = bench_at(tmp_path)
    number, _ = request(bench.context, command("anna"))

    with pytest.raises(NobodyError):
        request(bench.context, command(name))
    with pytest.raises(NobodyError), carrying_out(bench.context, number, command(name)):
        pass


def test_a_file_that_was_replaced_came_or_went_since_the_request_is_named() -> None:
    before = {"a.csv": "1", "b.csv": "1", "d.csv": "1"}
    after = {"a.csv": "2", "c.csv": "1", "d.csv": "1"}

    assert "a.csv is replaced, b.csv is gone, c.csv is new" == _changed_files(before, after)
    assert "" == _changed_files(before, before)


def test_the_files_of_a_request_are_looked_for_where_the_issuer_the_partner_and_operators_drop_them() -> (
    None
):
    bench = memory_bench()
    keys = [f"{place('bank')}x.csv" for place in (extracts, corrections, results)]
    for key in [*keys, f"{extracts('bank')}other.txt"]:
        bench.store.create(key, b"x")

    named = command("ann")._replace(files=("x.csv",), local={"y.csv": "2"})
    every = command("ann")._replace(files=("",))

    assert {*keys, "y.csv"} == set(_versions(bench.context, named))
    assert {*keys[:2], f"{extracts('bank')}other.txt"} == set(_versions(bench.context, every))
    assert {} == _versions(bench.context, command("ann"))
