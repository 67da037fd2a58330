"""Who left an issuer's portfolio, and since when: everybody else is still named, or cannot be told."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flows.book import departures as departures_of_extracts
from flows.book.attempts import ATTEMPT, in_order
from flows.book.book import read_book
from flows.book.departures import Naming, WholeExtract, departures, later_namings, namings
from flows.book.people import balance
from flows.reports.unlinked import unlinked
from flows.runs.cards import CARD_WITHOUT_TWIN
from schemas.portal import PAN
from schemas.reasons import DELETED, EXCLUDED, UNREADABLE_DELETION
from tests.book.test_upkeep import from_ledgers
from tests.extensions.partner_api.town import Population, town
from tests.memory import MemoryStore
from tests.night import edges

DAY = date(2026, 11, 20)
OTHER_CARD = "5555555555554444"  # a published test card


Card = tuple[str, str | None]  # holder and last four


class Row(NamedTuple):
    """A row of an extract: its card, whether it was sent or refused, so an attempt, and whether it
    is marked as deleted or left out, which no attempt is.
    """

    holder: str
    last_4: str | None
    is_attempt: bool
    is_deleted: bool = False
    is_excluded: bool = False

    @property
    def names(self) -> bool:
        """Whether its card is in the extract."""
        return not (self.is_deleted or self.is_excluded)


class Night(NamedTuple):
    """A whole extract, or a correction, which no portfolio is."""

    day: int
    full: bool
    rows: list[Row]
    corrects: bool = False


LAST_4 = st.sampled_from(["1111", "2222", None])
nights = st.builds(
    Night,
    st.integers(0, 4),
    st.booleans(),
    st.lists(
        st.builds(Row, st.sampled_from("abc"), LAST_4, st.booleans())
        | st.builds(Row, st.sampled_from("abc"), LAST_4, st.just(False), st.just(True))
        | st.builds(
            Row,
            st.sampled_from("abc"),
            LAST_4,
            st.just(False),
            st.just(False),
            st.just(True),
        ),
        max_size=4,
    ),
    st.sampled_from([False, False, True]),
)


def attempts(history: list[Night]) -> pl.DataFrame:
    """Return what a book has of these nights, committed in this order."""
    rows = [
        {
            "turn": turn,
            "run": f"run-{turn}",
            "as_of": DAY + timedelta(night.day),
            "row": number,
            "origin": 1 if night.corrects else None,
            "renewal": False,
            "cuid": row.holder,
            "holder": row.holder,
            "last_4": row.last_4,
            "twin": 0,
            "state": "rejected",
            "tries": 1,
        }
        for turn, night in enumerate(history, start=1)
        for number, row in enumerate(night.rows, start=1)
        if row.is_attempt or night.corrects
    ]
    return in_order([pl.DataFrame(rows, ATTEMPT)])


def extracts(history: list[Night]) -> list[Naming]:
    """Return the whole extracts among these nights, the newest first."""
    whole = [
        Naming(
            WholeExtract(
                day=DAY + timedelta(night.day),
                turn=turn,
                full=night.full,
                closes=any(row.is_deleted for row in night.rows),
                excludes=not night.full and any(row.is_excluded for row in night.rows),
            ),
            cards(row for row in night.rows if row.names),
            cards(row for row in night.rows if row.is_deleted),
            cards(row for row in night.rows if row.is_excluded and not night.full),
        )
        for turn, night in enumerate(history, start=1)
        if not night.corrects
    ]
    return sorted(whole, key=lambda named: (named.extract.day, named.extract.turn), reverse=True)


def cards(rows: Iterable[Row]) -> pl.DataFrame:
    """Return the cards of rows."""
    named = [(row.holder, row.last_4) for row in rows]
    return pl.DataFrame(named, dict.fromkeys(CARD_WITHOUT_TWIN, pl.String), orient="row")


def model(history: list[Night]) -> dict[Card, list[date | None]]:
    """Say night by night, by business date, who has left and who is left out, since when."""
    by_day = sorted(enumerate(history), key=lambda item: (item[1].day, item[0]))
    attempted = [
        (row[:2], night.corrects)
        for night in history
        for row in night.rows
        if row.is_attempt or night.corrects
    ]
    in_an_extract = {card for card, corrects in attempted if not corrects}
    known: set[Card] = set()
    left: dict[Card, date] = {}
    excluded: dict[Card, date] = {}
    for _, night in by_day:
        known |= {row[:2] for row in night.rows if row.is_attempt or night.corrects}
        if night.corrects:
            continue
        for card in {card for card, _ in attempted}:
            marked = {row[:2] for row in night.rows if row.is_deleted}
            passed_over = {row[:2] for row in night.rows if row.is_excluded}
            named = [row for row in night.rows if row.names]
            is_closed = card in marked and card[1] is not None
            is_left_out = night.full and (card[0], None) not in marked
            if any(_names(row, card, card not in in_an_extract) for row in named):
                left.pop(card, None)
                if night.full or any(
                    _names_itself(row, card, card not in in_an_extract) for row in named
                ):
                    excluded.pop(card, None)
                    continue
                is_closed = is_left_out = False
            if (is_closed or is_left_out) and card in known:
                left.setdefault(card, DAY + timedelta(night.day))
            is_excluded = card in passed_over and card[1] is not None and not night.full
            if is_excluded and card in known:
                excluded.setdefault(card, DAY + timedelta(night.day))
    cards_told = left.keys() | excluded.keys()
    return {card: [left.get(card), excluded.get(card)] for card in cards_told}


def _names(row: Row, card: tuple[str, str | None], only_corrected: bool) -> bool:
    same_card = row.last_4 in (None, card[1]) or only_corrected
    return row.holder == card[0] and same_card


def _names_itself(row: Row, card: tuple[str, str | None], only_corrected: bool) -> bool:
    return (row.last_4 == card[1] or only_corrected) and row.holder == card[0]


ROW = Row("a", "1111", is_attempt=True)
CORRECTED_LATER = [Night(0, True, [ROW]), Night(1, True, []), Night(2, False, [ROW], corrects=True)]
UNREADABLE_AFTER_A_PORTFOLIO = [
    Night(0, False, [Row("c", "1111", is_attempt=True, is_excluded=True)]),
    Night(1, False, [Row("c", None, is_attempt=False)]),
    Night(0, True, []),
]
CORRECTED_THAT_DAY = [Night(0, True, []), Night(0, False, [ROW], corrects=True)]


@settings(deadline=None)
@given(st.lists(nights, max_size=6))
@example(CORRECTED_LATER)
@example(CORRECTED_THAT_DAY)
@example(UNREADABLE_AFTER_A_PORTFOLIO)
def test_who_left_and_since_when_is_as_a_clerk_would_note_it_night_by_night(
    history: list[Night],
) -> None:
    departed = departures(attempts(history), extracts(history))

    assert model(history) == {
        (holder, last_4): [since, excluded]
        for holder, last_4, since, _, excluded in departed.rows()
    }


@settings(deadline=None)
@given(st.lists(nights, max_size=6), st.integers(0, 6))
def test_who_had_left_before_and_the_later_extracts_say_the_same_as_all_extracts(
    history: list[Night], first: int
) -> None:
    newest_first = list(extracts(history))
    later = newest_first[: max(0, len(newest_first) - first)]
    before = departures(attempts(history), newest_first[len(later) :])

    departed = departures(attempts(history), later, before)

    assert departures(attempts(history), newest_first).rows() == departed.rows()


def test_a_row_is_named_deleted_or_left_out_by_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = {"a": DELETED, "b": UNREADABLE_DELETION, "c": EXCLUDED, "d": "card.pan.luhn"}
    rows = [(cuid, "1111", [f"|{code}"]) for cuid, code in codes.items()]
    records = pl.DataFrame(rows, ["cuid", "last_4", "reasons"], orient="row")
    stored = SimpleNamespace(by_id=lambda *_: SimpleNamespace(ledger=lambda _: [records]))
    monkeypatch.setattr(departures_of_extracts, "StoredRun", stored)
    whole = WholeExtract(day=DAY, turn=1, full=True, closes=True, excludes=True)

    [(_, *kinds)] = later_namings(edges(MemoryStore()), {"r": whole})

    assert [["d"], ["a", "b"], ["c"]] == [cards["holder"].to_list() for cards in kinds]


def test_no_extract_is_read_before_it_is_needed() -> None:
    history = [Night(0, True, [ROW]), Night(1, True, [ROW])]
    newest_first = iter(extracts(history))

    departed = departures(attempts(history), newest_first)

    assert (0, 1) == (departed.height, len(list(newest_first)))


def test_extracts_are_read_from_the_newest_to_the_oldest_by_which_somebody_can_have_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def naming(_store: object, _run: str, extract: WholeExtract) -> Naming:
        return Naming(extract, cards([]))

    monkeypatch.setattr(departures_of_extracts, "_naming", naming)
    known = [(0, 1, False), (1, 2, True), (1, 3, True), (1, 4, False), (0, 5, True)]
    extracts = {
        f"run-{turn}": WholeExtract(day=DAY + timedelta(day), turn=turn, full=full)
        for day, turn, full in known
    }

    needed = [named.extract.turn for named in namings(edges(MemoryStore()), extracts)]
    every = [named.extract.turn for named in later_namings(edges(MemoryStore()), extracts)]

    assert ([4, 3, 2, 5], [4, 3, 2, 5, 1]) == (needed, every)


def stands(place: Population) -> dict[str, str]:
    """Return where each card stands, by cuid and last four."""
    cards = read_book(place.bench.context.adapters, "bank").cards(place.day)
    return {
        f"{cuid} {last_4}": standing
        for cuid, last_4, standing in cards.select("cuid", "last_4", "standing").rows()
    }


@pytest.mark.slow
def test_whom_a_portfolio_does_not_name_any_more_has_left_until_it_names_them(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, "a", "b", "c")
    gone = place.people.pop("b")
    place.night()
    left_on = place.day
    place.night()

    departed = read_book(place.bench.context.adapters, "bank").departed.rows()
    without = stands(place)
    place.people["b"] = gone
    place.night()

    assert [("b", "4242", left_on, False)] == departed
    assert {"a 4242": "linked", "b 4242": "left", "c 4242": "linked"} == without
    assert {"linked"} == set(stands(place).values())


def test_a_card_that_was_replaced_has_left_and_its_holder_has_not(tmp_path: Path) -> None:
    place = town(tmp_path, "a", "b")
    place.people["a"] |= {PAN: OTHER_CARD}
    place.night()

    counted = balance(read_book(place.bench.context.adapters, "bank").cards(place.day))

    assert {"a 4242": "left", "a 4444": "to upload", "b 4242": "linked"} == stands(place)
    assert {"to upload": 1, "linked": 1} == {
        state: number for state, number in counted.people.items() if number
    }


def test_a_refused_row_names_its_card_and_one_without_a_number_all_of_its_cardholder(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, "a", "b", "c")
    place.people["a"] |= {"country": "Atlantis"}
    place.people["b"] |= {PAN: "unreadable"}
    place.night()

    assert "left" not in stands(place).values()


@pytest.mark.slow
def test_who_left_is_nobodys_work(tmp_path: Path) -> None:
    place = town(tmp_path)
    place.settle("a", "b", "c")
    place.bench.submit(place.drop())
    place.answer(errors=["b"])
    place.people.pop("b")
    place.night()

    cards = read_book(place.bench.context.adapters, "bank").cards(DAY)
    counted = balance(cards)

    assert (0, 1) == (unlinked(cards).height, counted.people["left"])
    assert counted.is_done
    assert from_ledgers(place.bench) == sorted(cards.rows(), key=str)


@pytest.mark.slow
def test_nobody_leaves_an_issuer_that_sends_whom_it_has_news_of(tmp_path: Path) -> None:
    place = town(tmp_path, "a", "b", settings={"full_portfolio": False})
    place.people.pop("b")
    place.settle("c")
    place.night()

    assert "left" not in stands(place).values()
