"""Uploads for the simulated portal: sample rows as CSV, and a seal that is none, for tests that are
not about gpg.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from datetime import date

from flows.errors import OperatorError
from flows.extensions.simulator.extract import write_sample
from flows.extensions.simulator.portal import Portal
from schemas.portal import columns

DAY = date(2026, 11, 20)
SEAL = b"\x84"


class PaperError(OperatorError):
    """What a sheet of paper says."""

    message = "This message cannot be opened."


class PaperOpener:
    """Opens what `paper_seal` closed and nothing else."""

    def open(self, message: bytes, limit: int) -> bytes:
        if not message.startswith(SEAL) or len(message) > limit:
            raise PaperError
        return message.removeprefix(SEAL)


def paper_seal(content: bytes) -> bytes:
    return SEAL + content


def portal(**options: object) -> Portal:
    return Portal(PaperOpener(), today=DAY, **options)  # type: ignore[arg-type]  # each test names its own options


def people(count: int, seed: int = 0) -> list[dict[str, str]]:
    out = io.BytesIO()
    write_sample(out, count, as_of=DAY, seed=seed)
    return list(csv.DictReader(io.StringIO(out.getvalue().decode(), newline="")))


def upload_csv(rows: Iterable[Mapping[str, str]], header: Iterable[str] = ()) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(header) or columns(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def answers(result: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(result.decode(), newline="")))
