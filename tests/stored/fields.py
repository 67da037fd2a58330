"""`python -m tests.stored.fields STORE`: add new versions of documents to documents.json, with
their store.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from flows.operations.link_changes import CHANGED
from flows.runs.outcomes import FILE, OUTCOME
from flows.submissions.row_scope import PICK
from schemas.ledger import Ledger
from schemas.manifest import Document
from schemas.tables import FORMAT

ROOT = Path(__file__).parents[2]
PLACE = Path(__file__).parent / "documents.json"
TABLE: dict[str, dict[str, dict[str, Any]]] = json.loads(PLACE.read_text())
# Bases, and parts of others, whose fields are listed with those of the document that holds them.
PARTS = {
    "Inputs",
    "Record",
    "Selection",
    "Counts",
    "ManifestChunk",
    "JoinedRows",
    "SourceFile",
    "LedgerPart",
    "SourceColumn",
    "Layout",
    "ColumnProfile",
    "Profile",
}
PARQUET: dict[str, Mapping[str, object]] = {
    "ledger": Ledger.dtypes(),
    "outcomes": OUTCOME,
    "files": FILE,
    "selection": PICK,
    "delivery": CHANGED,
}


def documents() -> dict[str, tuple[int, list[str]]]:
    """Return version and fields of every document as this version writes it; of Parquet files its
    columns.
    """
    for file in (file for folder in ("flows", "schemas") for file in (ROOT / folder).rglob("*.py")):
        if re.search(
            r"^class \w+\((Document|Record|Inputs)\)", file.read_text("utf-8"), re.MULTILINE
        ):
            import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
    kinds = [kind for kind in _below(Document) if kind.__name__ not in PARTS]
    columns = [
        f"{name}.{column}: {kind}"
        for name, schema in PARQUET.items()
        for column, kind in schema.items()
    ]
    found = {
        kind.__name__: (int(kind.model_fields["format"].default), [*_fields(kind)])
        for kind in kinds
    }
    return {**found, "Parquet": (FORMAT, columns)}


def _below(base: type[Document]) -> Iterator[type[Document]]:
    for kind in base.__subclasses__():
        if kind.__module__.startswith(("flows.", "schemas.")):
            yield kind
        yield from _below(kind)


def _fields(kind: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in kind.model_fields.items():
        if name != "format":
            spelled = (
                getattr(field.annotation, "__name__", "")
                if not get_args(field.annotation)
                else field.annotation
            )
            yield f"{prefix}{name}: {spelled}{'' if field.is_required() else ', optional'}"
            for part in _parts(field.annotation):
                yield from _fields(part, f"{prefix}{name}.")


def _parts(hint: Any) -> list[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, Document):
        return [hint]
    return [part for inner in get_args(hint) for part in _parts(inner)]


if __name__ == "__main__":
    for kind, (version, fields) in documents().items():
        TABLE.setdefault(kind, {}).setdefault(
            str(version), {"store": sys.argv[1], "fields": fields}
        )
    PLACE.write_text(json.dumps(TABLE, indent=1) + "\n")
