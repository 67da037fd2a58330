"""One link for one cardholder: a row read again as a night reads it, or fields as typed, and a
record of what came.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.errors import CardlinkError
from flows.extensions.partner_api.client import ServiceClient
from flows.extensions.partner_api.link_requests import Terms
from flows.extensions.partner_api.linking import link_row, link_typed
from flows.extensions.partner_api.run_links import CardTakenError
from flows.extensions.partner_api.service import Linking, LinkRequestError, NoServiceError
from flows.extensions.partner_api.service_objects import CardLink, Refusal
from flows.operations.history import history
from flows.operations.link_form import decide_form
from flows.reports.across import reconcile_runs
from flows.resend.selected_run import SourceGoneError
from flows.resend.selection import RowSelection
from flows.resend.template import correction_template
from flows.runs.errors import NoSuchRowError, UnknownRunError
from flows.runs.keys import keys_of
from flows.runs.single_links import prompted_singles
from flows.submissions.gates import WrongCardsError
from schemas import cvv
from schemas.portal import CITY, CUID, CVV, CVV_HASH, PAN, PHONE
from tests.again import again, correct
from tests.builders import portal_rows, quick
from tests.extensions.partner_api.linker import (
    PANS,
    REACHED,
    SERVICE,
    TYPED,
    URL,
    Linker,
    left_over,
    night,
)
from tests.extensions.partner_api.service_clients import client_of
from tests.facts import people
from tests.night import BANK, Bench, local_bench, portal_csv
from tests.service import RunningService, running_service


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return local_bench(tmp_path, service=SERVICE)


def test_a_row_the_partner_refused_gets_its_link_and_a_record_before_and_after(
    bench: Bench,
) -> None:
    run, linker = left_over(bench), Linker()
    linker.before = lambda: seen.append(bench.stored(run).single_link_attempts[0].state)
    seen: list[str] = []

    single = link_row(bench.context, linker, run, 2)

    (kept,) = bench.stored(run).single_link_attempts
    assert seen == ["unknown"]
    assert kept == single
    assert (kept.asked.row, kept.asked.cuid, kept.asked.last_4) == (2, "c-2", "1111")
    assert kept.answered is not None
    assert (kept.state, kept.answered.url, kept.answered.link_id) == ("linked", URL, "abc")
    assert kept.answered.expires_on == date(2027, 1, 2)


@pytest.mark.slow
def test_a_single_link_counts_in_the_report_of_its_run_and_across_runs(bench: Bench) -> None:
    run = left_over(bench)
    before = reconcile_runs(bench.context)

    link_row(bench.context, Linker(), run, 2)

    after, summary = reconcile_runs(bench.context), bench.stored(run).summary or {}
    assert (1, 0) == (before["unlinked"]["cardholders"], after["unlinked"]["cardholders"])
    assert {"linked": 2} == people(after)
    assert (2, 0, "balanced") == (
        summary["rows"]["linked"],
        summary["rows"]["error"],
        summary["verdict"],
    )
    assert URL in bench.report(run, "links.csv").decode()
    assert b"c-2" not in bench.report(run, "errors.csv")


def test_a_link_typed_in_for_a_refused_cardholder_counts_across_runs(bench: Bench) -> None:
    left_over(bench)

    link_typed(bench.context, Linker(), {**TYPED, CUID: "c-2", PAN: PANS[1]})

    after = reconcile_runs(bench.context)
    assert (0, 2) == (after["unlinked"]["cardholders"], people(after)["linked"])


def test_a_single_link_for_a_row_whose_chunk_has_no_result_leaves_the_others_awaiting(
    bench: Bench,
) -> None:
    run = night(bench, {}, {})

    link_row(bench.context, Linker(), run, 2, terms=Terms("the cardholder called"))

    summary = bench.stored(run).summary or {}
    assert (1, 1, "balanced, answers awaited") == (
        summary["rows"]["linked"],
        summary["rows"]["awaiting"],
        summary["verdict"],
    )


def test_a_command_killed_before_its_link_was_counted_is_finished_by_the_same_command(
    bench: Bench,
) -> None:
    run = left_over(bench)
    link_row(bench.context, Linker(), run, 2)
    for entry in list(bench.store.keys(keys_of(run).report(""))):
        bench.store.replace(entry.key, [b""])

    with pytest.raises(CardTakenError):
        link_row(bench.context, Linker(), run, 2)

    assert URL in bench.report(run, "links.csv").decode()


def test_no_link_is_requested_without_the_cvv_that_a_challenge_asks_for(tmp_path: Path) -> None:
    hashed = cvv.hash_text("123")
    bench = local_bench(tmp_path, service=SERVICE, rules={"challenges": ["CVV", "ZIP Code"]})
    run, linker = night(bench, {CVV: None, CVV_HASH: hashed}), Linker()

    with pytest.raises(LinkRequestError) as caught:
        link_row(bench.context, linker, run, 1, terms=Terms("lost at the portal"))

    assert "card.cvv.missing (the link asks for it" in caught.value.fields["codes"]
    assert [] == linker.asked


def test_the_last_day_of_a_link_is_requested_recorded_and_told_where_the_partner_has_another(
    bench: Bench,
) -> None:
    run, linker = left_over(bench), Linker()  # its links expire on 2027-01-02

    single = link_row(bench.context, linker, run, 2, terms=Terms(until=date(2027, 3, 4)))

    assert {"month": "03", "day": "4", "year": "2027"} == linker.asked[0].body()["expiration"]
    assert date(2027, 3, 4) == bench.stored(run).single_link_attempts[0].asked.link_until
    assert single.ends_otherwise


def test_a_record_without_a_day_expires_as_requested(bench: Bench) -> None:
    linker = Linker(CardLink.model_validate({"id": "abc", "url": URL}))

    single = link_row(
        bench.context, linker, left_over(bench), 2, terms=Terms(until=date(2027, 3, 4))
    )

    assert single.answered is not None
    assert date(2027, 3, 4) == single.answered.expires_on
    assert not single.ends_otherwise


def test_the_request_is_of_the_row_refined_with_the_raw_cvv(bench: Bench) -> None:
    run, linker = night(bench, {}, {CVV: "007"}), Linker()

    link_row(bench.context, linker, run, 2, terms=Terms("for a test"))

    (request,) = linker.asked
    assert request.card.pan == "4111111111111111"
    assert request.card.cvv == "007"
    assert request.cardholder.cuid == "c-2"


def test_a_source_with_hashes_only_sends_no_cvv(bench: Bench) -> None:
    hashed = "pmWkWSBCL51Bfkhn79xPuKBKHz//H6B+mY6G9/eieuM="
    run, linker = night(bench, {CVV: None, CVV_HASH: hashed}), Linker()

    link_row(bench.context, linker, run, 1, terms=Terms("for a test"))

    assert linker.asked[0].card.cvv is None
    assert hashed not in repr(linker.asked[0].body())


@pytest.mark.slow
def test_a_row_that_was_corrected_is_linked_as_it_was_corrected(bench: Bench) -> None:
    run, linker = night(bench, {}, {CITY: None}), Linker()
    corrected = pl.when(pl.col("column") == CITY).then(pl.lit("Salem")).alias("correction")
    template = pl.concat(correction_template(bench.context, run)).with_columns(corrected)
    later = again(
        bench, run, RowSelection(), corrections=correct(bench, template.write_csv().encode())
    ).manifest.run

    link_row(bench.context, linker, later, 2, terms=Terms("for a test"))

    assert linker.asked[0].address.city == "Salem"


@pytest.mark.slow
def test_a_row_that_a_run_of_picked_rows_does_not_have_is_told_so(bench: Bench) -> None:
    run = left_over(bench)
    later = again(bench, run).manifest.run

    with pytest.raises(NoSuchRowError):
        link_row(bench.context, Linker(), later, 1)


def test_over_real_http_the_link_is_the_services_own(
    bench: Bench, service: RunningService, client: Linking
) -> None:
    run = left_over(bench)

    single = link_row(bench.context, client, run, 2)

    assert single.answered is not None
    link = service.books.links.find(single.answered.link_id or "")
    assert link.url == single.answered.url
    assert link.expires == single.answered.expires_on
    assert service.books.links.cardholders[link.cardholder_id].cuid == "c-2"


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    with running_service() as running:
        yield running


@pytest.fixture(scope="module")
def client(service: RunningService) -> Iterator[ServiceClient]:
    with client_of(service) as opened:
        yield opened


@pytest.mark.slow
def test_a_token_becomes_a_url_where_the_settings_say_how(tmp_path: Path) -> None:
    bench = local_bench(
        tmp_path, service={**SERVICE, "link_url": "https://links.example.com/v/{token}"}
    )
    run, linker = (
        left_over(bench),
        Linker(CardLink.model_validate({"cardholder_long_token": "t-9"})),
    )

    single = link_row(bench.context, linker, run, 2)

    assert single.answered is not None
    assert single.answered.url == "https://links.example.com/v/t-9"
    assert single.answered.expires_on == date(2027, 1, 20)


@pytest.mark.parametrize("raw", quick(1, ["3-Feb-2027", "2027-02-03", "2027-02-03T00:00:00.000Z"]))
def test_the_day_a_link_ends_is_read_however_it_is_written(bench: Bench, raw: str) -> None:
    run, linker = (
        left_over(bench),
        Linker(CardLink.model_validate({"url": URL, "expiration_date": raw})),
    )

    single = link_row(bench.context, linker, run, 2)

    assert single.answered is not None
    assert (single.answered.expires_on, single.answered.expires_form) == (date(2027, 2, 3), None)


def test_a_day_that_cannot_be_read_is_kept_as_its_form(bench: Bench) -> None:
    run = left_over(bench)
    linker = Linker(CardLink.model_validate({"url": URL, "expiration_date": "02/03/2027"}))

    single = link_row(bench.context, linker, run, 2)

    assert single.answered is not None
    assert single.answered.expires_on is not None
    assert single.answered.expires_form == "99/99/9999"


@pytest.mark.parametrize(
    ("url", "why"),
    quick(
        2,
        [
            ("https://evil.example.org/l/abc", "not_allowed"),
            (f"{URL}/{PANS[1]}", "shows_card"),
            ("http://links.example.com/l", "not_allowed"),
            ("nonsense", "not_allowed"),
        ],
    ),
)
def test_a_url_that_no_result_file_may_hold_is_no_link(bench: Bench, url: str, why: str) -> None:
    run, linker = left_over(bench), Linker(CardLink.model_validate({"id": "abc", "url": url}))

    single = link_row(bench.context, linker, run, 2)

    assert single.answered is not None
    assert (single.state, single.answered.url, single.answered.reasons) == (
        "refused",
        None,
        (f"link.url.{why}",),
    )


@pytest.mark.slow
def test_a_single_link_of_no_confirmed_form_is_refused_and_its_number_is_kept_as_it_is(
    bench: Bench,
) -> None:
    run = left_over(bench)
    decide_form(bench.context, "https://links.example.com/l/{digits:16}", "says the partner")
    key = "4539578763621486"  # passes the check of a card's digits
    answers = [
        CardLink.model_validate({"url": f"https://links.example.com/l/{key}{more}"})
        for more in ("/start", "")
    ]

    singles = [
        link_row(bench.context, Linker(answer), run, 2, terms=Terms("for a test"))
        for answer in answers
    ]

    told = [(single.state, single.answered) for single in singles]
    assert [("refused", ("link.url.form",), None), ("linked", (), key)] == [
        (state, answer.reasons, answer.link_id if state == "linked" else None)
        for state, answer in told
        if answer is not None
    ]


def test_a_row_we_would_refuse_is_told_by_its_codes_and_not_sent(bench: Bench) -> None:
    run, linker = night(bench, {}, {"service_card.address.postal_code": "99999"}), Linker()

    with pytest.raises(LinkRequestError, match=r"address\.postal_code\.mismatch"):
        link_row(bench.context, linker, run, 2)

    assert linker.asked == []


def test_a_card_that_expired_since_the_night_is_told_so(bench: Bench) -> None:
    run = night(
        bench, {"service_card.expiration_year": "26", "service_card.expiration_month": "11"}
    )
    bench.now = lambda: datetime(2026, 12, 1, 12, tzinfo=UTC)

    with pytest.raises(LinkRequestError, match=r"card\.expiration\.expired"):
        link_row(bench.context, Linker(), run, 1, terms=Terms("for a test"))


@pytest.mark.slow
def test_what_the_extract_lacks_may_be_supplied(bench: Bench) -> None:
    run, linker = night(bench, {PHONE: None}), Linker()

    with pytest.raises(LinkRequestError, match=r"address\.phone_number\.missing"):
        link_row(bench.context, linker, run, 1, terms=Terms("for a test"))
    link_row(
        bench.context, linker, run, 1, terms=Terms("for a test"), supply=lambda column: "6175550199"
    )

    assert [one.address.phone_number for one in linker.asked] == ["6175550199"]


@pytest.mark.parametrize(
    ("run", "row", "error"),
    [("", 9, NoSuchRowError), ("bank-20261120-00000000", 1, UnknownRunError)],
)
def test_a_row_that_is_not_there_is_told_so(
    bench: Bench, run: str, row: int, error: type[CardlinkError]
) -> None:
    known = night(bench, {})

    with pytest.raises(error):
        link_row(bench.context, Linker(), run or known, row)


def test_another_extract_under_the_same_name_is_not_read_for_it(bench: Bench) -> None:
    run = night(bench, {})
    bench.drop_bytes(portal_csv(portal_rows({**REACHED, CUID: "c-9"})))

    with pytest.raises(SourceGoneError):
        link_row(bench.context, Linker(), run, 1)


def test_an_issuer_without_a_service_is_told_so(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    run = night(bench, {})

    with pytest.raises(NoServiceError):
        link_row(bench.context, Linker(), run, 1)


def test_the_runs_history_tells_of_it_without_url_or_card(bench: Bench) -> None:
    run = left_over(bench)

    link_row(bench.context, Linker(), run, 2)

    told = "\n".join(map(str, history(bench.adapters, run)))
    assert "single" in told
    assert [word for word in (URL, PANS[1]) if word in told] == []


def test_nothing_of_a_card_stands_in_the_store_afterwards(bench: Bench) -> None:
    run = left_over(bench)
    before = bench.snapshot()

    link_row(bench.context, Linker(Refusal("card.pan.exists", "exists")), run, 2)
    link_row(bench.context, Linker(), run, 2)

    new = b"".join(content for key, content in bench.snapshot().items() if key not in before)
    assert [
        word
        for word in (b"4111111111111111", b'"123"', b"Byron", b"Main St", b"6175550100")
        if word in new
    ] == []


def test_typed_fields_pass_the_same_rules_and_are_recorded_with_the_issuer(bench: Bench) -> None:
    linker = Linker()

    single = link_typed(bench.context, linker, {**TYPED, CVV: "007"})

    assert [single] == prompted_singles(bench.adapters, BANK)
    assert (single.asked.row, single.asked.cuid, single.asked.last_4) == (None, "c-1", "4242")
    assert linker.asked[0].card.cvv == "007"


def test_a_typing_mistake_is_told_by_its_code_and_nothing_is_kept(bench: Bench) -> None:
    with pytest.raises(LinkRequestError, match=r"card\.pan\.luhn") as told:
        link_typed(bench.context, Linker(), {**TYPED, PAN: "4242424242424241"})

    assert "4242" not in str(told.value)
    assert bench.snapshot() == {}


def test_a_made_cuid_says_nothing_of_the_card(bench: Bench) -> None:
    first, second = (link_typed(bench.context, Linker(), {**TYPED, CUID: ""}) for _ in range(2))

    assert first.asked.cuid != second.asked.cuid


def test_an_issuers_own_columns_and_filters_do_not_touch_typed_fields(tmp_path: Path) -> None:
    own: dict[str, Any] = {
        "columns": {CUID: "ID"},
        "status": {"STATE": {"send": "active", "delete": "closed"}},
        "source": {"delimiter": ";"},
    }
    bench = local_bench(tmp_path, service=SERVICE, **own)

    single = link_typed(bench.context, Linker(), TYPED)

    assert single.state == "linked"


def test_a_test_card_is_not_asked_for_in_production(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, service=SERVICE, test=False)

    with pytest.raises(WrongCardsError):
        link_typed(bench.context, Linker(), TYPED)
