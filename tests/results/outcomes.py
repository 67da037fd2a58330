"""Sent rows and result files in a few words, for the tests of attribution, reconciliation and
balance.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from datetime import date

import polars as pl

from flows.results.attribution import attribute_claims, read_claims
from flows.results.links import LinkRules
from flows.results.read import ResultRows, read_cells, tabulate
from flows.results.sent_rows import number_sent_rows
from flows.runs.outcomes import Attributed

HOSTS = ("links.example",)
RULES = LinkRules(HOSTS)
RUN = "first-bank-20261120-3f9c21aa"
COLUMNS = ("cuid", "last_4", "url", "expiration_date", "error")
Row = tuple[str, str, str, str, str]


def sent_rows(chunks: int = 2, size: int = 5, run: str = RUN, first: int = 1) -> pl.DataFrame:
    """Return `chunks` chunks of `size` rows: cuids c-1, c-2, …, last_4 the row's number."""
    rows = [
        {"run": run, "row": at, "cuid": f"c-{first + at - 1}", "last_4": f"{first + at - 1:04d}"}
        | {"chunk": (at - 1) // size + 1, "position": (at - 1) % size + 1}
        for at in range(1, chunks * size + 1)
    ]
    return pl.DataFrame(
        rows, schema_overrides=dict.fromkeys(("row", "chunk", "position"), pl.UInt32)
    )


def link(at: int, day: str = "2027-01-20", host: str = "links.example", last_4: str = "") -> Row:
    """Return the result row of a link for cuid `c-<at>`."""
    return (f"c-{at}", last_4 or f"{at:04d}", f"https://{host}/{at}", day, "")


def error(text: str) -> Row:
    """Return an error row: nothing but its error."""
    return ("", "", "", "", text)


def refusal(at: int, message: str = "city is required") -> Row:
    """Return the error row of a partner that names the cuid `c-<at>`."""
    return error(json.dumps({"cuid": f"c-{at}", "errors": [message]}))


def read_result(content: bytes, name: str, received: date | None = None) -> ResultRows:
    """Read one result file."""
    return tabulate([read_cells(content, name, received)])[0]


def attribute_all(
    results: Sequence[ResultRows], sent: pl.DataFrame, rules: LinkRules = RULES
) -> list[Attributed]:
    """Attribute result files among these sent rows."""
    if not results:
        return []
    among = number_sent_rows(sent, [one.name for one in results])
    return attribute_claims(results, read_claims(results), among, rules)


def attribute(result: ResultRows, sent: pl.DataFrame, rules: LinkRules = RULES) -> Attributed:
    """Attribute one result file among these sent rows."""
    return attribute_all([result], sent, rules)[0]


def result(rows: Iterable[Sequence[str]], name: str = "download.csv") -> ResultRows:
    """Return a result file of these rows, through the reader."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([COLUMNS, *rows])
    return read_result(out.getvalue().encode(), name)
