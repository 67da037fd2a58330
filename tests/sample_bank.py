"""Where `sample_data` comes from: its files, made of the rows of `tests.sample_rows`, and what must
become of them.

`python -m tests.reference` writes the files anew; tests compare them, and the pipeline, with those
rows.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from flows.extensions.simulator.chance import token
from flows.extensions.simulator.error_shapes import SHAPES
from flows.extensions.simulator.people import PLACES
from flows.extensions.simulator.validation import fault
from schemas import ledger, portal
from schemas.portal import (
    ADDRESS1,
    CITY,
    COUNTRY,
    CUID,
    CVV,
    EMAIL,
    FIRST_NAME,
    IS_PRIMARY,
    LAST_NAME,
    MONTH,
    PAN,
    PHONE,
    POSTAL_CODE,
    SUBNATIONAL,
    YEAR,
)
from tests.sample_rows import SAME_AS, Case, card, cases, own_cases

FOLDER = Path(__file__).parent.parent / "sample_data"
AS_OF = date(2026, 11, 20)
EXTRACT = "sample-bank-20261120.csv"


class Placed(NamedTuple):
    """A case at its place in the extract."""

    row: int
    line: int
    case: Case
    fields: dict[str, str]
    text: bytes


def placed() -> list[Placed]:
    """Return the cases with their row, line, fields and the bytes of their line."""
    rows: list[Placed] = []
    line = 2
    for row, case in enumerate(cases(), start=1):
        fields = _person(row) | dict(case.fields)
        if SAME_AS in case.fields:
            fields = rows[int(case.fields[SAME_AS]) - 1].fields
        text = _damaged(_written(fields), case.damage)
        rows.append(Placed(row, line, case, fields, text))
        line += text.count(b"\n")
    return rows


def extract() -> bytes:
    """Return the extract: header, rows, and a trailer with their count."""
    rows = placed()
    header = _written(dict(zip(portal.columns(), portal.columns(), strict=True)))
    trailer = f"#TRAILER,{len(rows)}\n".encode()
    return header + b"".join(row.text for row in rows) + trailer


def results() -> dict[str, bytes]:
    """Return a result file for each chunk by its name: links, and errors in several shapes."""
    run = f"sample-bank-{AS_OF:%Y%m%d}-{sha256(extract()).hexdigest()[:8]}"
    return {f"card-links-{run}-{number:05d}-result.csv": _result(number) for number in (1, 2)}


def expected() -> dict[str, Any]:
    """Return what must become of the sample: counts, reasons, and every row with a reason."""
    rows = placed()
    fates = Counter(row.case.fate for row in rows)
    reasons = Counter(_code(reason) for row in rows for reason in row.case.reasons)
    counts = {"read": len(rows), "trailer": len(rows)}
    linked = fates[ledger.SUBMITTED] - len(SHAPES)
    return {
        "as_of": AS_OF.isoformat(),
        "counts": counts | {fate: fates[fate] for fate in ledger.FATES},
        "reasons": dict(sorted(reasons.items())),
        "rows": {
            row.row: (row.line, row.case.fate, list(row.case.reasons))
            for row in rows
            if row.case.reasons
        },
        "results": {"linked": linked, "error": len(SHAPES), "awaiting": 0},
    }


def readme() -> str:
    """Return the page that says what each row is for, up to the examples of the rules."""
    described = placed()[: len(own_cases())]
    table = [
        f"| {row.row} | {row.line} | {row.case.why} | {row.case.fate} | {_reported(row.case)} |"
        for row in described
    ]
    return HEAD + "\n".join(table) + "\n"


HEAD = """# A sample night

`sample-bank.toml` configures an issuer, `extracts/` holds its file of 20 November 2026. `make demo`
submits it, and the simulated portal answers. The cards are published test cards, or numbers of the
test range 400000 that are nobody's. One row stands for each reason a row can be refused for, so far
more is refused here than in a real night: `max_reject_rate` is raised.

The extract is written by `python -m tests.reference`, and a test compares what becomes of each row.
After the rows of this table come the examples of the rules that none of them breaks, and last two
duplicates: row 1 again, and the cuid and card of row 8 at another address.

| row | line | what it is for | fate | reason |
|---:|---:|---|---|---|
"""


def write(folder: Path = FOLDER) -> None:
    """Write extract and page anew."""
    (folder / "extracts").mkdir(exist_ok=True)
    (folder / "extracts" / EXTRACT).write_bytes(extract())
    (folder / "README.md").write_text(readme(), "utf-8")


def _person(row: int) -> dict[str, str]:
    city, state, postal, area = PLACES[row % len(PLACES)]
    first = ("Mary", "James", "Olivia", "Noah", "Emma", "Liam")[row % 6]
    last = ("Smith", "Garcia", "Roy", "Begay", "Lee", "Gagnon", "Johnson")[row % 7]
    return dict.fromkeys(portal.columns(), "") | {
        CUID: f"SB-{row:04d}",
        PAN: card(row),
        YEAR: str(28 + row % 4),
        MONTH: f"{row % 12 + 1:02d}",
        CVV: f"{row * 37 % 1000:03d}",
        ADDRESS1: f"{100 + row} Main St",
        CITY: city,
        SUBNATIONAL: state,
        COUNTRY: "CA" if " " in postal else "US",
        POSTAL_CODE: postal,
        EMAIL: f"holder{row}@example.com",
        PHONE: f"{area}-555-0{100 + row % 100}",
        FIRST_NAME: first,
        LAST_NAME: last,
        IS_PRIMARY: "TRUE",
    }


def _written(fields: dict[str, str]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(fields[name] for name in portal.columns())
    return out.getvalue().encode()


def _damaged(line: bytes, damage: str) -> bytes:
    match damage:
        case "short":
            return line.rpartition(b",")[0] + b"\n"
        case "long":
            return line.replace(b" Main St", b" Main St, Apt 4")
        case "bare":
            return line.replace(b" Main St", b' 5" Main St')
        case "open":
            return line.replace(b",TRUE", b',"TRUE')
        case "control":
            return line.replace(b" Main St", b" Main St\x1a")
        case "latin":
            return line.replace(b" Main St", "\u00e9 Main St".encode("latin-1"))
        case "commas":
            return b"," * (len(portal.columns()) - 1) + b"\n"
    return line


def _result(number: int) -> bytes:
    """Return the result of one chunk: the second card of a cuid stands in the second."""
    made_up = f"cl-{sha256(extract()).hexdigest()[:12]}-"  # the cuid of a row without one
    chunks: Counter[str] = Counter()
    shapes = iter(SHAPES.values())
    failed = (fault("pan", "unsupported", "belongs to a card product that is not enabled"),)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("cuid", "last_4", "url", "expiration_date", "error"))
    for row in placed():
        if row.case.fate != ledger.SUBMITTED:
            continue
        cuid = row.fields[CUID] or f"{made_up}{row.row}"
        chunks[cuid] += 1
        shape = next(shapes, None) if row.case.why.startswith("an ordinary row") else None
        if chunks[cuid] != number:
            continue
        if shape:
            writer.writerow(("", "", "", "", shape(cuid, failed)))
        else:
            link = f"https://links.example.com/l/{token('sample', cuid, number)}"
            writer.writerow((cuid, row.fields[PAN][-4:], link, "2027-01-20", ""))
    return out.getvalue().encode()


def _code(reason: str) -> str:
    return reason.partition("|")[2]


def _reported(case: Case) -> str:
    if case.reasons:
        return ", ".join(f"`{_code(reason)}`" for reason in case.reasons)
    return ", ".join(f"sent as `{value}`" for value in case.sent.values())
