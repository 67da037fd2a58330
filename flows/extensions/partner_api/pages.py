"""Lists of several pages, as `[service] next_page` says; interface.md 4 shows none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urljoin, urlsplit

import httpx

from flows.extensions.partner_api.profile import Profile
from flows.extensions.partner_api.service import StrangeAnswerError
from flows.extensions.partner_api.translation import value_at

MOST_PAGES: Final = 1000


class Pages:
    """The pages of one list: where the next one is, by what the last one was."""

    def __init__(self, profile: Profile, base_url: str, path: str) -> None:
        self._profile = profile
        self._query = profile.next_page
        self._first = httpx.URL(urljoin(f"{base_url.rstrip('/')}/", path.lstrip("/")))
        self._seen: set[str] = set()
        self._taken = 0  # messages on the pages so far

    def first(self) -> str:
        """Return the URL of the first page."""
        if "{offset}" in self._query or "{page}" in self._query:
            return self._with_query()
        return self._checked(str(self._first))

    def after(self, document: object, headers: Mapping[str, str], messages: int) -> str | None:
        """Return the URL of the page after one with so many messages, None for the last.

        Raises StrangeAnswerError for one at another address, or that was read already.
        """
        self._taken += messages
        if not self._query:
            link = self._link(document, headers)
            return self._checked(urljoin(str(self._first), link)) if link else None
        if "{cursor}" in self._query:
            cursor = self._of_page("cursor", document)
            return self._with_query(cursor) if cursor not in (None, "", False) else None
        total = self._of_page("total", document)
        done = self._taken if "{offset}" in self._query else len(self._seen)
        is_last = done >= total if isinstance(total, int) else not messages
        return None if is_last else self._with_query()

    def _link(self, document: object, headers: Mapping[str, str]) -> str | None:
        links = httpx.Response(200, headers=dict(headers)).links
        in_body = self._of_page("next", document)
        return links.get("next", {}).get("url") or (in_body if isinstance(in_body, str) else None)

    def _of_page(self, name: str, document: object) -> str | int | None:
        values = (value_at(document, place) for place in self._profile.places(f"page.{name}"))
        return next((value for value in values if isinstance(value, str | int) and value), None)

    def _with_query(self, cursor: str | int | None = None) -> str:
        page = len(self._seen) + 1
        query = self._query.format(cursor=cursor, offset=self._taken, page=page)
        parameters = dict(httpx.QueryParams(query))
        return self._checked(str(self._first.copy_merge_params(parameters)))

    def _checked(self, url: str) -> str:
        problem = ""
        if urlsplit(url)[:2] != urlsplit(str(self._first))[:2]:
            problem = "the next page is at another address, which nobody named"
        elif url in self._seen or len(self._seen) >= MOST_PAGES:
            problem = "its pages do not end"
        if problem:
            raise StrangeAnswerError(place=f"GET {self._first.path}", problem=problem)
        self._seen.add(url)
        return url
