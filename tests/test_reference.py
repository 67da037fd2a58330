"""The reference pages say what the code says: settings, commands and reasons."""

from __future__ import annotations

import re
import tomllib

import pytest

from schemas.issuer import Issuer
from tests.reference import DEPLOY, PAGES, PERSONAL, VARIABLES, settings_page


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_what_its_source_says(name: str) -> None:
    written = (DEPLOY / name).read_text("utf-8")

    assert PAGES[name]() == written, "run: python -m tests.reference"


def test_every_setting_has_a_meaning() -> None:
    assert "None |" not in settings_page()
    assert [name for name in Issuer.model_fields if name not in settings_page()] == []


def test_every_variable_of_the_environment_example_is_explained() -> None:
    examples = "".join(file.read_text("utf-8") for file in (DEPLOY / "env").iterdir())

    named = set(re.findall(r"^#?(CARDLINK_\w+)=", examples, re.MULTILINE))

    assert named == {name for name in VARIABLES if name.startswith("CARDLINK_")} - PERSONAL


@pytest.mark.parametrize("page", ["README.md", "deploy/SETTINGS.md"])
def test_every_toml_of_a_page_is_one_an_issuer_could_have(page: str) -> None:
    text = (DEPLOY.parent / page).read_text("utf-8")
    needed = {
        "issuer": "first-bank",
        "root": "store",
        "portal": {"fingerprints": ["0" * 40], "allowed_hosts": ["x.test"]},
    }

    shown = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)

    assert shown
    for one in shown:
        Issuer.model_validate(needed | tomllib.loads(one))


def test_every_link_of_a_page_leads_to_a_file() -> None:
    pages = [*DEPLOY.parent.glob("*.md"), *DEPLOY.glob("*.md")]

    broken = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^):#]+)\)", page.read_text("utf-8"))
        if not (page.parent / target).is_file()
    ]

    assert broken == []


def test_every_path_that_a_page_names_is_there() -> None:
    root = DEPLOY.parent
    pages = [root / "README.md", root / "DESIGN.md", root / "CONTRIBUTING.md", *DEPLOY.glob("*.md")]

    named = {
        (page.name, path)
        for page in pages
        for path in re.findall(
            r"`((?:flows|schemas|tests|deploy|sample_data)/[\w./-]*)`", page.read_text("utf-8")
        )
    }

    assert named
    assert [(page, path) for page, path in sorted(named) if not (root / path).exists()] == []
