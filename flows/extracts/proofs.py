"""What proves an extract whole, found in it and compared with all its rows: for `init`.

The hash total of a trailer is never shown: of one row it is a card number.
"""

import hashlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import polars as pl

from flows.errors import CardlinkError
from flows.extracts import sidecar
from flows.extracts.draft import Draft
from flows.extracts.grammar import RECORD
from flows.extracts.guess import Guess, Proof
from flows.extracts.rows import open_rows
from schemas.reference import toml
from schemas.source import SourceSettings

SHORTEST: Final = 5  # digits of a hash total: fewer may be equal by chance
LONGEST: Final = 18  # low-order digits that a run compares
REMARK: Final = "{file} is beside the extract and does not prove it: {problem}"


class Found(NamedTuple):
    """A draft with what proves its extract, and what is beside the extract and does not."""

    draft: Draft
    remarks: list[str]


class _Summed(NamedTuple):
    """The rows of an extract, and by column the sum of its digits' numbers, if there are any."""

    rows: int
    sums: dict[str, int]


def with_proofs(draft: Draft, stream: BinaryIO, file: Path) -> Found:
    """Return a draft with the proofs that hold for the extract: `stream` is it, opened."""
    settings = SourceSettings.model_validate(tomllib.loads(draft.toml)["source"])
    sidecars = [kind for kind in ("sha256", "ctl") if _beside(file, kind).is_file()]
    is_text = settings.copybook is None and settings.format in ("csv", "fixed")
    if not is_text or not (settings.trailer or sidecars):
        return Found(draft, [])
    try:
        summed = _sums(stream, settings, file.name, draft)
    except CardlinkError:  # the check of every row says why
        return Found(draft, [])
    draft = _with_hash_total(draft, settings, summed)
    proofs = list(draft.proofs)
    remarks = []
    for kind in sidecars:
        beside = _beside(file, kind)
        problem = _problem_of_sidecar(kind, beside, file, summed.rows)
        if problem:
            remarks.append(REMARK.format(file=beside.name, problem=problem))
        elif not any(proof.guesses[0].key == "sidecar" for proof in proofs):
            guess = Guess("sidecar", toml(kind), f"{beside.name} proves it")
            proofs.append(Proof(f"the file {beside.name}", (guess,)))
    return Found(draft._replace(proofs=tuple(proofs)), remarks)


def _beside(file: Path, kind: str) -> Path:
    return file.with_name(f"{file.name}.{kind}")


def _sums(stream: BinaryIO, settings: SourceSettings, name: str, draft: Draft) -> _Summed:
    """Return how many rows an extract has, and the sums of its columns, by their marks."""
    cells = {}
    for column in draft.columns:
        place = re.fullmatch(r"at = \[(\d+), (\d+)\]", column.source)
        text = pl.col(column.name)
        if place:
            first = int(place[1])
            text = pl.col(RECORD).str.slice(first - 1, int(place[2]) - first + 1)
        cells[column.mark] = text.str.replace_all("[^0-9]", "").str.tail(LONGEST)
    sums = dict.fromkeys(cells, 0)
    extract = open_rows(stream, settings, name)
    for block in extract:
        for mark, digits in cells.items():
            sums[mark] += _sum(block.rows, digits)
    return _Summed(extract.height, sums)


def _sum(rows: pl.DataFrame, digits: pl.Expr) -> int:
    """Return the sum of numbers, in halves of nine digits that no number of rows can overflow."""
    halves = {"high": digits.str.head(-9), "low": digits.str.tail(9)}
    sums = rows.select(
        half.cast(pl.UInt64, strict=False).sum().alias(name) for name, half in halves.items()
    )
    return int(sums["high"].item()) * 10**9 + int(sums["low"].item())


def _with_hash_total(draft: Draft, settings: SourceSettings, summed: _Summed) -> Draft:
    """Return a draft whose trailer has a group for the hash total, where one is found."""
    trailer = re.search(settings.trailer or "$^", draft.last)
    if trailer is None or int(trailer[1]) != summed.rows or settings.segments:
        return draft
    for total in re.finditer("[0-9]+", draft.last[trailer.end() :]):
        for mark, column_sum in summed.sums.items():
            if _is_total(total[0], column_sum):
                return _told(draft, settings, trailer.end(), total, mark)
    return draft


def _is_total(stated: str, column_sum: int) -> bool:
    digits = min(len(stated), LONGEST)
    is_long = len(stated.lstrip("0")) >= SHORTEST
    return is_long and (column_sum - int(stated)) % 10**digits == 0


def _told(
    draft: Draft, settings: SourceSettings, end: int, total: re.Match[str], mark: str
) -> Draft:
    """Return the draft with the hash total of a column; `end`: that of the count in the trailer."""
    between = draft.last[end : end + total.start()]
    pattern = f"{settings.trailer}{''.join(_escaped(between))}"
    exact = "+" if settings.format == "csv" else f"{{{len(total[0])}}}"
    trailer = toml(f"{pattern}([0-9]{exact})")
    guesses = tuple(
        guess._replace(value=trailer, reason="row count, and hash total")
        if guess.key == "trailer"
        else guess
        for guess in draft.guesses
    )
    place = mark.removeprefix("at = ")
    digits = min(len(total[0]), LONGEST)
    added = (
        Guess("hash_total", place, "its digits add up to the trailer's second group"),
        Guess("hash_total_digits", str(digits), "low-order digits that are compared"),
    )
    label = f"the trailer's hash total of {place}"
    return draft._replace(guesses=guesses, proofs=(Proof(label, added),))


def _escaped(text: str) -> Iterator[str]:
    """Yield a pattern of the text between two numbers."""
    for part in re.findall("[0-9]+|[A-Za-z]+|.", text):
        if part.isdigit():
            yield "[0-9]+"
        elif part.isalpha():
            yield "[A-Za-z]+"
        else:
            yield re.escape(part).replace("\\ ", " ")  # polars rejects an escaped space


def _problem_of_sidecar(kind: str, beside: Path, file: Path, rows: int) -> str:
    """Return why a sidecar does not prove its extract, "" where it does."""
    text = beside.read_bytes()[: sidecar.LARGEST].decode("utf-8-sig", "replace")
    facts = sidecar.facts_of(kind, text, file.name)
    if isinstance(facts, str):
        return facts
    with file.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    actual = {"sha256": sha256, "bytes": file.stat().st_size, "count": rows}
    wrong = [name for name, value in actual.items() if facts.get(name, value) != value]
    return f"{', '.join(wrong)} differ" if wrong else ""
