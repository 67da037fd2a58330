"""Which links stay as they are, although a newer row of their card says something else.

An operator decided that a change of name or address does not matter, or that a link need not be
replaced where the row that was to replace it was refused. Such a decision is about one content and
one link: a different change is asked about again, and so is any change of a new link. Of a row that
we refused no content is kept: the decision is about any such row, while the card has that link.
"""

from collections.abc import Mapping

import polars as pl

from flows.runs.adapters import Adapters
from flows.runs.cards import CONTENT_FINGERPRINTS
from flows.runs.decisions import LINKS, decisions
from flows.runs.persons import by_holder, holders_of
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


def kept_links(adapters: Adapters, issuer: str) -> pl.DataFrame:
    """Return the decisions that hold (KEPT), each once."""
    decided = decisions(adapters, issuer, LINKS, LinkKept)
    if not decided:
        return NONE_KEPT
    holders = holders_of(adapters, issuer)
    links = pl.concat([_links_of(decision, holders) for decision in decided])
    last = links.unique(list(KEPT), keep="last", maintain_order=True)
    return last.filter("holds").select(*KEPT)


def files_that_confirm(adapters: Adapters, issuer: str) -> set[tuple[str, int]]:
    """Return key and size of the issuer's corrected files by which links were kept."""
    decided = decisions(adapters, issuer, LINKS, LinkKept)
    return {decision.file for decision in decided if decision.file is not None}


def _links_of(decision: LinkKept, holders: Mapping[str, str]) -> pl.DataFrame:
    links = pl.DataFrame(by_holder(decision.links, holders), KEPT, orient="row")
    return links.with_columns(holds=pl.lit(decision.what == "kept"))
