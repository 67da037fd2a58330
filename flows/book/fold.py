"""How the attempts of a card add up: which of them say where it stands.

Of the many attempts of an issue of a card at most a handful still decide something: the last one,
the link that lasts longest, the last that awaits its answer, the last as the extract had it, the
last that is a row of some run, that of the newest extract's row with a link or a wait, the last
that says of a change of name or address, and the last row that was suppressed and could be sent.
A refused row whose card number could not be read may be of any card of its cardholder: until a
later run has a row of one of them, it is the newest row of each.
`fold` finds them.
"""

from typing import NamedTuple

import polars as pl

from flows.book.attempts import (
    ATTEMPT,
    CANCELLED,
    CHANGED,
    CHANGES,
    SENT,
    UNKNOWN_CONTENT,
)
from flows.book.kept_links import NONE_KEPT, OF_CHANGE, OF_REFUSAL
from flows.runs.cards import CONTENT_FINGERPRINTS, ISSUE, is_among, is_single, last_day
from schemas.ledger import AWAITING, ERROR, LINKED, REJECTED
from schemas.reasons import NOT_ELIGIBLES

# The places among the attempts of those that decide, of each issue of a card; null for none.
PLACES = ("last", "sent", "link", "waiting", "extract", "row", "content", "change", "held")


class Folded(NamedTuple):
    """Attempts in order, and for each issue of a card the `places` (PLACES) of those that decide.

    `places` has also `first` (the place of the first one), `tries` and `sendings`, how often the
    card was tried and sent.
    """

    attempts: pl.DataFrame
    places: pl.DataFrame

    def with_place(self, place: str) -> "Folded":
        """Return those issues of cards that have an attempt at a place."""
        return Folded(self.attempts, self.places.filter(pl.col(place).is_not_null()))

    def attempt(self, place: str, *columns: str) -> pl.DataFrame:
        """Return one attempt an issue of a card, null where it has none at that place.

        With all columns, or with these: of a million cards each of them is a copy.
        """
        places = self.places[place]
        attempts = self.attempts.select(columns or ATTEMPT.names())
        known = attempts[places.fill_null(0)] if attempts.height else attempts
        if not places.null_count():
            return known
        return known.select(pl.when(places.is_not_null()).then(pl.all()).name.keep())


def fold(attempts: pl.DataFrame) -> Folded:
    """Return attempts (ATTEMPT, in the order of their commits) with the places that decide.

    A later refusal by us or a cancelled chunk says less than anything that was sent in the same
    run. A decision that an answer cannot be used is the last word, but no answer of the partner.
    """
    return Folded(attempts, _with_unreadable(attempts, _places(attempts)))


def _places(attempts: pl.DataFrame) -> pl.DataFrame:
    single = is_single(attempts, ISSUE)
    several = attempts.with_row_index("place").filter(~single)
    return pl.concat([_of_single(attempts, single), _of_several(several)])


def _with_unreadable(attempts: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
    """Return places whose newest `row` may be one whose card number could not be read."""
    unreadable = _open_unreadable(attempts)
    if unreadable.is_empty():
        return places
    # of a million cards a column of their holders would take as much memory as the book
    of_them = attempts["holder"].is_in(unreadable["holder"].implode()).arg_true()
    issues = places["last"].is_in(of_them.implode()).arg_true()
    holders = attempts.select("holder")[places["last"][issues]]
    later = holders.join(unreadable, on="holder", how="left", maintain_order="left")["place"]
    return places.with_columns(places["row"].scatter(issues, later))


def _open_unreadable(attempts: pl.DataFrame) -> pl.DataFrame:
    """Return the `place` of the last refused row, by `holder`, whose card number could not be read,
    where no later run has a row of a card of theirs.
    """
    places = attempts["last_4"].is_null().arg_true().cast(pl.UInt32)
    rows = attempts.select("holder", "turn", "state", "reason", "run")[places].with_columns(
        place=places
    )
    is_refused = (pl.col("state") == REJECTED) & ~_is_not_eligible() & (pl.col("run") != "")
    refused = rows.filter(is_refused).drop_nulls("holder").unique("holder", keep="last")
    if refused.is_empty():
        return refused
    is_other = pl.col("last_4").is_not_null() & (pl.col("run") != "")
    is_other &= pl.col("holder").is_in(refused["holder"].implode())
    newest = attempts.filter(is_other).group_by("holder").agg(newest=pl.col("turn").max())
    known = refused.join(newest, on="holder")
    return known.filter(pl.col("turn") >= pl.col("newest")).select("holder", "place")


def _of_single(attempts: pl.DataFrame, single: pl.Series) -> pl.DataFrame:
    """Return the places of issues with one attempt each, without a copy of their other columns."""
    place = pl.int_range(pl.len(), dtype=pl.UInt32)
    conditions = {"last": pl.lit(value=True), **_conditions()}
    places = {name: pl.when(conditions[name]).then(place) for name in PLACES}
    marked = attempts.select(**places, first=place, tries="tries", sendings="sendings")
    return marked.filter(single).cast(_PLACED)


def _of_several(rows: pl.DataFrame) -> pl.DataFrame:
    conditions = _conditions()
    place = pl.col("place")
    longest = place.filter(conditions["link"]).sort_by(
        pl.col("expires_on").filter(conditions["link"]), maintain_order=True
    )
    newest_content = place.filter(conditions["content"]).sort_by(
        pl.col("content").filter(conditions["content"]), maintain_order=True
    )
    return (
        rows.group_by(ISSUE, maintain_order=True)
        .agg(
            last=_last_word(),
            sent=place.filter(conditions["sent"]).last(),
            link=longest.last(),
            waiting=place.filter(conditions["waiting"]).last(),
            extract=place.filter(conditions["extract"]).last(),
            row=_newest_row(),
            content=newest_content.last(),
            change=place.filter(conditions["change"]).last(),
            held=place.filter(conditions["held"]).last(),
            first=place.first(),
            tries=pl.col("tries").sum(),
            sendings=pl.col("sendings").sum(),
        )
        .drop(ISSUE)
        .cast(_PLACED)
    )


def _conditions() -> dict[str, pl.Expr]:
    """Return which attempts can stand at a place; `last` takes any."""
    is_sent = pl.col("state").is_in(SENT)
    return {
        "sent": is_sent & ~pl.col("decided"),
        "link": pl.col("state") == LINKED,
        "waiting": pl.col("state") == AWAITING,
        "extract": is_sent
        & ~pl.col("decided")
        & pl.col("origin").is_null()
        & pl.col("name_check").is_not_null(),
        "row": pl.col("run") != "",
        "content": pl.col("state").is_in([LINKED, AWAITING]),
        "change": pl.col("state").is_in([*CHANGES, CANCELLED]),
        "held": pl.col("state").is_in(CHANGES),
    }


def _last_word() -> pl.Expr:
    """Return the place of the attempt that was made last.

    What was sent comes before what the same run refused, and a cancelled chunk says least of all,
    but for a row that was suppressed and says only that the card has changed. A refusal by us is no
    word any more once a run had a row of the card that could be sent. Nor is one of a row that was
    to go out again after its card had ended: a card ends without a word, and the partner's stays.
    """
    place = pl.col("place")
    state = pl.col("state")
    turn = pl.col("turn")
    last_held = turn.filter(state.is_in(CHANGES)).max()
    is_over = (turn <= last_held) | _is_too_late()
    is_over = ((state == REJECTED) & is_over).fill_null(value=False)
    is_tried = ~state.is_in([CANCELLED, *CHANGES]) & ~is_over
    of_last_run = turn == turn.filter(is_tried).max()
    in_last_run = place.filter(of_last_run & is_tried & (state != REJECTED)).last()
    tried = place.filter(is_tried).last()
    cancelled = place.filter(state == CANCELLED).last()
    return pl.coalesce(in_last_run, tried, cancelled, place.last())


def _is_too_late() -> pl.Expr:
    """Return whether an attempt repeats a row of a card that was sent and has ended since."""
    is_repeated = pl.col("origin").is_not_null() & pl.col("state").is_in(SENT).any()
    return (is_repeated & (last_day() < pl.col("as_of"))).fill_null(value=False)


def _newest_row() -> pl.Expr:
    """Return the place of the newest row of some run; of one run a row that can be sent counts."""
    is_row = _conditions()["row"]
    rows = pl.col("place").filter(is_row)
    turn = pl.col("turn")
    of_last_run = is_row & (turn == turn.filter(is_row).max())
    is_fit = pl.col("state") != REJECTED
    return pl.coalesce(pl.col("place").filter(of_last_run & is_fit).last(), rows.last())


_PLACED = pl.Schema(dict.fromkeys((*PLACES, "first", "tries", "sendings"), pl.UInt32()))


def is_changed(folded: Folded, kept: pl.DataFrame = NONE_KEPT) -> pl.Series:
    """Return which issues have changed since what their link, or the awaited one, was made from.

    A newer row says so that was suppressed, or whose chunk was cancelled before the upload. Not
    where a row of that extract or of a later one has been sent since, or one with the same name and
    address, or a later extract took the change back, or the newest row is not eligible, or an
    operator decided (`kept`: KEPT) that it does not matter.
    """
    places = folded.places["change"]
    if places.null_count() == len(places):
        return pl.repeat(value=False, n=len(places), dtype=pl.Boolean, eager=True)
    card = ("holder", "last_4", *CONTENT_FINGERPRINTS)
    change = folded.attempt("change", *card, "state", "content")
    sent = folded.attempt("content", "run", "content", *CONTENT_FINGERPRINTS)
    sent = sent.select(pl.all().name.suffix("_sent"))
    is_same = pl.all_horizontal(
        pl.col(name) == pl.col(f"{name}_sent") for name in CONTENT_FINGERPRINTS
    )
    is_newer = pl.col("content") > pl.col("content_sent").fill_null(UNKNOWN_CONTENT)
    is_open = pl.col("state").is_in([CHANGED, CANCELLED]) & is_newer
    is_open &= ~is_same.fill_null(value=False)
    beside = pl.concat([change, sent], how="horizontal").with_columns(link="run_sent")
    is_asked = beside.select(is_open.fill_null(value=False)).to_series()
    newest = folded.attempt("row", "state", "reason")
    is_eligible = ~newest.select(_is_not_eligible()).to_series()
    return is_asked & is_eligible & ~is_among(beside, kept, OF_CHANGE)


def is_not_replaced(folded: Folded, kept: pl.DataFrame = NONE_KEPT) -> pl.Series:
    """Return which issues have a link, and their last row, which was to replace it, got none.

    The partner refused it, or no usable answer came. Not where an operator decided that the link
    stays (`kept`: KEPT).
    """
    state = folded.attempt("last", "state").to_series()
    has_link = folded.places["link"].is_not_null() & folded.places["waiting"].is_null()
    is_refused = (state == ERROR).fill_null(value=False) & has_link
    if kept.is_empty() or not is_refused.any():
        return is_refused
    last = folded.attempt("last", "holder", "last_4", "run").rename({"run": "refused"})
    return is_refused & ~is_among(last, kept, OF_REFUSAL)


def is_refused_since(folded: Folded) -> pl.Series:
    """Return which issues were sent, and their newest row cannot be: it was refused by us, or is
    not eligible.

    A row of an extract older than what was sent says nothing, nor one from before the fields of the
    link were typed in.
    """
    if not (folded.attempts["state"] == REJECTED).any():
        return pl.repeat(value=False, n=folded.places.height, dtype=pl.Boolean, eager=True)
    newest = folded.attempt("row", "state", "as_of")
    sent = folded.attempt("sent", "as_of").to_series()
    is_newer = newest["as_of"] >= sent
    return ((newest["state"] == REJECTED) & is_newer).fill_null(value=False)


def is_not_updated(folded: Folded, kept: pl.DataFrame = NONE_KEPT) -> pl.Series:
    """Return which issues have a link, and we refused their newest row, which may be a change.

    Not where that row is not eligible, and nobody has to correct it, nor where an operator decided
    (`kept`: KEPT) that the link is enough.
    """
    has_link = folded.places["link"].is_not_null() & folded.places["waiting"].is_null()
    is_refused = is_refused_since(folded) & has_link
    if not is_refused.any():
        return is_refused
    newest = newest_rows(folded)
    is_refused &= ~newest.select(_is_not_eligible()).to_series()
    link = folded.attempt("content", "run").to_series()
    return is_refused & ~is_among(newest.with_columns(link=link), kept, OF_CHANGE)


def newest_rows(folded: Folded) -> pl.DataFrame:
    """Return the newest row of each issue of a card, with the last four digits of the card."""
    own = folded.attempt("last", "last_4", "twin")
    return folded.attempt("row").with_columns(own.get_columns())


def _is_not_eligible() -> pl.Expr:
    """Return whether a newest row (`state`, `reason`) was not sent as it is not eligible."""
    is_of_reason = pl.col("reason").is_in(NOT_ELIGIBLES)
    return ((pl.col("state") == REJECTED) & is_of_reason).fill_null(value=False)
