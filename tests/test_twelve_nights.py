import csv
import io
import json
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from flows.reports.across import reconcile_runs
from flows.reports.ages import duration
from flows.runs.keys import reconciliation
from tests.twelve import NIGHTS, Story, live

pytestmark = pytest.mark.slow  # twelve nights take their time
AWAITED = ("chunks to upload", "results overdue", "results awaited")  # of the worklist


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return live(tmp_path_factory.mktemp("twelve"))


def summary(story: Story, run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(story.bench.report(run, "summary.json"))
    return found


def table(story: Story, run: str, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(story.bench.report(run, name).decode())))


def lost(report: dict[str, Any]) -> int:
    return sum(one["rows"] for one in report["breaks"] if one["name"] == "UNATTRIBUTED_ERROR")


def test_every_link_the_portal_gave_is_in_links_csv_and_no_other(story: Story) -> None:
    truth = {run: {row.booked.url for row in story.rows_of(run)} - {None} for run in story.runs}

    reported = {run: {row["url"] for row in table(story, run, "links.csv")} for run in story.runs}

    assert truth == reported
    assert sum(map(len, truth.values())) > NIGHTS * 50


def test_every_link_goes_to_the_cardholder_and_card_it_was_made_for(story: Story) -> None:
    truth = {
        (row.booked.cuid, row.booked.last_4, row.booked.url)
        for row in story.delivered.values()
        if row.booked.url
    }

    reported = {
        (row["cuid"], row["last_4"], row["url"])
        for run in story.runs
        for row in table(story, run, "links.csv")
    }

    assert truth == reported


def test_every_error_that_names_somebody_is_in_errors_csv_under_that_name(story: Story) -> None:
    failed = {
        run: [row for row in story.rows_of(run) if row.booked.url is None] for run in story.runs
    }
    named = {
        run: {row.booked.cuid for row in rows if not row.silent} for run, rows in failed.items()
    }
    silent = {run: {row.booked.cuid for row in rows if row.silent} for run, rows in failed.items()}

    reported = {run: {row["cuid"] for row in table(story, run, "errors.csv")} for run in story.runs}

    assert named == {run: cuids - silent[run] for run, cuids in reported.items()}
    assert any(silent.values())


def test_an_error_that_names_nobody_is_settled_or_counted_as_a_break_but_never_lost(
    story: Story,
) -> None:
    silent = {run: sum(row.silent for row in story.rows_of(run)) for run in story.runs}
    failed = {run: sum(row.booked.url is None for row in story.rows_of(run)) for run in story.runs}

    reports = {run: summary(story, run) for run in story.runs}

    settled = {
        run: report["rows"]["error"] - (failed[run] - silent[run])
        for run, report in reports.items()
    }
    assert silent == {run: settled[run] + lost(report) for run, report in reports.items()}


def test_the_figures_of_every_run_equal_the_recount(story: Story) -> None:
    truth = {
        run: {
            "read": story.read[run],
            "linked": sum(row.booked.url is not None for row in story.rows_of(run)),
            "not sent": story.bad[run],
            "unanswered": story.read[run] - story.bad[run] - len(story.rows_of(run)),
        }
        for run in story.runs
    }

    reports = {run: summary(story, run) for run in story.runs}

    assert truth == {
        run: {
            "read": report["rows"]["read"],
            "linked": report["rows"]["linked"],
            "not sent": report["rows"]["rejected"] + report["rows"]["duplicate"],
            "unanswered": report["rows"]["awaiting"] - lost(report),
        }
        for run, report in reports.items()
    }


def test_every_chunk_stands_as_it_was_answered(story: Story) -> None:
    rows = Counter(row.chunk for row in story.delivered.values())

    chunks = {row["name"]: row for run in story.runs for row in table(story, run, "chunks.csv")}

    assert sorted(chunks) == sorted(name for names in story.chunks.values() for name in names)
    assert {name: rows[name] for name in chunks} == {
        name: int(row["answers"]) for name, row in chunks.items()
    }


def test_a_run_is_out_of_balance_only_where_something_is_really_open(story: Story) -> None:
    short = {
        run
        for run in story.runs
        if any(0 < answered < sent for answered, sent in _chunks(story, run))
    }

    reports = {run: summary(story, run) for run in story.runs}

    open_kinds = {
        run: {one["name"] for one in report["breaks"] if not one["notice"]}
        for run, report in reports.items()
    }
    assert short == {run for run, names in open_kinds.items() if "RESULT_SHORT" in names}
    assert {"RESULT_SHORT", "UNATTRIBUTED_ERROR"} >= set().union(*open_kinds.values())
    assert all(
        (report["verdict"] == "out of balance") == bool(open_kinds[run])
        for run, report in reports.items()
    )


def _chunks(story: Story, run: str) -> list[tuple[int, int]]:
    return [(int(row["answers"]), int(row["sent"])) for row in table(story, run, "chunks.csv")]


def test_foreign_files_are_named_and_nothing_of_them_is_used(story: Story) -> None:
    named = {trouble.partition(":")[0] for taken in story.taken for trouble in taken.breaks}

    assert story.foreign
    assert story.foreign <= named


def test_what_is_outstanding_across_the_nights_equals_the_recount(story: Story) -> None:
    answered = Counter(row.chunk for row in story.delivered.values())
    missing = {
        name.removesuffix(".csv.pgp")
        for names in story.chunks.values()
        for name in names
        if not answered[name]
    }

    facts = reconcile_runs(story.bench.context)

    listed = awaited(story)
    assert missing == {f"{row['run']}-{int(row['chunk']):05d}" for row in listed}
    assert facts["outstanding"]["missing"]["no result"]["count"] == len(missing)
    assert facts["rows"]["read"] == sum(story.read.values())
    assert facts["rows"]["linked"] == sum(
        row.booked.url is not None for row in story.delivered.values()
    )


def test_the_age_of_what_is_outstanding_runs_from_the_commit(story: Story) -> None:
    facts = reconcile_runs(story.bench.context)

    listed = awaited(story)
    nights = [NIGHTS - 1 - story.runs.index(row["run"]) for row in listed]
    ages = [duration(timedelta(hours=6, days=count)) for count in nights]
    assert ages == [row["age"] for row in listed]
    assert (max(nights) >= 2) == (facts["outstanding"]["overdue"]["count"] > 0)


def awaited(story: Story) -> list[dict[str, str]]:
    """Return what is awaited of each chunk, as the list of all runs has it."""
    content = story.bench.content(reconciliation("bank") + "worklist.csv").decode()
    return [row for row in csv.DictReader(io.StringIO(content)) if row["kind"] in AWAITED]


def test_what_is_overdue_is_so_from_the_night_it_is_late_to_the_night_it_came(story: Story) -> None:
    overdue = [
        sum(
            look.at - since > timedelta(hours=48) and look.answered[name] < rows
            for run, since in story.committed.items()
            for name, rows in story.chunks[run].items()
        )
        for look in story.looks
    ]

    told = [look.facts["outstanding"]["overdue"]["count"] for look in story.looks]

    assert any(overdue)
    assert overdue == told
