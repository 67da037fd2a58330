"""Who left: the cards that an issuer's extracts do not name any more, or mark as deleted.

An extract of a full portfolio names everybody: a card that it does not name has left. Any other
extract names whom it names. Both close the cards that they mark as deleted (`[status]`) and name
in no other row; a row before the mark is marked with it (`flows/submissions/superseded.py`). A card
has left since the first extract after the last one that names it which is such a portfolio or
closes it, and is back as soon as a later one names it. Later is by business date, then by
registration.

* Every row names its card, whether it was sent, refused or suppressed, but not a row that is marked
  as deleted. A row whose card number cannot be read names all cards of its cardholder; one that is
  also marked as deleted closes none and brings none back, but a portfolio has not left them out.
* A card that only a correction ever had, which no extract names, leaves with its cardholder.
* A row that `[status]` leaves out of any other extract than a portfolio neither names its card nor
  closes it: until a later extract names it, or is a portfolio, the card is `excluded`, and is not
  sent again. A row whose card number cannot be read keeps it from leaving, and excluded.
* Nobody leaves whose cuid we generated: their rows cannot be recognised in another extract.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from itertools import chain, islice
from typing import NamedTuple

import polars as pl
from pydantic import BaseModel, ConfigDict

from flows.runs.adapters import Adapters
from flows.runs.cards import CARD_WITHOUT_TWIN, is_among, is_among_many
from flows.runs.stored_run import StoredRun
from schemas.manifest import Manifest, Plan
from schemas.reasons import DELETED, EXCLUDED, UNREADABLE_DELETION

# `closed`: an extract since then marks it as deleted; `excluded`: since when `[status]` leaves it
# out; `since` is null where it has not left
DEPARTED = pl.Schema(
    {
        "holder": pl.String(),
        "last_4": pl.String(),
        "since": pl.Date(),
        "closed": pl.Boolean(),
        "excluded": pl.Date(),
    }
)
# what is read of attempts
FOLLOWED = ("turn", "run", "as_of", "origin", "cuid", *CARD_WITHOUT_TWIN)
NOBODY = pl.DataFrame(schema=DEPARTED)
NO_CARDS = NOBODY.select(CARD_WITHOUT_TWIN)


class WholeExtract(BaseModel):
    """A committed whole extract: its business date, the number of its commit, and what it is.

    `full`: a full portfolio, so that whom it does not name has left. `closes`: some of its rows
    are marked as deleted. `excludes`: it is no portfolio, and `[status]` leaves some rows out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    day: date
    turn: int
    full: bool
    closes: bool = False
    excludes: bool = False

    @property
    def decides(self) -> bool:
        """Whether somebody can have left by it, or be left out."""
        return self.full or self.closes or self.excludes


class Naming(NamedTuple):
    """The cards that a whole extract `named`, those that it marked as deleted, and left out.

    All have holder and last_4, null where it is unreadable.
    """

    extract: WholeExtract
    named: pl.DataFrame
    deleted: pl.DataFrame = NO_CARDS
    excluded: pl.DataFrame = NO_CARDS


def whole_extract(run: StoredRun, turn: int) -> WholeExtract | None:
    """Return what a run says of its extract; None before its commit, and for a selection of one.

    Whether it is a full portfolio is what the run recorded, not what the settings say today.
    """
    if run.manifest is None or run.manifest.selection is not None or run.plan is None:
        return None
    return extract_of(run.manifest, run.plan, turn)


def extract_of(manifest: Manifest, plan: Plan, turn: int) -> WholeExtract:
    """Return what a manifest and its plan say of an extract."""
    full = "portfolio" in plan.settings
    closes = not manifest.reasons.keys().isdisjoint((DELETED, UNREADABLE_DELETION))
    excludes = not full and EXCLUDED in manifest.reasons
    return WholeExtract(day=manifest.as_of, turn=turn, full=full, closes=closes, excludes=excludes)


def departures(
    attempts: pl.DataFrame, extracts: Iterable[Naming], before: pl.DataFrame = NOBODY
) -> pl.DataFrame:
    """Return the cards that have left or are left out, and since when (DEPARTED).

    `attempts` has FOLLOWED. `extracts`, the newest first, are read as far as needed: one where
    nobody has left. `before`: who had left before all of these extracts.
    """
    newest_first = iter(extracts)
    newest = list(islice(newest_first, 1))
    undecided = _known_cards(attempts.filter(_can_have_left(attempts, newest, before)))
    departed = [NOBODY]
    for extract, named, deleted, excluded in chain(newest, newest_first):
        is_unreadable = _is_of_unreadable(undecided, named)
        undecided = undecided.with_columns(stays=undecided["stays"] | is_unreadable)
        is_decided = _is_named(undecided, named) | ~undecided.select(_is_older(extract)).to_series()
        is_decided |= is_unreadable & extract.full
        departed.append(undecided.filter(is_decided).select(*DEPARTED))
        undecided = undecided.filter(~is_decided)
        is_closed = is_among(undecided, deleted.drop_nulls(), CARD_WITHOUT_TWIN)
        is_closed &= ~undecided["stays"]
        is_gone = is_closed | (_is_left_out(undecided, extract, deleted) & ~undecided["stays"])
        is_excluded = is_among(undecided, excluded.drop_nulls(), CARD_WITHOUT_TWIN)
        undecided = undecided.with_columns(
            pl.col("closed") | is_closed,
            since=pl.when(is_gone).then(pl.lit(extract.day)).otherwise("since"),
            excluded=pl.when(is_excluded).then(pl.lit(extract.day)).otherwise("excluded"),
        )
        if undecided.is_empty():
            break
    departed.append(_with_earlier(undecided, before).select(*DEPARTED))
    is_told = pl.any_horizontal(pl.col("since", "excluded").is_not_null())
    return pl.concat(departed).filter(is_told).sort(CARD_WITHOUT_TWIN)


class Movement(NamedTuple):
    """Who would leave and come by an extract, of the `known` cards that had not left before it.

    `left` and `new` have CARD_WITHOUT_TWIN.
    """

    known: int
    left: pl.DataFrame
    new: pl.DataFrame


def movement(attempts: pl.DataFrame, extract: Naming, before: pl.DataFrame) -> Movement:
    """Return who leaves by the newest extract, and of a portfolio who comes.

    `attempts` has FOLLOWED, `before` who had left by earlier extracts (DEPARTED).
    """
    gone = before.drop_nulls("since")
    known = _known_cards(attempts)
    known = known.filter(~is_among(known, gone, CARD_WITHOUT_TWIN))
    now = departures(attempts, [extract], before).drop_nulls("since")
    left = now.filter(~is_among(now, gone, CARD_WITHOUT_TWIN)).select(CARD_WITHOUT_TWIN)
    new = NO_CARDS
    if extract.extract.full:
        named = extract.named.drop_nulls().unique(maintain_order=True)
        new = named.filter(~is_among_many(named, attempts, CARD_WITHOUT_TWIN))
    return Movement(known.height, left, new)


def _with_earlier(undecided: pl.DataFrame, before: pl.DataFrame) -> pl.DataFrame:
    """Return cards that no later extract decides with what was decided of them `before`."""
    suffix = "_before"
    joined = undecided.join(
        before, on=CARD_WITHOUT_TWIN, how="left", nulls_equal=True, suffix=suffix
    )
    return joined.with_columns(
        pl.col("closed") | (pl.col(f"closed{suffix}").fill_null(value=False) & ~pl.col("stays")),
        since=pl.coalesce(pl.when(~pl.col("stays")).then(f"since{suffix}"), "since"),
        excluded=pl.coalesce(f"excluded{suffix}", "excluded"),
    )


def _can_have_left(
    attempts: pl.DataFrame, newest: Sequence[Naming], before: pl.DataFrame
) -> pl.Series:
    """Return which attempts are of cards that can have left: few, and only theirs are looked at.

    That is those whom the newest extract does not name; without one, those who had left before.
    """
    if not newest:
        return is_among(attempts, before, CARD_WITHOUT_TWIN)
    return ~is_among_many(attempts, newest[0].named, CARD_WITHOUT_TWIN)


def _known_cards(attempts: pl.DataFrame) -> pl.DataFrame:
    """Return the cards that can leave: DEPARTED, and of the first attempt `as_of` and `turn`.

    `corrected`: no extract had the card. `stays`: it cannot leave by what is older.
    """
    is_recognised = (pl.col("holder") == pl.col("cuid")) & (pl.col("run") != "")
    rows = attempts.filter(is_recognised).select(*CARD_WITHOUT_TWIN, "as_of", "turn", "origin")
    cards = rows.sort("as_of", "turn").group_by(CARD_WITHOUT_TWIN)
    return cards.agg(
        pl.col("as_of", "turn").first(),
        since=pl.lit(None, pl.Date),
        closed=pl.lit(value=False),
        excluded=pl.lit(None, pl.Date),
        corrected=pl.col("origin").is_not_null().all(),
        stays=pl.lit(value=False),
    )


def _is_older(extract: WholeExtract) -> pl.Expr:
    """Return whether a card was known before an extract, or by it."""
    same_day = pl.col("as_of") == extract.day
    return (pl.col("as_of") < extract.day) | (same_day & (pl.col("turn") <= extract.turn))


def _is_left_out(cards: pl.DataFrame, extract: WholeExtract, deleted: pl.DataFrame) -> pl.Series:
    """Return which cards an extract that does not name them leaves out of a portfolio.

    It has not left out the cards of a cardholder whom it marks without a card number.
    """
    unreadable = deleted.filter(pl.col("last_4").is_null())["holder"].drop_nulls()
    is_left_out = pl.lit(extract.full) & ~pl.col("holder").is_in(unreadable.implode())
    return cards.select(is_left_out.fill_null(value=False)).to_series()


def _is_named(cards: pl.DataFrame, named: pl.DataFrame) -> pl.Series:
    """Return which cards an extract names."""
    of_corrected = pl.col("holder").is_in(cards.filter("corrected")["holder"].implode())
    corrected = named.filter(of_corrected)["holder"]
    by_holder = pl.col("corrected") & pl.col("holder").is_in(corrected.implode())
    return cards.select(by_holder | is_among_many(cards, named, CARD_WITHOUT_TWIN)).to_series()


def _is_of_unreadable(cards: pl.DataFrame, named: pl.DataFrame) -> pl.Series:
    """Return the cards of which an extract has a row whose card number cannot be read."""
    unreadable = named.filter(pl.col("last_4").is_null())["holder"].drop_nulls()
    return cards["holder"].is_in(unreadable.implode())


def namings(adapters: Adapters, extracts: Mapping[str, WholeExtract]) -> Iterator[Naming]:
    """Yield what the extracts of these runs name, the newest first, each read when it is needed.

    It ends with the oldest one by which somebody can have left.
    """
    deciding = [extract for extract in extracts.values() if extract.decides]
    if not deciding:
        return
    oldest = min(map(order, deciding))
    needed = {run: extract for run, extract in extracts.items() if order(extract) >= oldest}
    yield from later_namings(adapters, needed)


def later_namings(adapters: Adapters, extracts: Mapping[str, WholeExtract]) -> Iterator[Naming]:
    """Yield what the extracts of these runs name, all of them, the newest first."""
    for run in sorted(extracts, key=lambda run: order(extracts[run]), reverse=True):
        yield _naming(adapters, run, extracts[run])


def _naming(adapters: Adapters, run: str, extract: WholeExtract) -> Naming:
    return naming_of(extract, StoredRun.by_id(adapters, run).ledger)


def naming_of(
    extract: WholeExtract, ledger: Callable[[list[str]], Iterable[pl.DataFrame]]
) -> Naming:
    """Return what an extract names; `ledger` reads columns of that of its run."""
    is_marking = extract.closes or extract.excludes
    columns = ["cuid", "last_4", "reasons"] if is_marking else ["cuid", "last_4"]
    records = pl.concat(ledger(columns))
    cards = records.select(pl.col("cuid").alias("holder"), "last_4")
    if not is_marking:
        return Naming(extract, cards)
    is_deleted = _has_reason(records, DELETED, UNREADABLE_DELETION)
    is_excluded = _has_reason(records, EXCLUDED)
    named = cards.filter(~is_deleted & ~is_excluded)
    return Naming(extract, named, cards.filter(is_deleted), cards.filter(is_excluded))


def _has_reason(records: pl.DataFrame, *codes: str) -> pl.Series:
    """Return which records have one of these reasons."""
    reasons = [f"|{code}" for code in codes]
    has_one = pl.col("reasons").list.eval(pl.element().is_in(reasons)).list.any()
    return records.select(has_one).to_series()


def order(extract: WholeExtract) -> tuple[date, int]:
    """Return what whole extracts are sorted by: business date, then registration."""
    return extract.day, extract.turn
