"""What the service said of links, in each kind of database: kept, read anew, forgotten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import polars as pl
from sqlalchemy import func, select

from flows.database.connection import Database
from flows.extensions.partner_api.follow_links import follow_links
from flows.extensions.partner_api.link_stages import followed_links
from flows.extensions.partner_api.placements import before_purge, erase, mentions
from flows.extensions.partner_api.tables import PLACEMENT, SERVICE_MESSAGE
from flows.runs.erased import NamedPeople
from flows.runs.keys import keys_of
from tests.extensions.partner_api.test_look import SERVICE, Partner, busy, looked, settings
from tests.night import Bench, issuer, local_bench


def followed(folder: Path, database: Database) -> tuple[Bench, str, pl.DataFrame]:
    """Return a bench on a database whose links were followed, six of twelve to placed cards."""
    bench = replace(local_bench(folder), database=database)
    run = bench.submit(bench.drop(12)).manifest.run
    bench.answer()
    bench.ingest()
    bench.issuer = issuer(service=SERVICE)
    [part] = bench.stored(run).rows(None, pl.col("state") == "linked")
    linked = part.with_columns(link_id=pl.col("url").str.split("/").list.last())
    follow_links(bench.context, busy(linked))
    return bench, run, linked


def counts(bench: Bench) -> list[int]:
    """Return how many rows there are of links, and of messages."""
    with bench.database.snapshot() as connection:
        return [
            connection.scalar(select(func.count()).select_from(table)) or 0
            for table in (PLACEMENT, SERVICE_MESSAGE)
        ]


def test_what_was_learned_is_known_of_the_cards_and_goes_with_them(
    tmp_path: Path, database: Database
) -> None:
    bench, run, linked = followed(tmp_path, database)
    links = followed_links(bench.runs)
    whole = counts(bench)
    cuid = linked["cuid"][0]
    people = NamedPeople(frozenset([cuid]))

    named = [*mentions(bench.context, people, [run])]
    erase(bench.context, cast(Any, None), people, named)
    erased = counts(bench)
    before_purge(bench.context, [f"{keys_of(run).ledger}part-00001.parquet"])

    assert (12, 6) == (links.height, links["placed"].sum())
    assert links.filter("placed")["placed_at"].is_not_null().all()
    assert [linked["row"][0]] * 2 == [facts["row"] for each in named for facts in each.facts]
    assert ([12, 6], [11, 5], [0, 0]) == (whole, erased, counts(bench))


def test_messages_are_read_anew_once_the_settings_name_what_they_have(
    tmp_path: Path, database: Database
) -> None:
    bench, run, _ = followed(tmp_path, database)
    words = {"status": {"AUTH": "WAITING_ROOM"}}

    bench.issuer = issuer(service={**SERVICE, "words": words})
    facts = follow_links(bench.context, Partner())

    readings = select(SERVICE_MESSAGE.c.reading).distinct()
    with bench.database.snapshot() as connection:
        assert 1 == len(connection.scalars(readings).all())
    assert settings(bench).words.status == words["status"]
    assert (6, []) == (looked(bench, run)["placed_at"].count(), facts["doubts"])
