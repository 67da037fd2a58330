"""Stores on which a line is refused by an error that shows what to do next."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from sqlalchemy import delete, update

from flows.commands.context import Context
from flows.commands.result import Result
from flows.database.connection import Database
from flows.errors import CardlinkError
from flows.extensions.governance.tables import REQUEST, SETTINGS_IN_FORCE
from flows.runs.keys import corrections, extracts
from flows.runs.stored_journal import flush_journal
from schemas.portal import EMAIL, NICKNAME, PAN, PHONE
from tests import keys, mentions
from tests.builders import portal_rows
from tests.extensions.partner_api.linker import PANS
from tests.night import Bench, portal_csv
from tests.submissions.test_drift import extract as usual_extract
from tests.submissions.test_drift import half
from tests.submissions.test_drift import settled as after_five_nights
from tests.test_dry_runs import CASES as PREPARED
from tests.test_dry_runs import answered, bank, facts_of, sent, unattributed
from tests.torture.partner import SERVICE, served

WHY = "--reason 'ticket 7'"
EXTRACT = "bank-20261120.csv"
NEXT = "bank-20261121.csv"


class Refusal(NamedTuple):
    """A line that is refused; `words` replace placeholders, and are the values of options that are
    shown without one.
    """

    line: str
    words: Mapping[str, str] = {}
    actor: str | None = None  # by default somebody at a terminal
    other: str = ""  # the line that options of another command complete
    error: CardlinkError | None = None  # where only other machines could bring it about


def typed(folder: Path, line: str, words: Mapping[str, str], actor: str | None = None) -> Result:
    """Run a line, as a person or as nobody, with what replaces its placeholders."""
    replaced = {**mentions.REPLACED, "ISSUER": "bank", **words}
    typed_words = [replaced.get(word, word) for word in shlex.split(line)[1:]]
    parsed = mentions.parsed(typed_words)
    entry = mentions.ENTRIES[parsed.command_path.removeprefix("cardlink ")]
    context = Context(folder, local_files=actor is None, actor=actor or "")
    with served(folder):
        return entry.invoke(context, parsed.params)


def setting(folder: Path, **changes: str) -> None:
    """Replace texts of the TOML file; `add` is put at its end."""
    toml = (folder / "bank.toml").read_text() + changes.pop("add", "")
    for before, after in changes.items():
        toml = toml.replace(before, after)
    (folder / "bank.toml").write_text(toml)


def limit(folder: Path, name: str, value: float) -> None:
    """Set a limit of the TOML file."""
    setting(folder, **{f"{name} = 1.0": ""})
    setting(folder, **{"[limits]": f"[limits]\n{name} = {value}"})


def submitting(name: str = EXTRACT, more: str = "") -> str:
    """Return the line that submits an extract."""
    return f"cardlink submit bank --extract {name} {more}".rstrip()


def rejects(folder: Path) -> Refusal:
    """Drop an extract with more rejects than the limit."""
    name = bank(folder).drop(20, bad=0.5, seed=3)
    limit(folder, "max_reject_rate", 0.0)
    return Refusal(submitting(name))


def ineligible(folder: Path) -> Refusal:
    """Drop an extract with more cards that no link is for than the limit."""
    rows = portal_rows({}, {PAN: "378282246310005"})
    name = bank(folder).drop_bytes(portal_csv(rows))
    limit(folder, "max_ineligible_rate", 0.1)
    return Refusal(submitting(name))


def seen_before(folder: Path) -> Refusal:
    """Drop an extract of cards that were sent before, and of one that was not."""
    bench = bank(folder)
    people = [{PAN: pan} for pan in PANS]
    bench.submit(bench.drop_bytes(portal_csv(portal_rows(*people[:4]))))
    bench.drop_bytes(portal_csv(portal_rows(*people)), NEXT)
    limit(folder, "max_seen_before", 0.1)
    return Refusal(submitting(NEXT))


def unknown_status(folder: Path) -> Refusal:
    """Drop an extract with a status that nobody named."""
    rows = portal_rows({NICKNAME: "A"}, {NICKNAME: "Z", PAN: PANS[1]})
    name = bank(folder).drop_bytes(portal_csv(rows))
    setting(folder, add=f'[status]\n"{NICKNAME}" = {{ send = ["A"], leave_out = ["P"] }}\n')
    return Refusal(submitting(name))


def other_sidecar(folder: Path) -> Refusal:
    """Drop an extract whose sidecar has another day than the one typed."""
    name = bank(folder).drop(3)
    setting(folder, add='[source]\nsidecar = "ctl"\n')
    extract = folder / "store" / extracts("bank") / name
    facts = f"count=3\nbytes={extract.stat().st_size}\ndate=2026-11-20\n"
    extract.with_name(f"{name}.ctl").write_text(facts)
    return Refusal(submitting(name, "--date 2026-11-21"), {"date": "2026-11-20"})


def need_two(folder: Path, *acts: str) -> None:
    """Let acts need two persons, from the first command on."""
    setting(folder, add=f"\n[four_eyes]\nacts = {json.dumps(acts)}\n")
    facts_of(folder, "agree", issuer="bank", reason="from now on")


def not_agreed(folder: Path) -> Refusal:
    """Change settings that two persons agree to."""
    bank(folder).drop(3)
    need_two(folder, "settings")
    setting(folder, **{"[limits]": "[limits]\nmax_row_jump = 9.0"})
    setting(folder, **{"chunks_days = 0": "chunks_days = 7"})
    return Refusal(submitting(), actor="anna")


def nobody(folder: Path) -> Refusal:
    """Let nobody begin what needs two."""
    _, run = sent(folder)
    need_two(folder, "hold")
    return Refusal(f"cardlink outbox hold {run} 1 {WHY}", actor="")


def requested(folder: Path) -> tuple[str, str]:
    """Let anna ask for what needs two; return the line, and the number of her request."""
    _, run = sent(folder)
    need_two(folder, "cancel")
    line = f"cardlink outbox cancel {run} 1 {WHY}"
    return line, typed(folder, line, {}, "anna").facts["request"]


def own_request(folder: Path) -> Refusal:
    """Let a person approve an own request."""
    line, number = requested(folder)
    return Refusal(f"{line} --approve {number}", actor="anna")


def edited_request(folder: Path) -> Refusal:
    """Change what is stored of a request."""
    line, number = requested(folder)
    database = Database(folder / "cardlink.db")
    database.act(
        "bank", lambda connection: connection.execute(update(REQUEST).values(actor="carl"))
    )
    return Refusal(f"{line} --approve {number}", actor="anna")


def settings_lost(folder: Path) -> Refusal:
    """Remove the record of settings that a run names."""
    bench = bank(folder)
    bench.drop(3)
    facts_of(folder, "submit", issuer="bank")
    bench.database.act("bank", lambda connection: connection.execute(delete(SETTINGS_IN_FORCE)))
    bench.drop(3, NEXT, seed=3)
    limit(folder, "max_reject_rate", 0.9)
    return Refusal(submitting(NEXT))


def other_journal(folder: Path) -> Refusal:
    """Lose the database of an issuer whose store has the journal."""
    bench = bank(folder)
    bench.drop(3)
    facts_of(folder, "submit", issuer="bank")
    flush_journal(bench.adapters, "bank")
    bench.database.close()
    for file in folder.glob("cardlink.db*"):
        file.unlink()
    bench.drop(3, NEXT, seed=3)
    return Refusal(submitting(NEXT))


def about(
    folder: Path, prepare: Callable[[Path], tuple[Bench, str]], line: str, **words: str
) -> Refusal:
    """Return a line about the run of a prepared store."""
    _, run = prepare(folder)
    return Refusal(line.format(run=run, why=WHY), {"RUN": run, **words})


def known(
    line: str, *, prepare: Callable[[Path], tuple[Bench, str]] = sent, **words: str
) -> Callable[[Path], Refusal]:
    """Return a case of a line about the run of a store that is prepared so."""
    return lambda folder: about(folder, prepare, line, **words)


def done_before(command: str, line: str, **words: str) -> Callable[[Path], Refusal]:
    """Return a case of a line on the store that a command of the dry runs is prepared on."""

    def case(folder: Path) -> Refusal:
        arguments = PREPARED[command](folder)
        run = str(arguments.get("run", ""))
        return Refusal(line.format(run=run, why=WHY), {"RUN": run, **words}, other=submitting())

    return case


def abandoned(folder: Path) -> Refusal:
    """Abandon a run."""
    arguments = PREPARED["mend abandon"](folder)
    facts_of(folder, "mend abandon", **arguments)
    return Refusal(submitting())


def unsealed(folder: Path) -> Refusal:
    """Drop a card that is no published one, where chunks are not sealed."""
    bank(folder).drop_bytes(portal_csv(portal_rows({PAN: "4000001234567899"})))
    setting(folder, **{"[portal]": "[portal]\nsealed = false"})
    return Refusal(submitting(), {"FILE": str(folder / "sample.csv")})


def other_settings(folder: Path) -> Refusal:
    """Change the settings of a run whose chunks are to be sealed again."""
    run = PREPARED["mend reseal"](folder)["run"]
    setting(folder, **{"rows_per_chunk = 10": "rows_per_chunk = 15"})
    return Refusal(f"cardlink mend reseal {run} {WHY}", {"RUN": run}, other=submitting())


def sealed_again(folder: Path) -> Refusal:
    """Fetch chunks, and seal them again before they are recorded as uploaded."""
    run = PREPARED["mend reseal"](folder)["run"]
    facts_of(folder, "upload", run=run, to=folder / "fetched")
    facts_of(folder, "mend reseal", run=run, reason="a new key")
    return Refusal(
        f"cardlink outbox uploaded bank --fetched {folder / 'fetched'}",
        {"FOLDER": str(folder / "again")},
    )


def unreadable(folder: Path) -> Refusal:
    """Fill in no template."""
    _, run = answered(folder)
    (folder / "filled.csv").write_text("a,b\n1,2\n")
    return Refusal(
        f"cardlink resubmit {run} --errors --corrections {folder / 'filled.csv'} {WHY}",
        {"RUN": run, "FILE": str(folder / "new.csv")},
    )


def source_gone(folder: Path) -> Refusal:
    """Replace the extract of a run by a newer one."""
    bench, run = answered(folder)
    extract = folder / "store" / extracts("bank") / EXTRACT
    extract.rename(extract.with_name(NEXT))
    bench.store.replace(extracts("bank") + EXTRACT, [b"other"])
    (folder / "store" / corrections("bank")).mkdir(parents=True)
    shutil.copy(extract.with_name(NEXT), folder / "store" / corrections("bank") / NEXT)
    line = f"cardlink resubmit {run} --errors {WHY}"
    shown = typed(folder, f"{line} --extract {NEXT} --dry-run", {}).rows
    return Refusal(f"{line} --rows {shown}", {"extract": NEXT})


def corrections_not_there(folder: Path) -> Refusal:
    """Name a filled-in template that is on this machine alone."""
    _, run = answered(folder)
    facts_of(folder, "corrections", run=run, to=folder / "filled.csv")
    filled = str(folder / "filled.csv")
    line = f"cardlink resubmit {run} --errors {WHY}"
    shown = typed(folder, f"{line} --corrections {filled} --dry-run", {}).rows
    return Refusal(f"{line} --corrections filled.csv --rows {shown}", {"corrections": filled})


def other_digits(folder: Path) -> Refusal:
    """Attribute a link to a row of another card."""
    run = unattributed(folder)
    return Refusal(
        f"cardlink mend attribute bank card-links-{run}.csv --row 1 --to {run}:2 {WHY}",
        {"RUN": run},
    )


def settled(folder: Path) -> Refusal:
    """Attribute what is attributed."""
    run = unattributed(folder)
    line = f"cardlink mend attribute bank a.csv --row 1 --to {run}:1 {WHY}"
    typed(folder, line, {})
    return Refusal(line.replace(f"{run}:1", f"{run}:2"), {"RUN": run})


def wrong_setting(folder: Path) -> Refusal:
    """Misspell a setting."""
    bank(folder)
    setting(folder, **{"max_seen_before": "max_seen"})
    return Refusal("cardlink submit bank")


def no_key(folder: Path) -> Refusal:
    """Simulate answers to sealed chunks."""
    sent(folder)
    (folder / "secret.asc").write_bytes(keys.sound().secret)
    return Refusal("cardlink simulate bank", {"FILE": str(folder / "secret.asc")})


def no_answers(folder: Path) -> Refusal:
    """Answer by a file that has no questions."""
    answered(folder)
    (folder / "answers.csv").write_text("a,b\n1,2\n")
    return Refusal(f"cardlink answers {folder / 'answers.csv'} {WHY}")


def with_service(
    prepare: Callable[[Path], tuple[Bench, str]], line: str, **words: str
) -> Callable[[Path], Refusal]:
    """Return a case of an issuer that reaches the partner's service."""

    def case(folder: Path) -> Refusal:
        refusal = about(folder, prepare, line, **words)
        setting(folder, add=SERVICE)
        file = str(folder / "rows.csv")
        Path(file).write_text(f"run,row\n{refusal.words['RUN']},2\n")
        return refusal._replace(words={**refusal.words, "FILE": file, "rows": file})

    return case


def listed(folder: Path) -> Refusal:
    """Send another list than the one that was shown."""
    bank(folder).drop(3)
    return Refusal(
        "cardlink backfill bank --from 2026-11-20 --to 2026-11-20 --send 0123456789abcdef"
    )


def copied(folder: Path) -> Refusal:
    """Drop the bytes of a committed extract under another name."""
    bench, _ = sent(folder)
    bench.store.replace(extracts("bank") + NEXT, [bench.content(extracts("bank") + EXTRACT)])
    return Refusal(submitting(NEXT))


def changed(folder: Path) -> Refusal:
    """Drop other content under the name of a committed extract."""
    bench, _ = sent(folder)
    bench.drop(20, seed=9)
    return Refusal(submitting())


def dismissed(folder: Path) -> Refusal:
    """Dismiss an extract."""
    facts_of(folder, "dismiss", **PREPARED["dismiss"](folder))
    return Refusal(submitting())


def empty(folder: Path) -> Refusal:
    """Drop an empty extract."""
    bank(folder).drop_bytes(b"")
    return Refusal(submitting())


def raised(error: str, **fields: Any) -> Callable[[Path], Refusal]:
    """Return a case whose error only another machine could bring about, on an answered store."""

    def case(folder: Path) -> Refusal:
        _, run = answered(folder)
        mentions.modules()  # each error is imported
        kind = next(one for one in mentions.errors() if one.__name__ == error)
        filled = {
            name: value.format(run=run) if isinstance(value, str) else value
            for name, value in fields.items()
        }
        words = {"RUN": run, "FILE": str(folder / "key"), "NAME": "witness", "ROW": "1"}
        return Refusal("cardlink ingest bank", words, error=kind(**filled))

    return case


def no_portfolio(folder: Path) -> Refusal:
    """Let an issuer send its full portfolio, which never came."""
    bank(folder)
    setting(folder, **{"test = true": "test = true\nfull_portfolio = true"})
    return Refusal("cardlink renew bank")


def other_receiver(folder: Path) -> Refusal:
    """Add a receiver that was delivered nothing."""
    answered(folder)
    setting(folder, add="[deliveries.crm]\n")
    return Refusal(f"cardlink deliver bank crm --confirm 1 {WHY}")


def copied_before(folder: Path) -> Refusal:
    """Copy chunks to a folder that is not named again."""
    sent(folder)
    facts_of(folder, "upload", run="bank", to=folder / "fetched")
    return Refusal("cardlink upload bank --done", {"FOLDER": str(folder / "fetched")})


def not_copied(folder: Path) -> Refusal:
    """Record chunks as uploaded that nobody copied."""
    sent(folder)
    return Refusal(f"cardlink upload bank --to {folder / 'fetched'} --done")


def nights(folder: Path, last: int, **limits: float) -> Refusal:
    """Submit three nights of twelve rows, and drop one of another size."""
    bench = bank(folder)
    for night in range(3):
        bench.submit(bench.drop(12, f"bank-2026111{night}.csv", seed=night))
    bench.drop(last, seed=3)
    for name, value in limits.items():
        limit(folder, name, value)
    return Refusal(submitting())


def more_rows(folder: Path) -> Refusal:
    """Drop an extract of twice the usual rows."""
    return nights(folder, 24)


def fewer_rows(folder: Path) -> Refusal:
    """Drop an extract of fewer rows than a setting allows."""
    return nights(folder, 9, max_row_fall=0.1)


def other_cells(folder: Path) -> Refusal:
    """Drop an extract in which a column is half empty, after five in which it was full."""
    after_five_nights(bank(folder))
    rows = usual_extract(80, 6).with_columns(half(EMAIL))
    (folder / "store" / extracts("bank") / NEXT).write_bytes(portal_csv(rows))
    setting(folder, **{"[limits]": '[limits]\ndrift = "refuse"'})
    return Refusal(submitting(NEXT))


def other_portfolio(folder: Path) -> Refusal:
    """Drop a portfolio of the rows of others."""
    bench = bank(folder)
    setting(folder, **{"test = true": "test = true\nfull_portfolio = true"})
    bench.drop(12, EXTRACT)
    facts_of(folder, "submit", issuer="bank")
    bench.drop(12, NEXT, seed=3)
    return Refusal(submitting(NEXT, more="--open newcomers"))


def grown_portfolio(folder: Path) -> Refusal:
    """Drop a portfolio of six times as many rows."""
    bench = bank(folder)
    setting(folder, **{"test = true": "test = true\nfull_portfolio = true"})
    bench.drop(12, EXTRACT)
    facts_of(folder, "submit", issuer="bank")
    bench.drop(72, NEXT)
    return Refusal(submitting(NEXT))


def one_phone(folder: Path) -> Refusal:
    """Drop an extract in which all cardholders have one phone number."""
    rows = usual_extract(20, 6).with_columns(pl.lit("617-555-0100").alias(PHONE))
    bank(folder).drop_bytes(portal_csv(rows), EXTRACT)
    return Refusal(submitting())


def undecided(folder: Path) -> Refusal:
    """Leave open which rows count."""
    bank(folder).drop(3)
    setting(folder, add=f'[status]\n"{NICKNAME}" = "undecided"\n')
    return Refusal(submitting())
