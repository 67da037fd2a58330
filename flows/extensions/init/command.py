"""A first TOML for an issuer, guessed from an extract where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, NamedTuple

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.parameters import Field
from flows.commands.result import Part, Result
from flows.commands.sent_runs import would_send
from flows.commands.settings import write_schema
from flows.configuration import (
    FileThereError,
    FileUnreadableError,
    issuer_file,
    load_issuer,
    read_file,
    with_texts,
)
from flows.errors import CardlinkError, OperatorError
from flows.steps import FILE, Option, Sentence, Step
from flows.wiring import begin_process, now, private_key, wire

with on_first_use():
    from flows.extensions.init import asking, proofs, record_sample, record_types, second_file
    from flows.extensions.init import draft as drafts
    from flows.extracts import delivery, errors, opening, trailer
    from flows.runs import context as contexts
    from flows.runs import store as stores
    from flows.submissions import rehearsal, row_scope, submit

TOML = """\
#:schema ./cardlink.schema.json
# {issuer}: where its extracts are, how its columns map, its portal settings and limits.
issuer = "{issuer}"
root = "{root}" # s3://bucket/prefix or a directory; extracts are in <root>/{issuer}/extracts/
test = {test} # true: test cards only
time_zone = "UTC" # of the business date, if an extract's name does not say it

{tables}
[limits]
max_reject_rate = 0.05 # share of refused rows above which nothing is committed
max_row_jump = 0.5 # distance from the median of the last runs above which nothing is committed
max_error_rate = 0.05 # share of the partner's errors above which a finished night is worth a look

[portal]
key_file = "portal.asc" # the portal's public key, beside this file
fingerprints = ["{zeros}"] # its full fingerprint, compared by a person
allowed_hosts = ["links.example.com"] # the hosts a card link may point to
# template = "template.csv" # the blank template downloaded from the portal: header names and order
"""
NO_TABLES = "# [source] and [columns] are not needed if the extract has the portal's own columns.\n"


class CopybookAloneError(OperatorError):
    """A copybook without an extract: field names alone are no proof of what they hold."""

    message = "{option} describes the records of an extract, and there is none."
    next_step = Sentence("Name the extract: {extract}.", extract=Option("--from", FILE, of="init"))


class _Trial(NamedTuple):
    """What came of checking every row of an extract with the new settings."""

    shown: list[Part]
    exit_code: int
    facts: dict[str, object]


@entry("init", form="it writes a file on the operator's machine")
def init(
    context: Context,
    issuer: str,
    *,
    extract: Annotated[Path | None, Field("--from")] = None,
    copybook: Path | None = None,
    root: str = "store",
    yes: bool = False,
) -> Result:
    """Write a first TOML for an issuer; with an extract, guess its format and check every row.

    On a terminal, what is in doubt is asked. Each guess is written with its reason, each doubt with
    its question.

    Args:
        issuer: Its name, in lower case with hyphens.
        extract: An extract to guess `[source]` and `[columns]` from; one that is PGP-encrypted is
            opened with the private key of CARDLINK_PRIVATE_KEY_FILE.
        copybook: The COBOL copybook that describes its records, as a mainframe writes them; it is
            copied beside the TOML.
        root: s3://bucket/prefix or a directory.
        yes: Ask nothing: what is in doubt stays undecided; until it is answered, nothing is sent.

    Example:
        cardlink init first-bank --from extract.csv
    """
    file = issuer_file(context.folder, issuer)
    if file.exists():
        raise FileThereError(path=str(file))
    if extract is None:
        if copybook is not None:
            raise CopybookAloneError(option=Option("--copybook", of="init"))
        _write(context.folder, issuer, root, NO_TABLES, test=False)
        facts: dict[str, object] = {"file": str(file), "doubts": []}
        return Result(facts, [_written(file)], Step("check", issuer))
    draft, remarks = _draft(extract, _read_copybook(copybook))
    if context.terminal.attended and not yes:
        draft = asking.answered(draft, context.terminal)
    doubts = [f"{doubt.name}: {doubt.question}" for doubt in draft.doubts]
    if copybook is not None:
        _copy_beside(context.folder, copybook)
    _write(context.folder, issuer, root, draft.toml, test=draft.test)
    trial = _try(context.folder, issuer, extract.resolve())
    facts = {"file": str(file), "doubts": doubts, "extract": trial.facts}
    in_doubt = [f"in doubt: {doubt}" for doubt in doubts]
    whole = trailer.unproven(load_issuer(context.folder, issuer).source)
    if draft.proven_by:
        whole = [f"proven whole by {' and '.join(draft.proven_by)}"]
    facts["proven_by"] = draft.proven_by
    shown = [_written(file), *in_doubt, *remarks, *whole, "", *trial.shown]
    return Result(facts, shown, Step("check", issuer), trial.exit_code)


def _written(file: Path) -> str:
    return f"{file} written; edit its [portal]"


def _read_copybook(file: Path | None) -> record_sample.Copybook | None:
    """Return a copybook, as the settings that name it hold it."""
    if file is None:
        return None
    read_file(file, Option("--copybook", of="init"))
    content = with_texts({"source": {"copybook": file.name}}, file.parent)
    return record_sample.Copybook(file.name, content["source"]["copybook"])


def _copy_beside(folder: Path, copybook: Path) -> None:
    """Copy a copybook beside the TOML; FileThereError where another of its name is there."""
    content = copybook.read_bytes()
    copy = folder / copybook.name
    if copy.exists():
        if copy.read_bytes() != content:
            raise FileThereError(path=str(copy))
        return
    folder.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(content)


def _draft(extract: Path, copybook: record_sample.Copybook | None) -> proofs.Found:
    begin_process()
    with _open(extract) as stream:
        plain = opening.opened_file(stream, extract.name, private_key)
        today = now().date()
        typed = None if copybook else record_types.typed_draft(plain, extract.name, today)
        plain.seek(0)
        draft = typed or drafts.first_draft(plain, extract.name, today, copybook)
        plain.seek(0)
        proven = proofs.with_proofs(draft, plain, extract, copybook)
    return proven._replace(draft=second_file.with_second_file(proven.draft, extract, _opened))


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    """Open a file beside an extract, decrypted where it is sealed."""
    with _open(file) as stream:
        yield opening.opened_file(stream, file.name, private_key)


def _open(extract: Path) -> BinaryIO:
    try:
        return extract.open("rb")
    except OSError as error:
        reason = error.strerror or type(error).__name__
    option = Option("--from", of="init")
    raise FileUnreadableError(file=str(extract), purpose=option, reason=reason)


def _write(folder: Path, issuer: str, root: str, tables: str, *, test: bool) -> None:
    """Write the TOML, and the schema it names; a TOML that cannot be loaded is removed again."""
    folder.mkdir(parents=True, exist_ok=True)
    text = TOML.format(
        issuer=issuer, root=root, zeros="0" * 40, tables=tables, test=str(test).lower()
    )
    file = issuer_file(folder, issuer)
    file.write_text(text, "utf-8")
    try:
        load_issuer(folder, issuer)
    except BaseException:
        file.unlink()
        raise
    write_schema(folder)


def _entry(context: contexts.IssuerContext, name: str) -> stores.Entry:
    """Return a file as the folder has it, with its second file where it has one."""
    source = context.issuer.source
    entries = {}
    for file in filter(None, (name, source.second_of(name))):
        with context.adapters.store.open(file) as stored:
            entries[file] = stored.entry
    return delivery.with_second_file(entries[name], entries, source)


def _try(folder: Path, issuer: str, extract: Path) -> _Trial:
    """Check every row of a file with the settings just written."""
    settings = load_issuer(folder, issuer).model_copy(update={"root": str(extract.parent)})
    context = wire(folder, issuer, settings)
    try:
        entry = _entry(context, extract.name)
        inspection = row_scope.Inspection()  # it goes on where doubts are left
        checked = rehearsal.rehearse(context, submit.Request(entry.key), inspection, entry)
    except CardlinkError as error:
        return _Trial([error.text], error.exit_code, {"refused": str(error.text)})
    for problem in inspection.errors:
        if isinstance(problem, errors.MappingError):  # what follows from it is no news
            return _Trial([problem.text], problem.exit_code, {"refused": str(problem.text)})
    code = inspection.errors[0].exit_code if inspection.errors else 0
    return _Trial(would_send(checked), code, checked.facts)
