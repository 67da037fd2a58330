"""The header row of chunks: the portal's columns, or the order of the portal's own template."""

import csv
from collections.abc import Sequence
from io import StringIO
from typing import NamedTuple

from flows.errors import OperatorError
from schemas.portal import columns


class TemplateError(OperatorError):
    """The template's header is not the portal's (interface.md 2.6)."""

    message = "Template {name}: missing columns: {missing}; unknown or repeated columns: {unknown}."
    next_step = (
        "Download the blank template from the partner's portal again "
        "and name it in [portal] template."
    )


class Header(NamedTuple):
    """The header row: our column names in the portal's order, and the line as it is written."""

    order: tuple[str, ...]
    line: bytes

    @property
    def names(self) -> dict[str, str]:
        """The portal's names of its columns, by ours."""
        return dict(zip(self.order, next(csv.reader([self.line.decode()])), strict=True))


def default_header() -> Header:
    """Return the header of interface.md 2.6."""
    return _header(columns(), columns())


def header_from_template(text: str, name: str) -> Header:
    """Take names and order from the portal's own template.

    Raises TemplateError where they do not fit interface.md 2.6.
    """
    first = next(csv.reader(StringIO(text.removeprefix("\ufeff"))), [])
    cells = tuple(cell.strip() for cell in first)
    by_suffix = {column.partition(".")[2]: column for column in columns()}
    order = tuple(by_suffix.get(cell.partition(".")[2], "") for cell in cells)
    _check_template(name, cells, order)
    return _header(order, cells)


def _check_template(name: str, cells: Sequence[str], order: Sequence[str]) -> None:
    """Raise TemplateError unless each column is in the order once; `cells` are the portal's names.

    The order has "" for a cell that is no column.
    """
    missing = [column for column in columns() if column not in order]
    unknown = [
        cell
        for cell, column in zip(cells, order, strict=True)
        if not column or order.count(column) > 1
    ]
    if missing or unknown:
        raise TemplateError(
            name=name, missing=", ".join(missing) or "none", unknown=", ".join(unknown) or "none"
        )


def _header(order: tuple[str, ...], names: tuple[str, ...]) -> Header:
    line = StringIO()
    csv.writer(line, lineterminator="\n").writerow(names)
    return Header(order, line.getvalue().encode())
