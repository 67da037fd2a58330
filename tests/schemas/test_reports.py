"""The tables of a report are what their models say."""

from __future__ import annotations

from datetime import date

import polars as pl

from flows.reports import lists as tables
from flows.reports.links import verified_links
from flows.results.reconcile import Reconciled, reconcile
from schemas.tables import Links, Refusals
from tests.results.outcomes import attribute_all, link, refusal, result, sent_rows


def reconciled() -> Reconciled:
    rows = [
        link(1),
        refusal(2),
        refusal(3, "=1+1 is no name, card 4111 1111 1111 1111"),
        link(4),
        link(5, day="soon"),
    ]
    return reconcile(sent_rows(), attribute_all([result(rows)], sent_rows()), date(2026, 11, 21))


def test_links_hold_verified_links_only() -> None:
    told = verified_links(reconciled().rows)

    Links.validate(told)
    assert ["c-1", "c-4", "c-5"] == told["cuid"].to_list()


def test_errors_say_what_to_do_without_a_card_number() -> None:
    told = tables.errors(reconciled().rows)

    Refusals.validate(told.select(pl.col("row").cast(pl.UInt32), pl.exclude("row")))
    assert "=[1 digit]+[1 digit] is no name, card [16 digits]" == told["message"][1]
    assert ["fix at source", "ask the partner"] == told["action"].to_list()
