"""What people decide, kind by kind: it stands once, is taken back, is in the journal, and two people
who decide at once do not both win.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import select

from flows.book.given_up import given_up_cards
from flows.database.connection import Database
from flows.errors import CardlinkError
from flows.operations.break_decisions import close_break, reopen_break
from flows.operations.giving_up import Which, give_up
from flows.operations.link_form import decide_form
from flows.operations.manual_attribution import attribute_row, withdraw
from flows.operations.remediation import dismiss
from flows.resend import keeping_links
from flows.resend.keeping_links import keep_links
from flows.runs.context import IssuerContext, overlaid
from flows.runs.erased import NamedPeople
from flows.runs.journal import entries
from flows.runs.persons import forget_persons, holders_of
from schemas.database import DECISION, JOURNAL
from tests.night import Bench, local_bench, moved_to
from tests.operations.test_attribute import file, link, mute
from tests.resend.test_changed import after_a_move

WHY = "so it was agreed"
FORM = "https://links.example.com/l/{hex:24}"
FRIDAY = datetime(2026, 11, 27, 18, tzinfo=UTC)


class Kind(NamedTuple):
    """A kind of decision: what leads to it, and how it is decided and taken back.

    `entered`: what the journal says of both; `bench`: an issuer of whom it can be decided.
    """

    before: Callable[[Bench], Any]
    decide: Callable[[IssuerContext, Any], Any]
    take_back: Callable[[IssuerContext, Any], Any]
    entered: tuple[str, str]
    bench: Callable[[Path], Bench] = lambda folder: an_issuer(folder)


def an_issuer(folder: Path) -> Bench:
    portal = {"rows_per_chunk": 5}
    return replace(
        local_bench(folder, schedule={"extract_by": "06:00"}, portal=portal), now=lambda: FRIDAY
    )


def night_and_no_other(bench: Bench) -> str:
    bench.submit(bench.drop(5))
    return "2026-11-24"


def short_result(bench: Bench) -> str:
    run = bench.submit(bench.drop(5)).manifest.run
    bench.answer(fail_share=0.0)
    [result] = bench.store.keys("bank/results/")
    rows = bench.content(result.key).splitlines(keepends=True)
    bench.store.replace(result.key, [b"".join(rows[:3])])
    bench.ingest()
    return run


def unattributed_errors(bench: Bench) -> str:
    run = bench.submit(bench.drop(10)).manifest.run
    sent = bench.ledger(run).rows(named=True)
    bench.drop_result(file([*(link(sent[at]) for at in (1, 0, 2)), mute(), mute()]), "a.csv")
    bench.ingest()
    return run


KINDS = {
    "link form": Kind(
        lambda _: FORM,
        lambda context, form: decide_form(context, form, WHY),
        lambda context, form: decide_form(context, form, WHY, undo=True),
        ("link form confirmed", "link form taken back"),
    ),
    "extract": Kind(
        lambda bench: bench.drop(5),
        lambda context, extract: dismiss(context, extract, WHY),
        lambda context, extract: dismiss(context, extract, WHY, undo=True),
        ("extract dismissed", "extract taken back"),
    ),
    "break": Kind(
        short_result,
        lambda context, run: close_break(context, run, "RESULT_SHORT", "", WHY),
        lambda context, run: reopen_break(context, run, "RESULT_SHORT", "", WHY),
        ("break closed", "break reopened"),
    ),
    "cards": Kind(
        lambda bench: bench.submit(bench.drop(5)).manifest.run,
        lambda context, run: give_up(context, Which(run, rows=frozenset({1, 2})), WHY),
        lambda context, run: give_up(context, Which(run, rows=frozenset({1, 2})), WHY, undo=True),
        ("cards given up", "cards taken up"),
    ),
    "links": Kind(
        lambda bench: keeping_links.Which(),
        lambda context, which: keep_links(context, which, WHY),
        lambda context, which: keep_links(context, which, WHY, undo=True),
        ("links kept", "links asked again"),
        lambda folder: after_a_move(folder, "a", "b")[0].bench,
    ),
    "result row": Kind(
        unattributed_errors,
        lambda context, run: attribute_row(context, "a.csv", 4, (run, 4), WHY),
        lambda context, _: withdraw(context, "a.csv", 4, WHY),
        ("result row attributed", "result row withdrawn"),
    ),
    "day": Kind(
        night_and_no_other,
        lambda context, day: dismiss(context, day, WHY),
        lambda context, day: dismiss(context, day, WHY, undo=True),
        ("day dismissed", "day taken back"),
    ),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def bench(tmp_path: Path, database: Database, kind: Kind) -> Bench:
    return moved_to(kind.bench(tmp_path / "bank"), database)


def rows(bench: Bench) -> list[Any]:
    """Return what is decided: by whom, and what stands of it."""
    query = select(DECISION.c.kind, DECISION.c.by, DECISION.c.stands).order_by(DECISION.c.number)
    with bench.database.snapshot() as connection:
        return list(connection.execute(query))


def journal(bench: Bench) -> list[tuple[str, str]]:
    """Return what the journal says was decided, and why."""
    said = {what for each in KINDS.values() for what in each.entered}
    return [
        (entry.what, entry.reason)
        for entry in entries(bench.adapters, "bank")
        if entry.what in said
    ]


def test_what_is_decided_is_taken_back_and_decided_again(kind: Kind, bench: Bench) -> None:
    subject = kind.before(bench)

    for act in (kind.decide, kind.take_back, kind.decide):
        act(bench.context, subject)

    decided, taken_back = kind.entered
    assert [(decided, WHY), (taken_back, WHY), (decided, WHY)] == journal(bench)
    assert 3 == len(rows(bench))


def test_of_two_people_who_decide_at_once_one_wins(kind: Kind, bench: Bench) -> None:
    subject = kind.before(bench)

    for act, entered in zip((kind.decide, kind.take_back), kind.entered, strict=True):

        def try_as(actor: str, act: Callable[[IssuerContext, Any], Any] = act) -> None:
            address = bench.database._url.render_as_string(hide_password=False)
            other = replace(bench, actor=actor, database=Database(address))
            try:
                act(other.context, subject)
            except CardlinkError:
                pass
            finally:
                other.database.close()

        with ThreadPoolExecutor(2) as people:
            list(people.map(try_as, ("anna", "ben")))
        assert (entered, WHY) == journal(bench)[-1]

    assert 2 == len(journal(bench)) == len(rows(bench))


def test_a_dry_run_decides_for_itself_alone(kind: Kind, bench: Bench) -> None:
    subject = kind.before(bench)
    dry = overlaid(bench.context)

    kind.decide(dry, subject)
    kind.take_back(dry, subject)

    assert ([], []) == (rows(bench), journal(bench))


def test_whom_a_decision_is_about_is_in_one_row_that_an_erasure_removes(
    tmp_path: Path, database: Database
) -> None:
    bench = replace(an_issuer(tmp_path / "bank"), database=database)
    run = bench.submit(bench.drop(5)).manifest.run
    cuids = bench.ledger(run)["cuid"].to_list()
    give_up(bench.context, Which(run, rows=frozenset({1, 2})), WHY)
    with database.snapshot() as connection:
        written = str(connection.execute(select(DECISION)).all())
        written += str(connection.execute(select(JOURNAL)).all())

    forget_persons(bench.adapters, "bank", NamedPeople(frozenset({cuids[0]})))

    assert not [cuid for cuid in cuids if cuid in written]
    assert [cuids[1]] == [*holders_of(bench.adapters, "bank").values()]
    assert [cuids[1]] == given_up_cards(bench.adapters, "bank")["holder"].to_list()
    assert 1 == len(rows(bench))
