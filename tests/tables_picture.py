"""The picture of the tables in DESIGN.md: kernel, what is derived, and each extension's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sqlalchemy import Table

from flows.extensions import modules
from schemas.database import DERIVED, METADATA

DESIGN: Final = Path(__file__).parents[1] / "DESIGN.md"
BEGIN: Final = "<!-- tables: written by python -m tests.reference -->"
END: Final = "<!-- end of the tables -->"
# columns that lead to a row of another table, which a derived or a large table has no key for
_NAMES: Final = {"run": "run", "turn": "run", "delivery": "delivery"}


def design_page() -> str:
    """Return DESIGN.md as it stands, with the picture of the tables."""
    before, _, rest = DESIGN.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    picture = "\n".join(_picture())
    return f"{before}{BEGIN}\n\n```mermaid\nflowchart LR\n{picture}\n```\n\n{END}{after}"


def _picture() -> Iterator[str]:
    """Yield the lines of the picture: the groups of tables, then what leads where."""
    tables = list(METADATA.tables.values())
    for title, names in _groups(tables).items():
        yield f'  subgraph {title.split()[0]} ["{title}"]; {"; ".join(names)}; end'
    leads = (f"{table.name} --> {other}" for table in tables for other in _leads_to(table))
    line = "  "
    for arrow in leads:
        if len(line) + len(arrow) > 120:
            yield line.rstrip("; ")
            line = "  "
        line += f"{arrow}; "
    yield line.rstrip("; ")


def _groups(tables: list[Table]) -> dict[str, list[str]]:
    """Return the names of tables by who has them."""
    owners = {
        table.name: module.__name__.split(".")[2]
        for module in modules("tables")
        for table in vars(module).values()
        if isinstance(table, Table)
    }
    made_again = {table.name for table in DERIVED}
    groups: dict[str, list[str]] = {"kernel": [], "derived by the kernel": []}
    for table in tables:
        is_made_again = table.name in made_again
        of_kernel = "derived by the kernel" if is_made_again else "kernel"
        groups.setdefault(owners.get(table.name, of_kernel), []).append(table.name)
    return groups


def _leads_to(table: Table) -> list[str]:
    """Return the tables that rows of a table belong to, without the issuer."""
    by_key = {key.column.table.name for key in table.foreign_keys}
    by_name = {_NAMES[column.name] for column in table.columns if column.name in _NAMES}
    return sorted((by_key | by_name) - {"issuer", table.name})
