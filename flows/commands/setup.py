"""Before the first night: a first TOML."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from flows.commands.entry import Context, Terminal, entry
from flows.commands.parameters import Cli
from flows.commands.result import Result, Table
from flows.commands.settings import write_schema
from flows.commands.submit import would_send
from flows.configuration import FileThereError, FileUnreadableError, issuer_file, load_issuer
from flows.errors import CardlinkError, full_text
from flows.wiring import now, wire

if TYPE_CHECKING:
    from flows.extracts.guess import Draft

TOML = """\
#:schema ./cardlink.schema.json
# {issuer}: where its extracts are, how its columns map, its portal settings and limits.
issuer = "{issuer}"
root = "{root}" # s3://bucket/prefix or a directory; extracts are in <root>/{issuer}/extracts/
test = {test} # true: test cards only
time_zone = "UTC" # of the business date, if an extract's name does not say it

{mapping}
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
    extract: Annotated[Path | None, Cli("--from")] = None,
    root: str = "store",
    yes: bool = False,
) -> Result:
    """Write a first TOML for an issuer; with an extract, guess how it is written, and check every row of it.

    On a terminal, what is in doubt is asked. Each guess is written with its reason, each doubt with its question.

    Args:
        issuer: Its name, in lower case with hyphens.
        extract: An extract to guess `[source]` and `[columns]` from.
        root: s3://bucket/prefix or a directory.
        yes: Ask nothing: take the best guess.
    """
    file, doubts = issuer_file(context.folder, issuer), list[str]()
    if file.exists():
        raise FileThereError(path=str(file))
    mapping, test = "# [source] and [columns] are not needed if the extract has the portal's own columns.\n", False
    if extract is not None:
        from flows.extracts.guess import first_draft

        try:
            stream = extract.open("rb")
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise FileUnreadableError(file=str(extract), purpose="--from", reason=reason) from None
        with stream:
            draft = first_draft(stream, extract.name, now().date())
        draft = draft if yes or not context.terminal.attended else _answered(draft, context.terminal)
        doubts = [f"{one.key}: {one.question}" for one in draft.doubts]
        mapping, test = draft.toml, draft.test
    context.folder.mkdir(parents=True, exist_ok=True)
    text = TOML.format(issuer=issuer, root=root, zeros="0" * 40, mapping=mapping, test=str(test).lower())
    file.write_text(text, "utf-8")
    try:
        load_issuer(context.folder, issuer)
    except BaseException:
        file.unlink()
        raise
    write_schema(context.folder)
    facts: dict[str, object] = {"file": str(file), "doubts": doubts}
    lines: list[str | Table] = [f"{file} written; edit its [portal]", *(f"in doubt: {one}" for one in doubts)]
    code = 0
    if extract is not None:
        found, code, facts["extract"] = _tried(context.folder, issuer, extract.resolve())
        lines += ["", *found]
    return Result(facts, lines, f"cardlink check {issuer}", code)


def _answered(draft: Draft, terminal: Terminal) -> Draft:
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


def _tried(folder: Path, issuer: str, extract: Path) -> tuple[list[str | Table], int, dict[str, object]]:
    """Check every row of a file with the settings just written; return what to show, the exit code, the facts."""
    from flows.submissions.dry_run import check_extract

    here = load_issuer(folder, issuer).model_copy(update={"root": str(extract.parent)})
    context = wire(folder, issuer, here)
    try:
        with context.adapters.store.open(extract.name) as stored:
            entry = stored.entry
        done = check_extract(context, entry, None)
    except CardlinkError as error:
        return [full_text(error)], error.exit_code, {"refused": full_text(error)}
    return would_send(done), 3 if done.refused else 0, done.facts
