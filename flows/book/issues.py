"""Which issue of a card is the newest: that of the newest extract with a row of it.

A later extract is one of a later business date, then one that was committed later. A row that is
sent again is of its own extract still: an earlier issue that goes out again, or whose answer comes
late, never comes before the one that replaced it.
"""

from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import Final

import polars as pl

from flows.book.attempts import ATTEMPT, UNKNOWN_CONTENT
from flows.book.fold import Folded
from flows.runs.cards import CARD, is_single

NO_DAYS: Final[Mapping[int, date]] = MappingProxyType({})
EXTRACT = ("extract_day", "extract")  # by which attempts are compared
_OF_EXTRACT = ("turn", "content", "run", "as_of")
_NOT_KEPT = date.min  # before all that are


def with_extract(attempts: pl.DataFrame, days: Mapping[int, date]) -> pl.DataFrame:
    """Return attempts (turn, content, run, as_of) with the extract whose rows they are (EXTRACT).

    `days`: the business date of each extract, by the number of its commit. One that a row is sent
    again of and that is not kept any more is older than those that are.
    """
    content = pl.col("content")
    is_repeat = (content != pl.col("turn")) & (pl.col("run") != "")
    day = content.replace_strict(dict(days), default=_NOT_KEPT, return_dtype=ATTEMPT["as_of"])
    return attempts.with_columns(
        extract_day=pl.when(is_repeat).then(day).otherwise("as_of"),
        extract=pl.when(content > UNKNOWN_CONTENT).then(content).otherwise("turn"),
    )


def is_newest(folded: Folded, issues: pl.DataFrame, days: Mapping[int, date]) -> pl.Series:
    """Return which issues of cards (`issues`: ISSUE, one row for each of `folded`) are the newest.

    The row that was tried last says of which extract an issue is. Of those of one extract that
    counts which a correction brought later, then the one that expires last.
    """
    single = is_single(issues, CARD)  # most are; ranking a million takes 400 MB
    several = Folded(folded.attempts, folded.places.filter(~single))
    last = with_extract(several.attempt("last", *_OF_EXTRACT), days).select(EXTRACT)
    compared = issues.filter(~single).select(
        *CARD,
        *last.get_columns(),
        several.attempt("first", "turn").to_series().alias("brought"),
        pl.col("expiration").fill_null(""),
        pl.col("reissue_check").fill_null(0),
    )
    order = pl.struct(*EXTRACT, "brought", "expiration", "reissue_check")
    is_last = order.rank("ordinal").over(CARD) == pl.len().over(CARD)
    return single.scatter((~single).arg_true(), compared.select(is_last).to_series())
