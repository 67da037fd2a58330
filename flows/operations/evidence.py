"""The evidence of one run as files, in a zip: what was done to it, by whom, in which order."""

from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from sqlalchemy import or_, select

from flows.operations.audit_journal import StoredEntry, stored_entries
from flows.operations.stored_requests import OF_PEOPLE
from flows.runs.context import IssuerContext
from flows.runs.decisions import decision_rows
from flows.runs.identity import canonical, digest
from flows.runs.journal import plain
from flows.runs.keys import extracts
from flows.runs.store import read
from flows.runs.stored_run import StoredRun
from flows.runs.threads import concurrently
from flows.steps import parsed_line
from schemas.database import REQUEST

REPORTS = ("summary.json", "chunks.csv")  # those without cardholders and links


def evidence(context: IssuerContext, run: str) -> dict[str, bytes]:
    """Return the files that prove what happened to a run, by name; UnknownRunError.

    They are its records, decisions, requests and reports, and the journal: its entries about the
    run whole, of the others number and digest. Nothing in the files names a cardholder, a card or a
    link; chunks, ledger, lists and links are there by digest only.
    """
    store = context.adapters.store
    issuer = context.issuer.issuer
    stored_run = StoredRun.by_id(context.adapters, run)
    keys = _report_keys(stored_run)
    files = {key.removeprefix(f"{issuer}/"): read(store, key) for key in keys}
    files["run.json"] = canonical(stored_run.as_planned().facts())
    files["objects.sha256"] = _object_digests(stored_run)
    subjects = (run, stored_run.planned().source.sha256)
    decided = decision_rows(context.adapters, issuer, subjects)
    files["purges.jsonl"] = _lines([record.model_dump(mode="json") for record in stored_run.purges])
    files["decisions.jsonl"] = _lines(decided)
    files["requests.jsonl"] = _lines(_requests(context, stored_run))
    with context.adapters.database.snapshot() as connection:
        entries = stored_entries(connection, issuer)
    files["journal.jsonl"] = b"".join(_line(entry, run) for entry in entries)
    return files


def _line(entry: StoredEntry, run: str) -> bytes:
    """Return an entry as a line: whole where it is about the run, else number and digests alone."""
    if entry.run == run:
        return entry.content
    marks = {"number": entry.number, "before": entry.before, "digest": entry.digest}
    return canonical(marks)


def bundle(files: Mapping[str, bytes]) -> bytes:
    """Return files as a zip, with their digests in SHA256SUMS."""
    sums = "".join(f"{digest(content)}  {name}\n" for name, content in sorted(files.items()))
    out = BytesIO()
    with ZipFile(out, "w", ZIP_DEFLATED) as archive:
        for name, content in sorted({**files, "SHA256SUMS": sums.encode()}.items()):
            archive.writestr(name, content)
    return out.getvalue()


def _requests(context: IssuerContext, run: StoredRun) -> list[dict[str, Any]]:
    """Return the requests for a second person whose command names a run or its extract: which
    command, by whom, when; what it was given is there by digest only, since it may name somebody.
    """
    issuer = context.issuer.issuer
    extract = run.planned().source.key.removeprefix(extracts(issuer))
    is_named = or_(*(REQUEST.c.line.contains(name, autoescape=True) for name in (run.id, extract)))
    query = select(REQUEST).where(REQUEST.c.issuer == issuer, is_named).order_by(REQUEST.c.at)
    with context.adapters.database.snapshot() as connection:
        rows = [plain(dict(row)) for row in connection.execute(query).mappings()]
    commands = [parsed_line(row["line"]).entry for row in rows]
    shown = [{name: row[name] for name in row if name not in OF_PEOPLE} for row in rows]
    return [{"command": name, **row} for name, row in zip(commands, shown, strict=True)]


def _lines(rows: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(map(canonical, rows))


def _report_keys(run: StoredRun) -> list[str]:
    entries = run.store.keys(run.keys.report(""))
    return [entry.key for entry in entries if entry.key.endswith(REPORTS)]


def _object_digests(run: StoredRun) -> bytes:
    """Return a line with digest and key for each object of a run."""
    keys = [entry.key for entry in run.store.keys(run.keys.base)]
    sha256s = concurrently(lambda key: digest(read(run.store, key)), keys)
    lines = zip(sha256s, keys, strict=True)
    return "".join(f"{sha256}  {key}\n" for sha256, key in lines).encode()
