"""Whole nights of an issuer that repeats everybody: only the new, the changed and those whose link
ends soon go out.
"""

from __future__ import annotations

import random
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from flows.errors import CardlinkError
from flows.resend.renewal import renew
from flows.resend.resubmission import Request as Resubmission
from flows.resend.resubmission_run import resubmit
from flows.resend.selection import RowSelection
from flows.resend.template import correction_template
from flows.runs.outbox import move
from flows.submissions.rehearsal import rehearse
from flows.submissions.submit import Request
from schemas.portal import ADDRESS1, CITY, CUID, FIRST_NAME, MONTH, YEAR
from schemas.reasons import AWAITED, REFUSED, REVERTED, STANDING
from tests.builders import quick
from tests.extensions.partner_api.town import Population, committed, town
from tests.resend.test_changed import stand


def test_the_first_night_sends_everybody_and_the_second_only_the_newcomer(tmp_path: Path) -> None:
    place = town(tmp_path, "a", "b", "c")
    place.settle("d")

    done = place.night()

    assert {"d"} == place.sent(done)
    assert dict.fromkeys("abc", STANDING) == place.held_back(done)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "change"),
    [
        pytest.param("name", {FIRST_NAME: "Augusta"}, marks=pytest.mark.slow),
        pytest.param("address", {ADDRESS1: "2 Main St"}, marks=pytest.mark.slow),
        pytest.param("expiration", {YEAR: "31"}, marks=pytest.mark.slow),
        ("expiration", {MONTH: "12"}),
    ],
)
def test_each_kind_of_change_is_sent_where_the_setting_counts_it(
    tmp_path: Path, kind: str, change: dict[str, str | None]
) -> None:
    found = []
    for changes in (
        [kind],
        [other for other in ("name", "address", "expiration") if other != kind],
    ):
        place = town(tmp_path / changes[0] / str(len(changes)), "a", "b", changes=changes)
        place.people["a"] |= change
        found.append(place.sent(place.night()))

    assert [{"a"}, set()] == found


@pytest.mark.slow
def test_a_changed_card_is_sent_once_and_held_back_again(tmp_path: Path) -> None:
    place = town(tmp_path, "a", "b")
    place.people["a"] |= {YEAR: "31"}
    first = place.night()
    second = place.night()
    place.answer()
    third = place.night()

    found = [place.sent(one) for one in (first, second, third)]

    assert [{"a"}, set(), set()] == found
    assert [AWAITED, STANDING] == [place.held_back(one)["a"] for one in (second, third)]


def test_a_link_is_made_anew_from_the_day_on_that_the_setting_says(tmp_path: Path) -> None:
    place = town(tmp_path, "a", renew_within_days=10)
    before = place.night(49)
    due = place.night()

    found = [place.sent(before), place.sent(due)]

    assert [set(), {"a"}] == found


@pytest.mark.parametrize(("resend", "sent"), quick(1, [(True, {"b"}), (False, set())]))
def test_who_was_refused_goes_again_only_where_the_setting_says_so(
    tmp_path: Path, resend: bool, sent: set[str]
) -> None:
    place = town(tmp_path, resend_errors=resend)
    place.settle("a", "b")
    place.bench.submit(place.drop())
    place.answer(errors="b")

    done = place.night()

    assert sent == place.sent(done)
    assert {"a": STANDING, "b": REFUSED} | dict.fromkeys(sent, "") == place.held_back(
        done
    ) | dict.fromkeys(sent, "")


@pytest.mark.slow
def test_a_row_as_the_partner_refused_it_ends_a_later_refusal_of_ours(tmp_path: Path) -> None:
    place = town(tmp_path, resend_errors=False)
    place.settle("a", "b")
    place.bench.submit(place.drop())
    place.answer(errors="b")
    good = dict(place.people["b"])
    place.people["b"] |= {CITY: None}
    place.night()
    spoiled = stand(place)["b"]
    place.people["b"] = good

    done = place.night()
    once_more = place.night()

    assert [REVERTED, REFUSED] == [place.held_back(night)["b"] for night in (done, once_more)]
    assert ("not sent", "refused") == (spoiled, stand(place)["b"])


@pytest.mark.slow
def test_who_was_refused_goes_again_once_mended(tmp_path: Path) -> None:
    place = town(tmp_path)
    place.settle("a", "b")
    place.bench.submit(place.drop())
    place.answer(errors="b")
    place.people["b"] |= {ADDRESS1: "2 Main St"}

    done = place.night()

    assert {"b"} == place.sent(done)


@pytest.mark.slow
def test_a_row_that_was_corrected_on_its_way_is_held_back_when_its_first_night_is_long_ago(
    tmp_path: Path,
) -> None:
    place = town(tmp_path)
    place.settle("a", "b")
    first = place.bench.submit(place.drop()).manifest.run
    place.answer(errors="b")
    place.day += timedelta(days=50)
    correct(place, first)
    place.answer()
    del place.people["a"]

    nights = [place.night(20), place.night()]
    place.people["b"] |= {ADDRESS1: "3 Side St"}  # now the issuer corrects it too
    nights.append(place.night())

    assert [{"b": STANDING}] * 3 == [place.held_back(one) for one in nights]


@pytest.mark.slow
def test_a_renewal_that_was_corrected_is_held_back_when_the_first_night_is_long_ago(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, "a", "b", renew_within_days=0)
    place.night(50)
    (renewed,) = renew(place.bench.context, 14).runs
    place.answer(errors="b")
    place.day += timedelta(days=11)  # the old link has ended
    correct(place, renewed.manifest.run)
    place.answer()

    nights = [place.night(), place.night(20)]

    assert [{"a": STANDING, "b": STANDING}] * 2 == [place.held_back(one) for one in nights]


def correct(place: Population, run: str) -> None:
    """Send the rows of a run that the partner refused again, with another street."""
    (asked,) = correction_template(place.bench.context, run)
    filled = (
        asked.with_columns(column=pl.lit(ADDRESS1), correction=pl.lit("3 Side St"))
        .write_csv()
        .encode()
    )
    resubmit(
        place.bench.context,
        Resubmission(run, RowSelection(), "corrected", corrections=f"{run}.csv"),
        content=filled,
    )


def test_a_row_without_a_cuid_is_refused_since_nobody_could_tell_it_was_sent(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, "a", "b")
    place.people["?"] = {CUID: None}

    done = place.night()

    assert {"cardholder.cuid.missing": 1, STANDING: 2} == done.manifest.reasons
    assert (0, 1, 2) == (
        done.manifest.counts.submitted,
        done.manifest.counts.rejected,
        done.manifest.counts.suppressed,
    )


def test_rows_of_a_cancelled_chunk_were_never_sent(tmp_path: Path) -> None:
    place = town(tmp_path)
    place.settle("a", "b")
    first = place.bench.submit(place.drop())
    move(place.bench.context.adapters, first.manifest.run, "cancelled", (), "the wrong key")

    done = place.night()

    assert {"a", "b"} == place.sent(done)


def test_every_row_is_counted_once_and_the_report_names_why_it_is_held_back(tmp_path: Path) -> None:
    place = town(tmp_path, "a", "b", "c")
    place.settle("d")
    done = place.night()

    report = place.bench.report(done.manifest.run, "rejects.csv").decode()

    counts = done.manifest.counts
    assert counts.read == counts.submitted + counts.rejected + counts.duplicate + counts.suppressed
    assert (1, 3) == (counts.submitted, counts.suppressed)
    assert "card.link" not in report  # nothing is to be done about them


def test_a_dry_run_says_what_the_run_then_does(tmp_path: Path) -> None:
    place = town(tmp_path, "a", "b", "c")
    place.settle("d")
    place.people["a"] |= {FIRST_NAME: "Augusta"}
    place.day += timedelta(days=1)
    extract = place.drop()

    told = rehearse(place.bench.context, Request(extract))
    done = place.bench.submit(extract).manifest

    assert (done.run, done.counts) == (told.run, told.counts)
    assert done.reasons == {one.code: one.rows for one in told.found}


@pytest.mark.slow
def test_a_portfolio_that_halves_is_refused_though_almost_nobody_is_sent(tmp_path: Path) -> None:
    place = town(tmp_path, *(f"c{number}" for number in range(10)))
    for _ in range(3):
        place.night()
    place.people = dict(list(place.people.items())[:4])

    with pytest.raises(CardlinkError, match="4 rows, where the last 4 runs had 10"):
        place.night()

    assert 4 == len(committed(place.bench))


@pytest.mark.slow
def test_a_portfolio_to_which_nothing_happened_is_another_night_all_the_same(
    tmp_path: Path,
) -> None:
    place = town(tmp_path, "a")
    first, second = place.night(), place.night(50)

    found = [place.sent(first), place.sent(second)]

    assert [set(), {"a"}] == found
    assert first.manifest.source.sha256 == second.manifest.source.sha256


class Last(NamedTuple):
    """The last attempt at a card in a plain model: what came of it, when its link ends, and as what
    it was sent.
    """

    state: str
    until: date
    row: dict[str, str | None]


@pytest.mark.parametrize("nights", [5, pytest.param(40, marks=pytest.mark.slow)])
def test_over_many_nights_a_card_goes_out_exactly_when_a_plain_model_says_so(
    tmp_path: Path, nights: int
) -> None:
    chance = random.Random(5)
    place = town(tmp_path, renew_within_days=5)
    model: dict[str, dict[str, Last]] = {}  # by cuid and year of expiration
    for night in range(nights):
        live_a_day(place, chance, night)
        place.day += timedelta(days=1)
        expected = {
            cuid for cuid, row in place.people.items() if goes(model.get(cuid, {}), row, place.day)
        }

        done = place.bench.submit(place.drop(), opened=["row-jump"])

        assert expected == place.sent(done), f"night {night}"
        for cuid in expected:
            row = dict(place.people[cuid])
            model.setdefault(cuid, {})[row[YEAR] or ""] = Last("awaiting", date.max, row)
        if chance.random() < 0.6:
            refused = {cuid for cuid in model if chance.random() < 0.2}
            place.answer(refused, lives=15)
            _answer(model, refused, place.day + timedelta(days=15))


def live_a_day(place: Population, chance: random.Random, night: int) -> None:
    """Let people come, move, marry, and get new cards."""
    for number in range(chance.randint(0, 2) + (night == 0)):
        place.people[f"n{night}-{number}"] = {CUID: f"n{night}-{number}", YEAR: "29"}
    for row in place.people.values():
        if chance.random() < 0.1:
            moved, married = (
                {ADDRESS1: f"{night} Main St"},
                {FIRST_NAME: f"Ada{'abcdefgh'[night % 8]}"},
            )
            row |= chance.choice([moved, married, {YEAR: str(28 + night % 4)}])


def goes(known: dict[str, Last], row: dict[str, str | None], day: date) -> bool:
    """Say whether a card goes out: new, or changed since it was last sent, or its link about to
    end.
    """
    if not known:
        return True
    last = known.get(row[YEAR] or "") or known[min(known)]
    if last.state == "awaiting":
        return False
    return row != last.row or (last.state == "linked" and last.until <= day + timedelta(days=5))


def _answer(model: dict[str, dict[str, Last]], refused: set[str], until: date) -> None:
    for cuid, tries in model.items():
        for year, last in tries.items():
            if last.state == "awaiting":
                tries[year] = Last("error" if cuid in refused else "linked", until, last.row)
