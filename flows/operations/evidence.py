"""The evidence of one run as files, in a zip: what was done to it, by whom, in which order."""

from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from pydantic_core import to_jsonable_python

from flows.extensions import hooks
from flows.operations.audit_journal import StoredEntry, stored_entries
from flows.runs.context import IssuerContext
from flows.runs.decisions import decision_rows
from flows.runs.identity import canonical, digest
from flows.runs.store import read
from flows.runs.stored_run import StoredRun
from flows.runs.threads import concurrently

REPORTS = ("summary.json", "chunks.csv")  # those without cardholders and links


def evidence(context: IssuerContext, run: str) -> dict[str, bytes]:
    """Return the files that prove what happened to a run, by name; UnknownRunError.

    They are its decisions and reports, what extensions have of it, and the journal: its
    entries about the run whole, of the others number and digest. Nothing in the files names a
    cardholder, a card or a link; chunks, ledger, lists and links are there by digest only.
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
    for more in hooks("evidence_of"):
        files |= {
            name: canonical(to_jsonable_python(facts)) for name, facts in more(stored_run).items()
        }
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
