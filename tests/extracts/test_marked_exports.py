"""No card that a bank has marked as ended is sent: it is doubted, and right once it is answered."""

from __future__ import annotations

import tomllib
from io import BytesIO

import polars as pl
import pytest

from flows.extensions.init.draft import Draft, first_draft
from flows.extracts.mapping import map_rows, plan_mapping, with_dates
from flows.extracts.reader import Extract
from flows.extracts.status import UndecidedError
from schemas.issuer import Issuer
from schemas.portal import PAN
from schemas.reference import toml
from tests.builders import quick
from tests.extracts.marked_exports import MARKS, Marked, marked
from tests.extracts.test_guess import REST
from tests.night import DAY


def sent(export: Marked, draft: Draft) -> set[str]:
    """Return the cards that are sent by what init wrote; UndecidedError while it doubts."""
    issuer = Issuer.model_validate(REST | tomllib.loads(draft.toml))

    def extract() -> Extract:
        return Extract(BytesIO(export.export.content), issuer.source, "export.csv")

    mapping = plan_mapping(extract().header, issuer, "export.csv", {}, as_of=DAY)
    rows = pl.concat(block.rows for block in extract())
    complete = with_dates(mapping, rows, lambda: iter(extract()))
    return set(map_rows(rows, complete).sent[PAN])


def answer(name: str, header: str, draft: Draft) -> Draft:
    """Answer the doubt of a column as the bank would: which values are of cards in use."""
    [doubt] = [doubt for doubt in draft.doubts if doubt.table and doubt.key == header]
    dated = [other for other in doubt.others if "date =" in other]
    mark = MARKS[name][header]
    lists = {
        "send": [mark.used.replace("_", "")],
        "delete": [value.replace("_", "") for value in mark.ended.split()],
    }
    return draft.answered(doubt, dated[0] if dated else toml(lists))


@pytest.mark.parametrize("name", quick(10, [*MARKS]))
def test_nothing_is_sent_before_the_bank_s_marks_are_answered_and_no_ended_card_after(
    name: str,
) -> None:
    export = marked(name)
    draft = first_draft(BytesIO(export.export.content), "export.csv", DAY)

    with pytest.raises(UndecidedError):
        sent(export, draft)
    for header in MARKS[name]:
        draft = answer(name, header, draft)

    cards = {row[PAN] for row in export.export.truth}
    assert cards - export.ended == sent(export, draft)
