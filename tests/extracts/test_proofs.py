"""What proves an extract whole is found, and offered only where it holds for all rows."""

import hashlib
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from flows.commands.context import Terminal
from flows.extensions.init import asking
from flows.extensions.init.draft import Draft, first_draft
from flows.extensions.init.proofs import Found, with_proofs
from schemas import portal

CARDS = ("4242424242424242", "4000056655665556", "4111111111111111")
TOTAL = sum(map(int, CARDS))
ROWS = "".join(
    f"K{number};{card};112{number};12{number};Ann;Smith;{number} Main Street;Beverly Hills;CA;90210\n"
    for number, card in enumerate(CARDS, 7)
)
HEADER = "customer;card number;exp;cvv;first name;last name;address;city;state;zip\n"
BODY = HEADER + ROWS


def drafted(folder: Path, text: str, **beside: str) -> Found:
    file = folder / "cards.csv"
    file.write_text(text)
    for ending, content in beside.items():
        file.with_name(f"cards.csv.{ending}").write_text(content)
    with file.open("rb") as stream:
        draft = first_draft(stream, file.name, date(2026, 7, 1))
        stream.seek(0)
        return with_proofs(draft, stream, file)


def source(draft: Draft) -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads(draft.toml)["source"]
    return settings


@pytest.mark.parametrize(
    ("trailer", "column"),
    [
        (f"TRL;3;{TOTAL}", "card number"),
        (f"TRL;0003;{TOTAL:030d}", "card number"),
        (f"T;3;20260701;{TOTAL % 10**12:012d}", "card number"),
        (f"9;3;{3 * 90210:010d}", "zip"),
        (f"TRL;3;{TOTAL + 1}", None),
        (f"TRL;{TOTAL};3", "card number"),
        (f"TRL;20260701;{TOTAL:020d};000003;x", "card number"),
        ("TRL;3;999", None),
        ("TRL;3", None),
    ],
)
def test_a_hash_total_is_found_where_it_is_the_sum_of_a_column(
    tmp_path: Path, trailer: str, column: str | None
) -> None:
    found = drafted(tmp_path, f"{BODY}{trailer}\n")

    settings = source(found.draft)
    assert column == settings.get("hash_total")
    assert "the trailer's row count" == found.draft.proven_by[0]
    assert str(TOTAL)[-12:] not in found.draft.toml


@pytest.mark.parametrize(
    ("above", "pattern", "column"),
    [
        ("H;20260701;3", "^H;[0-9]+;([0-9]+)", None),
        (f"HDR;3;{TOTAL}", "^HDR;([0-9]+);([0-9]+)", "card number"),
        (f"HDR;{TOTAL};3", "^HDR;(?P<total>[0-9]+);(?P<count>[0-9]+)", "card number"),
        ("H;20260701;4", None, None),
        ("First Bank", None, None),
    ],
)
def test_a_count_that_stands_in_a_header_record_is_found_where_it_is_that_of_the_rows(
    tmp_path: Path, above: str, pattern: str | None, column: str | None
) -> None:
    found = drafted(tmp_path, f"{above}\n{BODY}")

    settings = source(found.draft)
    assert (pattern, column) == (settings.get("header_record"), settings.get("hash_total"))
    assert bool(pattern) == bool(found.draft.proven_by)


def test_a_trailer_with_another_count_is_a_doubt_and_its_total_no_proof(tmp_path: Path) -> None:
    found = drafted(tmp_path, f"{BODY}TRL;2;{TOTAL}\n")

    assert [] == found.draft.proven_by


@pytest.mark.parametrize(
    ("beside", "kind", "remarks"),
    [
        ({"sha256": hashlib.sha256(BODY.encode()).hexdigest() + "  cards.csv\n"}, "sha256", 0),
        ({"ctl": f"count=3\nbytes={len(BODY)}\n"}, "ctl", 0),
        ({"ctl": "count=4\n"}, None, 1),
        ({"ctl": "rows 3\n"}, None, 1),
        ({"sha256": "0" * 64}, None, 1),
        ({}, None, 0),
    ],
)
def test_a_sidecar_is_offered_where_it_proves_the_extract(
    tmp_path: Path, beside: dict[str, str], kind: str | None, remarks: int
) -> None:
    found = drafted(tmp_path, BODY, **beside)

    assert (kind, remarks) == (source(found.draft).get("sidecar"), len(found.remarks))


@pytest.mark.parametrize(
    ("answer", "settings"),
    [
        ("1", {"hash_total", "hash_total_digits", "sidecar"}),
        ("2", {"hash_total", "hash_total_digits"}),
        ("3", {"sidecar"}),
        ("4", set()),
    ],
)
def test_one_question_asks_what_proves_the_file_whole(
    tmp_path: Path, answer: str, settings: set[str]
) -> None:
    found = drafted(tmp_path, f"{BODY}TRL;3;{TOTAL}\n", ctl="count=3\n")
    lines: list[str] = []

    terminal = Terminal(
        attended=True, say=lambda line: lines.append(str(line)), ask=lambda *_, **__: answer
    )
    chosen = asking.answered(found.draft, terminal)

    assert ([], 1) == (found.draft.doubts, sum("proves the file whole" in line for line in lines))
    kept = source(chosen).keys() & {"hash_total", "hash_total_digits", "sidecar"}
    assert (settings, True) == (kept, "trailer" in source(chosen))


def test_a_doubt_takes_any_other_column_and_shows_what_it_makes_of_rows_in_shape(
    tmp_path: Path,
) -> None:
    draft = drafted(tmp_path, BODY.replace("last name", "abc")).draft
    lines: list[str] = []
    wanted = iter(["another column", '"abc"'])

    def say(line: object) -> None:
        lines.append(str(line))

    def ask(*_: Any, **__: Any) -> str:
        label = next(wanted)
        return next(line.split()[0] for line in reversed(lines) if label in line)

    chosen = asking.answered(draft, Terminal(attended=True, say=say, ask=ask))

    values = {guess.key: guess.value for guess in chosen.guesses}
    assert '"abc"' == values[portal.LAST_NAME]
    assert not any(cell in line for line in lines for cell in ("Smith", "Beverly", *CARDS))
    assert any('"card number"    9(16) | 9(16) | 9(16)' in line for line in lines)


def test_a_doubt_of_status_takes_any_other_column_which_is_then_asked_about(
    tmp_path: Path,
) -> None:
    marked = BODY.replace("customer;", "customer;STATUS;").replace("K7;", "K7;A;")
    marked = marked.replace("K8;", "K8;C;").replace("K9;", "K9;A;")
    draft = drafted(tmp_path, marked).draft
    lines: list[str] = []
    wanted = iter(["another column", "city", '"ignored"', '"undecided"'])

    def say(line: object) -> None:
        lines.append(str(line))

    def ask(*_: Any, **__: Any) -> str:
        label = next(wanted)
        return next(line.split()[0] for line in reversed(lines) if label in line)

    chosen = asking.answered(draft, Terminal(attended=True, say=say, ask=ask))

    statuses = tomllib.loads(chosen.toml)["status"]
    assert {"STATUS": "ignored", "city": "undecided"} == statuses
    assert not any(cell in line for line in lines for cell in ("Smith", "Beverly", *CARDS))
