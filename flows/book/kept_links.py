"""Which links stay as they are, although a newer row of their card says something else.

An operator decided that a change of name or address does not matter, or that a link need not be
replaced where the row that was to replace it was refused. Such a decision is about one content and
one link: a different change is asked about again, and so is any change of a new link. Of a row that
we refused no content is kept: the decision is about any such row, while the card has that link.
"""

import polars as pl

from flows.runs.cards import CONTENT_FINGERPRINTS
from flows.runs.chains import whole_chain
from flows.runs.keys import kept_links as kept_links_of
from flows.runs.store import Store
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
    """Return the decisions that hold (KEPT), each once."""
    decisions = [*map(_links_of, whole_chain(store, kept_links_of(issuer), LinkKept))]
    if not decisions:
        return NONE_KEPT
    last = pl.concat(decisions).unique(list(KEPT), keep="last", maintain_order=True)
    return last.filter("holds").select(*KEPT)


def _links_of(decision: LinkKept) -> pl.DataFrame:
    links = pl.DataFrame(decision.links, KEPT, orient="row")
    return links.with_columns(holds=pl.lit(decision.what == "kept"))
