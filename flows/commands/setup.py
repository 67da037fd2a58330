"""Before the first night: a first TOML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from flows.commands.entry import Context, entry
from flows.commands.parameters import Cli
from flows.commands.result import Result
from flows.commands.settings import write_schema
from flows.wiring import FileThereError, issuer_file, load_issuer

TOML = """\
#:schema ./cardlink.schema.json
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
    file.write_text(
        TOML.format(issuer=issuer, root=root, zeros="0" * 40, mapping=mapping),
        "utf-8",
    )
    try:
        load_issuer(context.folder, issuer)
    except BaseException:
        file.unlink()
        raise
    write_schema(context.folder)
    return Result({"file": str(file)}, [f"{file} written; edit its [portal]"], f"cardlink check {issuer}")
