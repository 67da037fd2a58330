"""Every error of a store says where, what and what next, and survives a pickle."""

from __future__ import annotations

import pickle

import pytest

from flows.core.errors import CardlinkError, OperatorError, TryAgainError
from flows.core.run import lease
from flows.core.storage import store_errors

ERRORS = [
    kind
    for module in (store_errors, lease)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, CardlinkError) and kind.__module__ == module.__name__
]


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_names_its_place_says_what_to_do_and_survives_a_pickle(kind: type[CardlinkError]) -> None:
    arguments = ["first-bank/runs/x", "CODE", "until"][: kind.__init__.__code__.co_argcount - 1]

    error = kind(*arguments)
    again = pickle.loads(pickle.dumps(error))

    assert "first-bank/runs/x" in str(error)
    assert kind.then
    assert "{" not in str(error)
    assert (kind, str(error)) == (type(again), str(again))


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_is_for_the_operator_or_passes_with_time(kind: type[CardlinkError]) -> None:
    assert issubclass(kind, OperatorError | TryAgainError)
    assert kind.exit_code == (2 if issubclass(kind, OperatorError) else 75)
