"""Lists of several pages, as `[service.paginator]` says; interface.md 4 shows none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import httpx

from flows.partner_api.service import StrangeAnswerError
from flows.partner_api.translation import value_at
from schemas.partner_api.profile import Paginator

MOST_PAGES: Final = 1000


class Pages:
    """The pages of one list: where the next one is, by what the last one was."""

    def __init__(self, paginator: Paginator, base_url: str, path: str) -> None:
        self._paginator = paginator
        self._first = httpx.URL(urljoin(f"{base_url.rstrip('/')}/", path.lstrip("/")))
        self._seen: set[str] = set()
        self._taken = 0  # messages on the pages so far

    def first(self) -> str:
        """Return the URL of the first page."""
        paginator = self._paginator
        match paginator.type:
            case "offset":
                return self._with_query({paginator.limit_param: paginator.limit, **self._offset()})
            case "page_number":
                return self._with_query({paginator.page_param: paginator.base_page})
        return self._checked(str(self._first))

    def after(self, document: object, headers: Mapping[str, str], messages: int) -> str | None:
        """Return the URL of the page after one with so many messages, None for the last.

        Raises StrangeAnswerError for one at another address, or that was read already.
        """
        self._taken += messages
        paginator = self._paginator
        match paginator.type:
            case "single_page":
                return None
            case "cursor":
                cursor = value_at(document, paginator.cursor_path)
                has_next = isinstance(cursor, str | int) and cursor not in ("", False)
                return self._with_query({paginator.cursor_param: cursor}) if has_next else None
            case "offset" | "page_number":
                return self._numbered(document, messages)
        link = self._link(document, headers)
        return self._checked(urljoin(str(self._first), link)) if link else None

    def _link(self, document: object, headers: Mapping[str, str]) -> str | None:
        paginator = self._paginator
        if paginator.type != "json_link":
            links = httpx.Response(200, headers=dict(headers)).links
            link = links.get(paginator.links_next_key, {}).get("url")
            if link or paginator.type == "header_link":
                return link
        values = (value_at(document, place) for place in paginator.next_url_path)
        return next((value for value in values if isinstance(value, str) and value), None)

    def _numbered(self, document: object, messages: int) -> str | None:
        """Return the next page by its number: after one without messages, or the last, none."""
        paginator = self._paginator
        total = value_at(document, paginator.total_path) if paginator.total_path else None
        if paginator.type == "offset":
            is_last = self._taken >= total if isinstance(total, int) else not messages
            query = {paginator.limit_param: paginator.limit, **self._offset()}
        else:
            is_last = len(self._seen) >= total if isinstance(total, int) else not messages
            query = {paginator.page_param: paginator.base_page + len(self._seen)}
        return None if is_last else self._with_query(query)

    def _offset(self) -> dict[str, int]:
        return {self._paginator.offset_param: self._taken}

    def _with_query(self, query: Mapping[str, Any]) -> str:
        return self._checked(str(self._first.copy_merge_params(dict(query))))

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
