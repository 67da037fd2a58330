"""Before a night: a first TOML, the reference of what can be set, and the check that all that is
set works.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from flows.commands import on_first_use
from flows.commands.context import Context, Terminal
from flows.commands.entry import entry
from flows.commands.parameters import Day, ExtractName, Field, Issuer
from flows.commands.result import Part, Result, Table
from flows.commands.submit import would_send
from flows.configuration import FileThereError, FileUnreadableError, issuer_file, load_issuer
from flows.errors import CardlinkError, OperatorError
from flows.steps import Option, Sentence, Step, Text
from flows.wiring import effective_settings, kept_from_others, now, wire

with on_first_use():
    from flows.extracts import draft as drafts
    from flows.extracts import errors
    from flows.reports import lists
    from flows.runs import context as contexts
    from flows.runs import frames as stored_frames
    from flows.runs import probe
    from flows.submissions import rehearsal, row_scope, submit
    from schemas import mapping, portal, reference
    from schemas import tables as reports

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


@entry("init", form="it writes a file on the operator's machine")
def init(
    context: Context,
    issuer: str,
    *,
    extract: Annotated[Path | None, Field("--from")] = None,
    root: str = "store",
    yes: bool = False,
) -> Result:
    """Write a first TOML for an issuer; with an extract, guess how it is written, and check every
    row of it.

    On a terminal, what is in doubt is asked. Each guess is written with its reason, each doubt with
    its question.

    Args:
        issuer: Its name, in lower case with hyphens.
        extract: An extract to guess `[source]` and `[columns]` from.
        root: s3://bucket/prefix or a directory.
        yes: Ask nothing: take the best guess.
    """
    file, doubts = issuer_file(context.folder, issuer), list[str]()
    if file.exists():
        raise FileThereError(path=str(file))
    tables, test = (
        "# [source] and [columns] are not needed if the extract has the portal's own columns.\n",
        False,
    )
    if extract is not None:
        try:
            stream = extract.open("rb")
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise FileUnreadableError(
                file=str(extract), purpose=Option("--from", of="init"), reason=reason
            ) from None
        with stream:
            draft = drafts.first_draft(stream, extract.name, now().date())
        draft = (
            draft if yes or not context.terminal.attended else _answered(draft, context.terminal)
        )
        doubts = [f"{one.key}: {one.question}" for one in draft.doubts]
        tables, test = draft.toml, draft.test
    context.folder.mkdir(parents=True, exist_ok=True)
    text = TOML.format(
        issuer=issuer, root=root, zeros="0" * 40, tables=tables, test=str(test).lower()
    )
    file.write_text(text, "utf-8")
    try:
        load_issuer(context.folder, issuer)
    except BaseException:
        file.unlink()
        raise
    write_schema(context.folder)
    facts: dict[str, object] = {"file": str(file), "doubts": doubts}
    lines: list[Part] = [
        f"{file} written; edit its [portal]",
        *(f"in doubt: {one}" for one in doubts),
    ]
    code = 0
    if extract is not None:
        found, code, facts["extract"] = _tried(context.folder, issuer, extract.resolve())
        lines += ["", *found]
    return Result(facts, lines, Step("check", issuer), code)


def _answered(draft: drafts.Draft, terminal: Terminal) -> drafts.Draft:
    """Ask each doubt; the number of a value is the answer."""
    while doubts := draft.doubts:
        offered = [doubts[0].value, *doubts[0].others]
        terminal.say(f"{doubts[0].key}: {doubts[0].question}")
        for number, value in enumerate(offered, 1):
            terminal.say(f"  {number}  {value or '(none)'}")
        typed = terminal.ask("Number", default="1", show_default=True)
        if typed.isdecimal() and 1 <= int(typed) <= len(offered):
            draft = draft.answered(doubts[0], offered[int(typed) - 1])
    return draft


def _tried(folder: Path, issuer: str, extract: Path) -> tuple[list[Part], int, dict[str, object]]:
    """Check every row of a file with the settings just written; return what to show, the exit code,
    the facts.
    """
    here = load_issuer(folder, issuer).model_copy(update={"root": str(extract.parent)})
    context = wire(folder, issuer, here)
    try:
        with context.adapters.store.open(extract.name) as stored:
            entry = stored.entry
        done = rehearsal.rehearse(context, submit.Request(entry.key), entry=entry)
    except CardlinkError as error:
        return [error.text], error.exit_code, {"refused": str(error.text)}
    return would_send(done), 3 if done.refused else 0, done.facts


class NoSettingError(OperatorError):
    """A key was asked about that does not exist."""

    message = "There is no setting {key!r}. Did you mean {nearest}?"
    next_step = Sentence("{settings} prints all of them.", settings=Step("settings"))


@entry("settings", form="it prints a reference; `deploy/SETTINGS.md` is the same as a page")
def settings(context: Context, key: str = "", *, schema: bool = False) -> Result:
    """Explain every key of the issuer's TOML with an example, or one of them.

    Args:
        key: A key, such as encoding or source.encoding, or a table, such as source.
        schema: Write the JSON Schema beside the TOML files anew, by which editors complete and
            check them.
    """
    if schema:
        file = str(write_schema(context.folder))
        return Result({"file": file}, [f"{file} written"])
    named = [one for one in reference.every_key() if key in ("", one.table, one.name, one.path)]
    if not named:
        known = {name: one.path for one in reference.every_key() for name in (one.name, one.path)}
        raise NoSettingError(key=key, nearest=known[mapping.nearest(key, known)])
    lines, table = list[str](), ""
    for one in named:
        if one.table != table and key in ("", one.table):
            table = one.table
            lines += ["", f"[{table}]  {reference.tables()[table]['description'].splitlines()[0]}"]
        default = one.default if one.default in ("", "required") else f"default: {one.default}"
        about = "; ".join(filter(None, (f"takes {one.takes}", default)))
        name = one.name if table == one.table else one.path
        lines += [
            name,
            *(
                f"    {text}"
                for text in (one.meaning, about, f"example: {one.name} = {one.example}")
            ),
        ]
    return Result({"keys": [{"path": one.path, **one._asdict()} for one in named]}, lines)


def write_schema(folder: Path) -> Path:
    """Write the JSON Schema that the first line of each TOML names; return where."""
    file = folder / reference.SCHEMA_FILE
    file.write_text(
        json.dumps(reference.json_schema(), indent=1, ensure_ascii=False) + "\n", "utf-8"
    )
    return file


WORST = (0, 75, 3, 2, 4, 1)  # exit codes: the last of those found is the command's


class Finding(NamedTuple):
    """What a check found of one part: what is fine, or an error's text with its name and exit
    code.
    """

    part: str
    text: Text
    error: str = ""
    exit_code: int = 0

    @property
    def facts(self) -> dict[str, Any]:
        """The finding as plain facts."""
        return {**self._asdict(), "text": str(self.text)}

    @property
    def line(self) -> Sentence:
        """The finding as a terminal shows it."""
        verdict = "WRONG" if self.error else "ok"
        return Sentence(
            "{part:<10}{verdict:<7}{text}", part=self.part, verdict=verdict, text=self.text
        )


def _wrong(part: str, error: CardlinkError) -> Finding:
    return Finding(part, error.text, type(error).__name__, error.exit_code)


@entry(
    "check",
    form="the dry run of `rerun` checks an extract; settings are checked where they are edited",
)
def check(
    context: Context,
    issuer: Issuer,
    extract: ExtractName = "",
    *,
    business_date: Day = None,
    rejects: Path | None = None,
) -> Result:
    """Check settings, keys and store, and with EXTRACT its mapping and every row; all that is wrong
    is shown at once.

    Nothing is sent. The exit code is that of the worst finding.

    Args:
        issuer: Whose settings.
        extract: An extract below the issuer's extracts.
        business_date: The business date, if the extract's name does not say it.
        rejects: A new file for the rows of EXTRACT that would not be sent, with reasons and shapes,
            no card numbers.
    """
    if rejects is not None and rejects.exists():
        raise FileThereError(path=str(rejects))
    found, warnings, fingerprints, inspection = (
        list[Finding](),
        list[str](),
        list[str](),
        row_scope.Inspection(),
    )
    wired = _wired(context.folder, issuer, found)
    root, facts = wired.issuer.root, dict[str, Any](issuer=issuer, store=wired.issuer.root)
    with _part(found, "key"), wired.sealer() as sealer:
        fingerprints += sealer.fingerprints
        warnings += [warning.text for warning in sealer.warnings]
        found += [Finding("key", f"{one}: the trial seal is as expected") for one in fingerprints]
    with _part(found, "own key"), wired.opener() as opener:
        found += [Finding("own key", "it can open what is PGP-encrypted to us")] if opener else []
    with _part(found, "store"):
        probe.race(wired.adapters.store, f"{issuer}/probe/")
        found.append(Finding("store", f"{root}: of concurrent writes to a key, only one succeeds"))
    warnings += kept_from_others(wired.issuer, context.folder)
    of_rows = (
        _rows(wired, submit.Request(extract, business_date), inspection, found, facts)
        if extract
        else []
    )
    if rejects is not None:
        found.append(_write(rejects, inspection))
    columns = _columns(wired, inspection)
    facts |= {"fingerprints": fingerprints, "warnings": warnings, "columns": columns.records}
    facts |= {
        "settings": effective_settings(context.folder, wired.issuer),
        "checks": [finding.facts for finding in found],
    }
    lines: list[Text] = [finding.line for finding in found]
    lines += [f"{'warning':<17}{one}" for one in warnings]
    code = max((one.exit_code for one in found), key=WORST.index)
    done = facts.get("extract")
    next_step = None
    if not code and not (done and done["already"]):
        next_step = Step("submit", issuer, dry_run=not done)
    of_columns: list[Part] = ["", columns] if columns.records else []
    return Result(facts, [*lines, *of_columns, *of_rows], next_step, code)


@contextmanager
def _part(found: list[Finding], part: str) -> Iterator[None]:
    """Make a finding of an error, so that the check goes on."""
    try:
        yield
    except CardlinkError as error:
        found.append(_wrong(part, error))


def _wired(folder: Path, name: str, found: list[Finding]) -> contexts.IssuerContext:
    """Return the context of an issuer, without what is wrong in its settings where it can do
    without.
    """
    issuer = load_issuer(folder, name, lambda error: found.append(_wrong("settings", error)))
    found += [
        Finding(
            "settings",
            "what follows is checked without these keys" if found else f"{folder / name}.toml",
        )
    ]
    with _part(found, "settings"):
        return wire(folder, name, issuer)
    portal = issuer.portal.model_copy(update={"template": None})
    return wire(folder, name, issuer.model_copy(update={"portal": portal}))


def _rows(
    context: contexts.IssuerContext,
    request: submit.Request,
    inspection: row_scope.Inspection,
    found: list[Finding],
    facts: dict[str, Any],
) -> list[Part]:
    """Check the mapping and the rows of an extract; return what is shown of the rows."""
    of_file, shown = list[Finding](), list[Part]()
    with _part(of_file, "file"):
        done = rehearsal.rehearse(context, request, inspection)
        facts["extract"], shown = done.facts, would_send(done)[1:]
        if done.already or not inspection.errors:
            of_file, inspection.errors = [Finding("file", done.verdict)], []
    wrong = [
        _wrong("mapping" if isinstance(one, errors.MappingError) else "file", one)
        for one in inspection.errors
    ]
    if not any(one.part == "mapping" for one in wrong):
        empty = inspection.sample.empty
        filled = (
            0 if empty else sum(inspection.sample.look(name)[0] > 0 for name in portal.columns())
        )
        text = (
            "not checked: no row could be read"
            if empty
            else f"{filled} of the portal's columns have content"
        )
        found.append(Finding("mapping", text))
    found += [*sorted(wrong, key=lambda one: one.part != "mapping"), *of_file]
    return shown


def _write(path: Path, inspection: row_scope.Inspection) -> Finding:
    """Write the rows that would not be sent, as rejects.csv of a run has them."""
    frames = [lists.unsent(*one) for one in inspection.unsent]
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.writelines(stored_frames.csv_pieces(frames, reports.Refusals.dtypes()))
    except OSError as error:
        return Finding(
            "rejects", f"{path} cannot be written: {error.strerror}", type(error).__name__, 2
        )
    return Finding(
        "rejects",
        f"{path}: {sum(frame.height for frame in frames):,} lines, one per row and reason",
    )


def _columns(context: contexts.IssuerContext, inspection: row_scope.Inspection) -> Table:
    """Show where each of the portal's columns comes from, how much of it there is, its shapes and
    its verdicts.
    """
    mapped = context.issuer.model_dump(
        mode="json", by_alias=True, exclude_unset=True, include={"columns"}
    )["columns"]
    sources = {name: reference.toml(spec) for name, spec in mapped.items()} or dict.fromkeys(
        portal.columns(), "its own name"
    )
    lines = []
    for name in () if inspection.sample.empty else portal.columns():
        verdicts = (
            (code, how, number)
            for (at, code, how), number in inspection.verdicts.items()
            if at == name
        )
        broken = [f"{number:,} {code.rpartition('.')[2]} ({how})" for code, how, number in verdicts]
        filled, shapes = inspection.sample.look(name)
        share = f"{int(filled * 1000) / 10:g} %"
        lines.append(
            (name, sources.get(name, "")[:60], share, "  ".join(shapes), ", ".join(broken))
        )
    return Table(("column", "from", "filled", "shapes", "verdicts"), lines)
