"""The links that a run's report and lists hand out, compared with those that its results gave.

The tables of many runs are decoded together, which takes half of what each of them takes alone.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import BytesIO, StringIO
from typing import Any

import polars as pl

from flows.operations.audit_journal import Finding
from flows.operations.audit_objects import SMALL, Snapshot
from flows.runs.identity import digest
from flows.runs.keys import RunKeys
from flows.runs.store import ObjectChangedError, ObjectMissingError, Store, read, read_if_stored
from flows.runs.stored_run import StoredRun

OTHER_LINKS = "hands out links that no result gave"
_NOBODY = set[str]()
_OF_ROWS = ("url", "row", "cuid")
_OF_LISTS = ("cuid", "url")
Row = tuple[Any, ...]
Decoded = Mapping[str, list[Row]]  # the rows of tables, by key


def small_tables(objects: Snapshot, runs: Iterable[RunKeys]) -> Decoded:
    """Return the rows of the small tables that the links of these runs are judged by.

    What is no table, or too large to be kept, is left to who needs it.
    """
    queries = dict[str, pl.LazyFrame]()
    for keys in runs:
        for key, columns in _columns(objects, keys).items():
            content = _read_if_small(objects, key)
            if content is not None:
                queries[key] = _query(content, columns)
    try:
        frames = pl.collect_all(queries.values())
    except pl.exceptions.PolarsError:
        return {}
    return {key: _rows(frame) for key, frame in zip(queries, frames, strict=True)}


def _read_if_small(objects: Snapshot, key: str) -> bytes | None:
    if objects.size(key) <= SMALL:
        with suppress(ObjectChangedError):
            return read_if_stored(objects, key)
    return None


def _columns(objects: Snapshot, keys: RunKeys) -> dict[str, Sequence[str]]:
    """Return the columns that are read of each listed table of a run."""
    columns = dict[str, Sequence[str]]()
    for prefix, names in (
        (keys.report("rows/"), _OF_ROWS),
        (keys.report("links"), _OF_LISTS),
    ):
        columns |= {key: names for key in objects.below(prefix) if key.endswith(".parquet")}
    return columns


def link_findings(run: StoredRun, decoded: Decoded) -> Iterator[Finding]:
    """Yield the parts of a run's report, and its lists, that give a cardholder another's link.

    `decoded`: of tables with the bytes that the run's store has.
    """
    lists = [entry.key for entry in run.store.keys(run.keys.report("links"))]
    if run.purged_ledger is not None or not lists:
        return  # or there is no report yet
    tables = _Tables(run.store, decoded)
    links = _links_of_results(run)
    parts = [run.rows_key(part) for part in run.committed().ledger]
    wrong = [key for key in parts if not links.gave(tables.rows(key, _OF_ROWS))]
    wrong += [key for key in lists if not links.are_of(tables.rows(key, _OF_LISTS))]
    yield from (Finding(key, OTHER_LINKS) for key in wrong)


class _Links:
    """The links that the results of a run gave, single links too, and whose they are by its report.

    What is asked of it is asked in this order: of results, of parts of the report, of lists. There
    are no rows where an object is none of these.
    """

    def __init__(self, run: StoredRun) -> None:
        self._given = set[tuple[str, int]]()  # URL and row
        self._owners = dict[str, set[str]]()  # cuids, by URL
        for single in run.single_link_attempts:
            answer = single.answered
            url = answer.url if answer else None
            if url is not None and single.asked.row and digest(url.encode()) == single.link:
                self._given.add((url, single.asked.row))

    def add(self, rows: Iterable[Row]) -> None:
        """Add the links of results: url and row."""
        self._given.update(rows)

    def gave(self, rows: Iterable[Row] | None) -> bool:
        """Return whether the links of a part of the report (url, row, cuid) were given."""
        linked = [row for row in rows or () if row[0] is not None]
        for url, _, cuid in linked:
            self._owners.setdefault(url, set()).add(cuid)
        return rows is not None and self._given.issuperset((url, row) for url, row, _ in linked)

    def are_of(self, lines: Iterable[Row] | None) -> bool:
        """Return whether each line of a list has links beside cuids that they belong to."""
        return lines is not None and all(map(self._is_of_owner, lines))

    def _is_of_owner(self, line: Sequence[Any]) -> bool:
        links = [cell for cell in line if cell is not None and "://" in cell]
        return all(not self._owners.get(link, _NOBODY).isdisjoint(line) for link in links)


class _Tables:
    """The tables of a run's store, of which some are decoded already."""

    def __init__(self, store: Store, decoded: Decoded) -> None:
        self._store = store
        self._decoded = decoded

    def rows(self, key: str, columns: Sequence[str]) -> list[Row] | None:
        """Return these columns of a Parquet object, the lines of a CSV; None where it is neither.

        Where there is none, it has no rows.
        """
        if key in self._decoded:
            return self._decoded[key]
        try:
            content = read(self._store, key)
        except ObjectMissingError:
            return []
        if not key.endswith(".parquet"):
            return _cells(content)
        try:
            return _rows(_query(content, columns).collect())
        except pl.exceptions.PolarsError:
            return None


def _query(content: bytes, columns: Sequence[str]) -> pl.LazyFrame:
    return pl.scan_parquet(BytesIO(content)).select(columns)


def _rows(table: pl.DataFrame) -> list[Row]:
    """Return the rows of a table; its own `rows` takes ten times as long."""
    return list(zip(*(column.to_list() for column in table), strict=True))


def _cells(content: bytes) -> list[Row] | None:
    """Return the cells of each line of a list, whose columns may have any names; None for none."""
    try:
        return [tuple(line) for line in csv.reader(StringIO(content.decode("utf-8-sig")))]
    except (UnicodeDecodeError, csv.Error):
        return None


def _links_of_results(run: StoredRun) -> _Links:
    links = _Links(run)
    links.add(run.outcomes.links())
    return links
