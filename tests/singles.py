"""Single links in the database, as a command would have recorded them."""

from __future__ import annotations

from flows.runs.adapters import Adapters
from flows.runs.single_links import SingleLink, record_answer, record_request
from schemas.records import SingleAnswered, SingleAsked


def recorded(
    adapters: Adapters,
    id_: str,
    asked: SingleAsked,
    answered: SingleAnswered | None = None,
    issuer: str = "bank",
) -> SingleLink:
    """Record a request, and its answer where it has one; it is of a run where its id names one."""
    run = id_.rpartition("/")[0] or None
    single = SingleLink(id_, asked, answered, run)
    assert record_request(adapters, issuer, single)
    if answered is not None:
        record_answer(adapters, issuer, single)
    return single
