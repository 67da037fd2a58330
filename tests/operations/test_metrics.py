"""OpenMetrics text as the reference parser reads it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser

from flows.operations.metrics import Gauge, Sample, openmetrics


def read_back(text: str) -> list[Any]:
    """Return the families the reference parser reads."""
    return list(parser.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]  # it has no types


def test_the_text_is_read_back_with_its_labels() -> None:
    labels = {"issuer": "bank", "state": "balanced"}
    text = openmetrics([Gauge("cardlink_runs", "Runs.", [Sample(3, labels)])])

    [family] = read_back(text)

    assert (family.name, family.type, family.samples[0].value) == ("cardlink_runs", "gauge", 3)
    assert family.samples[0].labels == labels


def test_a_family_without_samples_is_left_out() -> None:
    assert openmetrics([Gauge("cardlink_runs", "Runs.", [])]) == "# EOF\n"


@given(st.text(), st.floats(0, 1e15))
def test_any_label_and_number_is_read_back(label: str, value: float) -> None:
    text = openmetrics([Gauge("x", "X.", [Sample(value, {"state": label})])])

    [family] = read_back(text)

    assert family.samples[0].labels == {"state": label}
    assert abs(family.samples[0].value - value) <= 1e-12 * value
