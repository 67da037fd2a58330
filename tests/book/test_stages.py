"""How far a card with a link came: delivered, opened, placed, each where somebody knows."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.book.attempts import ATTEMPT
from flows.book.book import read_book
from flows.book.fold import fold
from flows.book.people import balance
from flows.book.stages import DELIVERED_LINK, NO_STAGES, STAGES, known_links, with_stages
from flows.book.stages import coverage as stages_coverage
from flows.book.standing import standing
from flows.extensions.deliveries.delivered import standing_links
from flows.extensions.deliveries.delivery import deliver
from flows.extensions.partner_api.causes import REPORTS, SERVICE
from flows.extensions.partner_api.follow_links import follow_links
from flows.extensions.partner_api.link_stages import FOLLOWED, REPORTED
from flows.extensions.partner_api.placements import transactions
from flows.reports.survey import survey
from flows.resend.ending_links import ending_links
from tests.book.test_standing import LINK, TODAY, attempt
from tests.extensions.partner_api.test_placements import place_at_every_site
from tests.night import BANK, DAY, NOON, Bench, local_bench, made_once
from tests.placed import placed
from tests.stages import stages_with

THEN = datetime(2026, 11, 22, 8, tzinfo=UTC)
OPENED_AT = THEN + timedelta(hours=3)
MOVED_AT = THEN + timedelta(hours=5)
COME = ("authenticated", "failed", "placed")
LATE = "USER_DATA_FAILURE"


def delivered(
    holder: str = "a", until: date = LINK, run: str | None = None, row: int | None = None
) -> dict[str, Any]:
    """Return the delivery of a link, by default one of an earlier version, which names no row."""
    link = (run, row, holder, "1111", "2912", until, THEN)
    return {"delivered": pl.DataFrame([link], DELIVERED_LINK, orient="row")}


def followed(
    opened: bool | None = None,
    placed: bool | None = None,
    turn: int = 1,
    expiration: str = "2912",
    **jobs: Any,
) -> dict[str, Any]:
    """Return what the service says of the link of an attempt; `jobs`: authenticated, failed."""
    of = {"run": f"r{turn}", "row": 1, "holder": "a", "last_4": "1111", "twin": 0}
    came = {"opened": opened, "opened_at": OPENED_AT if opened else None}
    then = {"placed": placed, "placed_at": THEN, "moved_at": MOVED_AT}
    link = {**of, "expiration": expiration, **came, **then, **jobs}
    return {"followed": pl.DataFrame([link], FOLLOWED)}


def reported(placed: bool | None, on: date | None = None, **jobs: Any) -> dict[str, Any]:
    end = {"cuid": "a", "reported_opened": True, "reported_placed": placed, "completed_on": on}
    says = {f"reported_{name}": value for name, value in jobs.items()}
    return {"reported": pl.DataFrame([{**end, **says}], REPORTED)}


def staged(*attempts: dict[str, object], day: date = TODAY, **stages: Any) -> pl.DataFrame:
    rows = [{"row": 1, "as_of": date(2026, 11, 1), **row} for row in attempts]
    cards = standing(fold(pl.DataFrame(rows, ATTEMPT)), day)
    return with_stages(cards, stages_with(**stages)).sort("expiration")


def stands(*attempts: dict[str, object], **changes: Any) -> list[str]:
    return staged(*attempts, **changes)["standing"].cast(pl.String).to_list()


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ({}, ("linked", None)),
        (delivered(), ("delivered", THEN)),
        ({**delivered(), **followed(opened=False)}, ("delivered", THEN)),
        ({**delivered(), **followed(opened=True)}, ("opened", OPENED_AT)),
        ({**delivered(), **followed(opened=True, placed=True)}, ("placed", THEN)),
        (followed(opened=True, placed=False, authenticated=False), ("opened", OPENED_AT)),
        (followed(opened=True, placed=False, authenticated=True), ("authenticated", MOVED_AT)),
        (followed(opened=True, placed=False, failed=LATE), ("failed", MOVED_AT)),
        (
            {**followed(opened=True, placed=False), **reported(False, failed=LATE)},
            ("failed", MOVED_AT),
        ),
        (
            {**followed(opened=True, under_way=True), **reported(False, failed=LATE)},
            ("opened", OPENED_AT),
        ),
        (
            {**followed(opened=True, failed=LATE), **reported(False, under_way=True)},
            ("failed", MOVED_AT),
        ),
        (followed(opened=True, placed=True, authenticated=True), ("placed", THEN)),
        (reported(False, authenticated=True), ("authenticated", None)),
        (reported(False, failed="NEVER_STARTED"), ("failed", None)),
        (reported(None), ("opened", None)),
        (reported(True), ("placed", None)),
        (reported(False), ("opened", None)),
    ],
)
def test_a_link_stands_where_it_came_furthest_and_since_when(
    stages: dict[str, Any], expected: tuple[str, datetime | None]
) -> None:
    (card,) = staged(attempt("linked", since=NOON - timedelta(1)), **stages).rows(named=True)

    came = expected if stages else ("linked", NOON - timedelta(1))
    assert (*came, "") == (card["standing"], card["since"], card["who"])


def test_of_two_cards_that_look_the_same_the_one_is_delivered_whose_row_was() -> None:
    cards = [attempt("linked"), attempt("linked", row=2, twin=1)]
    alone = [attempt("linked"), attempt("linked", 2)]

    assert ["linked", "delivered"] == stands(*cards, **delivered(run="r1", row=2))
    assert ["linked", "linked"] == stands(*cards, **delivered(run="r0", row=2))
    assert ["delivered", "delivered"] == stands(*cards, **delivered())
    # the same link came of another row of a card that nothing else looks like
    assert ["delivered"] == stands(*alone, **delivered(run="r1", row=1))


@pytest.mark.parametrize(
    ("says", "known_by"),
    [
        ({}, [{}, {}, {}]),
        (followed(opened=True), [{SERVICE: 1}, {}, {}]),
        (followed(placed=False), [{SERVICE: 1}, {}, {SERVICE: 1}]),
        (followed(placed=True), [{SERVICE: 1}] * 3),
        (reported(None), [{REPORTS: 1}, {}, {}]),
        (reported(True, authenticated=True), [{REPORTS: 1}] * 3),
        (followed(opened=False) | reported(True), [{SERVICE: 1}, {}, {REPORTS: 1}]),
    ],
)
def test_how_far_a_link_came_is_known_by_the_service_else_by_a_report(
    says: dict[str, Any], known_by: list[dict[str, int]]
) -> None:
    rows = [{"row": 1, "as_of": date(2026, 11, 1), **attempt("linked")}]
    cards = standing(fold(pl.DataFrame(rows, ATTEMPT)), TODAY)

    known = stages_coverage([known_links(cards, stages_with(**says))])

    assert 1 == known["links"]
    assert known_by == [known[stage]["known_by"] for stage in STAGES]


def test_a_card_that_an_earlier_link_placed_is_known_by_the_service() -> None:
    rows = [{"row": 1, **attempt("linked")}, {"row": 1, **attempt("linked", 2)}]
    cards = standing(fold(pl.DataFrame(rows, ATTEMPT)), TODAY)

    known = known_links(cards, stages_with(**followed(placed=True)))

    assert [(SERVICE,) * 3] == known.select(f"{stage}_by" for stage in STAGES).rows()


def test_who_acts_and_how_stays_as_it_was_where_nobody_came_further() -> None:
    refused = attempt("rejected", reason="card.pan.luhn")
    cards = standing(fold(pl.DataFrame([refused], ATTEMPT)), TODAY)

    after = with_stages(cards, NO_STAGES)

    assert cards["action"].item()
    assert after.select("who", "action").equals(cards.select("who", "action"))


def test_the_kind_of_end_that_most_links_have_comes_first_and_of_equal_ones_the_first_by_name() -> (
    None
):
    kinds = [*("Z", "B", "B"), None, "A"]
    links = pl.DataFrame({"failed": kinds, **dict.fromkeys(STAGES, False)}).with_columns(
        pl.lit(SERVICE).alias(f"{stage}_by") for stage in STAGES
    )

    known = stages_coverage([links[:2], links[2:]])

    assert [("B", 2), ("A", 1), ("Z", 1)] == [*known["failed"].items()]


def test_what_nobody_was_asked_is_not_known_and_not_denied() -> None:
    links = [attempt("linked")]

    unasked = staged(*links, **delivered())
    denied = staged(*links, **followed(opened=False, placed=False))

    columns = ["opened", "placed"]
    assert ([(None, None)], [(False, False)]) == tuple(
        cards.select(columns).rows() for cards in (unasked, denied)
    )


def test_a_placed_card_stays_placed_when_its_link_ends_and_nobody_has_to_act() -> None:
    after = LINK + timedelta(1)

    assert ["placed"] == stands(attempt("linked"), day=after, **followed(placed=True))
    assert ["expired"] == stands(attempt("linked"), day=after, **followed(placed=False))


def test_a_placed_card_that_is_sent_once_more_is_awaited_until_its_answer() -> None:
    tries = [attempt("linked"), attempt("awaiting", 2, wait="uploaded")]
    refused = [attempt("linked"), attempt("error", 2, reason="card.pan.other")]
    after = LINK + timedelta(1)

    assert ["awaiting"] == stands(*tries, day=after, **followed(placed=True))
    assert ["placed"] == stands(*refused, day=after, **followed(placed=True))


def test_whether_a_link_was_opened_is_not_known_by_the_one_before_it() -> None:
    links = [attempt("linked", expires_on=LINK - timedelta(9)), attempt("linked", 2)]

    assert ["linked"] == stands(*links, **followed(opened=True))
    assert ["placed"] == stands(*links, **followed(opened=True, placed=True))


def test_a_reissued_card_is_not_placed_because_the_one_before_it_was() -> None:
    issues = [attempt("linked"), attempt("linked", 2, expiration="3112", as_of=TODAY)]
    earlier = reported(placed=True, on=TODAY - timedelta(9))

    assert ["placed", "linked"] == stands(*issues, **followed(placed=True))
    assert ["linked", "linked"] == stands(*issues, **earlier)


def test_a_transaction_report_says_nothing_of_a_cardholder_with_two_cards() -> None:
    two = [attempt("linked"), attempt("linked", 2, last_4="2222")]

    assert ["linked", "linked"] == stands(*two, **reported(placed=True))


@pytest.mark.parametrize(("day", "expected"), [(31, "linked"), (1, "placed"), (2, "placed")])
def test_a_transaction_report_is_about_a_card_from_the_day_on_that_it_was_first_tried(
    day: int, expected: str
) -> None:
    on = date(2026, 10 if day == 31 else 11, day)

    assert [expected] == stands(attempt("linked"), **reported(placed=True, on=on))


def test_a_card_is_placed_since_the_first_of_its_links_was() -> None:
    later = followed(placed=True, turn=2)["followed"].with_columns(
        placed_at=pl.lit(THEN + timedelta(1))
    )
    both = {"followed": pl.concat([later, followed(placed=True)["followed"]])}

    assert [THEN] == staged(attempt("linked"), attempt("linked", 2), **both)["since"].to_list()


@pytest.mark.parametrize(
    ("links", "since"),
    [
        ([(None, None, 2), (None, None, 1)], 1),
        ([("r0", 9, 1), (None, None, 2)], 2),  # by the row of another run its look says least
    ],
)
def test_a_link_that_was_delivered_by_its_look_counts_from_the_first_time(
    links: list[tuple[str | None, int | None, int]], since: int
) -> None:
    rows = [
        delivered(run=run, row=row)["delivered"].with_columns(
            delivered=pl.lit(THEN + timedelta(days))
        )
        for run, row, days in links
    ]

    assert [THEN + timedelta(since)] == (
        staged(attempt("linked"), delivered=pl.concat(rows))["since"].to_list()
    )


def test_a_transaction_report_is_about_the_only_card_with_a_link_whatever_others_there_are() -> (
    None
):
    one = [attempt("linked"), attempt("error", 2, last_4="2222")]

    assert ["placed", "refused"] == stands(*one, **reported(placed=True))


def test_a_link_withdrawn_since_is_not_delivered_and_counts_from_its_first_delivery() -> None:
    changes = pl.DataFrame(
        {
            "receiver": "default",
            "run": "r1",
            "row": 1,
            "cuid": ["a", "b", "b", "a"],
            "last_4": "1111",
            "expiration": "2912",
            "link": [1, 2, 2, 1],
            "change": ["new", "new", "new", "withdrawn"],
            "until": LINK,
            "at": [THEN + timedelta(days) for days in range(4)],
        }
    )

    links = standing_links(changes)

    assert [("b", THEN + timedelta(1))] == links.select("cuid", "delivered").rows()


def test_everybody_with_a_link_or_a_placed_card_has_one_in_the_balance() -> None:
    others = [attempt("linked", holder=name) for name in "bcd"]
    stages = {**delivered("b"), **followed(opened=True)}
    ended = attempt("linked", holder="e", expires_on=TODAY - timedelta(1))

    counted = balance(staged(attempt("linked"), *others, ended, **stages))

    assert (4, "4 of 5 cardholders have a link; 1 waits for you.") == (
        counted.linked,
        counted.sentence,
    )


@made_once
def answered(folder: Path) -> Bench:
    bench = local_bench(folder)
    bench.submit(bench.drop(10))
    bench.answer()
    bench.ingest()
    return bench


def counts(bench: Bench, day: date = DAY) -> dict[str, int]:
    people = balance(read_book(bench.context.adapters, BANK).cards(day)).people
    return {state: number for state, number in people.items() if number}


def test_a_delivery_and_a_transaction_report_move_cardholders_on(tmp_path: Path) -> None:
    bench = answered(tmp_path)
    linked = counts(bench)

    deliver(bench.context)
    handed_over = counts(bench)
    first = read_book(bench.context.adapters, BANK).attempts["cuid"][0]
    report = f"cuid,status,completed_on\n{first},SUCCESSFUL,2026-11-23\n"
    bench.store.replace(f"{transactions(BANK)}t.csv", [report.encode()])
    follow_links(bench.context, None)

    assert ({"linked": 10}, {"delivered": 10}, {"delivered": 9, "placed": 1}) == (
        linked,
        handed_over,
        counts(bench),
    )


@pytest.mark.slow
def test_the_link_of_a_placed_card_that_ends_is_nobodys_work_and_is_not_renewed(
    tmp_path: Path,
) -> None:
    bench = answered(tmp_path)
    cards = read_book(bench.context.adapters, BANK).cards(DAY)
    report = "cuid,status\n" + "".join(f"{cuid},SUCCESSFUL\n" for cuid in cards["cuid"])
    bench.store.replace(f"{transactions(BANK)}t.csv", [report.encode()])
    follow_links(bench.context, None)
    last = cards["until"].max()
    assert isinstance(last, date)
    book = read_book(bench.context.adapters, BANK)

    work = survey(Bench(bench.store, bench.issuer, lambda: NOON + (last - DAY)).context).work

    assert [] == ending_links(book, book.cards(last), last, last + timedelta(7)).rows()
    assert [] == [line.kind for line in work if "link" in line.kind.lower()]
    assert {"placed": 10} == counts(bench, last + timedelta(1))


@pytest.mark.slow
def test_links_that_the_service_was_asked_about_are_opened_and_placed_in_the_book(
    tmp_path: Path,
) -> None:
    with placed(tmp_path, 20) as night:
        place_at_every_site(night)
        night.service.advance(3600)
        facts = follow_links(night.later(7).context, night.client)
        known = counts(night.bench)
        book = read_book(night.bench.context.adapters, BANK)
        coverage = stages_coverage([known_links(book.cards(DAY), book.stages)])

    stages = {line["stage"]: line["cardholders"] for line in facts["funnel"]["stages"]}
    assert stages["placed"] == known["placed"] > 0
    failed = sum(kind["cardholders"] for kind in facts["funnel"]["failed"])
    assert failed == known.get("failed", 0)
    assert stages["opened"] == sum(known.get(s, 0) for s in ("opened", *COME))
    assert stages["authenticated"] == coverage["authenticated"]["cards"]
