"""What proves an extract whole, found in it and compared with all its rows: for `init`.

The hash total of a trailer is never shown: of one row it is a card number.
"""

import hashlib
import re
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import polars as pl

from flows.errors import CardlinkError
from flows.extensions.init.control_records import LONGEST, Stated, stated_in
from flows.extensions.init.draft import Draft
from flows.extensions.init.guess import Guess
from flows.extensions.init.record_sample import Copybook
from flows.extracts import sidecar
from flows.extracts.rows import open_rows
from schemas.issuer import source_settings
from schemas.reference import toml
from schemas.source import SourceSettings

REMARK: Final = "{file} is beside the extract and does not prove it: {problem}"


class Found(NamedTuple):
    """A draft with what proves its extract, and what is beside the extract and does not."""

    draft: Draft
    remarks: list[str]


class _Summed(NamedTuple):
    """The rows of an extract, and by column the sum of its digits' numbers, if there are any."""

    rows: int
    sums: dict[str, int]


def with_proofs(
    draft: Draft, stream: BinaryIO, file: Path, copybook: Copybook | None = None
) -> Found:
    """Return a draft with the proofs that hold for the extract: `stream` is it, opened."""
    settings = _settings(draft, copybook)
    sidecars = [kind for kind in ("sha256", "ctl") if _beside(file, kind).is_file()]
    if not (settings.trailer or draft.above or sidecars):
        return Found(draft, [])
    try:
        summed = _sums(stream, settings, file.name, draft)
    except CardlinkError:  # the check of every row says why
        return Found(draft, [])
    draft = _with_stated(draft, settings, summed)
    remarks: list[str] = []
    proven: list[Guess] = []
    for kind in sidecars:
        name = _beside(file, kind).name
        problem = _problem_of_sidecar(kind, file, summed.rows)
        if problem:
            remarks.append(REMARK.format(file=name, problem=problem))
        else:
            label = f"the file {name}"
            proven.append(Guess("sidecar", toml(kind), f"{name} proves it", proof=label))
    return Found(draft.with_guesses(proven[:1]), remarks)


def _settings(draft: Draft, copybook: Copybook | None) -> SourceSettings:
    """Return the drafted settings, with the text of the copybook in place of its file's name."""
    source = draft.source
    if copybook is not None:
        source["copybook"] = copybook.text
    return source_settings().model_validate(source)


def _beside(file: Path, kind: str) -> Path:
    return file.with_name(f"{file.name}.{kind}")


def _sums(stream: BinaryIO, settings: SourceSettings, name: str, draft: Draft) -> _Summed:
    """Return how many rows an extract has, and the sums of its columns, by their marks."""
    cells = {
        column.mark: column.cell.str.replace_all("[^0-9]", "").str.tail(LONGEST)
        for column in draft.columns
    }
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


def _with_stated(draft: Draft, settings: SourceSettings, summed: _Summed) -> Draft:
    """Return a draft with what trailer and header record state, where it is so."""
    written = draft.source
    if "segments" in written or not summed.rows:
        return draft
    fixed = settings.format == "fixed" or "copybook" in written
    sums = summed.sums
    if settings.trailer and re.search(settings.trailer, draft.last):
        stated = stated_in(draft.last, summed.rows, sums)
        if stated is not None and stated.total is not None:
            draft = _with_trailer(draft, stated.pattern(fixed=fixed))
            draft = draft.with_guesses(_proof_of_total(stated, "trailer"))
            sums = {}
    above = filter(None, (stated_in(line, summed.rows, sums) for line in draft.above))
    first = next(above, None)
    return draft if first is None else draft.with_guesses(_proof_of_header(first, fixed=fixed))


def _proof_of_header(stated: Stated, *, fixed: bool) -> list[Guess]:
    pattern = toml(stated.pattern(fixed=fixed))
    guess = Guess("header_record", pattern, "the group is the number of rows")
    if stated.total is not None:
        return _proof_of_total(stated, "header record", guess)
    return [guess._replace(proof="the header record's row count")]


def _with_trailer(draft: Draft, pattern: str) -> Draft:
    guesses = tuple(
        guess._replace(value=toml(pattern), reason="row count, and hash total")
        if guess.key == "trailer"
        else guess
        for guess in draft.guesses
    )
    return draft._replace(guesses=guesses)


def _proof_of_total(stated: Stated, record: str, *before: Guess) -> list[Guess]:
    """Return what says that a column adds up to the hash total of a record."""
    start, end, mark = stated.total or (0, 0, "")
    place = mark.removeprefix("at = ")
    count = "row count and " if before else ""
    label = f"the {record}'s {count}hash total of {place}"
    added = (
        Guess("hash_total", place, f"its digits add up to the other group of the {record}"),
        Guess("hash_total_digits", str(min(end - start, LONGEST)), "low-order digits compared"),
    )
    return [guess._replace(proof=label) for guess in (*before, *added)]


def _problem_of_sidecar(kind: str, file: Path, rows: int) -> str:
    """Return why a sidecar does not prove its extract, "" where it does."""
    text = _beside(file, kind).read_bytes()[: sidecar.LARGEST].decode("utf-8-sig", "replace")
    facts = sidecar.facts_of(kind, text, file.name)
    if isinstance(facts, str):
        return facts
    with file.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    actual = {"sha256": sha256, "bytes": file.stat().st_size, "count": rows}
    wrong = [name for name, value in actual.items() if facts.get(name, value) != value]
    return f"{', '.join(wrong)} differ" if wrong else ""
