"""A command for several issuers or runs, named with commas between: it runs once for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from flows.commands.context import Context
from flows.commands.result import Part, Result, worst
from flows.errors import CardlinkError
from flows.steps import Sentence, Step


class _Done(NamedTuple):
    target: str
    result: Result


def for_each(context: Context, targets: str, run: Callable[[str], Result]) -> Result:
    """Return what came of a command for each of its targets, with the worst exit code.

    One that is refused does not stop the others.
    """
    done, refused = context.each(targets, lambda target: [_Done(target, run(target))])
    return _together(done, refused)


def _together(done: Sequence[_Done], refused: Mapping[str, CardlinkError]) -> Result:
    results = [each.result for each in done]
    shown: list[Part] = list(chain.from_iterable([*result.shown, ""] for result in results))
    lines = [
        Sentence("{target}: {error}", target=target, error=error.text)
        for target, error in refused.items()
    ]
    codes = [result.exit_code for result in results]
    codes += [error.exit_code for error in refused.values()]
    facts = {
        "issuers": [result.facts for result in results],
        "refused": {target: str(error.text) for target, error in refused.items()},
    }
    return Result(
        facts,
        [*shown, *lines] if lines else shown[:-1],
        _next_step([(each.target, each.result.next_step) for each in done]),
        worst(codes),
        headline="; ".join([*(result.sentence for result in results), *map(str, lines)]),
        failure=next((result.failure for result in results if result.failure), None),
    )


def _next_step(steps: Sequence[tuple[str, Step | None]]) -> Step | None:
    """Return the next step for all that have the same one but for the target, else the first."""
    known = [(target, step) for target, step in steps if step is not None]
    if not known:
        return None
    first_target, first = known[0]
    same = [target for target, step in known if step == first.about(first_target, target)]
    if len(same) < len(known):
        return first
    return first.about(first_target, ",".join(same))
