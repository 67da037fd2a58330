"""The first step of every kind of work leads to its end: whoever pastes only first steps, one after
the other, comes to an empty list or to a line that says whom one waits for.
"""

from __future__ import annotations

import pytest

from flows.extensions import hooks
from flows.registry import ENTRIES
from flows.reports.work_kinds import (
    ANSWER_KEPT,
    AWAITED,
    BEHIND,
    ISSUER,
    OPERATOR,
    PARTNER,
    STRAY_RESULTS,
    TO_INGEST,
    WORK,
    Kind,
    once_asked,
)

NAMED = {entry.name: entry for entry in ENTRIES}
EVERY = [*WORK.values(), *(kind for kinds in hooks("work_kinds") for kind in kinds())]
KINDS = [kind for kind in EVERY if not kind.is_news]  # of which there are lines
OWN_STEPS = {"requests for a second person", "requests used up"}  # each line is that of its request
# an ingest ends what is about a file or a report; more often it finds nothing new
INGESTED = {TO_INGEST, STRAY_RESULTS, BEHIND, AWAITED, ANSWER_KEPT}


def waits_for_others(kind: Kind) -> bool:
    """Return whether a line says that the issuer or the partner is waited for, at once or once its
    first step asked them.
    """
    return kind.who in (ISSUER, PARTNER) or once_asked(kind).who == PARTNER


def acts(kind: Kind) -> bool:
    """Return whether the first step changes something, or its dry run prints what does."""
    return NAMED[kind.first.entry].changes and kind.first.entry != "ingest"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_first_step_acts_or_asks_or_decisions_follow_it(kind: Kind) -> None:
    ends_of_itself = kind.name in INGESTED | OWN_STEPS
    assert waits_for_others(kind) or acts(kind) or kind.choices or ends_of_itself


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_line_is_to_be_ingested_for_ever(kind: Kind) -> None:
    assert (kind.first.entry == "ingest") <= (kind.name in INGESTED)


def test_a_line_that_was_asked_about_waits_for_the_partner() -> None:
    asked = [once_asked(kind) for kind in KINDS if kind.first.entry == "questions"]

    assert {PARTNER} == {kind.who for kind in asked}
    assert OPERATOR in {kind.who for kind in KINDS if kind.first.entry == "questions"}
    assert {"answers"} == {kind.first.entry for kind in asked}
