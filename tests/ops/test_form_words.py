"""What the forms show: sentences in their own words, and a result as one page of Markdown."""

from __future__ import annotations

import json
import re
from datetime import date

import pytest

from flows.commands.entry import Form
from flows.commands.result import Link, Result, Table
from flows.errors import CardlinkError
from flows.every import ENTRIES, in_form_words
from tests.ops.test_deploy_files import all_errors

FORMS = {one.form.name: one.form for one in ENTRIES if isinstance(one.form, Form)}


@pytest.mark.parametrize(
    ("form", "text", "words"),
    [
        (
            "outbox",
            "Give it with --reason; it is kept.",
            "Give it with the field reason; it is kept.",
        ),
        (
            "resubmit",
            "on purpose: --override REASON, which",
            "on purpose: the field override_reason, which",
        ),
        (
            "resubmit",
            "The same command with --dry-run lists",
            "The same form with the field mode: dry run lists",
        ),
        (
            "rerun",
            "or submit with --open reject-rate.",
            "or submit with the field open_gate: reject-rate.",
        ),
        (
            "nightly",
            "with --open row-jump.",
            "with the field open_gate: row-jump of the form rerun.",
        ),
        (
            "rerun",
            "(`cardlink outbox cancel bank-1-r2`); uploaded",
            "(the form outbox (action: cancel)); uploaded",
        ),
        (
            "rerun",
            "cancelled: cardlink outbox cancel bank --reason WHY.",
            "cancelled: the form outbox (action: cancel).",
        ),
        ("ingest", "`cardlink status` lists the runs.", "`cardlink status` lists the runs."),
    ],
)
def test_a_sentence_for_the_command_line_is_put_into_the_words_of_a_form(
    form: str, text: str, words: str
) -> None:
    assert words == in_form_words(text, form)


def kinds(root: type[CardlinkError] = CardlinkError) -> list[type[CardlinkError]]:
    return [found for one in root.__subclasses__() for found in (one, *kinds(one))]


@pytest.mark.parametrize("form", FORMS)
def test_no_error_names_an_option_of_the_forms_own_commands(form: str) -> None:
    options = {
        one.option
        for entry in ENTRIES
        if entry.form is FORMS[form]
        for one in entry.parameters
        if not one.argument
    }
    known = all_errors()

    said = {kind.__name__: f"{kind.message} {kind.next_step}" for kind in kinds()}
    shown = dict(zip(said, in_form_words("\n".join(said.values()), form).splitlines(), strict=True))

    assert known <= shown.keys()
    named = {
        name: set(re.findall(r"--[a-z][a-z-]*", text)) & options for name, text in shown.items()
    }
    assert {} == {name: found for name, found in named.items() if found}


def test_a_page_holds_lines_tables_and_links_once_and_shows_texts_as_they_are() -> None:
    rows = [["a|b", 1_000], ["<script>", 2]]
    result = Result(
        {},
        [
            "one: done",
            "",
            Table(("what", "rows"), rows, title="All"),
            Link("http://x/y", "Report", "k"),
        ],
    )

    assert result.markdown.split("\n\n") == [
        "## one: done",
        "**All**",
        "| what | rows |\n| --- | --- |\n| a\\|b | 1,000 |\n| \\<script\\> | 2 |",
        "[Report](http://x/y)",
    ]


def test_a_page_leaves_out_empty_tables_and_names_how_many_rows_it_does_not_show() -> None:
    long = Table(("row",), [[number] for number in range(60)])

    page = Result({}, [Table(("row",), [], "k", "none"), long], headline="done").markdown

    assert "none" not in page
    assert page.endswith("\n\nand 10 more")


def test_a_table_can_be_an_artifact_whatever_its_cells_are() -> None:
    table = Table(
        ("extract", "business date", "rows", "refused"), [["a.csv", date(2026, 11, 20), 3, None]]
    )

    assert [
        {"extract": "a.csv", "business date": "2026-11-20", "rows": 3, "refused": None}
    ] == json.loads(json.dumps(table.records))
