"""Correction templates: write one for a run, read it filled in, merge the corrections.

Reading tolerates what spreadsheets do to a CSV, and nothing else.
"""

import csv
import re
from collections.abc import Iterator
from io import StringIO

import polars as pl

from flows.errors import OperatorError
from flows.extracts.errors import checked_name
from flows.redaction import redact
from flows.resend.selection import CARD, LISTED, reopen_source
from flows.results.lineage import settled_since
from flows.results.row_states import run_rows
from flows.runs.context import IssuerContext
from flows.runs.documents import read_manifest
from flows.runs.identity import digest
from flows.runs.keys import corrections, keys_of
from flows.runs.store import Entry, Store, read
from flows.runs.stored_run import StoredRun
from schemas.corrections import AT_SOURCE, SOURCE_ONLY, UNNAMED, WRONG, Filled, Template
from schemas.ledger import ERROR, REJECTED
from schemas.manifest import Manifest, SourceIdentity
from schemas.portal import YEAR, columns
from schemas.reasons import reason

NAMED = ["code", "for", "wrong", "accepted"]
_BY_SUFFIX = {name.rpartition(".")[2]: name for name in columns()}

LONGEST = 500  # characters of a correction
NEEDED = ("row", "column", "correction")
_COLUMNS = {name.casefold(): name for name in columns()}
_SEP = re.compile(r'"?sep=(.)"?$', re.IGNORECASE)
_BETWEEN = re.compile(r"[\s._/-]")

LARGEST = 64 << 20  # bytes of a filled-in template: it is read in memory
CELL = {"row": pl.UInt32, "column": pl.String, "correction": pl.String}


def template(rows: pl.DataFrame, run: str) -> pl.DataFrame:
    """Return the template (`schemas.corrections.Template`) for refused rows (RUN_ROW), one line per
    reason.
    """
    reported = (
        rows.select("row", "cuid", "last_4", "reasons").explode("reasons").drop_nulls("reasons")
    )
    parts = pl.col("reasons").str.split("|")
    listed = reported.with_columns(
        pl.lit(run).alias("run"),
        pl.when(parts.list.len() > 1).then(parts.list.first()).replace("", None).alias("column"),
        parts.list.last().alias("code"),
        pl.lit(None, pl.String).alias("correction"),
    )
    named = [(code, _column(code), *_words(code)) for code in listed["code"].unique()]
    beside = listed.join(
        pl.DataFrame(named, dict.fromkeys(NAMED, pl.String), orient="row"),
        on="code",
        maintain_order="left",
    )
    return beside.with_columns(pl.coalesce("column", "for").alias("column")).select(
        *Template.dtypes()
    )


def _column(code: str) -> str | None:
    """Return the portal's column that a code is about, None where it names none."""
    _, _, rest = code.partition(".")
    subject = rest.partition(".")[0]
    return YEAR if subject == "expiration" else _BY_SUFFIX.get(subject)


def _words(code: str) -> tuple[str, str]:
    """Return in words what is wrong and what is accepted."""
    reported = reason(code)
    entity, _, rest = code.partition(".")
    subject, _, kind = rest.partition(".")
    name = "the line" if entity in ("line", "row") else subject.replace("_", " ")
    wrong = f"{name} {WRONG.get(kind, UNNAMED)}"
    if entity == "line" or _column(code) in AT_SOURCE:
        return wrong, f"{SOURCE_ONLY}: {reported.hint}" if reported.hint else SOURCE_ONLY
    return wrong, reported.hint or reported.action


class CorrectionsUnreadableError(OperatorError):
    """The file is not a filled-in template."""

    message = "{name} cannot be read as a correction template: {problem}."
    next_step = "Write a new one (`cardlink corrections RUN --to FILE`), fill in its last column, save as UTF-8 CSV."


class CorrectionsRefusedError(OperatorError):
    """Some lines of the file cannot be used, so none is."""

    message = "{name}: {count} lines cannot be used ({lines}). Nothing was sent."
    next_step = "Correct these lines and submit the file again."


def read_filled(content: bytes, name: str, run: str) -> pl.DataFrame:
    """Return the corrections (`Filled`) of a template; CorrectionsUnreadableError,
    CorrectionsRefusedError.
    """
    cells: dict[tuple[str, str], tuple[object, ...]] = {}
    problems: list[tuple[int, str]] = []
    for line, record in _records(content, name):
        column, correction = (
            _COLUMNS.get(record.get("column", "").casefold(), ""),
            record.get("correction", ""),
        )
        if why := _unusable(record, run, column):
            problems.append((line, why))
        elif correction:
            known = (record.get("cuid") or None, record.get("last_4") or None)
            cell = (line, int(record["row"]), *known, column, correction)
            first = cells.setdefault((record["row"].lstrip("0"), column), cell)
            if first[-1] != correction:
                problems.append((line, f"line {first[0]} corrects the same cell differently"))
    refuse(name, problems)
    return pl.DataFrame(list(cells.values()), Filled.dtypes(), orient="row")


def misplaced(filled: pl.DataFrame, rows: pl.DataFrame) -> list[tuple[int, str]]:
    """Return the lines whose row is not in the run (row, cuid, last_4), or has another cuid or
    last_4 there.

    This catches a sheet sorted by one column alone. Leading zeros do not count: spreadsheets drop
    them.
    """
    beside = filled.select("line", "row", "cuid", "last_4").join(
        rows.select(
            "row",
            pl.lit(value=True).alias("there"),
            *(pl.col(key).alias(f"its {key}") for key in CARD),
        ),
        on="row",
        how="left",
        maintain_order="left",
    )
    other = pl.any_horizontal(
        (_bare(key) != _bare(f"its {key}")).fill_null(pl.col(key).is_not_null()) for key in CARD
    )
    reported = beside.select(
        "line",
        why=pl.when(pl.col("there").is_null())
        .then(pl.lit("no such row in the run"))
        .when(other)
        .then(pl.lit("the row has another cuid or last_4")),
    )
    return reported.drop_nulls("why").unique("line").sort("line").rows()


def refuse(name: str, problems: list[tuple[int, str]]) -> None:
    """Raise CorrectionsRefusedError for any problems, listing the first of them."""
    if problems:
        ordered = sorted(set(problems))
        reported = "; ".join(f"line {line}: {why}" for line, why in ordered[:LISTED])
        more = f"; and {len(ordered) - LISTED} more" if len(ordered) > LISTED else ""
        raise CorrectionsRefusedError(name=name, count=len(ordered), lines=reported + more)


def _bare(key: str) -> pl.Expr:
    return pl.col(key).str.strip_prefix("'").str.strip_chars_start("0")


def _records(content: bytes, name: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line number and cells, by the template's column names, of every line that is not
    blank.
    """
    text = content.decode("utf-8-sig", "replace")
    if "\ufffd" in text or "\x00" in text:
        raise CorrectionsUnreadableError(name=name, problem="it is not text in UTF-8")
    first = text.split("\n", 1)[0].strip()
    if given := _SEP.match(first):
        text = "\n" + text.partition("\n")[2]  # an empty line in its place keeps the line numbers
    delimiter = given[1] if given else max(",;\t", key=first.count)
    reader, header, problem = (
        csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True),
        list[str](),
        "",
    )
    try:
        for record in reader:
            cells = [cell.strip().removeprefix("'").strip() for cell in record]
            if header and any(cells[len(header) :]):
                problem = f"line {reader.line_num} has more fields than the header"
                break
            if header and any(cells):
                yield reader.line_num, dict(zip(header, cells, strict=False))
            elif any(cells):
                header = _header(cells, name)
    except csv.Error:
        # its own text would show the line
        problem = f"the quotes of line {reader.line_num} do not fit"
    if problem or not header:
        raise CorrectionsUnreadableError(name=name, problem=problem or "it is empty")


def _header(cells: list[str], name: str) -> list[str]:
    names = [cell.casefold().replace(" ", "_") for cell in cells]
    while not names[-1]:  # spreadsheets leave empty columns at the end
        names.pop()
    problem = ""
    if missing := [one for one in NEEDED if one not in names]:
        problem = f"its header lacks {', '.join(missing)}"
    elif set(names) - set(Template.dtypes()) or len(set(names)) < len(names):
        problem = "its header has columns the template has not, or one twice"
    if problem:
        raise CorrectionsUnreadableError(name=name, problem=problem)
    return names


def _unusable(record: dict[str, str], run: str, column: str) -> str:
    """Return why a line cannot be used; "" also for a line without a correction."""
    correction, row = record.get("correction", ""), record.get("row", "")
    spellings = (
        one
        for key, cell in record.items()
        if key != "run"
        for one in (cell, _BETWEEN.sub("", cell))
    )
    if any(redact(one) != one for one in spellings):
        return "something in it looks like a card number"
    if record.get("run", run) not in ("", run):
        return "it is of another run"
    if not correction:
        return ""
    if not (row.isascii() and row.isdecimal() and len(row) <= 10 and 0 < int(row) < 1 << 32):
        return "it has no row number"
    if column in AT_SOURCE:
        return "card fields are corrected at the source"
    if not column:
        return "it names no column of the portal"
    return f"the correction has more than {LONGEST} characters" if len(correction) > LONGEST else ""


class CorrectionsNotFoundError(OperatorError):
    """There is no filled-in template or corrected extract of that name."""

    message = "No file {name} under {prefix}."
    next_step = "Put it there, or name a file on this machine with --corrections."


def correction_template(context: IssuerContext, run: str) -> Iterator[pl.DataFrame]:
    """Yield the template (`schemas.corrections.Template`) for a committed run's refused rows, part
    by part.

    Rows that are linked or awaiting in a later attempt are left out. UnknownRunError.
    """
    repeated = StoredRun.by_id(context.adapters.store, run)
    repeated.committed()
    done = pl.col("row").is_in(settled_since(repeated).implode())
    for rows in run_rows(repeated):
        yield template(rows.filter(pl.col("state").is_in([ERROR, REJECTED]) & ~done), run)


def find_dropped(context: IssuerContext, name: str) -> Entry:
    """Return the issuer's correction file of that name; CorrectionsNotFoundError."""
    prefix = corrections(context.issuer.issuer)
    for entry in context.adapters.store.keys(prefix):
        if entry.key in (checked_name(name), prefix + name):
            return entry
    raise CorrectionsNotFoundError(name=name, prefix=prefix)


def read_corrections(context: IssuerContext, name: str) -> tuple[SourceIdentity, bytes]:
    """Return a stored, filled-in template; CorrectionsNotFoundError, CorrectionsUnreadableError."""
    entry = find_dropped(context, name)
    if entry.size > LARGEST:
        problem = f"it is {entry.size:,} bytes, too large for one; a corrected extract is named with --extract"
        raise CorrectionsUnreadableError(name=entry.key, problem=problem)
    content = read(context.adapters.store, entry.key)
    sha256 = digest(content)
    return SourceIdentity(
        key=entry.key, version=entry.version, size=len(content), sha256=sha256
    ), content


def corrected_cells(name: str, content: bytes, manifest: Manifest, store: Store) -> pl.DataFrame:
    """Return row, column, correction of a filled-in template, checked against its run; raises as
    `read_filled`.
    """
    filled = read_filled(content, name, manifest.run)
    numbers = filled["row"].unique().implode()
    repeated = StoredRun.of(store, manifest)
    found = [rows.filter(pl.col("row").is_in(numbers)) for rows in run_rows(repeated)]
    refuse(name, misplaced(filled, pl.concat(found)))
    return filled.select(*CELL)


def cells_of(context: IssuerContext, manifest: Manifest) -> pl.DataFrame:
    """Return row, column, correction of every cell that a run took from filled-in templates.

    First those of the run it repeats, if that has the same source; the last one of a cell counts.
    SourceGoneError.
    """
    selection = manifest.selection
    before = read_manifest(context.adapters.store, keys_of(selection.of)) if selection else None
    if selection is None or before is None or before.source.sha256 != manifest.source.sha256:
        return pl.DataFrame(schema=CELL)
    cells = cells_of(context, before)
    if selection.corrections is None:
        return cells
    store, (entry, _) = (
        context.adapters.store,
        reopen_source(context, manifest.run, selection.corrections),
    )
    later = corrected_cells(entry.key.rpartition("/")[2], read(store, entry.key), before, store)
    return pl.concat([cells, later])


def by_row(cells: pl.DataFrame) -> pl.DataFrame:
    """Return one line per row, with the last corrections, for
    `flows.submissions.row_scope.SelectedRows`.
    """
    if cells.is_empty():
        return pl.DataFrame(schema={"row": pl.UInt32})
    return cells.pivot(on="column", index="row", values="correction", aggregate_function="last")
