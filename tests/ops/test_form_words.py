"""What the forms show: sentences in their own words, and a result as one page of Markdown."""

from __future__ import annotations

import json
from datetime import date
from functools import cache

import pytest

from flows import forms
from flows.commands.result import Link, Result, Table
from flows.registry import FORMED, FormWords, field_of, form_of
from flows.steps import REASON, WHY, CommandName, Option, Sentence, Step
from flows.submissions.gates import opening
from tests import mentions

FORMS = {form.name: form for _, form in FORMED}
CANCEL = Step("outbox cancel", "bank-20261120-01234567-r2", reason=WHY)


@pytest.mark.parametrize(
    ("form", "text", "words"),
    [
        (
            "outbox",
            Sentence("Give it with {reason}; it is kept.", reason=Option("--reason")),
            "Give it with the field reason; it is kept.",
        ),
        (
            "resubmit",
            Sentence(
                "on purpose: {override}, which",
                override=Option("--override", REASON, of="resubmit"),
            ),
            "on purpose: the field override_reason, which",
        ),
        (
            "resubmit",
            Sentence("{same_command} with {dry}", dry=Option("--dry-run", of="resubmit")),
            "the same form with the field dry_run",
        ),
        (
            "rerun",
            Sentence("or submit with {open}.", open=opening("reject-rate")),
            "or submit with the field open_gate: reject-rate.",
        ),
        (
            "nightly",
            Sentence("with {open}.", open=opening("row-jump")),
            "with the field open_gate: row-jump of the form rerun.",
        ),
        (
            "rerun",
            Sentence("({cancel}); uploaded", cancel=CANCEL),
            "(the form outbox (action: cancel)); uploaded",
        ),
        (
            "rerun",
            Sentence("cancelled: {cancel:bare}.", cancel=CANCEL),
            "cancelled: the form outbox (action: cancel).",
        ),
        (
            "purge",
            Sentence("{resubmit} sends them again.", resubmit=CommandName("resubmit")),
            "the form resubmit sends them again.",
        ),
        (
            "ingest",
            Sentence("{check} tries it.", check=Step("check")),
            "`cardlink check` tries it.",
        ),
        (
            "purge",
            Sentence("or name it with {config}", config=Option("--config")),
            "or name it with --config",
        ),
        (
            "resubmit",
            Sentence("a row: {row}", row=Option("--row", of="resubmit")),
            "a row: --row",
        ),
    ],
)
def test_next_steps_are_put_into_the_words_of_a_form(form: str, text: Sentence, words: str) -> None:
    assert words == text.in_words(FormWords(form))


@cache
def fields(form: str) -> dict[str, list[str] | None]:
    """Return the fields of a form, each with what it offers, None where anything may be typed."""
    flow = getattr(forms, form)
    schema = flow.parameters.model_dump()
    return {
        name: field.get("enum", [field["const"]] if "const" in field else None)
        for name, field in schema["properties"].items()
    }


@pytest.mark.parametrize("form", ["nightly", *FORMS])
def test_every_next_step_names_a_form_that_exists_and_a_field_of_it(form: str) -> None:
    collected = [*mentions.of_tables(), *mentions.of_source()]

    named = [form_of(one) for one in collected if isinstance(one, Step | CommandName)]
    asked = [field_of(one, form) for one in collected if isinstance(one, Option)]

    for choice in filter(None, named):
        assert choice.form in FORMS
        assert not choice.picks or choice.label in (fields(choice.form)[choice.picks] or ())
    for field in filter(None, asked):
        assert field.name in fields(field.form)
        offered = fields(field.form)[field.name]
        assert not field.value or offered is None or field.value in offered
    assert len(set(named)) > 10


@pytest.mark.parametrize("form", FORMS)
def test_no_option_of_a_forms_own_commands_is_named_as_on_the_command_line(form: str) -> None:
    entries = {entry.name: entry for entry, its in FORMED if its.name == form}
    without = FORMS[form].without
    own = {
        option
        for option in [*mentions.of_tables(), *mentions.of_source()]
        if isinstance(option, Option) and (not option.of or option.of in entries)
        for entry in entries.values()
        for parameter in entry.parameters
        if parameter.option == option.name and parameter.name not in without
    }

    shown = {option.name: FormWords(form)(option) for option in own}

    assert {} == {name: words for name, words in shown.items() if not words.startswith("the field")}


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


@pytest.mark.parametrize(
    ("form", "field", "words"),
    [
        ("outbox", "reason", "Required by: hold, release, cancel."),
        ("mend", "break_name", "Required by: close, reopen."),
    ],
)
def test_a_field_says_which_commands_of_its_form_require_it(
    form: str, field: str, words: str
) -> None:
    described = getattr(forms, form).parameters.model_dump()["properties"][field]["description"]

    assert described.endswith(words)
