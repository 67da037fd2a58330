"""A form of links is shown as it is read, and says which links it means."""

from __future__ import annotations

import re

import pytest

from schemas.link_form import LinkForm

FORMS = (
    "https://links.example.com/l/{hex:24}",
    "https://links.example.com/l/{hex:512}",
    "https://links.example.com",
    "https://*.example.com/{en|fr}/{base62:10-12}",
    "https://links.example.com/v?c=12&k={digits:16}",
    "https://links.example.com/#/l/{hex:8}-{digits:10}-{hex:8}",
)


@pytest.mark.parametrize("text", FORMS)
def test_a_form_is_read_as_it_is_shown(text: str) -> None:
    assert text == str(LinkForm.parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "links.example.com/l/{hex:24}",
        "http://links.example.com/l/{hex:24}",
        "https://links.example.com:8443/l/{hex:24}",
        "https://links.example.com/l/{hexes:24}",
        "https://links.example.com/l/{hex:24-12}",
        "https://links.example.com/l/{hex:0}",
        "https://links.example.com/l/{hex:513}",
        "https://links.example.com/l/{hex}",
        "https://links.example.com/l/{hex:24",
        "https://links.example.com/l/{en|}",
        "https://links.example.com/l/{hex:24} ",
        "https://links.example.com/l/\n",
    ],
)
def test_what_is_no_form_is_not_read(text: str) -> None:
    assert LinkForm.parse(text) is None


def test_every_shorter_link_is_a_beginning_and_no_whole_one() -> None:
    form = LinkForm.parse("https://links.example.com/{en|fr}/l/{hex:8}-{digits:10}/start")
    assert form is not None
    whole = "/en/l/0f8fad5b-1763888400/start"

    cut = [whole[:length] for length in range(len(whole))]

    assert re.fullmatch(form.pattern, whole)
    assert not re.fullmatch(form.beginning, whole)
    assert all(re.fullmatch(form.beginning, text) for text in cut)
    assert not any(re.fullmatch(form.pattern, text) for text in cut)


@pytest.mark.parametrize(
    "text", ["/de/l/", "/en/l/0g", "/en/l/0f8fad5b0", "/en/l/0f8fad5b-1763888400/stop"]
)
def test_what_no_link_begins_with_is_no_beginning(text: str) -> None:
    form = LinkForm.parse("https://links.example.com/{en|fr}/l/{hex:8}-{digits:10}/start")

    assert form is not None
    assert not re.fullmatch(form.beginning, text)
