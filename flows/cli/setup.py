"""The commands before the first night: a first TOML, and whether everything is in place."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from flows.cli.answer import Answer, table
from flows.core.errors import OperatorError
from flows.steps.edges import IssuerEdges
from flows.steps.night.check import Checked, check_extract
from flows.wiring import in_effect, load_issuer, wire

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


class AlreadyThereError(OperatorError):
    """The issuer has a TOML."""

    says = "{0} is there already."
    then = "Edit it, or move it away first."

    def __init__(self, file: str) -> None:
        super().__init__(file)


def write_first_toml(folder: Path, issuer: str, extract: Path | None, root: str) -> Answer:
    """Write `<folder>/<issuer>.toml`; nothing is overwritten."""
    file = folder / f"{issuer}.toml"
    if file.exists():
        raise AlreadyThereError(str(file))
    text = TOML.format(issuer=issuer, root=root, zeros="0" * 40, mapping=_mapping(extract))
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    try:
        load_issuer(folder, issuer)
    except BaseException:
        file.unlink()
        raise
    return Answer({"file": str(file)}, [f"{file} written"], f"edit [portal], then: cardlink check {issuer}")


def _mapping(extract: Path | None) -> str:
    if extract is None:
        return "# [source] and [columns] are not needed where the extract has the portal's own 20 columns.\n"
    from flows.core.extract.guess import first_tables

    with extract.open("rb") as stream:
        return first_tables(stream.read(HEAD), extract.name)


def check_issuer(folder: Path, name: str, extract: str | None, day: date | None) -> Answer:
    """Check settings, key and store, and with an extract every row."""
    from flows.edge.probe import race

    edges = wire(folder, name)
    with edges.sealer() as sealer:
        fingerprints, warnings = sealer.fingerprints, sealer.warnings
    race(edges.edges.store, f"{name}/probe/")
    facts: dict[str, object] = {
        "issuer": name,
        "settings": {one.name: {"value": one.value, "from": one.origin} for one in in_effect(folder, edges.issuer)},
        "fingerprints": list(fingerprints),
        "warnings": list(warnings),
        "store": edges.issuer.root,
    }
    lines = [
        f"settings   {folder / name}.toml",
        *(f"key        {fingerprint}: trial seal opened up as expected" for fingerprint in fingerprints),
        *(f"warning    {warning}" for warning in warnings),
        f"store      {edges.issuer.root}: writes each object once, also under a race",
    ]
    if extract is None:
        return Answer(facts, lines, f"cardlink check {name} EXTRACT, or cardlink submit {name}")
    return _with_extract(edges, check_extract(edges, extract, day), facts, lines)


def _with_extract(edges: IssuerEdges, checked: Checked, facts: dict[str, object], lines: list[str]) -> Answer:
    counts = checked.counts
    facts = {**facts, "extract": {**checked._asdict(), "counts": counts.model_dump()}}
    fates = ("read", "submitted", "rejected", "duplicate", "suppressed")
    lines = [
        *lines,
        "",
        f"{checked.extract} would be run {checked.run}, as of {checked.as_of}, {checked.chunks} chunks",
    ]
    lines += table(("rows", "count"), [[fate, getattr(counts, fate)] for fate in fates])
    if checked.found:
        found = [[one.code, one.rows, ", ".join(map(str, one.first))] for one in checked.found]
        lines += ["", *table(("reason", "rows", "first rows"), found)]
    lines += [f"repaired: {name} in {number:,} rows" for name, number in checked.repairs.items() if number]
    if checked.refused:
        return Answer(facts, [*lines, "", f"refused: {checked.refused}"], exit_code=3)
    return Answer(facts, lines, f"cardlink submit {edges.issuer.issuer}")
