"""Before the first night: a first TOML, and a check that everything is in place."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from flows.commands.entry import Context, entry
from flows.commands.parameters import Cli, Day, ExtractName, Issuer
from flows.commands.result import Result
from flows.commands.submit import would_send
from flows.wiring import FileThereError, effective_settings, issuer_file, load_issuer, wire

TOML = """\
# {issuer}: where its extracts are, how its columns map, its portal settings and limits.
issuer = "{issuer}"
root = "{root}" # s3://bucket/prefix or a directory; extracts are in <root>/{issuer}/extracts/
test = false # true: test cards only
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
    context: Context, issuer: str, *, extract: Annotated[Path | None, Cli("--from")] = None, root: str = "store"
) -> Result:
    """Write a first TOML for an issuer, with the mapping guessed if an extract is given.

    Args:
        issuer: Its name, in lower case with hyphens.
        extract: An extract to guess the mapping from.
        root: s3://bucket/prefix or a directory.
    """
    file = issuer_file(context.folder, issuer)
    if file.exists():
        raise FileThereError(path=str(file))
    mapping = "# [source] and [columns] are not needed if the extract has the portal's own columns.\n"
    if extract is not None:
        from flows.extracts.guess import first_tables

        with extract.open("rb") as stream:
            mapping = first_tables(stream, extract.name)
    context.folder.mkdir(parents=True, exist_ok=True)
    file.write_text(TOML.format(issuer=issuer, root=root, zeros="0" * 40, mapping=mapping), "utf-8")
    try:
        load_issuer(context.folder, issuer)
    except BaseException:
        file.unlink()
        raise
    return Result({"file": str(file)}, [f"{file} written; edit its [portal]"], f"cardlink check {issuer}")


@entry("check", form="the dry run of `rerun` checks an extract; settings are checked where they are edited")
def check(context: Context, issuer: Issuer, extract: ExtractName = "", *, business_date: Day = None) -> Result:
    """Check settings, key and store, and with EXTRACT every row of it; nothing is sent.

    Args:
        issuer: Whose settings.
        extract: An extract below the issuer's extracts.
        business_date: The business date, if the extract's name does not say it.
    """
    from flows.runs.probe import race
    from flows.submissions.dry_run import rehearse
    from flows.submissions.submit import Request

    issuer_context = wire(context.folder, issuer)
    with issuer_context.sealer() as sealer:
        fingerprints, warnings = sealer.fingerprints, [warning.text for warning in sealer.warnings]
    race(issuer_context.adapters.store, f"{issuer}/probe/")
    settings = effective_settings(context.folder, issuer_context.issuer)
    facts: dict[str, object] = {
        "issuer": issuer,
        "settings": {one.name: {"value": one.value, "from": one.origin} for one in settings},
        "fingerprints": list(fingerprints),
        "warnings": warnings,
        "store": issuer_context.issuer.root,
    }
    lines = [
        f"settings   {context.folder / issuer}.toml",
        *(f"key        {fingerprint}: the trial seal is as expected" for fingerprint in fingerprints),
        *(f"warning    {warning}" for warning in warnings),
        f"store      {issuer_context.issuer.root}: of concurrent writes to a key, only one succeeds",
    ]
    if not extract:
        return Result(facts, lines, f"cardlink submit {issuer} --dry-run")
    done = rehearse(issuer_context, Request(extract, business_date))
    facts["extract"] = done.facts
    next_step = "" if done.refused or done.already else f"cardlink submit {issuer}"
    return Result(facts, [*lines, "", *would_send(done)], next_step, 3 if done.refused and not done.already else 0)
