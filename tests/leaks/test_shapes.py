"""The redactor finds what it is for in every shape, and leaves what people read."""

from __future__ import annotations

import hashlib
from random import Random
from uuid import UUID

import pytest

from flows.harmless import READ, harmless
from flows.redaction import hiding, redact
from tests.leaks.shapes import AROUND, echo, useful


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_of_echoes_in_shapes_of_their_own_none_is_left(count: int) -> None:
    echoes = [echo(Random(seed)) for seed in range(count)]

    left = [text for text, secrets in echoes if any(secret in harmless(text) for secret in secrets)]

    assert [] == left


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_useful_text_is_left_as_it_is(count: int) -> None:
    texts = [useful(Random(seed)) for seed in range(count)]

    changed = [text for text in texts if text != redact(text)]

    assert [] == changed


def test_digests_and_ids_of_ours_are_left_to_read() -> None:
    chance = Random(1)
    texts = [
        f"sha256 {hashlib.sha256(chance.randbytes(9)).hexdigest()}: held" for _ in range(2_000)
    ]
    texts += [f"request {UUID(bytes=chance.randbytes(16))} failed" for _ in range(2_000)]

    assert texts == [redact(text) for text in texts]


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize(
    "spelled", ["p&ss\"w<'d", "p&amp;ss&quot;w&lt;&#39;d", "p&ss\\\"w<'d", "p%26ss%22w%3C%27d"]
)
def test_a_secret_that_the_process_knows_is_masked_wherever_it_comes_back(
    around: str, spelled: str
) -> None:
    with hiding("p&ss\"w<'d", "668"):
        safe = redact(around.format(spelled) + " got 668 and 6-6-8, not 1668")

    assert "ss" not in safe.replace("message", "")
    assert safe.endswith(" got [masked] and [masked], not 1668")
    assert "668" == redact("668")


@pytest.mark.parametrize(
    "piece",
    [
        "1 ",
        "1------",
        "a.",
        "a@",
        "cvv ",
        "<a ",
        "\\",
        "%25",
        "1,",
        "é",
        "&#4",
        "4",
        "12 34 ",
        "cvv is ",
        "a",
        "\\u005c",
    ],
)
def test_a_long_cell_made_to_slow_its_reader_ends(piece: str) -> None:
    text = (piece * 8192)[:8192]

    assert len(redact(text)) <= 2 * len(text)
    assert len(harmless(text)) <= 30 * READ
