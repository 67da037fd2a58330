"""A regular expression in the TOML: one that both engines that will use it can read."""

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
