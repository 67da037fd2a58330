"""The security page: every claim names a test that is there; what is not protected says so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "deploy" / "SECURITY.md").read_text("utf-8")
TEST = re.compile(r"`(?:pytest [^`]*)?(?:tests/[\w/.]+|test_\w+\.py)`|`make leaks`")
CLAIMING = (
    "Security",  # what stands before the first section
    "The rule",
    "Data flow",
    "How each rule is met",
    "How it is built",
    "Personal data beside card data",
)
NOT_PROTECTED = ("What the issuer must provide", "What remains")
LONGEST_CLAIM = 420  # characters of a row beside its tests
ADDRESSES = ("Reporting a vulnerability",)  # of people


def sections(page: str) -> dict[str, str]:
    """Return the text of each section by its title, without diagrams."""
    text = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    titles = re.split(r"^##? (.+)$", text, flags=re.MULTILINE)
    return dict(zip(titles[1::2], titles[2::2], strict=True))


def statements(section: str) -> Iterator[str]:
    """Yield every paragraph, item of a list and row of a table (not its head)."""
    for block in re.split(r"\n\s*\n", section.strip()):
        if block.startswith("|"):
            yield from block.splitlines()[2:]
        else:
            yield from re.split(r"\n(?=- |\d+\. )", block)


def unshown(page: str) -> list[str]:
    """Return the beginnings of all statements that claim something and name no test."""
    claims = [each for title in CLAIMING for each in statements(sections(page)[title])]
    return [each[:60] for each in claims if not TEST.search(shown_by(each))]


def shown_by(statement: str) -> str:
    """Return where a statement names its tests: a row of a table in its last column."""
    return statement.rstrip(" |").rpartition("|")[2]


def test_every_statement_of_the_page_names_the_test_that_shows_it() -> None:
    assert [] == unshown(PAGE)


def test_a_row_has_no_more_claims_than_its_tests_show_at_a_glance() -> None:
    rows = [
        row for row in statements(sections(PAGE)["How each rule is met"]) if row.startswith("|")
    ]

    assert [] == [row[:60] for row in rows if len(row.split(" | ")[2]) > LONGEST_CLAIM]


def test_every_section_claims_something_or_says_what_is_not_protected() -> None:
    assert [*CLAIMING, *NOT_PROTECTED, *ADDRESSES] == list(sections(PAGE))
    for title in NOT_PROTECTED:
        assert re.search(r"\bnot\b|None of", next(statements(sections(PAGE)[title])))


@pytest.mark.parametrize(
    "claim",
    ["Nothing leaves the process.", "- Nothing is logged (`flows/redaction.py`).", "1. It is."],
)
@pytest.mark.parametrize("title", CLAIMING[1:])
def test_a_claim_without_a_test_is_found_wherever_it_is_written(title: str, claim: str) -> None:
    page = PAGE.replace(f"\n## {title}\n", f"\n## {title}\n\n{claim}\n")

    assert [claim] == unshown(page)


def test_a_row_that_names_its_test_beside_the_last_column_alone_is_found() -> None:
    row = "| `extracts/` | `tests/ops/test_iam.py` | for ever | nobody | - |"
    page = PAGE.replace("\n| `extracts/` | PAN", f"\n{row}\n| `extracts/` | PAN")

    assert [row[:60]] == unshown(page)


def test_every_test_that_the_page_names_is_there() -> None:
    paths = re.findall(r"`(?:pytest [^`]*)?(tests/[\w/.]+)`", PAGE)
    names = set(re.findall(r"`(test_\w+\.py)`", PAGE))

    assert 20 < len(paths)
    assert [] == [path for path in paths if not (ROOT / path).exists()]
    assert names <= {each.name for each in (ROOT / "tests").rglob("test_*.py")}
