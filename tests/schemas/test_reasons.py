"""Reasons: one page of all of them, made from the tables."""

from __future__ import annotations

import re

import polars as pl

from flows.extracts import grammar
from flows.resend import renewal
from flows.submissions import duplicates, prior_state, rows
from schemas.actions import FIX
from schemas.portal import NICKNAME
from schemas.reasons import LINES, ROWS, reason
from schemas.rule import Rule
from schemas.rules import RULES
from tests.reference import reasons_page
from tests.submissions.made_up import added


def test_every_code_stands_once() -> None:
    codes = [*(rule.code for rule in RULES), *(entry.code for entry in (*LINES, *ROWS))]

    assert sorted(set(codes)) == sorted(codes)


def test_every_code_of_lines_and_rows_has_its_entry() -> None:
    texts = [
        text
        for module in (grammar, prior_state, renewal, duplicates, rows)
        for text in vars(module).values()
    ]

    codes = {
        text
        for text in texts
        if re.fullmatch(r"(line|row|card|cardholder)(\.[a-z_]+){2}", str(text))
    }

    assert set() == codes - {entry.code for entry in (*LINES, *ROWS)}


def test_a_rule_that_is_added_has_its_line_action_and_hint() -> None:
    long = Rule(
        "made.up.long",
        NICKNAME,
        pl.lit(True),
        example={NICKNAME: "x"},
        hint="at most 20 characters",
    )

    with added(long):
        line, told = reasons_page().splitlines(), reason(long.code)

    assert (long.code, FIX, "at most 20 characters") == (told.code, told.action, told.hint)
    assert f"| `{long.code}` | `{NICKNAME}` | reject | {FIX} | at most 20 characters |" in line
