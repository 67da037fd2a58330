"""Cards named by the partner's own reference: what a request then has, and which cards none names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.extensions.partner_api.link_plan import NotTypedError, RowName, plan_links
from flows.extensions.partner_api.link_requests import Terms
from flows.extensions.partner_api.linking import link_row, rehearse_links, request_links
from flows.extensions.partner_api.run_links import NOT_READ, CardReferenceError, CardReferences
from flows.extensions.partner_api.service import ServiceBusyError
from flows.extensions.partner_api.service_objects import CardLink
from flows.extensions.partner_api.settings import ServiceSettings
from flows.resend.selected_run import SourceGoneError
from schemas.portal import PHONE
from tests.builders import GOOD
from tests.extensions.partner_api.linker import REACHED, SERVICE, Linker, left_over
from tests.night import Bench, local_bench

OVERRIDE = "its cardholder lost it"


class Records:
    """Records of links, as a service gives them."""

    def __init__(self, **record: Any) -> None:
        self.record = record
        self.asked: list[str] = []

    def card_link(self, link_id: str) -> CardLink:
        self.asked.append(link_id)
        return CardLink.model_validate({"id": link_id, **self.record})


class Busy(Records):
    def card_link(self, link_id: str) -> CardLink:
        raise ServiceBusyError(place="GET /card_links/…", kind="HTTP 503")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return local_bench(tmp_path, service=SERVICE)


def terms(records: Records | None, **settings: Any) -> Terms:
    """Return terms by which cards are named by reference."""
    spoken = ServiceSettings.model_validate({**SERVICE, **settings})
    return Terms(OVERRIDE, references=CardReferences(spoken, records))


def remove_extract(bench: Bench, run: str) -> None:
    assert bench.folder
    (bench.folder / "store" / bench.stored(run).committed().source.key).unlink()


@pytest.mark.parametrize(
    ("card_id", "settings", "reference"),
    [(7, {}, {"id": 7}), ("k-7", {"names": {"request": {"card_id": ["key"]}}}, {"key": "k-7"})],
)
def test_a_request_by_reference_has_the_partners_own_id_and_nothing_of_the_card(
    bench: Bench, card_id: object, settings: dict[str, Any], reference: dict[str, Any]
) -> None:
    run, linker, records = left_over(bench), Linker(), Records(card_id=card_id, cuid="c-1")

    link_row(bench.context, linker, run, 1, terms=terms(records, **settings))

    assert ["1"] == records.asked
    assert {"reference": reference} == linker.asked[0].body()["card"]
    assert bench.stored(run).single_link_attempts[0].asked.by_reference


@pytest.mark.parametrize(
    ("row", "record", "reason"),
    [
        (2, {}, "row 2 of {run} has no link"),
        (1, {"cuid": "c-1"}, "names no card"),
        (1, {"card_id": 7, "cuid": "c-9"}, "is another cardholder's"),
    ],
)
def test_a_card_that_is_not_the_rows_own_at_the_partner_is_never_named(
    bench: Bench, row: int, record: dict[str, Any], reason: str
) -> None:
    run, linker = left_over(bench), Linker()

    with pytest.raises(CardReferenceError) as caught:
        link_row(bench.context, linker, run, row, terms=terms(Records(**record)))

    assert reason.format(run=run) in caught.value.fields["reason"]
    assert [] == linker.asked


def test_a_row_whose_extract_is_gone_is_renewed_with_what_is_typed_in(bench: Bench) -> None:
    run, linker = left_over(bench), Linker()
    remove_extract(bench, run)
    by_reference = terms(Records(card_id=7, cuid="c-1"))
    typed = {**GOOD, **REACHED}

    link_row(bench.context, linker, run, 1, terms=by_reference, supply=typed.__getitem__)

    [request] = linker.asked
    assert {"reference": {"id": 7}} == request.body()["card"]
    assert "c-1" == request.body()["cardholder"]["cuid"]
    assert REACHED[PHONE] == request.body()["address"]["phone_number"]
    attempt = bench.stored(run).single_link_attempts[0].asked
    assert ("c-1", "4242", True) == (attempt.cuid, attempt.last_4, attempt.by_reference)


def test_a_row_whose_extract_is_gone_is_not_requested_without_its_cardholders_address(
    bench: Bench,
) -> None:
    run, linker = left_over(bench), Linker()
    remove_extract(bench, run)
    by_reference = terms(Records(card_id=7, cuid="c-1"))

    with pytest.raises(NotTypedError):
        link_row(bench.context, linker, run, 1, terms=by_reference)
    with pytest.raises(SourceGoneError):
        link_row(bench.context, linker, run, 1, terms=Terms(OVERRIDE))

    assert [] == linker.asked


def test_of_many_rows_those_with_a_link_are_renewed_and_the_others_say_why_not(
    bench: Bench,
) -> None:
    run, linker = left_over(bench), Linker()
    plan = plan_links(bench.context, [RowName(run, row) for row in (1, 2)])

    links = request_links(bench.context, linker, plan, terms=terms(Records(card_id=7)))

    assert {"linked": 1, "not requested": 1} == {
        name: links.balance[name] for name in ("linked", "not requested")
    }
    assert "has no link" in links.outcomes[RowName(run, 2)].why


def test_a_rehearsal_reads_no_record_and_a_busy_service_ends_the_command(bench: Bench) -> None:
    run, linker = left_over(bench), Linker()
    name = RowName(run, 1)

    rehearsed = rehearse_links(bench.context, plan_links(bench.context, [name]), terms=terms(None))
    stopped = request_links(
        bench.context, linker, plan_links(bench.context, [name]), terms=terms(Busy())
    )

    assert "to be requested" == rehearsed.outcomes[name].outcome
    assert {"id": NOT_READ} == terms(None).references.of(bench.stored(run), 1, "c-1")  # type: ignore[union-attr]
    assert isinstance(stopped.stopped, ServiceBusyError)
    assert "not requested" == stopped.outcomes[name].outcome
    assert [] == linker.asked
