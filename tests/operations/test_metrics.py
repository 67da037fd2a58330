"""OpenMetrics text as the reference parser reads it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser

from flows.operations.alerts import openmetrics


def read_back(text: str) -> list[Any]:
    """Return the families the reference parser reads."""
    return list(parser.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]  # it has no types


def test_the_text_is_read_back_with_its_labels() -> None:
    text = openmetrics(
        [("cardlink_runs", "Runs.", ((3, {"issuer": "bank", "state": "balanced"}),))]
    )

    [found] = read_back(text)

    assert (found.name, found.type, found.samples[0].value) == ("cardlink_runs", "gauge", 3)
    assert found.samples[0].labels == {"issuer": "bank", "state": "balanced"}


def test_a_family_without_samples_is_left_out() -> None:
    assert openmetrics([("cardlink_runs", "Runs.", ())]) == "# EOF\n"


@given(st.text(), st.floats(0, 1e15))
def test_any_label_and_number_is_read_back(label: str, value: float) -> None:
    [found] = read_back(openmetrics([("x", "X.", ((value, {"state": label}),))]))

    assert found.samples[0].labels == {"state": label}
    assert abs(found.samples[0].value - value) <= 1e-12 * value
