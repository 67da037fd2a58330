"""What analysts ask: the views say what the book and the reports say, on each kind of database, and
the ledgers of all runs are one table.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from sqlalchemy import Connection, text

from flows.book.book import read_book
from flows.book.people import counted_cards, people
from flows.book.standing import LEFT, NOT_SENT, PLACED, REFUSED, SERVED, TO_UPLOAD
from flows.database import migrate
from flows.database.connection import Database
from flows.extensions.deliveries.delivery import deliver
from flows.reports.across import reconcile_runs
from flows.resend.resubmission import Request
from flows.resend.resubmission_run import resubmit
from flows.resend.selection import RowSelection
from flows.runs.outbox import move
from schemas.ledger import Ledger
from schemas.portal import ADDRESS1, CITY, CUID
from schemas.views import COLUMNS, STATES, VIEWS
from tests.builders import portal_rows
from tests.memory import KilledError
from tests.night import DAY, NOON, Bench, killed_at, local_bench, portal_csv
from tests.resend.test_corrections import fill

PAGE = (Path(__file__).parents[2] / "deploy/ANALYSTS.md").read_text("utf-8")
OF_VIEWS, _, OF_LEDGERS = PAGE.partition("## The ledgers")
BLOCK = re.compile(r"```sql\n(.+?)```", re.DOTALL)
QUESTIONS = BLOCK.findall(OF_VIEWS)
COMMITTED = "SELECT run FROM runs WHERE ended = 'committed'"  # as the page has it


def extract(*changed: dict[str, str | None], count: int = 12, start: int = 1) -> bytes:
    """Return an extract of cardholders c-1, c-2 …, the first of them changed."""
    rows = [{CUID: f"c-{number}"} for number in range(start, start + count)]
    for at, change in enumerate(changed):
        rows[at] |= change  # type: ignore[arg-type]  # a cell may be empty
    return portal_csv(portal_rows(*rows))


def after_nights(folder: Path, database: Database) -> Bench:
    """Return a bench with a night that was answered and corrected, and a second one, a portfolio,
    that two have left and whose chunks are cancelled, or wait.
    """
    first = replace(
        local_bench(folder, portal={"rows_per_chunk": 3}, full_portfolio=True), database=database
    )
    run = first.submit(first.drop_bytes(extract({CITY: None}), "bank-20261119.csv")).manifest.run
    first.answer(fail_share=0.4, seed=1)
    first.ingest()
    deliver(first.context)
    bench = replace(first, now=lambda: NOON + timedelta(hours=1))
    corrections = Request(run, RowSelection(), "corrected", corrections="fix.csv")
    resubmit(bench.context, corrections, content=fill(bench, run, {(1, CITY): "Salem"}))
    second = extract({CITY: None}, {ADDRESS1: "9 Other Street"}, count=18, start=3)
    again = bench.submit(bench.drop_bytes(second, "bank-20261120.csv")).manifest.run
    move(bench.context.adapters, again, "cancelled", [1], "by request")
    return bench


@pytest.fixture(scope="module", params=["SQLite", "PostgreSQL"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The nights on each kind of database; whoever asks changes nothing of them."""
    folder = tmp_path_factory.mktemp("nights")
    with ExitStack() as opened:
        address = f"sqlite:///{folder}/cardlink.db"
        if request.param == "PostgreSQL":
            server = request.getfixturevalue("postgresql_server")
            address = opened.enter_context(server.database())
        database = Database(address)
        opened.callback(database.close)
        yield after_nights(folder, database)


@contextmanager
def up_to_date(bench: Bench) -> Iterator[Connection]:
    """Yield a connection to the database as a command leaves it that looked at all runs."""
    read_book(bench.adapters, "bank")
    with bench.database.snapshot() as connection:
        yield connection


def asked(bench: Bench, query: str) -> list[dict[str, Any]]:
    """Return what an analyst is answered: days as days, whatever the database keeps them as."""
    with up_to_date(bench) as connection:
        rows = connection.exec_driver_sql(query).mappings().all()
    return [{name: _as_day(name, value) for name, value in row.items()} for row in rows]


def _as_day(name: str, value: object) -> object:
    is_day = name.endswith(("_until", "_date", "_on")) or name == "week"
    return date.fromisoformat(value) if is_day and isinstance(value, str) else value


def test_the_views_say_of_each_cardholder_what_the_book_says(bench: Bench) -> None:
    book = read_book(bench.adapters, "bank")
    cards = book.cards(DAY)

    rows = asked(bench, "SELECT * FROM cardholders")

    known = book.attempts.group_by("holder").agg(
        pl.col("cuid").last(),
        *((pl.col("state") == state).sum().alias(state) for state in STATES),
        first_date=pl.col("as_of").min(),
        last_date=pl.col("as_of").max(),
        sent=pl.col("sendings").sum(),
        cards=pl.col("last_4").drop_nulls().n_unique(),
    )
    ends = cards.group_by("holder").agg(link_until=pl.col("until").max())
    of_book = known.join(ends, on="holder").drop("holder").sort("cuid").to_dicts()
    assert of_book == [
        {name: row[name] for name in of_book[0]}
        for row in sorted(rows, key=lambda row: row["cuid"])
    ]
    left = cards.filter(pl.col("standing") == LEFT.name)
    assert {"c-1", "c-2"} == set(left["cuid"])
    assert dict.fromkeys(left["cuid"], DAY) == {
        row["cuid"]: row["left_on"] for row in rows if row["left_on"] is not None
    }


def test_who_has_a_link_waits_or_was_refused_agrees_with_where_cardholders_stand(
    bench: Bench,
) -> None:
    stands = people(counted_cards(read_book(bench.adapters, "bank").cards(DAY)))
    of_book = dict(stands.select("cuid", "standing").iter_rows())
    served = {state.name for state in SERVED if state is not PLACED}

    rows = asked(bench, "SELECT * FROM cardholders WHERE left_on IS NULL")

    for row in rows:
        standing = of_book[row["cuid"]]
        has_link = row["link_until"] is not None and row["link_until"] >= DAY
        assert has_link == (standing in served)
        if not has_link:
            assert bool(row["awaiting"]) == (standing == TO_UPLOAD.name)
            assert (row["state"] == "rejected") == (standing == NOT_SENT.name)
            assert (row["state"] == "error") == (standing == REFUSED.name)
    assert {"delivered", "refused", "to upload", "not sent", "cancelled"} == {
        of_book[row["cuid"]] for row in rows
    }


def test_runs_and_weeks_add_up_as_the_reports_do(bench: Bench) -> None:
    reported = {run["run"]: run for run in reconcile_runs(bench.context)["runs"]}

    runs = asked(bench, "SELECT * FROM runs ORDER BY committed_at")
    [week] = asked(bench, "SELECT * FROM weeks")
    attempts = asked(bench, "SELECT * FROM attempts")

    assert ["extract", "resubmission", "extract"] == [run["kind"] for run in runs]
    for run in runs:
        figures = reported[run["run"]]
        assert (figures["linked"], figures["error"]) == (run["linked"], run["error"])
        assert figures["awaiting"] == run["awaiting"] + run["cancelled"]
        assert figures["rejected"] == run["rejected"]
        assert run["sent"] == run["linked"] + run["error"] + run["awaiting"]
    assert (3, date(2026, 11, 16)) == (week["runs"], week["week"])
    for name in ("sent", *STATES):
        assert week[name] == sum(run[name] for run in runs)
    for state in STATES:
        assert week[state] == sum(attempt["state"] == state for attempt in attempts) > 0


def test_outstanding_are_the_chunks_that_are_neither_answered_nor_cancelled(bench: Bench) -> None:
    waiting = {
        (run.id, chunk.chunk.number): (chunk.state, chunk.chunk.rows)
        for run in bench.runs.committed()
        for chunk in run.outbox
        if chunk.state in ("waiting", "held", "uploaded")
    }

    rows = asked(bench, "SELECT * FROM outstanding")

    assert waiting == {
        (row["run"], row["chunk"]): (row["waits_for"], row["awaiting"]) for row in rows
    }
    assert waiting
    assert {0} == {row["troubled"] for row in rows}


def test_no_view_has_a_link_or_what_a_cardholder_is_known_by(bench: Bench) -> None:
    for view in VIEWS:
        rows = asked(bench, f"SELECT * FROM {view.name}")
        if not rows:  # of an extension, of which this bench has nothing
            continue
        assert [*view.columns] == [*rows[0]]
        assert not any("https:" in str(value) for row in rows for value in row.values())
        assert not {"url", "link", "holder", "person", "expiration"} & rows[0].keys()
        assert [] == [name for name in rows[0] if "check" in name]
    assert COLUMNS.keys() == {name for view in VIEWS for name in view.columns}


@pytest.mark.parametrize("number", range(5))
def test_a_question_of_the_page_is_answered(bench: Bench, number: int) -> None:
    stands = people(counted_cards(read_book(bench.adapters, "bank").cards(DAY)))
    served = stands.filter(pl.col("standing").is_in([state.name for state in SERVED]))

    answer = asked(bench, QUESTIONS[number])

    assert answer
    if number == 1:
        numbers = {row["has"]: row["cardholders"] for row in answer}
        assert (served.height, 2) == (numbers["link"], numbers["left"])
        assert stands.height == sum(numbers.values())
    if number == 4:
        assert set(served["cuid"]) >= {row["cuid"] for row in answer}


def test_the_page_has_five_questions_and_which_runs_are_committed() -> None:
    assert 5 == len(QUESTIONS)
    assert COMMITTED in OF_LEDGERS


def test_the_ledgers_of_all_committed_runs_are_one_table(tmp_path: Path) -> None:
    bench = after_nights(tmp_path, Database(tmp_path / "cardlink.db"))
    with pytest.raises(KilledError):  # its ledger is there, and does not count
        killed_at(bench, "committed").submit(
            bench.drop_bytes(extract(count=18, start=4), "bank-20261121.csv")
        )
    runs = [run.id for run in bench.runs.committed()]
    [query] = BLOCK.findall(OF_LEDGERS)
    listed = tmp_path / "runs.csv"
    query = query.replace("ROOT", str(tmp_path / "store")).replace("runs.csv", str(listed))
    view, question = query.split(";")[:2]
    with bench.database.snapshot() as connection:
        committed = connection.execute(text(COMMITTED)).scalars().all()
    listed.write_text("\n".join(["run", *committed]), "utf-8")

    with duckdb.connect() as engine:
        engine.execute(view)
        fates = engine.execute(question).fetchall()
        rows = engine.execute("SELECT run, issuer, row, cuid, fate FROM ledgers").fetchall()

    ledgers = [(run, "bank", *row) for run in runs for row in ledger_of(bench, run)]
    assert sorted(ledgers) == sorted(rows)
    assert len(rows) == sum(number for *_, number in fates)
    assert 3 == len(runs) < len(list(bench.runs.ids))


def ledger_of(bench: Bench, run: str) -> list[tuple[Any, ...]]:
    return bench.ledger(run).select("row", "cuid", "fate").rows()


def test_polars_reads_the_same_files_by_the_same_globs(tmp_path: Path) -> None:
    bench = after_nights(tmp_path, Database(tmp_path / "cardlink.db"))
    files = f"{tmp_path}/store/bank/runs/bank-202611*/ledger/*.parquet"

    rows = pl.scan_parquet(files, include_file_paths="file").collect()

    run = pl.col("file").str.split("/").list.get(-3)
    expected = {run.id: bench.ledger(run.id).height for run in bench.runs.committed()}
    assert [*Ledger.dtypes(), "file"] == rows.columns
    assert expected == dict(rows.group_by(run.alias("run")).len().iter_rows())


NEXT = """
from alembic import op
revision = "0002"
down_revision = "0001"
def upgrade():
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE attempt ALTER COLUMN reason TYPE varchar")
    op.execute("ALTER TABLE attempt RENAME COLUMN twin TO number_of_twin")
"""


def test_the_views_are_made_anew_with_the_tables(
    tmp_path: Path, database: Database, database_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.snapshot() as connection:
        assert [] == connection.exec_driver_sql("SELECT * FROM weeks").all()
    shutil.copytree(migrate.FOLDER, tmp_path / "migrations")
    (tmp_path / "migrations/versions/0002_next.py").write_text(NEXT)
    monkeypatch.setattr(migrate, "FOLDER", tmp_path / "migrations")
    migrate.revisions.cache_clear()

    later = Database(database_address)
    try:
        with later.snapshot() as connection:
            for view in VIEWS:
                assert [] == connection.exec_driver_sql(f"SELECT * FROM {view.name}").all()
            assert "0002" == migrate.stored_revision(connection)
    finally:
        migrate.revisions.cache_clear()
        later.close()


def test_postgresql_says_what_each_view_and_column_means(postgresql_server: Any) -> None:
    with postgresql_server.database() as address:
        database = Database(address)
        with database.snapshot() as connection:
            said = connection.exec_driver_sql(
                "SELECT c.relname, a.attname, col_description(c.oid, a.attnum), obj_description(c.oid) "
                "FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
                "WHERE c.relkind = 'v' AND c.relnamespace = 'public'::regnamespace"
            ).all()
        database.close()

    expected = {
        (view.name, name, COLUMNS[name], view.about) for view in VIEWS for name in view.columns
    }
    assert expected == set(map(tuple, said))
