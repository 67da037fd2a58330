"""How far a card with a link came: delivered, opened, placed.

Each is known where it was asked, and null where nobody knows: a link that was never queried is not
"not opened". Frames in, frames out; `kept_stages.py` reads them.

* **Delivered**: a delivery of links has the link of its row. Deliveries of earlier versions do not
  name rows: of two cards that look the same both are delivered, once one is.
* **Opened**: the service or a transaction report says so of the link by which the card stands,
  since the first check that learned it: the service does not say when.
* **Placed**: that is said of any link of this issue of the card, and stays so: with no attempt on
  its way it is nobody's work any more, whether its link has ended or not, and it is not renewed. A
  transaction report names a cardholder, not a card: it says nothing of one who has several cards
  with links, nor of an issue that is newer than what it reports.
"""

from typing import Any, NamedTuple

import polars as pl

from flows.book.deliveries import DELIVERED_LINK, LOOK, NO_DELIVERIES, ROW, Deliveries
from flows.book.standing import DELIVERED, HAS_LINK, NAMES, OPENED, PLACED, State
from flows.runs.cards import ISSUE, is_single
from flows.runs.single_links import ARRIVED
from schemas.ledger import AWAITING
from schemas.partner_api.link_placements import BILLABLE
from schemas.partner_api.unknowns import REPORTS, SERVICE

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
    }
)
REPORTED_END = pl.Schema(  # what transaction reports say of a cardholder
    {
        "cuid": pl.String(),
        "reported_opened": pl.Boolean(),
        "reported_placed": pl.Boolean(),
        "completed_on": pl.Date(),
    }
)


class Stages(NamedTuple):
    """What is known of links beyond that they came (DELIVERED_LINK, FOLLOWED, REPORTED_END)."""

    delivered: pl.DataFrame
    followed: pl.DataFrame
    reported: pl.DataFrame
    deliveries: Deliveries = NO_DELIVERIES  # that `delivered` is made of


NO_STAGES = Stages(
    pl.DataFrame(schema=DELIVERED_LINK),
    pl.DataFrame(schema=FOLLOWED),
    pl.DataFrame(schema=REPORTED_END),
)


def followed_links(placements: pl.DataFrame, attempts: pl.DataFrame) -> pl.DataFrame:
    """Return what the service says of the links of a run (FOLLOWED).

    `placements`: row, opened, opened_seen, running, termination_type, settled, seen. `attempts`:
    those of the run, which say whose each link is.
    """
    rows = attempts.select("run", "row", *ISSUE).unique("row", keep="last")
    is_placed = pl.col("termination_type").eq_missing(BILLABLE)
    is_known = pl.col("running").is_not_null()
    known = placements.join(rows, on="row").with_columns(
        placed=pl.when(is_placed).then(True).when(is_known).then(False),
        opened_at="opened_seen",
        # a link is not queried any more once it is settled
        placed_at=pl.when(is_placed & pl.col("settled")).then("seen"),
    )
    says = pl.col("opened").is_not_null() | pl.col("placed").is_not_null()
    return known.filter(says).select(*FOLLOWED).cast(FOLLOWED)


def reported_ends(reported: pl.DataFrame) -> pl.DataFrame:
    """Return what transaction reports say of cardholders (REPORTED_END).

    A status that nobody can read says neither that a card is placed nor that it is not.
    """
    is_placed = pl.col("termination_type").eq_missing(BILLABLE)
    is_known = pl.col("running").is_not_null()
    ends = reported.with_columns(
        reported_opened="opened",
        reported_placed=pl.when(is_placed).then(True).when(is_known).then(False),
    )
    return ends.select(*REPORTED_END).cast(REPORTED_END)


def with_stages(cards: pl.DataFrame, stages: Stages) -> pl.DataFrame:
    """Return cards (`flows.book.standing.standing`) with how far those with a link came.

    Adds `opened` and `placed` (null: not known), and `placed_on`, the day, where it is known.
    """
    known = _known(cards, stages)
    stood = cards["standing"] == HAS_LINK.name
    is_answered = (cards["state"] != AWAITING).fill_null(value=True)
    table = [
        (is_answered & _is_true(known["placed"]), PLACED, known["placed_at"]),
        (stood & _is_true(known["opened"]), OPENED, known["opened_at"]),
        (stood & known["delivered"].is_not_null(), DELIVERED, known["delivered"]),
    ]
    staged = cards
    for applies, state, since in reversed(table):
        staged = _in_state(staged, applies, state, since)
    placed_on = known["placed_at"].dt.date().alias("placed_on")
    return staged.with_columns(known["opened"], known["placed"], placed_on)


def coverage(cards: pl.DataFrame, stages: Stages) -> dict[str, Any]:
    """Return of how many cards with a link it is known how far they came, and by whom.

    `links`: how many have one; `opened` and `placed`: the `cards` that came so far, and `known_by`,
    of how many it is known by each source.
    """
    linked = _known(cards, stages).filter(pl.col("has_link"))
    facts: dict[str, Any] = {"links": linked.height}
    for stage in ("opened", "placed"):
        sources = linked[f"{stage}_by"].drop_nulls()
        known_by = {name: int((sources == name).sum()) for name in (SERVICE, REPORTS)}
        facts[stage] = {
            "cards": int(_is_true(linked[stage]).sum()),
            "known_by": {name: number for name, number in known_by.items() if number},
        }
    return facts


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
    """Return of each card `opened`, `placed`, and when: `opened_at`, `placed_at`, `delivered`."""
    of_link = stages.followed.unique(["run", "row"], keep="last").select(
        "run", "row", "opened_at", link_opened="opened", link_placed="placed"
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
        rows = rows.join(known, on=key, how="left", nulls_equal=True, maintain_order="left")
    has_link = pl.col("until").is_not_null()
    rows = rows.with_columns(counts=_is_reported(), delivered=_delivered(rows, stages.delivered))
    by_report = pl.when("counts").then("reported_placed")
    placed = pl.when(has_link).then(_either("issue_placed", by_report))
    placed_by_service = pl.coalesce("issue_placed", "link_placed")
    opened_by = _by(["link_opened", placed_by_service], ["reported_opened", "reported_placed"])
    placed_by = _by([placed_by_service], ["reported_placed"])
    return rows.select(
        "delivered",
        "opened_at",
        has_link=has_link & pl.col("current"),
        opened_by=opened_by,
        placed_by=placed_by,
        opened=_either("link_opened", pl.when("counts").then("reported_opened"), placed),
        placed=_either(placed, "link_placed"),
        placed_at=pl.when(placed).then(
            pl.coalesce("issue_placed_at", pl.col("completed_on").cast(ARRIVED))
        ),
    )


def _delivered(cards: pl.DataFrame, links: pl.DataFrame) -> pl.Series:
    """Return when the link by which each card stands was delivered first.

    By its row; else by its look, where the link has no row, or the card alone looks so.
    """
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


def _is_reported() -> pl.Expr:
    """Return whether what a transaction report says of a cardholder is about this card."""
    has_link = pl.col("until").is_not_null() & pl.col("current")
    is_only_card = has_link.sum().over("holder") == 1
    is_of_issue = pl.col("completed_on").is_null() | (pl.col("completed_on") >= pl.col("first"))
    return has_link & is_only_card & is_of_issue


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
