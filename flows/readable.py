r"""Texts as people may see them, whoever wrote them: in lists, pages, workbooks and terminals.

What cannot be seen is shown as what it is (`\u202e`): controls, marks of direction, characters
without a width, and line ends. What a spreadsheet would run as a formula gets a `'` before it.
Links and chunks are for machines: those stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

_ODD = r"^ *[=+\-@]|[^ -~]"
_FORMULA = ("=", "+", "-", "@")


def readable(text: str) -> str:
    """Return a text with every character visible."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def cell(text: str) -> str:
    """Return a text for a cell of a spreadsheet: readable, and no formula."""
    shown = readable(text)
    # a spreadsheet ignores spaces before it
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown


def cells() -> pl.Expr:
    """Return all text columns, each cell as `cell` has it."""
    import polars as pl  # redaction imports this module, and `cardlink --help` waits for no polars

    text = pl.col(pl.String)
    is_odd = text.str.contains(_ODD).fill_null(value=False)
    # few are odd, and nulls cost nothing
    odd = pl.when(is_odd).then(text).map_elements(cell, pl.String)
    return pl.when(is_odd).then(odd).otherwise(text).name.keep()


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
