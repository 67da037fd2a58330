"""`make scan`: what stops a release, what is accepted, and what was not compared at all."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.release.scan import ACCEPTED, LONGEST, ScanError, accepted_in, findings_in, judged

ANSWERS = Path(__file__).parent / "answers"  # of pip-audit 2.10
TODAY = date(2026, 11, 24)
ENTRY = """
[[accepted]]
id = "{id}"
package = "Flask"
reason = "{reason}"
until = {until}
"""


def answer(name: str) -> str:
    return (ANSWERS / f"{name}.json").read_text()


def accepting(
    name: str, until: date = TODAY, reason: str = "no JSON of strangers is parsed here"
) -> str:
    return ENTRY.format(id=name, until=until, reason=reason)


def test_a_clean_answer_stops_nothing() -> None:
    found = findings_in(answer("clean"))

    assert ([], []) == judged(found, [], TODAY)


def test_a_finding_stops_the_release_with_its_names_and_the_version_that_mends_it() -> None:
    found = findings_in(answer("findings"))

    stops, remarks = judged(found, [], TODAY)

    assert [
        "flask 0.5: CVE-2019-1010083, GHSA-5wv5-4vpf-pj6m, PYSEC-2019-179; fixed in 1.0",
        "flask 0.5: CVE-2018-1000656, GHSA-562c-5r94-xh97, PYSEC-2018-66; fixed in 0.12.3",
    ] == stops
    assert [] == remarks


@pytest.mark.parametrize(
    ("days", "stopping"), [(-1, 2), (0, 1), (1, 1)], ids=["the day before", "its day", "after"]
)
def test_an_accepted_finding_is_a_remark_until_its_last_day(days: int, stopping: int) -> None:
    until = TODAY + timedelta(days=days)
    accepted = accepted_in(accepting("GHSA-562c-5r94-xh97", until), TODAY)

    stops, remarks = judged(findings_in(answer("findings")), accepted, TODAY)

    assert (stopping, 2 - stopping) == (len(stops), len(remarks))


def test_an_accepted_finding_that_is_gone_is_to_be_taken_out() -> None:
    accepted = accepted_in(accepting("GHSA-562c-5r94-xh97"), TODAY)

    stops, [remark] = judged(findings_in(answer("clean")), accepted, TODAY)

    assert [] == stops
    assert "GHSA-562c-5r94-xh97 is not found any more" in remark


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mirror", "knows none of 1 packages: a mirror"),
        ("partly", "does not know click"),
    ],
)
def test_what_was_not_compared_is_never_taken_for_clean(name: str, words: str) -> None:
    with pytest.raises(ScanError, match=words):
        findings_in(answer(name))


@pytest.mark.parametrize("text", ["", "<html>", "{}", '{"dependencies": []}'])
def test_an_answer_that_is_none_is_never_taken_for_clean(text: str) -> None:
    with pytest.raises(ScanError):
        findings_in(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (accepting("GHSA-1", TODAY + LONGEST + timedelta(days=1)), "more than 92 days ahead"),
        (accepting("GHSA-1", reason="later"), "reason"),
        (accepting("GHSA-1") + "who = 'me'", "who"),
        ("[accept]", "only .* is known"),
        ("[[accepted]", "accepted-vulnerabilities"),
    ],
)
def test_an_acceptance_without_a_reason_or_an_end_is_refused(text: str, words: str) -> None:
    with pytest.raises(ScanError, match=words):
        accepted_in(text, TODAY)


def test_an_acceptance_may_last_to_the_longest_day() -> None:
    until = TODAY + LONGEST

    [accepted] = accepted_in(accepting("GHSA-1", until), TODAY)

    assert until == accepted.until


def test_what_is_accepted_now_has_its_reasons() -> None:
    entries = accepted_in(ACCEPTED.read_text(), date.today())

    assert all(entry.reason for entry in entries)
