"""A dry run says what the command after it does: for every command that has one, facts are held
against facts.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flows.adapters.local import LocalStore
from flows.commands.context import Context
from flows.database.connection import Database
from flows.errors import CardlinkError
from flows.extensions.deliveries.delivered import deliveries
from flows.extensions.deliveries.delivery import deliver
from flows.registry import ENTRIES
from flows.runs.claim import Lease, work_on
from flows.wiring import open_store
from schemas.portal import ADDRESS1, CITY, CUID, PAN, POSTAL_CODE
from tests import keys
from tests.again import PANS, correct
from tests.builders import portal_rows, quick, share_of
from tests.copies import copy_folder
from tests.mentions import pasted
from tests.night import Bench, edges, issuer, kept_folder, portal_csv, uncommit

TOML = """
issuer = "bank"
root = "store"
test = true
[limits]
max_reject_rate = 1.0
max_error_rate = 1.0
max_seen_before = 1.0
[retention]
chunks_days = 0
[portal]
fingerprints = ["{fingerprint}"]
allowed_hosts = ["links.example.com"]
rows_per_chunk = 10
"""
HEAD = "cuid,last_4,url,expiration_date,error\n"
WHY = {"reason": "ticket INC0012345, agreed 2026-11-20"}
VOLATILE = {"at", "by", "since", "clock", "dry_run"}
Facts = dict[str, Any]


def bank(folder: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Bench:
    """Return the bench that writes where the commands of `folder` read."""
    (folder / "store").mkdir()
    pin(folder, keys.sound().fingerprint, keys.sound().public)
    limits = {"max_reject_rate": 1.0, "max_error_rate": 1.0, "max_seen_before": 1.0}
    return Bench(
        open_store(issuer(), folder),
        issuer(limits=limits, portal={"rows_per_chunk": 10}),
        now=now,
        database=Database(folder / "cardlink.db"),
    )


def pin(folder: Path, fingerprint: str, public: bytes) -> None:
    (folder / "bank.toml").write_text(TOML.format(fingerprint=fingerprint))
    (folder / "portal.asc").write_bytes(public)


def facts_of(folder: Path, command: str, **options: Any) -> Facts:
    """Run a command; return its facts, or the name of the error it ended with."""
    entry = next(one for one in ENTRIES if one.name == command)
    try:
        return entry(Context(folder), **options).facts
    except CardlinkError as error:
        return {"error": type(error).__name__}


def with_rows(folder: Path, command: str, **options: Any) -> Facts:
    """Return the values of a command, with the number of rows that its dry run shows."""
    tried = facts_of(folder, command, **options, dry_run=True)
    return {**options, "rows": str(tried["rows"])}


def tried_and_done(folder: Path, command: str, **options: Any) -> tuple[Facts, Facts]:
    """Return the facts of a command's dry run, which must change nothing, and those of the command
    right after it, about so many rows as it showed.
    """
    before = objects(folder)
    tried = facts_of(folder, command, **options, dry_run=True)
    assert before == objects(folder)
    if command in {"resubmit", "renew"} and isinstance(tried.get("rows"), int):
        options["rows"] = str(tried["rows"])
    return tried, facts_of(folder, command, **options)


def objects(folder: Path) -> dict[Path, bytes]:
    """Return every file of the store but segments of the journal, which the database has."""
    files = (path for path in (folder / "store").rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files if "journal" not in path.parts}


def lasting(facts: Any) -> Any:
    """Return facts without what only a moment or a report says."""
    if isinstance(facts, dict):
        return {name: lasting(one) for name, one in facts.items() if name not in VOLATILE}
    return [lasting(one) for one in facts] if isinstance(facts, list | tuple) else facts


def sent(folder: Path, rows: int = 30) -> tuple[Bench, str]:
    """Return the bench after a night that was submitted."""
    bench = bank(folder)
    store, run = _sent(rows)
    bench.database.close()  # of the file that another takes the place of
    copy_folder(store.parent, folder, shutil.ignore_patterns("*.toml", "*.asc"))
    return bench, run


def answered(folder: Path, fail: float = 0.3) -> tuple[Bench, str]:
    """Return the bench after a night that was answered."""
    bench = bank(folder)
    store, run = _answered(fail)
    bench.database.close()  # of the file that another takes the place of
    copy_folder(store.parent, folder, shutil.ignore_patterns("*.toml", "*.asc"))
    return bench, run


@cache
def _sent(rows: int) -> tuple[Path, str]:
    bench = bank(folder := kept_folder("sent-"))
    return folder / "store", bench.submit(bench.drop(rows)).manifest.run


@cache
def _answered(fail: float) -> tuple[Path, str]:
    bench, run = sent(folder := kept_folder("answered-"))
    bench.answer(fail_share=fail, seed=1)
    bench.ingest()
    return folder / "store", run


def unattributed(folder: Path) -> str:
    """Answer all of a run but one row, and drop an error without a name; return the run."""
    bench, run = sent(folder, 3)
    bench.drop_result(f"{HEAD},,,,[object Object]\n".encode(), "a.csv")
    bench.drop_result(
        f"{HEAD}nobody,4242,https://links.example.com/1,2030-01-01,\n".encode(),
        f"card-links-{run}.csv",
    )
    bench.ingest()
    return run


def abandon(folder: Path) -> Facts:
    _, run = sent(folder)
    uncommit(folder, run)
    return {"run": run}


def take_over(folder: Path) -> Facts:
    case = abandon(folder)
    work = work_on(edges(LocalStore(folder / "store")), case["run"])
    # a process of another machine died while it held the claim
    Lease.take(work, "dead:1", datetime.now(UTC), timedelta(minutes=45))
    return case


def reseal(folder: Path) -> Facts:
    _, run = sent(folder)
    new = keys.sound(copy=2)
    pin(folder, new.fingerprint, new.public)
    return {"run": run}


def outbox(folder: Path) -> Facts:
    return {"run": sent(folder)[1]}


def held(folder: Path) -> Facts:
    case = outbox(folder)
    facts_of(folder, "outbox hold", **case, chunks=(1, 3), **WHY)
    return case


def broken(folder: Path) -> Facts:
    bench, run = answered(folder, fail=0.0)
    bench.drop_result(
        f"{HEAD},,,,[object Object]\n".encode(), f"card-links-{run}-00001-result-2.csv"
    )
    bench.ingest()
    return {"run": run, "break_name": "UNATTRIBUTED_ERROR"}


def closed(folder: Path) -> Facts:
    case = broken(folder)
    facts_of(folder, "mend close", **case, rows="1", **WHY)
    return case


def moved(folder: Path) -> Facts:
    """Let somebody with a link move; return the run whose extract says so."""
    bench = bank(folder)
    for day, street in (("19", "1 Main St"), ("20", "2 Side St")):
        people = portal_rows({CUID: "a", ADDRESS1: street})
        run = bench.submit(bench.drop_bytes(portal_csv(people), f"bank-202611{day}.csv")).manifest
        bench.answer(fail_share=0)
        bench.ingest()
    return {"run": run.run, "rows": "1", **WHY}


def attributed(folder: Path) -> Facts:
    run = unattributed(folder)
    facts_of(folder, "mend attribute", issuer="bank", result="a.csv", row=1, to=f"{run}:1", **WHY)
    return {"issuer": "bank", "result": "a.csv", "row": 1}


def removed(folder: Path) -> str:
    """Remove a record that the journal names; return its key."""
    deliver(answered(folder)[0].context)
    key = f"{deliveries('bank')}000001/links.csv"
    (folder / "store" / key).unlink()
    return key


FORM = "https://links.example.com/l/{hex:24}"


# For each command that changes nothing but what its facts name: where it is run, and with what.
def acknowledging(folder: Path) -> Facts:
    """Return the arguments of an acknowledgement that is due."""
    named = answered(folder)[0].issuer.issuer
    with (folder / "bank.toml").open("a") as toml:
        toml.write("[acknowledgement]\n")
    return {"issuer": named}


CASES: dict[str, Callable[[Path], Facts]] = {
    "outbox uploaded": outbox,
    "upload": lambda folder: {**outbox(folder), "done": True},
    "outbox hold": lambda folder: {**outbox(folder), "chunks": (2,), **WHY},
    "outbox release": lambda folder: {**held(folder), "rows": "20", **WHY},
    "outbox cancel": lambda folder: {**held(folder), "rows": "30", **WHY},
    "mend abandon": lambda folder: {**abandon(folder), **WHY},
    "mend take-over": lambda folder: {**take_over(folder), **WHY},
    "mend reseal": lambda folder: {**reseal(folder), **WHY},
    "mend ingest-again": lambda folder: {
        "issuer": "bank",
        "result": unattributed(folder) and "a.csv",
        **WHY,
    },
    "mend attribute": lambda folder: {
        **{"issuer": "bank", "row": 1, "to": f"{unattributed(folder)}:1", "result": "a.csv"},
        **WHY,
    },
    "mend withdraw": lambda folder: {**attributed(folder), **WHY},
    "mend close": lambda folder: {**broken(folder), "rows": "1", **WHY},
    "mend reopen": lambda folder: {**closed(folder), "rows": "1", **WHY},
    "mend give-up": lambda folder: {**outbox(folder), "row": (2,), **WHY},
    "mend keep-link": moved,
    "person erase": lambda folder: {"target": answered(folder)[1], "row": 2, **WHY},
    "purge": lambda folder: {"issuer": answered(folder)[0].issuer.issuer},
    "dismiss": lambda folder: {"issuer": "bank", "extract": bank(folder).drop(3), **WHY},
    "link-form": lambda folder: {"issuer": bank(folder).issuer.issuer, "form": FORM, **WHY},
    "agree": lambda folder: {"issuer": bank(folder).issuer.issuer, **WHY},
    "audit accept": lambda folder: {"issuer": "bank", "key": removed(folder), **WHY},
    "deliver": lambda folder: {"issuer": answered(folder)[0].issuer.issuer},
    "acknowledge": acknowledging,
}
ROWS = {"submit", "resubmit", "renew"}  # held to what is sent, below
ANSWERED = {"answers"}  # held to it in tests/operations/test_questions.py
BY_NUMBER = {"decide"}  # in tests/cli/test_by_number.py
LINKED = {"link"}  # in tests/extensions/partner_api/test_many_links.py


def test_every_command_with_a_dry_run_is_held_to_it() -> None:
    trying = {
        one.name for one in ENTRIES if any(given.name == "dry_run" for given in one.parameters)
    }

    assert trying == CASES.keys() | ROWS | ANSWERED | BY_NUMBER | LINKED


@pytest.mark.parametrize("command", quick(14, list(CASES)))
def test_a_dry_run_says_what_the_command_then_does(tmp_path: Path, command: str) -> None:
    case = CASES[command](tmp_path)
    entry = next(one for one in ENTRIES if one.name == command)
    before = objects(tmp_path)

    tried = entry(Context(tmp_path), **case, dry_run=True)
    unchanged = objects(tmp_path)
    done = pasted(
        tmp_path, str(tried.next_step or entry.step(case))
    )  # its line does what was tried

    assert before == unchanged
    assert lasting(tried.facts) == {
        name: lasting(done.facts)[name] for name in lasting(tried.facts)
    }
    assert command == (tried.next_step or entry.step(case)).entry


def would_send(facts: Facts) -> tuple[list[Any], int]:
    """Return what a dry run of submit would send, and how many extracts it would refuse."""
    each = facts["extracts"]
    runs = [
        (one["run"], one["counts"], one["chunks"])
        for one in each
        if not one["refused"] and not one["already"]
    ]
    return runs, len(facts["refused"]) + sum(1 for one in each if one["refused"])


def did_send(facts: Facts) -> tuple[list[Any], int]:
    """Return the same of a submit."""
    runs = [
        (one["run"], one["counts"], one["chunks"]) for one in facts["runs"] if not one["already"]
    ]
    return runs, len(facts["refused"])


ROW = st.fixed_dictionaries(
    {CUID: st.sampled_from("abcdefgh"), CITY: st.sampled_from(["Salem", None])}
)
EXTRACT = st.lists(ROW, min_size=1, max_size=6)


@pytest.mark.slow
@settings(max_examples=share_of(0.16))
@given(st.lists(EXTRACT, min_size=1, max_size=3), EXTRACT, st.booleans())
def test_a_dry_run_of_new_extracts_counts_what_a_submit_then_sends(
    extracts: list[list[Facts]], earlier: list[Facts], copied: bool
) -> None:
    with TemporaryDirectory() as place:
        bench = bank(Path(place))
        bench.submit(bench.drop_bytes(csv(earlier), "bank-20261119.csv"))
        contents = [csv(rows) for rows in [*extracts, *([earlier, extracts[0]] if copied else [])]]
        for number, content in enumerate(contents):
            bench.drop_bytes(content, f"bank-2026112{number}.csv")

        tried, done = tried_and_done(Path(place), "submit", issuer="bank")

        assert "error" in done or would_send(tried) == did_send(done)
        assert "error" not in done or ("error" in tried or would_send(tried)[0] == [])


def csv(rows: list[Facts]) -> bytes:
    """Return an extract of these rows; a cuid always has the same card."""
    return portal_csv(
        portal_rows(*({PAN: PANS[ord(row[CUID]) % len(PANS)], **row} for row in rows))
    )


def test_an_extract_with_the_bytes_of_a_committed_one_is_refused_by_dry_run_check_and_submit(
    tmp_path: Path,
) -> None:
    bench = bank(tmp_path)
    bench.submit(bench.drop(20, "bank-20261120.csv", seed=1))
    bench.drop(20, "bank-20261121.csv", seed=1)

    checked = facts_of(tmp_path, "check", issuer="bank", extract="bank-20261121.csv")
    tried, done = tried_and_done(tmp_path, "submit", issuer="bank", extract="bank-20261121.csv")

    assert [{"error": "DuplicateExtractError"}] * 2 == [tried, done]
    assert ["DuplicateExtractError"] == [one["error"] for one in checked["checks"] if one["error"]]


@pytest.mark.slow
@settings(max_examples=share_of(0.16))
@given(
    st.lists(
        st.tuples(st.sampled_from(["good", "bad", "worse"]), st.booleans()), min_size=1, max_size=8
    ),
    st.sampled_from(
        [{"errors": True}, {"rejects": True}, {"missing": True}, {"errors": True, "rejects": True}]
    ),
    st.booleans(),
    st.booleans(),
)
@example(rows=[("good", False)] * 8, wanted={"errors": True}, waiting=True, with_file=False)
@example(
    rows=[("bad", True), ("worse", True), ("bad", False)],
    wanted={"rejects": True},
    waiting=False,
    with_file=True,
)
def test_a_dry_run_of_a_resubmission_counts_what_it_then_sends(
    rows: list[tuple[str, bool]], wanted: Facts, waiting: bool, with_file: bool
) -> None:
    """Rows: what is wrong with each, and whether the file corrects it; `waiting`: results were not
    ingested yet.
    """
    flaws: dict[str, dict[str, str | None]] = {
        "good": {},
        "bad": {CITY: None},
        "worse": {CITY: None, POSTAL_CODE: "1"},
    }
    with TemporaryDirectory() as place:
        bench = bank(Path(place))
        built = portal_rows(
            *({PAN: PANS[at % len(PANS)], **flaws[flaw]} for at, (flaw, _) in enumerate(rows))
        )
        run = bench.submit(bench.drop_bytes(portal_csv(built))).manifest.run
        bench.answer(fail_share=0.5, seed=3)
        if not waiting:
            bench.ingest()
        lines = [
            f"{run},{at},{CITY},Salem" for at, (_, corrected) in enumerate(rows, 1) if corrected
        ]
        name = (
            correct(bench, "\n".join(["run,row,column,correction", *lines, ""]).encode())
            if with_file
            else ""
        )

        tried, done = tried_and_done(
            Path(place), "resubmit", run=run, **wanted, corrections=name, **WHY
        )

        counted = (
            {"rows": done["counts"]["submitted"], "chunks": done["chunks"]}
            if "counts" in done
            else {}
        )
        refused = done["counts"]["rejected"] if counted else tried.get("refused")
        expected = (
            {**counted, "refused": refused}
            if counted
            else {"rows": 0, "chunks": 0, "refused": refused}
        )
        assert done.get("error") in (None, "NothingToSendError", tried.get("error"))
        assert "error" in tried or expected == {name: tried[name] for name in expected}


@pytest.mark.parametrize("days", quick(1, [14, 0]))
def test_a_dry_run_of_a_renewal_counts_what_it_then_sends(tmp_path: Path, days: int) -> None:
    bench = bank(tmp_path)
    bench.submit(bench.drop(25, "bank-20261120.csv"))
    bench.answer(expires=datetime.now(UTC).date() + timedelta(days=10))
    bench.ingest()

    tried, done = tried_and_done(tmp_path, "renew", issuer="bank", within_days=days)

    came_to = [
        [(run["counts"]["submitted"], run["chunks"]) for run in facts["runs"]]
        for facts in (tried, done)
    ]
    assert [[(25, 3)] if days else []] * 2 == came_to


@pytest.mark.slow
def test_a_dry_run_of_a_resubmission_ends_a_begun_one_in_memory_only(tmp_path: Path) -> None:
    bench, run = answered(tmp_path, fail=1.0)
    first = facts_of(tmp_path, "resubmit", run=run, errors=True, **WHY)["run"]
    uncommit(tmp_path, first)  # its process died right before the commit

    tried, done = tried_and_done(tmp_path, "resubmit", run=run, errors=True, reason="another one")

    assert (30, {}) == (tried["rows"], tried["left"])
    assert 30 == done["rows"]
    assert ["abandoned"] == [each.status.state for each in bench.runs if each.id == first]
