"""Where `sample_data` comes from: its files, made of the rows of `tests.sample_rows`.

`python -m tests.sample_bank` writes the files anew; a test compares them, and the pipeline, with that table.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from flows.simulator.chance import token
from flows.simulator.error_shapes import SHAPES
from flows.simulator.people import PLACES
from flows.simulator.validation import fault
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
from tests.sample_rows import SAME_AS, Case, card, cases

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
    found: list[Placed] = []
    line = 2
    for row, case in enumerate(cases(), start=1):
        fields = _person(row) | dict(case.fields)
        if SAME_AS in case.fields:
            fields = found[int(case.fields[SAME_AS]) - 1].fields
        text = _damaged(_written(fields), case.damage)
        found.append(Placed(row, line, case, fields, text))
        line += text.count(b"\n")
    return found


def extract() -> bytes:
    """Return the extract: header, rows, and a trailer with their count."""
    rows = placed()
    return (
        _written(dict(zip(portal.columns(), portal.columns(), strict=True)))
        + b"".join(one.text for one in rows)
        + f"#TRAILER,{len(rows)}\n".encode()
    )


def results() -> dict[str, bytes]:
    """Return a result file per chunk by its name: links, and errors in several shapes."""
    stem = f"{sha256(extract()).hexdigest()[:8]}"
    return {
        f"card-links-sample-bank-20261120-{stem}-{number:05d}-result.csv": _result(number)
        for number in (1, 2)
    }


def expected() -> dict[str, Any]:
    """Return what must become of the sample: counts, reasons, and every row that is not simply
    sent.
    """
    rows = placed()
    fates = Counter(one.case.fate for one in rows)
    reasons = Counter(reason.partition("|")[2] for one in rows for reason in one.case.reasons)
    return {
        "as_of": AS_OF.isoformat(),
        "counts": {"read": len(rows), "trailer": len(rows)}
        | {fate: fates[fate] for fate in ledger.FATES},
        "reasons": dict(sorted(reasons.items())),
        "rows": {
            str(one.row): {
                "line": one.line,
                "fate": one.case.fate,
                "reasons": list(one.case.reasons),
            }
            for one in rows
            if one.case.reasons
        },
        "results": {
            "linked": fates[ledger.SUBMITTED] - len(SHAPES),
            "error": len(SHAPES),
            "awaiting": 0,
        },
    }


def readme() -> str:
    """Return the page that says what each row is for."""
    table = [
        f"| {one.row} | {one.line} | {one.case.why} | {one.case.fate} | {_reported(one.case)} |"
        for one in placed()
    ]
    return HEAD + "\n".join(table) + "\n"


HEAD = """# A sample night

`sample-bank.toml` configures an issuer, `extracts/` holds its file of 20 November 2026, `results/` what the portal
would send back (links, and an error in every shape we know), `expected.json` what must come of it; a test compares.
The cards are published test cards, or numbers of the test range 400000 that are nobody's. One row stands for each
reason a row can be refused for, so far more is refused here than in a real night: `max_reject_rate` is raised.

The files are written by `python -m tests.sample_bank`, where each row is one line.

| row | line | what it is for | fate | reason |
|---:|---:|---|---|---|
"""


def write(folder: Path = FOLDER) -> None:
    """Write the files anew; results bear the digest of the extract they are of, so those of another
    go.
    """
    for old in folder.glob("results/*.csv"):
        old.unlink()
    files = {
        f"extracts/{EXTRACT}": extract(),
        **{f"results/{name}": data for name, data in results().items()},
    }
    files["expected.json"] = (json.dumps(expected(), indent=1) + "\n").encode()
    files["README.md"] = readme().encode()
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)


def _person(row: int) -> dict[str, str]:
    city, state, postal, area = PLACES[row % len(PLACES)]
    first = ("Mary", "James", "Olivia", "Noah", "Emma", "Liam")[row % 6]
    last = ("Smith", "Garcia", "Roy", "Begay", "Lee", "Gagnon", "Johnson")[row % 7]
    return dict.fromkeys(portal.columns(), "") | {
        CUID: f"SB-{row:04d}", PAN: card(row), YEAR: str(28 + row % 4), MONTH: f"{row % 12 + 1:02d}",
        CVV: f"{row * 37 % 1000:03d}", ADDRESS1: f"{100 + row} Main St", CITY: city, SUBNATIONAL: state,
        COUNTRY: "CA" if " " in postal else "US", POSTAL_CODE: postal, EMAIL: f"holder{row}@example.com",
        PHONE: f"{area}-555-0{100 + row % 100}", FIRST_NAME: first, LAST_NAME: last, IS_PRIMARY: "TRUE",
    }  # fmt: skip


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
    seen: Counter[str] = Counter()
    made = f"cl-{sha256(extract()).hexdigest()[:12]}-"
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("cuid", "last_4", "url", "expiration_date", "error"))
    shapes = iter(SHAPES.values())
    failed = (fault("pan", "unsupported", "belongs to a card product that is not enabled"),)
    for one in placed():
        if one.case.fate != ledger.SUBMITTED:
            continue
        cuid = one.fields[CUID] or f"{made}{one.row}"
        seen[cuid] += 1
        shape = next(shapes, None) if one.case.why.startswith("an ordinary row") else None
        if seen[cuid] != number:
            continue
        last_4 = one.fields[PAN][-4:]
        link = f"https://links.example.com/l/{token('sample', cuid, number)}"
        writer.writerow(
            ("", "", "", "", shape(cuid, failed))
            if shape
            else (cuid, last_4, link, "2027-01-20", "")
        )
    return out.getvalue().encode()


def _reported(case: Case) -> str:
    if case.reasons:
        return ", ".join(f"`{reason.partition('|')[2]}`" for reason in case.reasons)
    return ", ".join(f"sent as `{value}`" for value in case.sent.values())


if __name__ == "__main__":
    write()
