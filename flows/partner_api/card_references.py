"""The cards that the partner has, for links that are requested by reference (interface.md 2.8).

The id of a card is read from the record of its row's link when it is needed, and names the card in
the request instead of its number. Put here how a card is found; keep out how a link is requested.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from flows.errors import OperatorError
from flows.partner_api.link_ids import RunLinks
from flows.runs.stored_run import StoredRun
from flows.steps import Option, Sentence
from schemas.partner_api.card_link import CardLink
from schemas.partner_api.service import ServiceSettings

NOT_READ: Final = "(read when the link is requested)"  # in a rehearsal, in place of an id


class CardReferenceError(OperatorError):
    """The partner's record of a card cannot be found, so that no reference can name it."""

    message = "No link was requested: {reason}, so no reference can name the card."
    next_step = Sentence(
        "Request it by the card's number: without {by_reference}.",
        by_reference=Option("--by-reference", of="link"),
    )


class LinkRecords(Protocol):
    """The records of links at the partner."""

    def card_link(self, link_id: str) -> CardLink:
        """Return a link's record, its card and cardholder with it."""
        ...


class CardReferences:
    """Finds the cards of rows; without `records` it only looks whether a row has a link."""

    def __init__(self, settings: ServiceSettings, records: LinkRecords | None = None) -> None:
        self._settings = settings
        self._records = records
        self._links = dict[str, RunLinks]()  # by run

    def reading(self, records: LinkRecords) -> CardReferences:
        """Return what finds cards by these records."""
        return CardReferences(self._settings, records)

    def of(self, run: StoredRun, row: int, cuid: str) -> dict[str, Any]:
        """Return the reference of the card of a linked row, as a request has it.

        Raises CardReferenceError, and what the service's client raises.
        """
        link_id = self._link_id(run, row)
        card_id = self._card_id(link_id, cuid) if self._records else NOT_READ
        number: int | str = int(card_id) if card_id.isdigit() else card_id
        return {self._settings.card_reference_property: number}

    def _link_id(self, run: StoredRun, row: int) -> str:
        if run.id not in self._links:
            self._links[run.id] = RunLinks(self._settings, run)
        link = self._links[run.id].of_row(row)
        if link is None:
            raise CardReferenceError(reason=f"row {row} of {run.id} has no link")
        if link.link_id is None:
            raise CardReferenceError(reason="no id of its own is found in the link's URL")
        return link.link_id

    def _card_id(self, link_id: str, cuid: str) -> str:
        assert self._records is not None  # noqa: S101 - for the type checker: `of` has looked
        record = self._records.card_link(link_id)
        if record.cuid not in (None, cuid):
            raise CardReferenceError(reason="the record of its link is another cardholder's")
        if record.card_id is None:
            raise CardReferenceError(
                reason="the record of its link names no card ([service.link] card_id)"
            )
        return record.card_id
