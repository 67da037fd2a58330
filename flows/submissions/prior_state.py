"""What an issuer's book says of its cards, and which rows are not sent because of it.

**How a card is recognised** (`PriorState`). By its cuid, last four digits and issue, as
`flows/runs/cards.py` says. `PriorState` has where each issue of each card stands in the book.

**What happens to its row** (`PriorState.suppressed`, called by `Route.process`). It is suppressed,
which means not sent, where its card is given up, has a link that does not expire soon, is awaited,
or, by a setting of a portfolio, was refused and is unchanged. Its ledger record says which
(GIVEN_UP, STANDING, AWAITED, REFUSED), and but for a full portfolio, where that is most rows,
`suppressed.csv` lists it.

What happens to a known card, by what the book has of it (the first that holds):

| | outside a portfolio | in a full portfolio |
|---|---|---|
| awaited | suppressed, but a new issue is sent | suppressed; the next extract has it |
| changed | as `[resend] changed` says; a new issue is sent | as `[portfolio] changes` says |
| with a link | suppressed until it has ended | suppressed until `renew_within_days` before |
| refused, lost | sent | sent, unless `resend_errors` is off and the row is as it was refused |

What an extract older than the latest has is no change in a full portfolio.

Where we refused the newest row of a card, or it was not eligible, a row that can be sent and is
suppressed all the same is REVERTED: from then on the refused one is not the newest.

Outside a portfolio `[resend] changed` decides about another name or address: such a row is sent, or
suppressed as CHANGED, and so is one whose card still awaits its answer, which no later extract may
repeat. Once a later extract has what was sent, its row is REVERTED: the book follows both
(`flows/book/fold.py`). The gate `seen-before` refuses a run that would suppress more rows than
`limits.max_seen_before`, and with `[resend] seen_before = "send"` nothing is looked up but who is
given up.

The book is read at every submit, and the plan holds a digest of what was read: a run whose plan is
out of date is planned again, never continued. It takes about 30 bytes a card, so that a portfolio
of ten million cards fits in memory during the pass. A portfolio row without a cuid is rejected,
since nobody could recognise it the next day.
"""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from datetime import date, timedelta
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flows.book.attempts import ATTEMPT, NO_ATTEMPTS
from flows.book.book import read_book
from flows.book.fold import Folded, fold, is_changed, is_not_replaced, is_refused_since
from flows.book.given_up import NOBODY, given_up_cards, is_given_up
from flows.book.kept_links import NONE_KEPT
from flows.runs.business_date import local_day
from flows.runs.cards import (
    CARD_WITHOUT_TWIN,
    CONTENT_FINGERPRINTS,
    FINGERPRINTS,
    HASHED,
    ISSUE,
    card_keys,
    holder,
    is_among,
)
from flows.runs.commits import last_registered
from flows.runs.context import IssuerContext
from schemas import portal
from schemas.issuer import Issuer
from schemas.ledger import AWAITING, LINKED
from schemas.reasons import AWAITED, CHANGED, GIVEN_UP, REFUSED, REVERTED, STANDING
from schemas.settings import Change

MOST_ISSUES = 8  # of a card that are looked through
# Of entries that look the same, that which holds a row back counts: one that is awaited, then the
# link that lasts longest (its last day), then one that ended.
_AWAITED = 2**31 - 1
_ENDED = 1
# of most issuers these are known of no card, and then take no memory
_SELDOM_KNOWN = ("reissue_check", *(f"{name}_repeated" for name in CONTENT_FINGERPRINTS))
# what is read of attempts; without the others a million cards take half the memory
_GUARDED = (
    *("turn", "content", "run", "as_of", "origin", *ISSUE, *CONTENT_FINGERPRINTS),
    *("state", "reason", "decided", "expires_on", "tries", "sendings"),
)
_OF_SENT = (
    "holder",
    "last_4",
    "expiration",
    "reissue_check",
    "state",
    "as_of",
    "origin",
    *CONTENT_FINGERPRINTS,
)


class ResendPolicy(NamedTuple):
    """What decides whether a known card is sent again."""

    changes: Collection[Change]
    renew_until: date  # a link that ends on this day or before is replaced
    resend_errors: bool
    whole: bool  # every extract repeats all cardholders: a change can wait for an awaited result
    # of name and address, outside a portfolio; "" where it is none of its own
    changed: Literal["ask", "send", "hold", ""] = ""


def resend_policy(issuer: Issuer, as_of: date) -> ResendPolicy:
    """Return the policy of [portfolio].

    Outside a portfolio a row is suppressed while its card has a link or awaits one.
    """
    if not issuer.full_portfolio:
        return ResendPolicy(
            ("expiration", "reissue"),
            as_of - timedelta(days=1),
            resend_errors=True,
            whole=False,
            changed=issuer.resend.changed,
        )
    portfolio = issuer.portfolio
    renew_until = as_of + timedelta(portfolio.renew_within_days)
    return ResendPolicy(portfolio.changes, renew_until, portfolio.resend_errors, whole=True)


class CardSurvey(NamedTuple):
    """What is known of an issuer's cards.

    Also the digest of what that follows from, and the number of the last run registered before.
    """

    known: "PriorState"
    digest: str
    last_registered: int


def survey_cards(context: IssuerContext) -> CardSurvey:
    """Look up every card in the issuer's book."""
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    book = read_book(context.adapters, context.issuer.issuer, _GUARDED)
    entries = _all_entries(book.folded, today, book.kept)
    as_good = _as_good(book.folded, book.kept)
    newest = book.newest
    given_up = book.given_up
    registered = book.last_registered
    del book  # the attempts go with the last entry: they would be the peak of a night's memory
    known = PriorState(entries, as_good, newest, given_up)
    digest = known.digest(context.issuer.resend.reissue_column)
    return CardSurvey(known, digest, registered)


def survey_given_up(context: IssuerContext) -> CardSurvey | None:
    """Look up nothing but who is given up; None where nobody is."""
    store = context.adapters.store
    issuer = context.issuer.issuer
    registered = last_registered(store, issuer)
    given_up = given_up_cards(context.adapters, issuer)
    if given_up.is_empty():
        return None
    known = prior_state(fold(NO_ATTEMPTS), given_up=given_up)
    return CardSurvey(known, known.digest(None), registered)


def prior_state(
    folded: Folded,
    newest: date = date.min,
    today: date = date.min,
    given_up: pl.DataFrame = NOBODY,
    kept: pl.DataFrame = NONE_KEPT,
) -> "PriorState":
    """Return what attempts say of each card.

    `newest`: the business date of the latest extract. `today`: a link that ended before it is none,
    however old the extract is. `kept`: the links that stay as they are, though the content of their
    card is another (`flows/book/kept_links.py`).
    """
    entries = _all_entries(folded, today, kept)
    return PriorState(entries, _as_good(folded, kept), newest, given_up)


class PriorState:
    """Where every issue of a card stands, and which cards are given up.

    `entries`: one row an issue (`_entries`). `as_good`: contents for which links stay as they are.
    `newest`: the business date of the latest extract; what differs in an older one is not a change.
    """

    def __init__(
        self,
        entries: Iterator[pl.DataFrame],
        as_good: pl.DataFrame,
        newest: date,
        given_up: pl.DataFrame,
    ) -> None:
        self._newest = newest
        self._given_up = given_up
        self._as_good = as_good
        self._cards, self._facts = _table(pl.concat(entries))

    def __len__(self) -> int:
        """Count the issues of cards."""
        return len(self._cards)

    def digest(self, reissue_column: object) -> str:
        """Return a digest of all that a verdict depends on.

        The same for the same book, whichever process reads it with the same polars.
        """
        facts = self._facts.with_columns(card=pl.Series(self._cards))
        running = hashlib.sha256(facts.hash_rows().to_numpy().tobytes())
        running.update(f"{facts.columns} {self._newest} {reissue_column}".encode())
        if not self._given_up.is_empty():
            running.update(
                self._given_up.select(CARD_WITHOUT_TWIN)
                .sort(CARD_WITHOUT_TWIN)
                .write_csv()
                .encode()
            )
        if not self._as_good.is_empty():
            running.update(self._as_good.sort(pl.all()).write_csv().encode())
        return running.hexdigest()

    def suppressed(self, rows: pl.DataFrame, as_of: date, policy: ResendPolicy) -> pl.Series:
        """Return the code why each row is not sent, null where it is.

        `rows` has cuid, last_4, expiration and FINGERPRINTS.
        """
        why = self._by_book(rows, as_of, policy)
        if self._given_up.is_empty():
            return why
        cards = rows.select(holder(rows, portal.CUID), "last_4")
        is_out = is_given_up(self._given_up)
        return cards.select(pl.when(is_out).then(pl.lit(GIVEN_UP)).otherwise(why)).to_series()

    def _by_book(self, rows: pl.DataFrame, as_of: date, policy: ResendPolicy) -> pl.Series:
        """Return the code why each row is not sent, as its card stands, null where it is."""
        if not len(self):
            return pl.Series(values=[None] * rows.height, dtype=pl.String)
        cards = rows.select(
            card_keys(rows, portal.CUID), pl.col("expiration").cast(pl.UInt16), *FINGERPRINTS
        )
        places = self._places(cards)
        known = pl.Series(self._cards[places] == cards["card"].to_numpy())
        joined = pl.concat(
            [cards.select(pl.all().name.prefix("row_")), self._facts_at(places)], how="horizontal"
        )
        changes = policy.changes
        if policy.whole and as_of < self._newest:
            changes = ()
        joined = joined.with_columns(as_good=is_among(cards, self._as_good, self._as_good.columns))
        verdict = _verdict(policy, changes, as_of)
        return joined.select(pl.when(known).then(verdict)).to_series()

    def _facts_at(self, places: NDArray[np.intp]) -> pl.DataFrame:
        """Return what is known at places of the table, null where it is known of no card."""
        absent = [name for name in _SELDOM_KNOWN if name not in self._facts.columns]
        nulls = [pl.lit(None).alias(name) for name in absent]
        return self._facts[places].with_columns(nulls)

    def _places(self, cards: pl.DataFrame) -> NDArray[np.intp]:
        """Return the place in the table of each row's issue, else of its card, else any place."""
        keys = cards["card"].to_numpy()
        order = np.argsort(keys)
        places = np.empty(len(keys), np.intp)
        places[order] = np.searchsorted(self._cards, keys[order])  # sorted: takes half the time
        places = np.minimum(places, len(self) - 1)
        second = np.minimum(places + 1, len(self) - 1)
        # few cards have two issues
        several = np.flatnonzero((self._cards[second] == keys) & (second > places))
        if several.size:
            places[several] = self._places_among_issues(cards[several], places[several])
        return places

    def _places_among_issues(
        self, cards: pl.DataFrame, first: NDArray[np.intp]
    ) -> NDArray[np.intp]:
        """Return the place of each row's issue, from the first place of its card on.

        An unknown reissue equals each: of several, that which holds the row back counts.
        """
        places = first.copy()
        weights = self._weights(cards, first)
        for step in range(1, MOST_ISSUES):
            after = np.minimum(first + step, len(self) - 1)
            weights_after = self._weights(cards, after)
            is_heavier = weights_after > weights
            places[is_heavier] = after[is_heavier]
            weights[is_heavier] = weights_after[is_heavier]
        return places

    def _weights(self, cards: pl.DataFrame, places: NDArray[np.intp]) -> NDArray[np.int32]:
        """Return how far what is known at each place holds its row back.

        -1 where it is of another issue.
        """
        facts = self._facts_at(places).with_columns(card=pl.Series(self._cards[places]))
        rows = cards.select(pl.all().name.prefix("row_"))
        is_same = pl.col("row_card") == pl.col("card")
        is_same &= pl.col("row_expiration") == pl.col("expiration")
        reissue = pl.col("reissue_check").fill_null(0)
        row_reissue = pl.col("row_reissue_check").fill_null(0)
        is_same &= (row_reissue == reissue) | (row_reissue == 0) | (reissue == 0)
        weight = pl.when(is_same).then(_weight()).otherwise(-1).cast(pl.Int32)
        beside = pl.concat([rows, facts], how="horizontal")
        return beside.select(weight).to_series().to_numpy(writable=True)


def _as_good(folded: Folded, kept: pl.DataFrame) -> pl.DataFrame:
    """Return the contents for which links stay as they are: `card`, and CONTENT_FINGERPRINTS.

    `kept`: KEPT, of which those count that are about the link that a card has now.
    """
    card = pl.struct("holder", "last_4").hash().alias("card")
    if kept.is_empty():
        return kept.clear().select(card, *CONTENT_FINGERPRINTS)
    sent = folded.attempt("content", "holder", "last_4", "run").rename({"run": "link"})
    current = kept.join(sent, on=sent.columns, how="semi", nulls_equal=True)
    return current.select(card, *CONTENT_FINGERPRINTS).unique()


def _table(entries: pl.DataFrame) -> tuple[NDArray[np.uint64], pl.DataFrame]:
    """Return the cards of entries in order, and the other columns; of equal looks one.

    Without those of _SELDOM_KNOWN that are null for every card.
    """
    absent = [name for name in _SELDOM_KNOWN if entries[name].null_count() == entries.height]
    known = entries.drop(absent)
    look = [name for name in ("card", "expiration", "reissue_check") if name in known.columns]
    in_order = known.sort(*look, _weight())
    is_last = pl.any_horizontal(
        pl.col(name).ne_missing(pl.col(name).shift(-1)) for name in look
    )  # of those that look the same, which stand side by side
    table = in_order.filter(is_last)
    return table["card"].to_numpy(), table.drop("card")


def _weight() -> pl.Expr:
    """Return how far an entry holds its row back, from `state` and `until`."""
    is_awaited = pl.col("state") == AWAITING
    has_ended = (pl.col("state") == LINKED) * _ENDED
    of_link = pl.coalesce(pl.col("until").to_physical(), has_ended)
    return pl.when(is_awaited).then(_AWAITED).otherwise(of_link)


def _all_entries(folded: Folded, today: date, kept: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the entries of all issues, so many at once, which takes less memory."""
    for places in folded.places.iter_slices(HASHED):
        yield _entries(Folded(folded.attempts, places), today, kept)
    yield _entries(Folded(folded.attempts, folded.places.clear()), today, kept)


def _entries(folded: Folded, today: date, kept: pl.DataFrame) -> pl.DataFrame:
    """Return one row an issue of a card: its last state, the end of its link, its fingerprints.

    `changed`: it has changed since what was sent, whose fingerprints these are then.
    `not_replaced`: its last row, which was to replace a link, was refused; the fingerprints are
    those of the link then. `refused`: its newest row could not be sent. `as_of`: the day of the
    last extract whose content counts.

    It is awaiting as long as one of its attempts is, whatever came of later ones.

    Those of `name_check` and `address_check` are from the last extract that sent the card,
    `..._repeated` from the last attempt where that repeated the row, or was to replace the link. A
    row that was corrected for a resend is unchanged in the extract, so neither is a change.
    """
    changed = is_changed(folded, kept)
    not_replaced = is_not_replaced(folded)
    refused = is_refused_since(folded)
    of_card = folded.with_place("sent")
    is_sent = folded.places["sent"].is_not_null()
    changed = changed.filter(is_sent)
    not_replaced = not_replaced.filter(is_sent)
    refused = refused.filter(is_sent)
    sent = of_card.attempt("sent", *_OF_SENT)
    until = of_card.attempt("link", "expires_on").to_series()
    was_sent = of_card.attempt("content", *CONTENT_FINGERPRINTS)
    changed_on = of_card.attempt("change", "as_of").to_series()
    extract = of_card.attempt("extract", "as_of", *CONTENT_FINGERPRINTS)
    days = [changed_on, extract["as_of"], sent["as_of"]]
    if refused.any():
        newest = of_card.attempt("row", "as_of").to_series()
        days.append(pl.select(pl.when(refused).then(newest)).to_series())
    as_of = pl.select(pl.max_horizontal(days)).to_series()
    extract = extract.select(
        pl.when(changed | not_replaced).then(was_sent[name]).otherwise(name).alias(name)
        for name in CONTENT_FINGERPRINTS
    )
    is_repeat = (pl.col("origin").is_not_null() & ~changed) | not_replaced
    is_awaited = of_card.places["waiting"].is_not_null()
    alive = pl.when(until >= today).then(until)
    state = pl.when(is_awaited).then(pl.lit(AWAITING)).otherwise(pl.col("state").cast(pl.String))
    entries = sent.select(
        pl.struct("holder", "last_4").hash().alias("card"),
        pl.col("expiration").cast(pl.UInt16),
        "reissue_check",
        state.cast(ATTEMPT["state"]).alias("state"),
        alive.alias("until"),
        changed.alias("changed"),
        refused.alias("refused"),
        not_replaced.alias("not_replaced"),
        as_of.alias("as_of"),
        *(pl.when(is_repeat).then(name).alias(f"{name}_repeated") for name in CONTENT_FINGERPRINTS),
    )
    return entries.hstack(extract.get_columns())


def _verdict(policy: ResendPolicy, changes: Collection[Change], as_of: date) -> pl.Expr:
    content = [name for name in ("name", "address") if name in changes]
    changed = _is_unlike_all(content)
    if "expiration" in changes:
        other_expiration = pl.col("row_expiration") != pl.col("expiration")
        changed |= other_expiration.fill_null(value=False)
    if "reissue" in changes:
        other_issue = pl.col("row_reissue_check") != pl.col("reissue_check")
        changed |= other_issue.fill_null(value=False)
    awaited = pl.col("state") == "awaiting"
    standing = (pl.col("until") > policy.renew_until).fill_null(value=False)
    as_refused = ~(pl.col("not_replaced") & _is_unlike(content, "_repeated"))
    refused = (pl.col("state") == "error") & pl.lit(not policy.resend_errors) & as_refused
    is_last = pl.lit(as_of) >= pl.col("as_of")
    is_newest = pl.lit(policy.changed != "") & is_last
    is_asked = pl.lit(policy.changed != "hold") | ~pl.col("refused")
    other_content = is_newest & _is_unlike_all(["name", "address"]) & ~pl.col("as_good")
    other_content &= is_asked
    reverted = (is_newest & pl.col("changed")) | (is_last & pl.col("refused"))
    replaced = other_content & pl.lit(policy.changed == "send")
    held = awaited & (pl.lit(policy.whole) | ~changed)
    return (
        pl.when(held & other_content).then(pl.lit(CHANGED))
        .when(held & reverted).then(pl.lit(REVERTED))
        .when(held).then(pl.lit(AWAITED))
        .when(changed).then(None)
        .when(standing & replaced).then(None)
        .when(standing & other_content).then(pl.lit(CHANGED))
        .when(standing & reverted).then(pl.lit(REVERTED))
        .when(standing).then(pl.lit(STANDING))
        .when(refused & is_last & pl.col("refused")).then(pl.lit(REVERTED))
        .when(refused).then(pl.lit(REFUSED))
    )  # fmt: skip


def _is_unlike_all(content: Sequence[str]) -> pl.Expr:
    """Return whether a row has another name or address than all rows known of its card.

    Where nothing is known, it has not.
    """
    extract = _is_unlike(content, "")
    repeated = _is_unlike(content, "_repeated")
    return pl.coalesce(extract & repeated, extract, repeated, pl.lit(value=False))


def _is_unlike(content: Sequence[str], known: str) -> pl.Expr:
    """Return whether a row has another name or address than a known one, null if none is known."""
    unlike = [pl.col(f"row_{name}_check") != pl.col(f"{name}_check{known}") for name in content]
    return pl.any_horizontal([pl.lit(value=False), *unlike])
