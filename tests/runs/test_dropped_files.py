"""Files in the folders of others: those of systems are left alone, and a name that cannot be used
is a line of the worklist and stops nothing else.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from flows.adapters.s3 import S3Store
from flows.operations.undecided_work import beside_runs
from flows.reports import work_kinds as kinds
from flows.reports.survey import survey
from flows.runs.dropped_files import is_companion
from flows.submissions.extract_states import extract_states, unsubmitted
from tests import servers
from tests.night import Bench, issuer

OF_SYSTEMS = (
    ".DS_Store",
    "._cards.csv",
    "Thumbs.db",
    "desktop.ini",
    ".gitkeep",
    "cards.csv:Zone.Identifier",
    "cards.csv.filepart",
    ".cards.csv.Xy12ab",
    "~$cards.xlsx",
)
UNUSABLE = (
    "extracts//cards.csv",
    "extracts/car\tds.csv",
    "extracts/../cards.csv",
    "extracts/4111111111111111.csv",
    "results//result.csv",
    "results/./result.csv",
    "corrections/a//b.csv",
)


@pytest.mark.parametrize("name", OF_SYSTEMS)
def test_a_file_that_a_system_leaves_beside_others_is_told_from_them(name: str) -> None:
    assert is_companion(f"bank/extracts/day/{name}")


@pytest.mark.parametrize("name", ["cards.csv", "thumbs.csv", "cards.part.csv", "a.b.c.csv"])
def test_a_file_that_a_person_drops_is_taken(name: str) -> None:
    assert not is_companion(f"bank/extracts/{name}")


def test_names_that_cannot_be_used_are_lines_of_the_worklist_and_stop_nothing(
    moto_server: servers.S3Server,
) -> None:
    store = servers.store(moto_server, "dropped-files")
    assert isinstance(store, S3Store)
    client = servers.client(moto_server.endpoint)
    bench = Bench(store, issuer(), now=lambda: datetime.now(UTC))
    good = bench.drop(5)
    folders = ("extracts", "results", "corrections")
    of_systems = [f"{folder}/{name}" for folder in folders for name in OF_SYSTEMS]
    for name in (*UNUSABLE, *of_systems):
        key = f"dropped-files/bank/{name}"
        client.put_object(Bucket=moto_server.bucket, Key=key, Body=b"")

    before = unsubmitted(bench.context)
    bench.submit(good)
    bench.answer()
    bench.ingest()
    work = survey(bench.context, beside=beside_runs()).work

    taken = {extract.key: extract.waits for extract in before if not extract.waits}
    assert {f"bank/extracts/{good}": ""} == taken
    assert 4 == sum(extract.state == "unusable" for extract in extract_states(bench.context))
    names = {str(dict(line.fields)["name"]) for line in work if line.kind == kinds.UNUSABLE_NAMES}
    assert 7 == len(names)
    assert {"extracts//cards.csv", "extracts/car?ds.csv", "corrections/a//b.csv"} < names
    assert {kinds.UNUSABLE_NAMES} == {line.kind for line in work}
    assert "4111111111111111" not in str(work)
