"""Before the first night: a first TOML, and whether everything is in place."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from flows.commands.entry import Cli, Context, Day, ExtractName, Issuer, entry
from flows.commands.result import Result
from flows.commands.submit import would_send
from flows.wiring import FileThereError, effective_settings, load_issuer, wire

TOML = """\
# {issuer}: where its extracts lie, how its columns map, its portal settings and limits.
issuer = "{issuer}"
root = "{root}" # s3://bucket/prefix or a directory; extracts lie in <root>/{issuer}/extracts/
test = false # true: test cards only
time_zone = "UTC" # of the business date, where an extract's name does not say it

{mapping}
[limits]
max_reject_rate = 0.05 # share of refused rows above which nothing is committed
max_row_jump = 0.5 # distance from the median of the last runs above which nothing is committed
max_error_rate = 0.05 # share of the partner's errors above which a finished night is worth a look

[portal]
key_file = "portal.asc" # the public key the portal shows, beside this file
fingerprints = ["{zeros}"] # its full fingerprint, compared by a person
allowed_hosts = ["links.example.com"] # the hosts a card link may point to
# template = "template.csv" # the blank template downloaded from the portal: header names and order
"""
HEAD = 1 << 20  # bytes of an extract a mapping is guessed from


@entry("init", form="it writes a file on the operator's machine")
def init(
    context: Context, issuer: str, *, extract: Annotated[Path | None, Cli("--from")] = None, root: str = "store"
) -> Result:
    """Write a first TOML for an issuer; with an extract, the column mapping is guessed from it.

    Args:
        issuer: Its name, in lower case with hyphens.
        extract: An extract to guess the mapping from.
        root: s3://bucket/prefix or a directory.
    """
    file = context.folder / f"{issuer}.toml"
    if file.exists():
        raise FileThereError(path=str(file))
    text = TOML.format(issuer=issuer, root=root, zeros="0" * 40, mapping=_mapping(extract))
    context.folder.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    try:
        load_issuer(context.folder, issuer)
    except BaseException:
        file.unlink()
        raise
    return Result({"file": str(file)}, [f"{file} written"], f"edit [portal], then: cardlink check {issuer}")


def _mapping(extract: Path | None) -> str:
    if extract is None:
        return "# [source] and [columns] are not needed where the extract has the portal's own 20 columns.\n"
    from flows.extracts.guess import first_tables

    with extract.open("rb") as stream:
        return first_tables(stream.read(HEAD), extract.name)


@entry("check", form="the dry run of `rerun` checks an extract; settings are checked where they are edited")
def check(context: Context, issuer: Issuer, extract: ExtractName = "", *, business_date: Day = None) -> Result:
    """Check settings, key and store, and with EXTRACT every row of it; nothing is published (a dry run).

    Args:
        issuer: Whose settings.
        extract: An extract below the issuer's extracts.
        business_date: Business date, where the extract's name does not give it.
    """
    from flows.runs.probe import race
    from flows.submissions.dry_run import Rehearsal, check_extract

    issuer_context = wire(context.folder, issuer)
    with issuer_context.sealer() as sealer:
        fingerprints, warnings = sealer.fingerprints, sealer.warnings
    race(issuer_context.adapters.store, f"{issuer}/probe/")
    settings = effective_settings(context.folder, issuer_context.issuer)
    facts: dict[str, object] = {
        "issuer": issuer,
        "settings": {one.name: {"value": one.value, "from": one.origin} for one in settings},
        "fingerprints": list(fingerprints),
        "warnings": list(warnings),
        "store": issuer_context.issuer.root,
    }
    lines = [
        f"settings   {context.folder / issuer}.toml",
        *(f"key        {fingerprint}: trial seal opened up as expected" for fingerprint in fingerprints),
        *(f"warning    {warning}" for warning in warnings),
        f"store      {issuer_context.issuer.root}: writes each object once, also under a race",
    ]
    if not extract:
        return Result(facts, lines, f"cardlink check {issuer} EXTRACT, or cardlink submit {issuer}")
    checked = check_extract(issuer_context, extract, business_date)
    facts["extract"] = {**checked._asdict(), "counts": checked.counts.model_dump()}
    next_step = "" if checked.refused else f"cardlink submit {issuer}"
    return Result(facts, [*lines, "", *would_send(Rehearsal(checked, ""))], next_step, 3 if checked.refused else 0)
