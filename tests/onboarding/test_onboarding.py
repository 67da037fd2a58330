"""Exports as banks' systems write them, from `init` to what the partner opens: right at once, right
after its doubts are answered, or refused; none is wrong without a doubt, and no card that has ended
is sent.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import quick
from tests.onboarding.bank import (
    AFTER_DOUBTS,
    AT_ONCE,
    REFUSED,
    Outcome,
    Person,
    differences,
    onboarded,
)
from tests.onboarding.exports_languages import languages
from tests.onboarding.exports_mainframe import mainframe
from tests.onboarding.exports_processors import processors
from tests.onboarding.exports_wrapped import wrapped
from tests.onboarding.layouts import Export

EXPORTS = {**processors(), **languages(), **wrapped(), **mainframe()}
WITHOUT_A_DOUBT = {"a trailer that counts header and trailer too"}
FIRST = (
    "a card that is added and then deleted",
    "numbers of three digits are captured",
    "fixed width between header and trailer",
    "records with a trailer record",
)
NAMES = [*FIRST, *sorted(EXPORTS.keys() - {*FIRST})]


def expected(name: str) -> str:
    if EXPORTS[name].refused:
        return REFUSED
    return AT_ONCE if name in WITHOUT_A_DOUBT else AFTER_DOUBTS


@pytest.mark.parametrize("name", quick(2, NAMES))
def test_an_export_is_sent_as_it_is_once_its_doubts_are_answered_or_refused(
    tmp_path: Path, name: str
) -> None:
    export = EXPORTS[name]
    person = Person(export)

    outcome = onboarded(tmp_path, export, person)

    assert (expected(name), []) == (outcome.verdict, wrong(export, outcome)), outcome.text
    assert export.refused in outcome.text
    assert not export.proven or export.proven in proven(outcome)


@pytest.mark.slow
@pytest.mark.parametrize("name", quick(2, NAMES))
def test_of_an_export_that_nobody_answers_for_no_card_that_has_ended_is_sent(
    tmp_path: Path, name: str
) -> None:
    export = EXPORTS[name]

    outcome = onboarded(tmp_path, export, None)

    assert not outcome.sent.keys() & export.ended
    assert outcome.verdict == (AT_ONCE if expected(name) == AT_ONCE else REFUSED)


def wrong(export: Export, outcome: Outcome) -> list[str]:
    return [] if export.refused and not outcome.sent else differences(export, outcome.sent)


def proven(outcome: Outcome) -> str:
    """Return what `init` says that proves the file whole."""
    return "".join(line for line in outcome.text.splitlines() if line.startswith("proven whole by"))
