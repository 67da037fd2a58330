"""The ids by which the records of a run's links are asked for at the service."""

from __future__ import annotations

from collections import Counter
from datetime import date
from itertools import chain
from typing import NamedTuple

import polars as pl

from flows.partner_api.stored_placements import linked_rows
from flows.runs.single_links import LINK
from flows.runs.stored_run import StoredRun
from schemas.partner_api.service import ServiceSettings


class LinkedRow(NamedTuple):
    """A row with a link; `link_id`: that its record has at the service, None where none is its
    own.
    """

    row: int
    cuid: str
    url: str
    expires_on: date | None
    link_id: str | None


class LinkIds:
    """The ids of links: what the service recorded with a single link, else what `link_id_from`
    finds.
    """

    def __init__(self, settings: ServiceSettings, run: StoredRun) -> None:
        self._settings = settings
        self._recorded = _recorded_ids(run)
        self._shared = self._shared_ids(run)

    def of(self, url: str, cuid: str | None) -> str | None:
        """Return the id of the link at a URL, None where there is none."""
        recorded = None
        if self._settings.link_id_from != "cuid":
            recorded = self._recorded.get(url)
        return recorded or self._settings.id_of(url, cuid)

    def is_shared(self, link_id: str) -> bool:
        """Return whether different links have this id, so that it is none of theirs."""
        return link_id in self._shared

    def _shared_ids(self, run: StoredRun) -> set[str]:
        if self._settings.link_id_from == "cuid":
            return set()
        parts = run.committed().ledger
        urls = set(chain.from_iterable(linked_rows(run, part)["url"] for part in parts))
        ids = Counter(self.of(url, None) for url in urls)
        return {link_id for link_id, links in ids.items() if link_id is not None and links > 1}


class RunLinks:
    """The linked rows of a run, read once; none before its first report."""

    def __init__(self, settings: ServiceSettings, run: StoredRun) -> None:
        parts = run.committed().ledger if run.summary is not None else ()
        self._links = pl.concat([LINK.to_frame(), *(linked_rows(run, part) for part in parts)])
        self._ids = LinkIds(settings, run) if parts else None

    def of_row(self, row: int) -> LinkedRow | None:
        """Return a row with its link, None where it has none."""
        for link in self._links.filter(row=row).iter_rows(named=True):
            link_id = self._own_id(link["url"], link["cuid"])
            return LinkedRow(row, link["cuid"], link["url"], link["expires_on"], link_id)
        return None

    def _own_id(self, url: str, cuid: str) -> str | None:
        if self._ids is None:
            return None
        link_id = self._ids.of(url, cuid)
        return None if link_id is None or self._ids.is_shared(link_id) else link_id


def _recorded_ids(run: StoredRun) -> dict[str, str]:
    """Return the ids that the service gave with single links, by URL; a masked one is no id."""
    answers = [single.answered for single in run.single_link_attempts]
    return {
        answer.url: answer.link_id
        for answer in answers
        if answer is not None and answer.url and answer.link_id and "[" not in answer.link_id
    }
