"""The score of `init`: what it makes of exports as banks write them, and what it doubts."""

import re
import tomllib
from collections import Counter
from io import BytesIO
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result

from flows.cli.main import main
from flows.configuration import load_issuer
from flows.errors import CardlinkError
from flows.extensions.init.draft import Draft, first_draft
from flows.extracts.mapping import map_rows, plan_mapping, with_dates
from flows.extracts.reader import Extract
from flows.submissions.normalise import normalise
from schemas import portal
from schemas.issuer import Issuer
from tests.builders import quick
from tests.cli.terminal import on_terminal
from tests.extracts.exports import Export
from tests.extracts.hard_exports import thirty
from tests.extracts.test_guess import REST
from tests.extracts.usual_exports import seven
from tests.night import DAY
from tests.sample_bank import expected

RIGHT = "right"
DOUBTED = "doubt said"
WRONG = "wrong without doubt"
# Where nothing in the file tells, or too little: all that is wrong is asked.
DOUBTFUL = {
    "no header",
    "HDR, TRL and no header",
    "fixed width",
    "unknown headers",
    "primary or secondary",
    "two addresses",
    "no dates at all",
    "other dates beside",
    "a status of each card",
    "whole names of many words",
    "a cuid for a household",
}


def drafted(export: Export) -> Draft:
    return first_draft(BytesIO(export.content), "export.csv", DAY)


def mapped(export: Export, draft: Draft) -> pl.DataFrame:
    """Read an export with the settings that were guessed, also where a doubt is left open."""
    for doubt in draft.doubts:
        draft = draft.answered(doubt, doubt.value)
    issuer = Issuer.model_validate(REST | tomllib.loads(draft.toml))

    def extract() -> Extract:
        return Extract(BytesIO(export.content), issuer.source, "export.csv")

    mapping = plan_mapping(extract().header, issuer, "export.csv", {})
    rows = pl.concat(block.rows for block in extract())
    complete = with_dates(mapping, rows, lambda: iter(extract()))
    return normalise(map_rows(rows, complete).sent, issuer.rules)


def verdict(export: Export) -> str:
    """Compare every cell with what the export holds; a column that differs, or is missing, must be
    asked.
    """
    draft = drafted(export)
    doubted = {guess.key for guess in draft.doubts}
    missing = set(export.truth[0]) - {guess.key for guess in draft.guesses if guess.value}
    if missing:
        return DOUBTED if missing <= doubted else WRONG
    try:
        rows = mapped(export, draft)
    except CardlinkError:
        return DOUBTED if any("." not in key for key in doubted) else WRONG
    if rows.height != len(export.truth):
        return WRONG
    wrong = wrong_columns(export, rows)
    if not wrong:
        return RIGHT
    return DOUBTED if wrong <= doubted else WRONG


def wrong_columns(export: Export, rows: pl.DataFrame) -> set[str]:
    """Return the columns with cells that the export does not hold."""
    wrong = set()
    for name in portal.columns():
        if name in export.truth[0]:
            cells = rows[name].fill_null("").to_list()
            if cells != [row[name] for row in export.truth]:
                wrong.add(name)
    return wrong


@pytest.mark.slow
def test_of_thirty_more_exports_none_is_wrong_without_a_doubt() -> None:
    verdicts = {name: verdict(export) for name, export in thirty().items()}

    assert Counter({RIGHT: 19, DOUBTED: 11}) == Counter(verdicts.values())
    assert {name for name, kind in verdicts.items() if kind == DOUBTED} == DOUBTFUL


@pytest.mark.slow
@pytest.mark.parametrize("name", seven())
def test_seven_usual_exports_are_sent_whole_by_what_init_writes(tmp_path: Path, name: str) -> None:
    export = seven()[name]
    (tmp_path / "export.csv").write_bytes(export.content)

    done = cardlink(tmp_path, "init", name, "--from", str(tmp_path / "export.csv"))

    assert (done.exit_code, verdict(export), drafted(export).doubts) == (0, RIGHT, [])
    assert "60 of 60 rows in 1 chunk would be sent" in done.stdout


@pytest.mark.parametrize("name", quick(3, [*seven(), *thirty()]))
def test_no_cell_is_written_or_shown(tmp_path: Path, name: str) -> None:
    export = {**seven(), **thirty()}[name]
    (tmp_path / "export.csv").write_bytes(export.content)

    done = cardlink(tmp_path, "init", "bank", "--from", str(tmp_path / "export.csv"))

    text = (tmp_path / "bank.toml").read_text("utf-8") + done.output
    private = {
        cell
        for row in export.truth
        for column, cell in row.items()
        if len(cell) > 4 and cell != "FALSE"
    }
    assert not [cell for cell in private if cell in text]


@pytest.mark.slow
def test_doubts_are_asked_one_by_one_and_the_answers_are_written(tmp_path: Path) -> None:
    (tmp_path / "export.csv").write_bytes(
        thirty()["a second number that passes for a card"].content
    )

    seen = on_terminal(
        tmp_path,
        {},
        ["init", "bank", "--from", "export.csv"],
        [("Number [1]:", "7"), ("[1]:", "2")],
    )

    assert (seen.code, "CARD_TOKEN") == (0, load_issuer(tmp_path, "bank").columns[portal.PAN])
    assert "in doubt" not in seen.stdout


def test_without_a_terminal_or_with_yes_a_doubt_is_left_open_and_shown_with_its_answers(
    tmp_path: Path,
) -> None:
    (tmp_path / "export.csv").write_bytes(thirty()["dates that fit two forms"].content)

    done = cardlink(tmp_path, "init", "bank", "--from", str(tmp_path / "export.csv"), "--yes")

    open_columns = f"{portal.YEAR}, {portal.MONTH} undecided in [columns]"
    assert (2, True) == (done.exit_code, open_columns in " ".join(done.stdout.split()))
    assert f"in doubt: {portal.MONTH}: How is it written" in done.stdout
    assert f'#   or: "{portal.MONTH}" = {{ from = ' in (tmp_path / "bank.toml").read_text("utf-8")


def test_one_date_in_the_whole_file_decides_between_two_forms() -> None:
    export = thirty()["dates that fit two forms"]
    *lines, last = export.content.decode().splitlines()
    later = re.sub(r",[0-9]{2}/[0-9]{2}/", ",11/30/", last)

    draft = first_draft(BytesIO("\n".join([*lines, later, ""]).encode()), "export.csv", DAY)

    assert draft.doubts == []
    assert 'format = "MM/DD/YYYY"' in draft.toml


def test_the_sample_extract_is_understood_with_all_its_bad_rows(tmp_path: Path) -> None:
    file = next(Path("sample_data/extracts").glob("*.csv"))

    done = cardlink(tmp_path, "init", "bank", "--from", str(file))

    issuer = load_issuer(tmp_path, "bank")
    assert (3, True, len(portal.columns())) == (done.exit_code, issuer.test, len(issuer.columns))
    assert "^\\#TRAILER,([0-9]+)" == issuer.source.trailer
    assert "{rejected} of {read} rows rejected".format(**expected()["counts"]) in done.stdout


def test_a_file_that_is_not_there_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    done = cardlink(tmp_path, "init", "bank", "--from", str(tmp_path / "export.csv"))

    assert (2, []) == (done.exit_code, list(tmp_path.iterdir()))
    assert "export.csv (--from) cannot be read: No such file or directory" in done.stderr


def test_an_extract_that_cannot_be_sent_says_so_and_the_toml_stays(tmp_path: Path) -> None:
    (tmp_path / "export.csv").write_bytes(thirty()["no dates at all"].content)

    done = cardlink(tmp_path, "init", "bank", "--from", str(tmp_path / "export.csv"))

    assert done.exit_code == 2
    assert f"{portal.YEAR}, {portal.MONTH} undecided in [columns]" in done.stdout
    assert (tmp_path / "bank.toml").is_file()


def cardlink(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--config", str(folder), *arguments])
