"""How far a card with a link came: delivered, opened, authenticated, placed or failed.

Each is known where it was asked, and null where nobody knows: a link that was never queried is not
"not opened". Frames in, frames out; `link_stages.py` reads them.

* **Delivered**: a delivery of links has the link of its row. Deliveries of earlier versions do not
  name rows: of two cards that look the same both are delivered, once one is.
* **Opened**: the service or a transaction report says so of the link by which the card stands,
  since the first check that learned it: the service does not say when.
* **Authenticated**: the same, of a job of its cardholder that signed in to a merchant site.
* **Failed**: the same, where no job has placed the card and none is under way, by the kind of the
  last end. The link can be used again: this is nobody's work, and later progress replaces it.
* **Placed**: that is said of any link of this issue of the card, and stays so: with no attempt on
  its way it is nobody's work any more, whether its link has ended or not, and it is not renewed. A
  transaction report names a cardholder, not a card: it says nothing of one who has several cards
  with links, nor of an issue that is newer than what it reports.
"""

from collections.abc import Iterable
from datetime import date
from typing import Any, NamedTuple

import polars as pl

from flows.book.standing import (
    AUTHENTICATED,
    DELIVERED,
    FAILED,
    HAS_LINK,
    NAMES,
    OPENED,
    PLACED,
    SERVED,
    State,
)
from flows.runs.cards import CARD, ISSUE, is_single
from flows.runs.single_links import ARRIVED
from schemas.ledger import AWAITING
from schemas.partner_api.link_placements import BILLABLE
from schemas.partner_api.unknowns import REPORTS, SERVICE

LOOK = ("cuid", "last_4", "expiration")  # of a card, as those have it who are handed its link
ROW = ("run", "row")  # that a link came of
DELIVERED_LINK = pl.Schema(  # that somebody was handed, and may use
    {
        "run": pl.String(),
        "row": pl.UInt32(),
        **dict.fromkeys(LOOK, pl.String()),
        "until": pl.Date(),
        "delivered": ARRIVED,
    }
)
FOLLOWED = pl.Schema(  # what the service says of a link; null: it does not say
    {
        "run": pl.String(),
        "row": pl.UInt32(),
        "holder": pl.String(),
        "last_4": pl.String(),
        "twin": pl.UInt8(),
        "expiration": pl.String(),
        "reissue_check": pl.UInt32(),
        "opened": pl.Boolean(),
        "opened_at": ARRIVED,  # when the first check that found it opened was made
        "placed": pl.Boolean(),
        "placed_at": ARRIVED,  # when the check that found it placed was made
        "authenticated": pl.Boolean(),
        "under_way": pl.Boolean(),
        "failed": pl.String(),  # the kind of its end; null: it has not failed, or that is not known
        "moved_at": ARRIVED,  # when the last check that found something new was made
    }
)
REPORTED_END = pl.Schema(  # what transaction reports say of a cardholder
    {
        "cuid": pl.String(),
        "reported_opened": pl.Boolean(),
        "reported_placed": pl.Boolean(),
        "completed_on": pl.Date(),
        "reported_authenticated": pl.Boolean(),
        "reported_under_way": pl.Boolean(),
        "reported_failed": pl.String(),
    }
)


STAGES = ("opened", "authenticated", "placed")
_OF_LINK = (*STAGES, "under_way", "failed")


class Stages(NamedTuple):
    """What is known of links beyond that they came (DELIVERED_LINK, FOLLOWED, REPORTED_END)."""

    delivered: pl.DataFrame
    followed: pl.DataFrame
    reported: pl.DataFrame


NO_STAGES = Stages(
    pl.DataFrame(schema=DELIVERED_LINK),
    pl.DataFrame(schema=FOLLOWED),
    pl.DataFrame(schema=REPORTED_END),
)


def followed_links(placements: pl.DataFrame, attempts: pl.DataFrame) -> pl.DataFrame:
    """Return what the service says of the links of a run (FOLLOWED).

    `placements`: row, opened, opened_seen, authenticated, running, termination_type, settled, seen,
    moved. `attempts`: those of the run, which say whose each link is.
    """
    rows = attempts.select("run", "row", *ISSUE).unique("row", keep="last")
    known = placements.join(rows, on="row").with_columns(
        placed=_placed(),
        under_way="running",
        failed=_failed(),
        opened_at="opened_seen",
        moved_at="moved",
        # a link is not queried any more once it is settled
        placed_at=pl.when(_is_billable() & pl.col("settled")).then("seen"),
    )
    says = pl.col("opened").is_not_null() | pl.col("placed").is_not_null()
    return known.filter(says).select(*FOLLOWED).cast(FOLLOWED)


def reported_ends(reported: pl.DataFrame) -> pl.DataFrame:
    """Return what transaction reports say of cardholders (REPORTED_END).

    A status that nobody can read says neither that a card is placed nor that it is not.
    """
    ends = reported.with_columns(
        reported_opened="opened",
        reported_authenticated="authenticated",
        reported_under_way="running",
        reported_failed=_failed(),
        reported_placed=_placed(),
    )
    return ends.select(*REPORTED_END).cast(REPORTED_END)


def _is_billable() -> pl.Expr:
    return pl.col("termination_type").eq_missing(BILLABLE)


def _placed() -> pl.Expr:
    """Return whether a card is placed; null where nothing is known of its jobs."""
    return pl.when(_is_billable()).then(True).when(pl.col("running").is_not_null()).then(False)


def _failed() -> pl.Expr:
    """Return the kind of an end without a placed card, null where there is none."""
    has_ended = pl.col("running").eq_missing(pl.lit(value=False))
    return pl.when(has_ended & ~_is_billable()).then("termination_type")


def with_stages(cards: pl.DataFrame, stages: Stages) -> pl.DataFrame:
    """Return cards (`flows.book.standing.standing`) with how far those with a link came.

    Adds `opened` and `placed` (null: not known), `failed`, the kind of its end, where it is in that
    state, and `placed_on`, the day, where it is known.
    """
    known = _known(cards, stages)
    stood = cards["standing"] == HAS_LINK.name
    is_answered = (cards["state"] != AWAITING).fill_null(value=True)
    table = [
        (is_answered & _is_true(known["placed"]), PLACED, known["placed_at"]),
        (stood & known["failed"].is_not_null(), FAILED, known["moved_at"]),
        (stood & _is_true(known["authenticated"]), AUTHENTICATED, known["moved_at"]),
        (stood & _is_true(known["opened"]), OPENED, known["opened_at"]),
        (stood & known["delivered"].is_not_null(), DELIVERED, known["delivered"]),
    ]
    staged = cards
    for applies, state, since in reversed(table):
        staged = _in_state(staged, applies, state, since)
    placed_on = known["placed_at"].dt.date().alias("placed_on")
    failed = pl.when(pl.col("standing") == FAILED.name).then(known["failed"]).alias("failed")
    return staged.with_columns(known["opened"], known["placed"], failed, placed_on)


def served_cards(cards: pl.DataFrame, today: date) -> pl.DataFrame:
    """Return the cards with a link that can be opened, each once: LOOK, run, row, until, standing.

    Each in its newest issue where that has one, else in that whose link lasts longest.
    """
    is_served = pl.col("standing").cast(pl.String).is_in([state.name for state in SERVED])
    columns = dict.fromkeys((*CARD, *LOOK, "run", "row", "until", "current", "standing"))
    linked = cards.select(*columns).filter(is_served & (pl.col("until") >= today))
    best_first = linked.sort("current", "until", descending=True)
    of_card = best_first.unique(CARD, keep="first", maintain_order=True)
    return of_card.select(*LOOK, "run", "row", "until", "standing")


def known_links(cards: pl.DataFrame, stages: Stages) -> pl.DataFrame:
    """Return what is known of each card with a link: STAGES, each with by whom, and `failed`."""
    linked = _known(cards, stages).filter(pl.col("has_link"))
    return linked.select(*STAGES, *(f"{stage}_by" for stage in STAGES), "failed")


def coverage(links: Iterable[pl.DataFrame]) -> dict[str, Any]:
    """Return of how many cards with a link (`known_links`) it is known how far they came, by whom.

    `links`: how many have one; by each of STAGES: the `cards` that came so far, and `known_by`, of
    how many it is known by each source. `failed`: of those of whom it is known
    whether they are placed, how many ended otherwise, by kind, most first.
    """
    linked = pl.concat(links)
    facts: dict[str, Any] = {"links": linked.height}
    for stage in STAGES:
        sources = linked[f"{stage}_by"].drop_nulls()
        known_by = {name: int((sources == name).sum()) for name in (SERVICE, REPORTS)}
        facts[stage] = {
            "cards": int(_is_true(linked[stage]).sum()),
            "known_by": {name: number for name, number in known_by.items() if number},
        }
    kinds = linked["failed"].drop_nulls().value_counts()
    most_first = kinds.sort("count", "failed", descending=[True, False])
    return {**facts, "failed": dict(most_first.iter_rows())}


def _in_state(
    cards: pl.DataFrame, applies: pl.Series, state: State, since: pl.Series
) -> pl.DataFrame:
    """Return cards, those to which it applies in a state in which nobody acts, and since when."""
    return cards.with_columns(
        standing=pl.when(applies).then(pl.lit(state.name, NAMES)).otherwise("standing"),
        since=pl.when(applies).then(since).otherwise("since"),
        who=pl.when(applies).then(pl.lit(state.who)).otherwise("who"),
        action=pl.when(~applies).then("action"),
    )


def _is_true(values: pl.Series) -> pl.Series:
    return values.fill_null(value=False)


def _known(cards: pl.DataFrame, stages: Stages) -> pl.DataFrame:
    """Return of each card what is known of each of STAGES, by whom (`…_by`), and when: `opened_at`,
    `moved_at`, `placed_at`, `delivered`; and the kind of its end, where it has `failed`.
    """
    rows = _with_sources(cards, stages)
    has_link = pl.col("until").is_not_null()
    by_report = {name: pl.when("counts").then(f"reported_{name}") for name in _OF_LINK}
    placed = pl.when(has_link).then(_either("issue_placed", by_report["placed"]))
    placed_by_service = pl.coalesce("issue_placed", "link_placed")
    signed_in = pl.when("issue_placed").then(True)
    return rows.select(
        *("delivered", "opened_at", "moved_at"),
        has_link=has_link & pl.col("current"),
        opened_by=_by(["link_opened", placed_by_service], ["reported_opened", "reported_placed"]),
        authenticated_by=_by(["link_authenticated", signed_in], ["reported_authenticated"]),
        placed_by=_by([placed_by_service], ["reported_placed"]),
        opened=_either("link_opened", by_report["opened"], placed),
        authenticated=_either("link_authenticated", by_report["authenticated"], signed_in),
        failed=pl.when(~_is_set(placed) & ~_is_under_way()).then(
            pl.coalesce("link_failed", by_report["failed"])
        ),
        placed=_either(placed, "link_placed"),
        placed_at=pl.when(placed).then(
            pl.coalesce("issue_placed_at", pl.col("completed_on").cast(ARRIVED))
        ),
    )


def _with_sources(cards: pl.DataFrame, stages: Stages) -> pl.DataFrame:
    """Return of each card what its link, any link of its issue, and a transaction report say."""
    of_link = stages.followed.unique(["run", "row"], keep="last").select(
        *("run", "row", "opened_at", "moved_at"),
        *(pl.col(name).alias(f"link_{name}") for name in _OF_LINK),
    )
    of_issue = (
        stages.followed.filter("placed")
        .group_by(ISSUE)
        .agg(issue_placed=pl.lit(value=True), issue_placed_at=pl.col("placed_at").min())
    )
    rows = cards.select("run", "row", *ISSUE, "cuid", "until", "first", "current")
    for known, key in (
        (of_link, ["run", "row"]),
        (of_issue, list(ISSUE)),
        (stages.reported, ["cuid"]),
    ):
        rows = _with_known(rows, known, key)
    counts = _is_reported(rows, stages.reported)
    return rows.with_columns(counts, delivered=_delivered(rows, stages.delivered))


def _with_known(rows: pl.DataFrame, known: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Return rows with the columns of what is known of their keys, each of which it has once."""
    if known.is_empty():  # literals take no memory
        return rows.with_columns(
            pl.lit(None, known.schema[name]).alias(name) for name in known.drop(key).columns
        )
    keys = rows.select(key)  # a join of all columns would be another copy of each
    joined = keys.join(known, on=key, how="left", nulls_equal=True, maintain_order="left")
    return rows.with_columns(joined.drop(key).get_columns())


def _is_under_way() -> pl.Expr:
    """Return whether a job runs; an end that the service knows is later than what a report says."""
    is_reported = _is_set("reported_under_way") & pl.col("counts")
    return _is_set("link_under_way") | (is_reported & pl.col("link_failed").is_null())


def _delivered(cards: pl.DataFrame, links: pl.DataFrame) -> pl.Series:
    """Return when the link by which each card stands was delivered first.

    By its row; else by its look, where the link has no row, or the card alone looks so.
    """
    if links.is_empty():
        return pl.Series([None]).new_from_index(0, cards.height)
    numbered = cards.select(*ROW, *LOOK, "until").with_row_index("place")
    of_row = numbered.join(links.drop_nulls("row"), on=[*ROW, "until"]).select("place", "delivered")
    others = numbered.join(of_row, on="place", how="anti")
    has_row = links["row"].is_not_null()
    of_look = _by_look(others, links.filter(~has_row))
    with_row = _by_look(others, links.filter(has_row))
    if not with_row.is_empty():
        alone = is_single(numbered, LOOK)
        with_row = with_row.filter(alone.gather(with_row["place"]))
    known = pl.concat([of_row, of_look, with_row]).unique("place", keep="first")
    places = numbered.select("place")
    return places.join(known, on="place", how="left", maintain_order="left")["delivered"]


def _by_look(cards: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """Return the `place` of each card that looks like one whose link was delivered, and when."""
    look = [*LOOK, "until"]
    first = links.sort("delivered").unique(look, keep="first").select(*look, "delivered")
    return cards.join(first, on=look, nulls_equal=True).select("place", "delivered")


def _is_set(flag: pl.Expr | str) -> pl.Expr:
    """Return whether a flag is true, false where it is not known."""
    return (pl.col(flag) if isinstance(flag, str) else flag).fill_null(value=False)


def _is_reported(rows: pl.DataFrame, reported: pl.DataFrame) -> pl.Series:
    """Return whether what a transaction report says of a cardholder is about this card (`counts`).

    Of cardholders whom no report names it is not; theirs, which are most, are not looked at.
    """
    holders = rows["holder"].filter(rows["cuid"].is_in(reported["cuid"].implode()))
    is_asked = rows["holder"].is_in(holders.implode(), nulls_equal=True).fill_null(value=False)
    has_link = pl.col("until").is_not_null() & pl.col("current")
    is_only_card = has_link.sum().over("holder") == 1
    is_of_issue = pl.col("completed_on").is_null() | (pl.col("completed_on") >= pl.col("first"))
    counts = rows.filter(is_asked).select(has_link & is_only_card & is_of_issue).to_series()
    return is_asked.scatter(is_asked.arg_true(), counts).alias("counts")


def _by(of_service: list[pl.Expr | str], of_reports: list[str]) -> pl.Expr:
    """Return who says anything: the service, else transaction reports where they count; null."""
    service = pl.coalesce(of_service).is_not_null()
    reports = pl.coalesce(of_reports).is_not_null() & pl.col("counts")
    return pl.when(service).then(pl.lit(SERVICE)).when(reports).then(pl.lit(REPORTS))


def _either(*sources: pl.Expr | str) -> pl.Expr:
    """Return whether a source says so; where none does, whether one says that it is not so."""
    says = [pl.col(source) if isinstance(source, str) else source for source in sources]
    is_said = pl.any_horizontal(source.fill_null(value=False) for source in says)
    return pl.when(is_said).then(True).otherwise(pl.coalesce(says))
