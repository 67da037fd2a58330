"""Regular expressions in the TOML: those that both engines that will use them can read."""

import re
from typing import Annotated

import polars as pl
from pydantic import AfterValidator


def _checked(text: str) -> str:
    """Return the text of a regular expression; ValueError where an engine cannot read it."""
    try:
        re.compile(text)
        pl.Series([""]).str.contains(text)
    except (re.error, pl.exceptions.PolarsError) as error:
        raise ValueError(
            "not a regular expression, or one with lookaround or backreferences"
        ) from error
    return text


Pattern = Annotated[str, AfterValidator(_checked)]


def _checked_form(text: str) -> str:
    return _checked(text) if text.startswith("^") else text


Comment = Annotated[str, AfterValidator(_checked_form)]


def beginning(text: str) -> str:
    """Return the regular expression of lines that begin with a text, for both engines."""
    return "^" + escaped(text)


def escaped(text: str) -> str:
    """Return the regular expression of a text as it is, for both engines."""
    return re.sub(r"\\(\s)", r"\1", re.escape(text))  # polars rejects an escaped space
