"""OpenMetrics text of an issuer: counts, durations and ages. Labels are issuer, state and kind: nothing personal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Sample(NamedTuple):
    """One number of a family, with its labels."""

    value: float
    labels: Mapping[str, str]


class Family(NamedTuple):
    """One gauge: name, what it says, its samples."""

    name: str
    help: str
    samples: tuple[Sample, ...]


def openmetrics(families: Iterable[Family]) -> str:
    """Return the families as OpenMetrics 1.0 text."""
    lines = [line for family in families if family.samples for line in _family(family)]
    return "\n".join([*lines, "# EOF", ""])


def _family(family: Family) -> list[str]:
    head = [f"# TYPE {family.name} gauge", f"# HELP {family.name} {family.help}"]
    return head + [f"{family.name}{_labels(sample.labels)} {sample.value:.15g}" for sample in family.samples]


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
