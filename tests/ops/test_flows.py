"""What the flow files decide themselves, without a server: what is retried, and what the forms
take.
"""

from __future__ import annotations

import asyncio
import inspect
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, cast, get_args

import click
import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # ships no types
from prefect import Flow
from prefect.client.schemas.objects import TaskRun
from prefect.states import exception_to_failed_state
from prefect.tasks import Task
from pydantic import TypeAdapter, ValidationError

from flows import forms
from flows.cli.main import COMMANDS, add, main
from flows.commands.context import Context
from flows.commands.entry import Entry, entry
from flows.commands.form import Form
from flows.commands.parameters import DryRun, Issuer, Number
from flows.commands.result import Result
from flows.commands.results import ingest
from flows.commands.signature import REQUIRED, Parameter
from flows.errors import BugError, CardlinkError
from flows.form_fields import NONE, kind_of
from flows.forms import passing
from flows.nightly import submit
from flows.registry import ENTRIES
from flows.runs.store import StoreBusyError, StoreDeniedError
from flows.steps import COMMAND_LINE, Step
from flows.submissions.gates import RowJumpError
from tests.builders import quick
from tests.cli.test_reconcile import bank

DEPLOYMENTS = Path(__file__).parent.parent.parent / "deploy" / "prefect.yaml"


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (StoreBusyError(place="cards", code="503"), True),
        (StoreDeniedError(place="cards", code="403"), False),
        (RowJumpError(extract="cards", read=1, runs=14, median=100), False),
        (BugError(place="read", kind="TypeError"), False),
    ],
)
def test_only_a_temporary_failure_is_retried(error: CardlinkError, again: bool) -> None:
    state = asyncio.run(exception_to_failed_state(error))

    assert again == passing(cast("Task[..., Any]", submit), cast(TaskRun, None), state)


@pytest.mark.parametrize(
    ("command", "name", "good", "bad"),
    [
        ("ingest", "run", "first-bank-20261120-3f9c21aa-r2", "first-bank-20261120"),
        ("submit", "extract", "2026/cards-20261120.csv", "../../secrets.csv"),
        ("resubmit", "codes", ["address.postal_code"], ["4242424242424242"]),
        ("resubmit", "corrections", "fixed/corrections.csv", "../secrets.csv"),
        ("mend close", "place", "chunk 7", "row 7"),
    ],
)
def test_a_free_field_takes_what_it_is_for_and_never_a_card_number(
    command: str, name: str, good: Any, bad: Any
) -> None:
    adapter = TypeAdapter(kind_of(parameters(entry_of(command))[name]))

    assert good == adapter.validate_python(good)
    with pytest.raises(ValidationError):
        adapter.validate_python(bad)


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("ticket INC0012345, agreed 2026-11-20", True),
        ("the portal lost 3 files on 20261120 14:30:05, ref 00123456", True),
        ("card 4242 4242 4242 4242 again", False),
        ("card 4242-4242-4242-4242", False),
        ("card\n4242424242424242", False),
        ("3782 822463 10005 was refused", False),
    ],
)
def test_a_reason_with_dates_and_tickets_is_taken_and_one_with_a_card_is_not_stored(
    text: str, taken: bool
) -> None:
    schema = TypeAdapter(kind_of(parameters(entry_of("outbox hold"))["reason"])).json_schema()

    assert taken == Draft202012Validator(schema).is_valid(text)


def test_a_reason_that_reaches_a_flow_all_the_same_is_redacted() -> None:
    adapter = TypeAdapter(kind_of(parameters(entry_of("outbox hold"))["reason"]))

    assert "card [masked] again" == adapter.validate_python("card 4242424242424242 again")


def entry_of(command: str) -> Entry[...]:
    return next(one for one in ENTRIES if one.name == command)


def parameters(entry: Entry[...]) -> dict[str, Parameter]:
    return {one.name: one for one in entry.parameters}


def flow_of(form: Form) -> Flow[..., Any]:
    """Return the flow of a form as deployments name it."""
    found: Flow[..., Any] = getattr(forms, form.name)
    return found


def test_every_entry_has_a_form_that_is_deployed_or_says_why_it_has_none() -> None:
    deployed = {one["entrypoint"] for one in yaml.safe_load(DEPLOYMENTS.read_text())["deployments"]}

    formed = {one.form.name for one in ENTRIES if isinstance(one.form, Form)}

    assert {f"flows.forms:{name}" for name in formed} == {
        one for one in deployed if one.startswith("flows.forms:")
    }
    assert {flow.name for flow in vars(forms).values() if isinstance(flow, Flow)} == formed
    assert [
        one.name for one in ENTRIES if not isinstance(one.form, Form) and " " not in one.form
    ] == []


def command_of(entry: Entry[...]) -> dict[str, click.Parameter]:
    """Return the parameters of an entry's command by name, as `cardlink` has them."""
    found: click.Command = main
    for word in entry.name.split():
        assert isinstance(found, click.Group)
        found = found.commands[word]
    return {str(one.name): one for one in found.params}


FORMED = [pytest.param(one, one.form, id=one.name) for one in ENTRIES if isinstance(one.form, Form)]


@pytest.mark.parametrize(("entry", "form"), FORMED)
def test_names_choices_and_defaults_of_a_form_are_those_of_its_command(
    entry: Entry[...], form: Form
) -> None:
    fields = inspect.signature(flow_of(form).fn).parameters
    typed, declared = command_of(entry), parameters(entry)
    chosen = {name for choice in form.choices for sets in choice.sets.values() for name in sets}

    assert typed.keys() == declared.keys()
    assert declared.keys() - chosen - set(form.without) <= fields.keys()
    for name in declared.keys() & fields.keys() - {"dry_run", "actor", *form.needs}:
        default = declared[name].default
        every = all(name in parameters(one) for one in ENTRIES if one.form is form)
        assert typed[name].required == (default is REQUIRED)
        assert fields[name].default in (
            (default or None, default) if every else (default or None, "", NONE)
        )
    named = {"required": REQUIRED, "optional": "", "none": None}[form.actor]
    assert named == (fields["actor"].default if "actor" in fields else None)
    for choice in form.choices:
        labels = get_args(fields[choice.name].annotation)
        assert (tuple(choice.sets), labels[0]) == (labels, fields[choice.name].default)
        for sets in choice.sets.values():
            assert sets.keys() <= declared.keys()


@pytest.mark.parametrize(("entry", "form"), FORMED)
def test_a_form_that_can_look_first_does(entry: Entry[...], form: Form) -> None:
    fields = inspect.signature(flow_of(form).fn).parameters

    looks = "dry_run" in parameters(entry)

    assert looks == ("dry_run" in fields and fields["dry_run"].default is True)
    assert "mode" not in fields


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda one: one.name)
def test_every_parameter_of_a_command_has_its_help(entry: Entry[...]) -> None:
    assert entry.summary
    assert [one.name for one in entry.parameters if not one.help] == []


def test_the_last_state_of_submit_and_deliver_says_first_how_many_have_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank(tmp_path)
    monkeypatch.setenv("CARDLINK_CONFIG", str(tmp_path))
    result = Result({}, ["delivery 1 written"])

    said = {
        form.name: forms.last_sentence(form, {"issuer": "bank"}, result)
        for form in (entry.form for entry in ENTRIES if isinstance(entry.form, Form))
        if form.says_result
    }

    waits = "0 of 20 cardholders have a link; 20 wait for you. delivery 1 written"
    assert {"rerun": waits, "deliver": waits} == said


def test_an_entry_of_a_few_lines_is_a_command_and_a_form() -> None:
    @entry("praise", form=Form("praise", "praise of {issuer}"))
    def praise(
        context: Context, issuer: Issuer, *, times: Number = 2, dry_run: DryRun = False
    ) -> Result:
        """Say something nice about an issuer.

        Args:
            issuer: Whom to praise.
            times: How often.
        """
        words = ["well done"] * (0 if dry_run else times)
        return Result(
            {"issuer": issuer, "said": words},
            [f"{issuer}: {' '.join(words)}"],
            Step("worklist", issuer),
        )

    group = click.Group("cardlink")
    add(group, [praise])
    typed = CliRunner().invoke(
        group,
        ["praise", "bank", "--times", "3"],
        obj={"config": None, "json": False, "verbose": False, "words": COMMAND_LINE},
    )
    schema = forms.form("praise", [praise]).parameters.model_dump()

    assert typed.stdout == "bank: well done well done well done\n"
    assert typed.stderr == "next: cardlink worklist bank\n"
    assert schema["required"] == ["issuer", "actor"]
    assert schema["properties"]["times"]["minimum"] == 1
    assert schema["properties"]["times"]["description"] == "How often."
    assert [schema["properties"][name]["default"] for name in ("times", "dry_run")] == [2, True]


WHY = "ticket INC0012345, agreed 2026-11-20"
TODAY = datetime.now(UTC).date()
FILLED: dict[str, Any] = {
    "number": 1,
    "numbers": "1",
    "choice": "give-up",
    "issuer": "bank",
    "reason": WHY,
    "break_name": "RESULT_SHORT",
    "form": "https://links.example.com/{token}",
    "first_day": TODAY - timedelta(days=1),
    "last_day": TODAY,
    "actor": "tester",
}  # what a form is filled in with, beside the run and the extract


def night(folder: Path) -> tuple[str, str]:
    """Return a committed run that is not answered yet, and its extract."""
    bank(folder)
    issuer = folder / "store" / "bank"
    [run], [extract] = (
        [path.name for path in (issuer / part).iterdir()] for part in ("runs", "extracts")
    )
    return run, extract


def empty(folder: Path) -> tuple[str, str]:
    """Return a run and an extract of an issuer that has neither."""
    bank(folder)
    shutil.rmtree(folder / "store" / "bank")
    return "bank-20261120-3f9c21aa", "bank-20261120.csv"


def end_of(entry: Entry[...], folder: Path, values: dict[str, Any]) -> str:
    """Return the sentence that the form of an entry ends with."""
    arguments = {name: values[name] for name in parameters(entry) if name in values}
    try:
        result = entry.invoke(Context(folder), arguments)
    except CardlinkError as error:
        return error.sentence.in_words(COMMAND_LINE)
    return str(result.failure.text) if result.failure else result.sentence


@pytest.mark.parametrize("place", quick(1, [night, empty]))
def test_every_end_of_every_form_has_its_sentence(
    place: Callable[[Path], tuple[str, str]], tmp_path: Path
) -> None:
    run, extract = place(tmp_path)
    formed = [one for one in ENTRIES if isinstance(one.form, Form)]

    ends: dict[str, str] = {}
    for one, dry_run in product(formed, (True, False)):
        if dry_run or "dry_run" in parameters(one):
            values = {**FILLED, "run": run, "target": run, "extract": extract, "dry_run": dry_run}
            ends[f"{one.name}, dry run: {dry_run}"] = end_of(one, tmp_path, values)

    assert {} == {name: end for name, end in ends.items() if " " not in end.strip()}


def test_an_ingest_is_idle_where_it_found_nothing(tmp_path: Path) -> None:
    bank(tmp_path).answer()

    done = [ingest(Context(tmp_path), "bank").is_idle for _ in range(2)]

    assert [False, True] == done
