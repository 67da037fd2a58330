"""The error tree: every error names its fields, says what to do next, and survives a pickle."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import pkgutil
import re
from pathlib import Path

import pytest

import flows
from flows.errors import CardlinkError, fields_of, guarded
from flows.steps import joined


def below(kind: type[CardlinkError]) -> list[type[CardlinkError]]:
    return [one for child in kind.__subclasses__() for one in (child, *below(child))]


def all_errors() -> dict[str, type[CardlinkError]]:
    for module in pkgutil.walk_packages(flows.__path__, "flows."):
        importlib.import_module(module.name)
    return {
        one.__name__: one
        for one in below(CardlinkError)
        if one.__module__.startswith("flows.") and one.message
    }


ERRORS = all_errors()


def example(kind: type[CardlinkError]) -> CardlinkError:
    return kind(**dict.fromkeys(fields_of(kind), 3))


def test_an_error_is_a_message_and_a_next_step_without_a_constructor_of_its_own() -> None:
    for name, kind in ERRORS.items():
        shown = str(example(kind))

        # what click says ends by itself
        assert str(kind.message).endswith((".", "?", "{problem}")), name
        assert kind.next_step, name
        assert re.search(r"\{\w*\}", shown) is None, name  # a field that nobody filled in
        assert joined(kind.message).fields.isdisjoint(joined(kind.next_step).values), name
        assert {"__init__", "__str__"} & vars(kind).keys() == set(), name


def test_an_error_survives_a_pickle_and_the_boundary_of_a_step() -> None:
    for kind in ERRORS.values():
        error = example(kind)
        pickled = pickle.loads(pickle.dumps(error))
        crossed = across_a_step(error)

        for one in (pickled, crossed):
            assert (kind, error.fields, str(error), error.args) == (
                type(one),
                one.fields,
                str(one),
                one.args,
            )
        assert crossed is not error


def across_a_step(error: CardlinkError) -> CardlinkError:
    """Return the error that comes out of a step which raises this one."""

    def step() -> None:
        raise error

    with pytest.raises(type(error)) as crossed:
        guarded(step)()
    return crossed.value


def test_fields_too_many_or_too_few_are_refused_at_once() -> None:
    for kind in ERRORS.values():
        fields = example(kind).fields

        with pytest.raises(TypeError, match=kind.__name__):
            kind(**fields, another=3)

        for name in fields:
            with pytest.raises(TypeError, match=name):
                kind(**{key: value for key, value in fields.items() if key != name})


def raised(path: Path) -> list[tuple[int, str, list[str | None]]]:
    """Return line, class and keywords of every construction in a file; a positional argument counts
    as None.
    """
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    named = [(one, getattr(one.func, "id", getattr(one.func, "attr", ""))) for one in calls]
    return [
        (one.lineno, name, [*(None for _ in one.args), *(word.arg for word in one.keywords)])
        for one, name in named
        if name in ERRORS
    ]


def test_every_place_that_makes_an_error_names_exactly_its_fields() -> None:
    files = sorted(Path(inspect.getfile(flows)).parent.rglob("*.py"))

    made = [(file, *one) for file in files for one in raised(file)]

    assert [
        (file.name, at, name)
        for file, at, name, words in made
        if {*words} != fields_of(ERRORS[name])
    ] == []
    assert len(made) > 100
