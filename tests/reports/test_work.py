"""A line of the worklist: work of one kind, or of several that one command settles."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from flows.reports import work_kinds as kinds
from flows.reports.work import Line, Work, lines, together

NOW = datetime(2026, 11, 12, 9, tzinfo=UTC)
REFUSED, LOST = "card.creation.unknown", "result.missing"


def work(kind: str, issuer: str, code: str, rows: int) -> Work:
    run = f"{issuer}-20261110-0a1b2c3d"
    return Work(NOW, kind, issuer, NOW, run=run, rows=rows, codes=frozenset({code}))


def joined(*works: Work) -> list[Line]:
    return together(lines(works))


def test_rows_that_go_out_again_as_they_are_are_one_line_whatever_became_of_them() -> None:
    [line] = joined(
        work(kinds.SEND_AGAIN, "bank", REFUSED, 3), work(kinds.LOST_ROWS, "zebra", LOST, 2)
    )

    [again, give_up] = [str(choice.command) for choice in line.choices]

    assert ("rows to send again", "bank,zebra", 5) == (line.kind.name, line.issuer, line.rows)
    assert f"resubmit bank,zebra --code {REFUSED} --code {LOST}" in again
    assert f"give-up bank,zebra --code {REFUSED} --code {LOST}" in give_up
    assert "2 runs, 5 cardholders" in line.sentence
    assert "though their rows are correct: 3. " in line.sentence
    assert line.sentence.endswith("as an operator decided: 2.")


def test_a_line_of_one_kind_keeps_its_name() -> None:
    [line] = joined(work(kinds.LOST_ROWS, "bank", LOST, 3), work(kinds.LOST_ROWS, "zebra", LOST, 2))

    assert kinds.LOST_ROWS == line.kind.name


def test_beside_newer_runs_the_old_ones_can_be_given_up_alone() -> None:
    last_night = work(kinds.CORRECT, "bank", "city", 1)
    of_zebra = work(kinds.CORRECT, "zebra", "city", 1)
    old = [
        of_zebra._replace(run=f"zebra-2026102{digit}-0a1b2c3d", since=day, is_late=True)
        for digit, day in enumerate([NOW - timedelta(days=20), NOW - timedelta(days=22)])
    ]

    [mixed, only_old] = [
        {choice.name: str(choice.command) for choice in line.choices}
        for line in (*joined(last_night, of_zebra, *old), *joined(*old))
    ]

    assert ["give up the old", "give up"] == [*mixed]
    command = mixed["give up the old"]
    assert 'give-up zebra --code city --rows 2 --reason "WHY" --before 2026-10-24' in command
    assert ["give up"] == [*only_old]


def test_what_another_command_settles_stays_a_line_of_its_own() -> None:
    works = [work(kinds.SEND_AGAIN, "bank", REFUSED, 3), work(kinds.CORRECT, "bank", "city", 1)]

    assert 2 == len(joined(*works))
