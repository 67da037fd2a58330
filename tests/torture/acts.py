"""Every command that changes something, as an act to be harmed: where it is run, and with what.

Taken from the table of entries: `ACTS` has each.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from flows.commands.context import Context
from flows.commands.entry import Entry
from flows.commands.worklist import worklist
from flows.extensions.privacy.erasure import ERASING
from flows.registry import ENTRIES
from flows.reports.work_kinds import UNKNOWN_SINGLES
from flows.runs.stored_journal import flush_journal
from tests.extensions.partner_api.linker import left_over
from tests.night import DAY, Bench
from tests.operations.test_questions import answered as answered_in_part
from tests.operations.test_questions import filled, written
from tests.test_dry_runs import CASES, WHY, Facts, answered, bank, facts_of, sent, with_rows
from tests.torture.partner import SERVICE

NAMED = {entry.name: entry for entry in ENTRIES}


class Act(NamedTuple):
    """A command, and how its store is prepared: given a folder, it returns the arguments."""

    command: str
    prepare: Callable[[Path], Facts]
    # the line of the worklist that asks a person what became of a request whose answer was lost
    unsure: str = ""
    # the line of the worklist under which `audit verify` may find what is half done
    half_done: str = ""
    # its repetition adds records of its own
    adds_records: bool = False
    # what is refused until it is repeated says so, and nothing else is claimed of it in between
    must_be_repeated: bool = False

    @property
    def entry(self) -> Entry[...]:
        """The command's entry."""
        return NAMED[self.command]


def _dropped(folder: Path) -> Facts:
    bank(folder).drop(30)
    return {"issuer": "bank"}


def _to_ingest(folder: Path) -> Facts:
    bench, _ = sent(folder)
    bench.answer(fail_share=0.3, seed=1)
    return {"issuer": "bank"}


def _errors(folder: Path) -> Facts:
    run = answered(folder)[1]
    return with_rows(folder, "resubmit", run=run, errors=True, **WHY)


def _ending(folder: Path) -> Facts:
    bench, _ = sent(folder)
    bench.answer(fail_share=0, expires=datetime.now(UTC).date() + timedelta(days=10))
    bench.ingest()
    return with_rows(folder, "renew", issuer="bank", within_days=14)


def _cancelled(folder: Path) -> Facts:
    _, run = sent(folder)
    facts_of(folder, "outbox cancel", run=run, chunks=(1, 2, 3), **WHY)
    extract = "bank-20261120.csv"
    return {"issuer": "bank", "extract": extract, "new_run_reason": "the portal lost it"}


def _missed(folder: Path) -> Facts:
    days: dict[str, date] = {"first_day": DAY, "last_day": DAY}
    case = _dropped(folder)
    listed = facts_of(folder, "backfill", **case, **days)
    return {**case, **days, "send_list": listed["digest"]}


def _delivered(folder: Path) -> Facts:
    answered(folder)
    facts_of(folder, "deliver", issuer="bank")
    return {"issuer": "bank", "confirm": 1, **WHY}


def _answered(folder: Path) -> Facts:
    return {"issuer": answered(folder)[0].issuer.issuer}


def _to_ask(folder: Path) -> Facts:
    answered_in_part(folder)
    return {"to": folder / "ask.csv"}


def _asked(folder: Path) -> Facts:
    answered_in_part(folder)
    questions = written(folder)
    return {"answers": Path(filled(folder, questions, "lost", "", "send again")), **WHY}


def _with_service(prepare: Callable[[Bench], str]) -> Callable[[Path], Facts]:
    """Prepare a run of an issuer that reaches the partner's service."""

    def prepared(folder: Path) -> Facts:
        bench = bank(folder)
        with (folder / "bank.toml").open("a") as toml:
            toml.write(SERVICE)
        return {"run": prepare(bench)}

    return prepared


def _opened(bench: Bench) -> str:
    run = bench.submit(bench.drop(12)).manifest.run
    bench.answer(fail_share=0)
    bench.ingest()
    return run


def _to_link(**options: Any) -> Callable[[Path], Facts]:
    prepare = _with_service(left_over)
    return lambda folder: {"target": prepare(folder)["run"], **options}


def _to_follow(folder: Path) -> Facts:
    _with_service(_opened)(folder)
    return {"issuer": "bank"}


def _lost(folder: Path) -> Facts:
    """Prepare a store whose database is lost, with the journal that it has in segments."""
    bench, _ = answered(folder)
    flush_journal(bench.adapters, bench.issuer.issuer)
    bench.database.close()
    for file in folder.glob("cardlink.db*"):
        file.unlink()
    return {"issuer": bench.issuer.issuer, **WHY}


def _numbered(folder: Path) -> Facts:
    """Prepare matters that were shown by their numbers, one of which can be given up."""
    answered(folder)
    listed = worklist(Context(folder), "bank").facts["worklist"]
    names = {line["numbers"]: {each["decision"] for each in line["decisions"]} for line in listed}
    number = next(number for number, decisions in names.items() if "give up" in decisions)
    return {"issuer": "bank", "numbers": number, "choice": "give-up", **WHY}


MORE = {
    "decide": Act("decide", _numbered),
    "link": Act("link", _to_link(row=2), unsure=UNKNOWN_SINGLES),
    "link --errors": Act("link", _to_link(errors=True), unsure=UNKNOWN_SINGLES),
    "placements": Act("placements", _to_follow),
    "questions": Act("questions", _to_ask),
    "answers": Act("answers", _asked),
    "submit": Act("submit", _dropped),
    "submit --new-run": Act("submit", _cancelled),
    "ingest": Act("ingest", _to_ingest),
    "resubmit": Act("resubmit", _errors),
    "renew": Act("renew", _ending),
    "backfill": Act("backfill", _missed),
    "deliver --confirm": Act("deliver", _delivered),
    "reconcile": Act("reconcile", _answered),
    "recover": Act("recover", _lost, adds_records=True, must_be_repeated=True),
}


SPECIAL: dict[str, dict[str, Any]] = {
    "person erase": {"half_done": ERASING.name, "adds_records": True},
    # each request to read a file again is a record of its own
    "mend ingest-again": {"adds_records": True},
}
ACTS = {name: Act(name, prepare, **SPECIAL.get(name, {})) for name, prepare in CASES.items()} | MORE


def unharmed() -> set[str]:
    """Return the commands that change something and are no act."""
    changing = {entry.name for entry in ENTRIES if entry.changes}
    return changing - {act.command for act in ACTS.values()}


def run(act: Act, folder: Path, case: dict[str, Any], actor: str = "") -> Any:
    """Run an act as somebody, and return its result."""
    return act.entry.invoke(Context(folder, actor=actor, local_files=True), case)
