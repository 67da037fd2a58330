"""Faults of limits and of precedence: `<` for `<=`, and, which mutmut has no operators for, the first
for the last, the least for the greatest.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
import libcst.matchers as m
from mutmut.mutation.mutators import OPERATORS_TYPE, operator_swap_op

OPPOSITES = {"first": "last", "max": "min", "head": "tail", "arg_max": "arg_min"}
OPPOSITE = OPPOSITES | {opposite: name for name, opposite in OPPOSITES.items()}
LIMITS = m.LessThan() | m.LessThanEqual() | m.GreaterThan() | m.GreaterThanEqual()
LAST_ITEM = m.Index(m.UnaryOperation(m.Minus(), m.Integer("1")))


def other_end(node: cst.Call) -> Iterator[cst.CSTNode]:
    """Yield `min(...)` for `max(...)`, `of.last()` for `of.first()`, `keep="last"` for `"first"`,
    and a sequence in its own order for a reversed one.
    """
    name = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
    if isinstance(name, cst.Name) and name.value in OPPOSITE:
        yield node.with_deep_changes(name, value=OPPOSITE[name.value])
    if m.matches(node, m.Call(m.Name("reversed"), [m.Arg()])):
        yield node.with_changes(func=cst.Name("iter"))
    for argument in node.args:
        if m.matches(argument, m.Arg(m.SimpleString(), keyword=m.Name("keep"))):
            text = cst.ensure_type(argument.value, cst.SimpleString)
            end = OPPOSITE.get(text.raw_value)
            if end:
                yield node.with_deep_changes(text, value=f'"{end}"')


def other_order(node: cst.Arg) -> Iterator[cst.CSTNode]:
    """Yield each order of `descending=[True, False]` or `reverse=True` the other way round."""
    if m.matches(node, m.Arg(keyword=m.Name("descending") | m.Name("reverse"))):
        for flag in m.findall(node.value, m.Name("True") | m.Name("False")):
            is_true = m.matches(flag, m.Name("True"))
            yield node.with_deep_changes(flag, value=str(not is_true))


def first_item(node: cst.Subscript) -> Iterator[cst.CSTNode]:
    """Yield `names[0]` for `names[-1]`."""
    if m.matches(node, m.Subscript(slice=[m.SubscriptElement(LAST_ITEM)])):
        yield node.with_changes(slice=[cst.SubscriptElement(cst.Index(cst.Integer("0")))])


def other_limit(node: cst.ComparisonTarget) -> Iterator[cst.CSTNode]:
    """Yield `> last` for `>= last`, and so on."""
    if m.matches(node.operator, LIMITS):
        yield from operator_swap_op(node)


PRECEDENCE: OPERATORS_TYPE = ((cst.Call, other_end), (cst.Subscript, first_item))
EDGES: OPERATORS_TYPE = ((cst.ComparisonTarget, other_limit), (cst.Arg, other_order), *PRECEDENCE)
