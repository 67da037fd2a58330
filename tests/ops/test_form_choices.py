"""The runs and extracts that forms offer: chosen from a list, or typed, and never in the way."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # ships no types

from flows import forms
from flows.form_choices import Names, names_of, offered_fields, with_choices
from flows.watch import remove_idle
from tests.night import BANK, local_bench

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

RUN, LATER = "a-bank-20261120-01234567", "a-bank-20261121-89abcdef"
OTHER = "b-bank-20261120-01234567-r2"
BOTH = ("a-bank", "b-bank")


def names(issuer: str, *runs: str) -> Names:
    return {"runs": runs, "targets": [issuer, *runs], "extracts": [f"{run}.csv" for run in runs]}


def schema_of(form: str) -> dict[str, Any]:
    shown: dict[str, Any] = getattr(forms, form).parameters.model_dump()
    return shown


@pytest.mark.parametrize(
    ("form", "fields"),
    [
        ("rerun", {"extract": "extracts"}),
        ("dismiss", {"extract": "extracts"}),
        ("resubmit", {"run": "targets"}),
        ("outbox", {"run": "targets"}),
        ("mend", {"run": "targets"}),
        ("give_up", {"run": "targets"}),
        ("audit", {"run": "runs"}),
        ("erase", {"target": "targets"}),
        ("worklist", {}),
    ],
)
def test_the_fields_for_a_run_or_an_extract_offer_some(form: str, fields: dict[str, str]) -> None:
    assert fields == offered_fields(form)


def test_a_run_is_chosen_from_those_of_every_issuer_or_typed_and_nothing_else_is_taken() -> None:
    schema = with_choices("audit", schema_of("audit"), "a-bank", names("a-bank", LATER, RUN), BOTH)
    schema = with_choices("audit", schema, "b-bank", names("b-bank", OTHER), BOTH)

    field = schema["properties"]["run"]
    choose, typed = field["anyOf"]
    takes, errors_of = Draft202012Validator(field).is_valid, Draft202012Validator(field).iter_errors

    assert [LATER, RUN, OTHER] == choose["enum"]
    assert "type" not in choose  # Prefect's UI shows what is chosen in the other way
    assert "string" == typed["type"]
    assert [True, True, False] == [takes(RUN), takes("c-bank-20261101-01234567"), takes("../x")]
    assert [field["pattern"]] == [each.validator_value for each in errors_of("../x")]


def test_a_list_is_replaced_by_the_next_and_an_issuer_that_is_gone_leaves_it() -> None:
    first = with_choices("audit", schema_of("audit"), "b-bank", names("b-bank", OTHER), BOTH)
    second = with_choices("audit", first, "a-bank", names("a-bank", RUN), ["a-bank"])

    assert [RUN] == second["properties"]["run"]["anyOf"][0]["enum"]
    assert second == with_choices("audit", second, "a-bank", names("a-bank", RUN), ["a-bank"])
    assert schema_of("audit") == with_choices("audit", second, "a-bank", names("a-bank"), BOTH)


def test_the_extracts_and_runs_of_a_store_are_offered_without_a_name_that_has_a_card(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path)
    [first, _, _] = [bench.drop(2, name) for name in ("a.csv", "b.csv", "4242424242424242.csv")]
    run = bench.submit(first).manifest.run

    assert {"runs": [run], "targets": [BANK, run], "extracts": ["b.csv", "a.csv"]} == names_of(
        bench.context
    )


def run(deployment: str, *, scheduled: bool = True) -> Any:
    return SimpleNamespace(id=uuid4(), deployment_id=deployment, auto_scheduled=scheduled)


def test_of_scheduled_flow_runs_with_nothing_to_do_the_newest_of_each_deployment_stays() -> None:
    newest, by_hand, old, other = (
        run("ingest"),
        run("ingest", scheduled=False),
        run("ingest"),
        run("watch"),
    )
    deleted: list[Any] = []
    client = SimpleNamespace(
        read_flow_runs=lambda **_: [newest, other, by_hand, old], delete_flow_run=deleted.append
    )

    remove_idle(cast("SyncPrefectClient", client), "a-bank")

    assert [old.id] == deleted
