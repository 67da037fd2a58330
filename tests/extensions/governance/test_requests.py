"""Requests for a second person: until when they count, and how often."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Executable, delete, insert, select, update

from flows.database.connection import Database
from flows.extensions.governance.in_force import Compared
from flows.extensions.governance.requests import (
    number_of,
    stopped,
    unexpired,
)
from flows.extensions.governance.tables import REQUEST
from flows.extensions.governance.two_persons import (
    ApprovalError,
    Command,
    NobodyError,
    _versions,
    carrying_out,
    request,
)
from flows.operations.audit import verify
from flows.operations.audit_journal import CHANGED, EMPTIED, INSERTED, REMOVED
from flows.runs.context import IssuerContext
from flows.runs.keys import corrections, extracts, results
from tests.extensions.governance.test_governed_at_once import Killed, dying
from tests.memory_bench import memory_bench
from tests.night import BANK, NOON, Bench, local_bench

MOMENT = timedelta(microseconds=1)
LINE = "cardlink outbox release bank-20261120-01234567 1"


def command(actor: str) -> Command:
    """Return a command with one parameter, which takes effect on nothing."""
    settings = Compared({"four_eyes.hours": 2}, None, [])
    return Command("release", LINE, {"chunks": [1]}, (), {}, actor, "agreed", settings)


def requested(bench: Bench, given: Command) -> str:
    """Request something; return the number of the request."""
    return request(bench.context, given).number


def waiting(context: IssuerContext) -> list[str]:
    """Return the numbers of the requests that can be carried out."""
    return [each.number for each in unexpired(context) if each.is_open]


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
    return carried_out_in(bench.context, number, actor)


def carried_out_in(context: IssuerContext, number: str, actor: str = "bert") -> str:
    """Carry a request out in a context; return who made it, or why it was not carried out."""
    try:
        with carrying_out(context, number, command(actor)) as maker:
            return maker
    except ApprovalError as error:
        return str(error.fields["why"])


def test_a_request_counts_until_the_moment_it_expires(tmp_path: Path) -> None:
    bench, after = bench_at(tmp_path)
    number = requested(bench, command("anna"))
    hours = timedelta(hours=2)

    told = []
    for passed in (hours + MOMENT, hours, hours - MOMENT):
        after(passed)
        open_ones = waiting(bench.context)
        told.append((open_ones, carried_out(bench, number)))

    nothing: list[str] = []
    expired = (nothing, "it expired on 2026-11-20 14:00")
    assert [expired, expired, ([number], "anna")] == told
    assert [] == waiting(bench.context)
    assert "bert used it on 2026-11-20 13:59" == carried_out(bench, number, "carl")


def test_a_request_whose_command_failed_can_be_carried_out_by_anybody_but_its_maker(
    tmp_path: Path,
) -> None:
    bench, _ = bench_at(tmp_path)
    number = requested(bench, command("anna"))

    with pytest.raises(KeyboardInterrupt), carrying_out(bench.context, number, command("bert")):
        raise KeyboardInterrupt

    assert [number] == waiting(bench.context)
    for name in ("anna", "ANNA", "an.na "):
        assert carried_out(bench, number, name).startswith("anna made it; a different person")
    assert "anna" == carried_out(bench, number, "bert")
    assert "there is no such request" == carried_out(bench, "0" * 12)


def test_a_request_whose_command_has_not_ended_is_known_until_it_expires_or_is_made_again(
    tmp_path: Path,
) -> None:
    bench, after = bench_at(tmp_path)
    number = requested(bench, command("anna"))

    def not_ended() -> list[str]:
        return [one.number for one in stopped(unexpired(bench.context))]

    under_way = carrying_out(bench.context, number, command("bert"))
    told = [not_ended()]
    under_way.__enter__()
    told.append(not_ended())
    after(timedelta(hours=2))
    told.append(not_ended())
    after(timedelta(hours=1))
    again = requested(bench, command("anna"))
    told.append(not_ended())

    assert [[], [number], [], []] == told
    assert ["anna", []] == [carried_out(bench, again), not_ended()]
    under_way.__exit__(None, None, None)


def test_what_is_requested_again_while_it_waits_is_the_same_request(tmp_path: Path) -> None:
    bench, after = bench_at(tmp_path)
    first = request(bench.context, command("anna"))
    after(timedelta(hours=1))
    others = [command("carl"), command("anna")._replace(reason="another")]
    bench.actor = "tester:2"

    again = request(bench.context, command("anna"))
    numbers = {first.number, *(requested(bench, other) for other in others)}

    assert first == again
    assert numbers == {*waiting(bench.context)}
    assert 3 == len(numbers)


def test_a_request_whose_command_ended_is_not_one_that_was_stopped(tmp_path: Path) -> None:
    bench, _ = bench_at(tmp_path)
    number = requested(bench, command("anna"))

    assert "anna" == carried_out(bench, number)

    assert ([], []) == (waiting(bench.context), stopped(unexpired(bench.context)))
    assert carried_out(bench, number, "carl").startswith("bert used it on")


def test_of_two_who_carry_out_a_request_at_the_same_moment_one_is_refused_with_its_number(
    tmp_path: Path,
) -> None:
    bench, _ = bench_at(tmp_path)
    number = requested(bench, command("anna"))
    first = carrying_out(bench.context, number, command("carl"))

    def meanwhile() -> dict[str, str]:
        assert "anna" == first.__enter__()
        return {}

    second = command("bert")._replace(rehearse=meanwhile)
    with (
        pytest.raises(ApprovalError, match="somebody else is carrying it out") as refused,
        carrying_out(bench.context, number, second),
    ):
        pass

    assert number == refused.value.fields["number"]
    first.__exit__(None, None, None)
    assert carried_out(bench, number).startswith("carl used it on")


@pytest.mark.parametrize(
    ("when", "later", "is_stopped"),
    [("before", "anna", False), ("after", "bert used it on 2026-11-20 12:00", True)],
)
def test_a_request_whose_second_person_was_killed_is_used_up_once_that_is_recorded(
    tmp_path: Path, when: str, later: str, is_stopped: bool
) -> None:
    bench, _ = bench_at(tmp_path)
    number = requested(bench, command("anna"))

    with pytest.raises(Killed):
        carried_out_in(dying(bench, when), number)

    assert is_stopped is bool(stopped(unexpired(bench.context)))
    assert later == carried_out(bench, number, "carl")


EDITS = {
    "at": NOON - MOMENT,
    "by": "another",
    "actor": "bert",
    "reason": "",
    "act": "purge",
    "until": NOON + timedelta(days=9),
    "line": f"{LINE} 2",
    "parameters": {"chunks": [2]},
    "would": {"rows": 1},
    "files": {"a": "1"},
    "settings": 9,
    "signature": "none",
}


def test_whatever_is_changed_of_a_request_is_refused_and_found(
    tmp_path: Path, database: Database
) -> None:
    bench = replace(local_bench(tmp_path), database=database)
    number = requested(bench, command("anna"))
    used = requested(bench, command("carl"))
    assert "carl" == carried_out(bench, used)
    open_one = update(REQUEST).where(REQUEST.c.number == number)
    used_one = update(REQUEST).where(REQUEST.c.number == used)
    with database.snapshot() as connection:
        query = select(REQUEST).where(REQUEST.c.number == number)
        forged = {**connection.execute(query).mappings().one(), "actor": "bert"}
    forged["number"] = number_of(forged)

    def attacked(attack: Executable, attacked_number: str) -> tuple[str, str]:
        """Return why a request is not carried out after an attack, and what is found of it."""
        with database.rehearsal(BANK) as connection:
            connection.execute(attack)
            adapters = bench.adapters.within(connection)
            [finding] = verify(adapters, BANK).findings
            assert f"request/{attacked_number}" == finding.key
            context = bench.context._replace(adapters=adapters)
            return carried_out_in(context, attacked_number, "dora"), finding.what

    edited = (f"what is requested is not that of request {number}", CHANGED)
    for name, value in EDITS.items():
        assert edited == attacked(open_one.values({name: value}), number), name
    not_so = "it is not as the journal has it"
    assert (not_so, CHANGED) == attacked(open_one.values(entry=REQUEST.c.entry + 99), number)
    assert (not_so, CHANGED) == attacked(used_one.values(state="given back"), used)
    assert (not_so, INSERTED) == attacked(insert(REQUEST).values(**forged), forged["number"])
    gone = "there is no such request"
    emptied = open_one.values(line=None, parameters=None, would=None)
    assert (gone, EMPTIED) == attacked(emptied, number)
    removed = delete(REQUEST).where(REQUEST.c.number == number)
    assert (gone, REMOVED) == attacked(removed, number)
    assert "anna" == carried_out(bench, number, "dora")


@pytest.mark.parametrize("name", ["", "  ", "--"])
def test_nobody_makes_or_carries_out_a_request(tmp_path: Path, name: str) -> None:
    bench, _ = bench_at(tmp_path)
    number = requested(bench, command("anna"))

    with pytest.raises(NobodyError):
        request(bench.context, command(name))
    with pytest.raises(NobodyError), carrying_out(bench.context, number, command(name)):
        pass


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
