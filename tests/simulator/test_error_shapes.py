from __future__ import annotations

import ast
import json

from flows.extensions.simulator.error_shapes import CUT, SHAPES
from flows.extensions.simulator.validation import Fault

FAULTS = (Fault("card", "pan", "invalid", "pan does not pass its check digit"),)


def test_inspect_is_what_node_prints() -> None:
    # util.inspect of node 20.20.2
    printed = """\
{
  cuid: "O'Brien",
  errors: [
    {
      name: 'invalid',
      message: 'pan does not pass its check digit',
      property: 'card.pan'
    }
  ]
}"""

    written = SHAPES["inspect"]("O'Brien", FAULTS)

    assert printed == written


def test_inspect_keeps_a_short_object_on_one_line_as_node_does() -> None:
    written = SHAPES["inspect"]("x", (Fault("b", "c", "a", "m"),))

    assert "{ cuid: 'x', errors: [ { name: 'a', message: 'm', property: 'b.c' } ] }" == written


def test_json_in_json_is_read_by_reading_twice() -> None:
    written = SHAPES["twice"]("C-1", FAULTS)

    assert "C-1" == json.loads(json.loads(written))["cuid"]


def test_repr_is_read_by_python_and_not_as_json() -> None:
    written = SHAPES["repr"]("C-1", FAULTS)

    assert "C-1" == ast.literal_eval(written)["cuid"]
    assert "'" == written[1]


def test_cut_text_keeps_the_cuid_and_is_no_json_any_more() -> None:
    written = SHAPES["cut"]("C-1", FAULTS)

    assert CUT == len(written)
    assert '"C-1"' in written


def test_every_shape_but_one_bears_the_cuid() -> None:
    without = [name for name, shape in SHAPES.items() if "C-1" not in shape("C-1", FAULTS)]

    assert ["object"] == without
