"""The ids by which the records of a run's links are asked for at the service."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from flows.partner_api.stored_placements import linked_rows
from flows.runs.stored_run import StoredRun
from schemas.partner_api.service import ServiceSettings


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


def _recorded_ids(run: StoredRun) -> dict[str, str]:
    """Return the ids that the service gave with single links, by URL; a masked one is no id."""
    answers = [single.answered for single in run.single_link_attempts]
    return {
        answer.url: answer.link_id
        for answer in answers
        if answer is not None and answer.url and answer.link_id and "[" not in answer.link_id
    }
