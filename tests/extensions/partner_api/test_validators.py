"""Conditional requests: a record that has not changed is not sent again."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from flows.extensions.partner_api.follow_links import follow_links
from flows.extensions.partner_api.placements import read_placements
from flows.extensions.partner_api.responses import tag_of, unless_changed
from tests.extensions.partner_api.service_clients import client_of, request
from tests.extensions.partner_api.test_placements import open_links
from tests.placed import placed
from tests.service import running_service

CHANGED = "Fri, 20 Nov 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"ETag": '"a1"', "Last-Modified": CHANGED}, {"If-None-Match": '"a1"'}),
        ({"ETag": 'W/"a1"'}, {"If-None-Match": 'W/"a1"'}),
        ({"Last-Modified": CHANGED}, {"If-Modified-Since": CHANGED}),
        ({"ETag": '"4242424242424242"'}, {}),  # it may be a card
        ({"ETag": '"' + "a" * 300 + '"'}, {}),
        ({}, {}),
    ],
)
def test_a_record_is_asked_for_unless_it_is_the_one_that_was_read(
    headers: dict[str, str], expected: dict[str, str]
) -> None:
    assert expected == unless_changed(tag_of(headers))


def test_a_service_sends_a_record_only_where_it_has_changed() -> None:
    with running_service() as service, client_of(service) as client:
        created = client.create_link(request())
        link_id = getattr(created, "id", "")
        first = client.changed_link(link_id, None)
        assert first is not None

        again = client.changed_link(link_id, first.tag)
        service.act(lambda books: books.links.open(link_id, books.now))
        changed = client.changed_link(link_id, first.tag)

    assert again is None
    assert changed is not None
    assert (False, True) == (first.opened, changed.opened)
    assert first.tag != changed.tag


def test_a_service_sends_a_job_only_where_it_has_changed(tmp_path: Path) -> None:
    with placed(tmp_path, 3) as night:
        [link] = night.service.act(lambda books: open_links(books, 1))
        sites = ["shop.example.com"]
        [job] = night.service.act(lambda books: books.place(link, sites, {}))
        first = night.client.changed_job(str(job.id), None)
        assert first is not None

        again = night.client.changed_job(str(job.id), first.tag)
        night.service.advance(900)
        changed = night.client.changed_job(str(job.id), first.tag)

    assert again is None
    assert changed is not None
    assert first.tag != changed.tag


@pytest.mark.slow
def test_links_that_did_not_change_stay_known_and_those_that_did_are_read(tmp_path: Path) -> None:
    with placed(tmp_path, 6) as night:
        follow_links(night.bench.context, night.client)
        night.service.act(lambda books: open_links(books, 2))

        facts = follow_links(night.later(30).context, night.client)

        run = night.bench.stored(night.run)
        stored = pl.concat([read_placements(run, part) for part in run.committed().ledger])

    opened = next(line for line in facts["funnel"]["stages"] if line["stage"] == "opened")
    assert (2, 6, []) == (opened["cardholders"], opened["known"], opened["unknown"])
    assert 0 == stored["record_tag"].null_count()
