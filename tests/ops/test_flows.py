"""What the flow files decide themselves, without a server: what is retried, and what the forms take."""

from __future__ import annotations

import asyncio
from typing import Any, cast, get_args

import pytest
from prefect.client.schemas.objects import TaskRun
from prefect.states import exception_to_failed_state
from prefect.tasks import Task
from pydantic import TypeAdapter, ValidationError

from flows.core.errors import BugError, CardlinkError
from flows.core.run.gates import RowJumpError
from flows.core.storage.store_errors import StoreBusyError, StoreDeniedError
from flows.forms import ExtractName, Reason, RunIdText
from flows.nightly import passing, submit
from flows.resubmit import WHICH, CorrectedName, ReasonCode, Which


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (StoreBusyError("cards", "503"), True),
        (StoreDeniedError("cards", "403"), False),
        (RowJumpError("cards", 1, 14, 100), False),
        (BugError("read", "TypeError"), False),
    ],
)
def test_only_passing_trouble_is_tried_again(error: CardlinkError, again: bool) -> None:
    state = asyncio.run(exception_to_failed_state(error))

    assert again == passing(cast("Task[..., Any]", submit), cast(TaskRun, None), state)


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        (RunIdText, "first-bank-20261120-3f9c21aa-r2", "first-bank-20261120"),
        (ExtractName, "2026/cards-20261120.csv", "../../secrets.csv"),
        (ReasonCode, "address.postal_code", "4242424242424242"),
        (CorrectedName, "fixed/corrections.csv", "../secrets.csv"),
        (Reason, "the portal lost 3 files on 20261120", "card 4242 4242 4242 4242 again"),
    ],
)
def test_a_free_field_takes_what_it_is_for_and_never_a_card_number(field: Any, good: str, bad: str) -> None:
    adapter = TypeAdapter(field)

    assert good == adapter.validate_python(good)
    with pytest.raises(ValidationError):
        adapter.validate_python(bad)


def test_every_choice_of_rows_to_send_again_asks_for_something_or_says_where_it_is_said() -> None:
    assert get_args(Which) == tuple(WHICH)
    assert ["as codes or corrections say"] == [name for name, wanted in WHICH.items() if not wanted.anything]
