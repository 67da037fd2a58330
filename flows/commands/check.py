"""Before a night: check that all that is set works, and every row of an extract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.link_forms import form_lines, form_records
from flows.commands.parameters import Day, ExtractName, Issuer
from flows.commands.private_files import write_new
from flows.commands.result import Part, Result, Table, worst
from flows.commands.sent_runs import would_send
from flows.configuration import FileThereError, load_issuer
from flows.errors import CardlinkError, OperatorError
from flows.extensions import hooks
from flows.steps import Sentence, Step, Text, counted
from flows.wiring import (
    clear_token_problems,
    effective_settings,
    kept_from_others,
    observation_problems,
    wire,
)

with on_first_use():
    from flows.database import migrate
    from flows.extracts import errors, status, trailer
    from flows.operations import conditions as condition
    from flows.reports import bank_words, lists
    from flows.reports import link_forms as reported
    from flows.runs import context as contexts
    from flows.runs import dropped_files, keys, store
    from flows.runs import frames as stored_frames
    from flows.submissions import rehearsal, row_scope, submit
    from flows.submissions import schedule as schedules
    from schemas import portal, reference, rule, rules
    from schemas import tables as reports

FEW = 5  # names that are shown
NO_FORM = "the dry run of `rerun` checks an extract; settings are checked where they are edited"


class Finding(NamedTuple):
    """What a check found of one part: what is fine, or an error's text, name and exit code."""

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
        template = "{part:<10}{verdict:<7}{text}"
        return Sentence(template, part=self.part, verdict=verdict, text=self.text)


class UnusableNameError(OperatorError):
    """A dropped file whose name cannot be used."""

    message = "cardlink cannot use {file}: {reason}."
    next_step = "Ask the sender to send it again under another name, and delete this one."


def _wrong_parts(findings: Sequence[Finding]) -> list[str]:
    """Return the parts in which something is wrong."""
    return [finding.part for finding in findings if finding.error]


def _wrong(part: str, error: CardlinkError) -> Finding:
    return Finding(part, error.text, type(error).__name__, error.exit_code)


class _Rows(NamedTuple):
    """What a check found of an extract: its findings, its facts if it could be read, its rows."""

    findings: list[Finding]
    facts: dict[str, Any] | None
    shown: list[Part]


@entry("check", form=NO_FORM)
def check(
    context: Context,
    issuer: Issuer,
    extract: ExtractName = "",
    *,
    business_date: Day = None,
    rejects: Path | None = None,
) -> Result:
    """Check settings, keys, store and the partner's service, show the form of the partner's links,
    and with EXTRACT check its mapping and every row.

    All that is wrong is shown at once. Nothing is sent. The exit code is that of the worst finding.

    Args:
        issuer: Whose settings.
        extract: An extract below the issuer's extracts.
        business_date: The business date, if the extract's name does not say it.
        rejects: A new file for the rows of EXTRACT that would not be sent, with reasons and shapes,
            no card numbers.

    Example:
        cardlink check first-bank first-bank-20261120.csv
    """
    _refuse_existing(rejects)
    findings = list[Finding]()
    wired = _wired(context.folder, issuer, findings)
    is_whole = not _wrong_parts(findings)
    _check_schedule(wired, findings)
    fingerprints, warnings = _check_keys(wired, findings)
    links = _check_store(wired, findings)
    _check_database(wired, findings)
    if is_whole and "store" not in _wrong_parts(findings):
        _check_files(wired, findings)
        _check_conditions(wired, findings)
        _check_extensions(wired, findings)
    warnings += kept_from_others(wired.issuer, context.folder)
    warnings += observation_problems()
    warnings += clear_token_problems()
    warnings += trailer.unproven(wired.issuer.source)
    warnings += rule.remarks(rules.RULES, wired.issuer.rules)
    inspection = row_scope.Inspection()
    rows = _Rows([], None, [])
    if extract:
        rows = _check_rows(wired, submit.Request(extract, business_date), inspection)
    findings += rows.findings
    findings += _written(rejects, inspection)
    columns = _columns(wired, inspection)
    facts: dict[str, Any] = {
        "issuer": issuer,
        "store": wired.issuer.root,
        "fingerprints": fingerprints,
        "warnings": warnings,
        "columns": list(map(_with_share, columns.records)),
        "settings": effective_settings(context.folder, wired.issuer),
        "links": links,
        "checks": [finding.facts for finding in findings],
    }
    if rows.facts is not None:
        facts["extract"] = rows.facts
    shown: list[Part] = [finding.line for finding in findings]
    shown += [f"{'warning':<17}{warning}" for warning in warnings]
    if columns.rows:
        shown += ["", columns]
    shown += rows.shown
    code = worst(finding.exit_code for finding in findings)
    return Result(facts, shown, _next_step(issuer, code, rows.facts), code)


def _refuse_existing(file: Path | None) -> None:
    if file is not None and file.exists():
        raise FileThereError(path=str(file))


def _next_step(issuer: str, code: int, extract: dict[str, Any] | None) -> Step | None:
    """Return the submit of what was checked, where nothing is wrong and it is not done yet."""
    if code or (extract and extract["already"]):
        return None
    return Step("submit", issuer, dry_run=not extract)


@contextmanager
def _part(findings: list[Finding], part: str) -> Iterator[None]:
    """Make a finding of an error, so that the check goes on."""
    try:
        yield
    except CardlinkError as error:
        findings.append(_wrong(part, error))


def _wired(folder: Path, name: str, findings: list[Finding]) -> contexts.IssuerContext:
    """Return the context of an issuer, without what is wrong in its settings, if that can be."""
    issuer = load_issuer(folder, name, lambda error: findings.append(_wrong("settings", error)))
    text = "what follows is checked without these keys" if findings else f"{folder / name}.toml"
    findings.append(Finding("settings", text))
    open_question = status.undecided_columns(issuer)
    if open_question is not None:
        findings.append(_wrong("undecided", open_question))
    with _part(findings, "settings"):
        return wire(folder, name, issuer)
    without_template = issuer.portal.model_copy(update={"template": None})
    return wire(folder, name, issuer.model_copy(update={"portal": without_template}))


def _check_schedule(context: contexts.IssuerContext, findings: list[Finding]) -> None:
    """Show the business days, and check that the holidays of the country are known."""
    with _part(findings, "schedule"):
        findings.append(Finding("schedule", schedules.calendar_line(context)))


def _check_conditions(context: contexts.IssuerContext, findings: list[Finding]) -> None:
    """Say how what runs beside the flows is doing."""
    adapters = context.adapters
    with _part(findings, "store"):
        for state in condition.conditions(context.issuer, adapters.store, adapters.now()):
            fine = Finding(state.name, state.text)
            findings.append(_wrong(state.name, state.trouble) if state.trouble else fine)


def _check_extensions(context: contexts.IssuerContext, findings: list[Finding]) -> None:
    """Say what the extensions find of their parts of the installation."""
    for checks in hooks("checks"):
        extension = checks.__module__.split(".")[2]
        with _part(findings, extension):
            for part, state in checks(context):
                is_wrong = isinstance(state, CardlinkError)
                findings.append(_wrong(part, state) if is_wrong else Finding(part, state))


def _check_keys(
    context: contexts.IssuerContext, findings: list[Finding]
) -> tuple[list[str], list[str]]:
    """Check the portal's keys and our own; return the fingerprints, and warnings about them."""
    fingerprints = list[str]()
    warnings = list[str]()
    with _part(findings, "key"), context.sealer() as sealer:
        fingerprints += sealer.fingerprints
        warnings += [warning.text for warning in sealer.warnings]
        for fingerprint in fingerprints:
            findings.append(Finding("key", f"{fingerprint}: the trial seal is as expected"))
    with _part(findings, "own key"), context.opener() as opener:
        if opener:
            findings.append(Finding("own key", "it can open what is PGP-encrypted to us"))
    return fingerprints, warnings


def _check_store(context: contexts.IssuerContext, findings: list[Finding]) -> list[dict[str, Any]]:
    """Check the store, and show the forms of the links in it; return these."""
    issuer = context.issuer.issuer
    with _part(findings, "store"):
        store.ensure_usable(context.adapters.store, f"{keys.metrics(issuer)}check")
        text = f"{context.issuer.root}: what is written there can be read"
        findings.append(Finding("store", text))
        findings.append(Finding("schedule", schedules.hour_line(context)))
        forms = reported.link_forms(context)
        findings += [Finding("links", line) for line in form_lines(issuer, forms)]
        return form_records(forms)
    return []


def _check_files(context: contexts.IssuerContext, findings: list[Finding]) -> None:
    """Name the dropped files that nothing takes: of systems, or with names that are unusable."""
    with _part(findings, "files"):
        for folder, dropped in dropped_files.dropped_folders(
            context.adapters.store, context.issuer.issuer
        ):
            if dropped.companions:
                number = counted(len(dropped.companions), "file")
                few = ", ".join(sorted({file.name for file in dropped.companions})[:FEW])
                text = (
                    f"{folder}/ has {number} that a system left there; they are left alone: {few}"
                )
                findings.append(Finding("files", text))
            for file in dropped.unusable:
                error = UnusableNameError(file=f"{folder}/{file.name}", reason=file.reason)
                findings.append(_wrong("files", error))


def _check_database(context: contexts.IssuerContext, findings: list[Finding]) -> None:
    """Show where the database is, and check that it can be written."""
    database = context.adapters.database
    with _part(findings, "database"):
        with database.rehearsal(context.issuer.issuer):
            text = (
                f"{database.place}: can be written; its tables are at revision {migrate.newest()}"
            )
        findings.append(Finding("database", text))


def _check_rows(
    context: contexts.IssuerContext, request: submit.Request, inspection: row_scope.Inspection
) -> _Rows:
    """Check the mapping and the rows of an extract: first the mapping, then the file."""
    of_file = list[Finding]()
    facts: dict[str, Any] | None = None
    shown = list[Part]()
    with _part(of_file, "file"), suppress(status.UndecidedError):  # a finding of the settings
        checked = rehearsal.rehearse(context, request, inspection)
        facts = checked.facts
        shown = would_send(checked)[1:]
        of_file += [Finding("columns", f"{checked.extract} has {line}") for line in checked.columns]
        if checked.already or not inspection.errors:
            of_file.append(Finding("file", checked.verdict))
            # what is wrong with the rows of a committed extract was decided by its run
            inspection.errors = [
                error for error in inspection.errors if isinstance(error, errors.MappingError)
            ]
    of_mapping = list[Finding]()
    wrong_in_file = list[Finding]()
    for error in inspection.errors:
        if isinstance(error, status.UndecidedError):
            continue
        if isinstance(error, errors.MappingError):
            of_mapping.append(_wrong("mapping", error))
        else:
            wrong_in_file.append(_wrong("file", error))
    of_mapping = of_mapping or [Finding("mapping", _mapped(inspection))]
    return _Rows([*of_mapping, *wrong_in_file, *of_file], facts, shown)


def _mapped(inspection: row_scope.Inspection) -> str:
    """Say how much of the portal's columns a mapping without errors fills."""
    if inspection.sample.empty:
        return "not checked: no row could be read"
    filled = [name for name in portal.columns() if inspection.sample.look(name)[0] > 0]
    return f"{len(filled)} of the portal's columns have content"


def _written(path: Path | None, inspection: row_scope.Inspection) -> list[Finding]:
    return [] if path is None else [_write(path, inspection)]


def _write(path: Path, inspection: row_scope.Inspection) -> Finding:
    """Write the rows that would not be sent, as rejects.csv of a run has them."""
    words = bank_words.BankWords(inspection.layout)
    frames = [lists.rejects(records, words) for records in inspection.unsent]
    try:
        write_new(path, stored_frames.csv_pieces(frames, reports.Rejects.dtypes()))
    except OSError as error:
        problem = f"{path} cannot be written: {error.strerror}"
        return Finding("rejects", problem, type(error).__name__, 2)
    lines = sum(frame.height for frame in frames)
    return Finding("rejects", f"{path}: {counted(lines, 'line')}, one per row and reason")


def _columns(context: contexts.IssuerContext, inspection: row_scope.Inspection) -> Table:
    """Show of each of the portal's columns its source, how much is filled, shapes and verdicts."""
    sources = _sources(context)
    rows = []
    if not inspection.sample.empty:
        for name in portal.columns():
            filled, shapes = inspection.sample.look(name)
            share = f"{int(filled * 1000) / 10:g} %"
            source = sources.get(name, "")[:60]
            rows.append((name, source, share, "  ".join(shapes), _verdicts(name, inspection)))
    return Table(("column", "from", "filled", "shapes", "verdicts"), rows)


def _with_share(column: Mapping[str, object]) -> dict[str, object]:
    """Return a column's record with the share of filled cells as a number from 0 to 1."""
    percent = float(str(column["filled"]).removesuffix(" %"))
    return {**column, "filled": round(percent / 100, 4)}


def _sources(context: contexts.IssuerContext) -> dict[str, str]:
    """Return what each column is mapped from, as the TOML says it."""
    set_keys = context.issuer.model_dump(
        mode="json", by_alias=True, exclude_unset=True, include={"columns"}
    )
    columns = set_keys.get("columns", {})
    mapped = {name: reference.toml(spec) for name, spec in columns.items()}
    return mapped or dict.fromkeys(portal.columns(), "its own name")


def _verdicts(name: str, inspection: row_scope.Inspection) -> str:
    """Return how many cells of a column broke which rule."""
    texts = []
    for (column, code, severity), cells in inspection.verdicts.items():
        if column == name:
            _, _, kind = code.rpartition(".")
            texts.append(f"{cells:,} {kind} ({severity})")
    return ", ".join(texts)
