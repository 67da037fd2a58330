"""Which links stay as they are, although a newer row of their card says something else.

An operator decided that a change of name or address does not matter, or that a link need not be
replaced where the partner refused the row that was to replace it. Such a decision is about one
content and one link: a different change is asked about again, and so is any change of a new link.
"""

from collections.abc import Iterator, Sequence

import polars as pl

from flows.runs.cards import CONTENT_FINGERPRINTS
from flows.runs.chains import records
from flows.runs.keys import kept_links as kept_links_of
from flows.runs.store import Store
from flows.runs.versions import refuse_newer
from schemas.records import LinkKept

# `link`: the run whose row the link was made from, "" where its fields were typed in; the content
# that is as good; `refused`: the run that was to replace the link, "" for none
KEPT = pl.Schema(
    {
        "holder": pl.String(),
        "last_4": pl.String(),
        "link": pl.String(),
        "name_check": pl.UInt32(),
        "address_check": pl.UInt32(),
        "refused": pl.String(),
    }
)
NONE_KEPT = pl.DataFrame(schema=KEPT)
OF_CHANGE = ("holder", "last_4", "link", *CONTENT_FINGERPRINTS)
OF_REFUSAL = ("holder", "last_4", "refused")


def kept_links(store: Store, issuer: str) -> pl.DataFrame:
    """Return the decisions that hold (KEPT), each once.

    Raises NewerDocumentError where a record is of a newer version.
    """
    decisions = [*_decisions(store, issuer)]
    if not decisions:
        return NONE_KEPT
    last = pl.concat(decisions).unique(list(KEPT), keep="last", maintain_order=True)
    return last.filter("holds").select(*KEPT)


def _decisions(store: Store, issuer: str) -> Iterator[pl.DataFrame]:
    prefix = kept_links_of(issuer)
    for record in records(store, prefix, LinkKept):
        refuse_newer(record, prefix)
        links = pl.DataFrame(record.links, KEPT, orient="row")
        yield links.with_columns(holds=pl.lit(record.what == "kept"))


def is_among(rows: pl.DataFrame, kept: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
    """Return which rows have a decision (KEPT) with the same values in these columns."""
    if kept.is_empty():
        return pl.repeat(value=False, n=rows.height, dtype=pl.Boolean, eager=True)
    numbered = rows.select(columns).with_row_index("place")
    places = numbered.join(kept, on=list(columns), how="semi", nulls_equal=True)["place"]
    return pl.int_range(rows.height, dtype=pl.UInt32, eager=True).is_in(places.implode())
