"""One issuer that cannot be read is a row with its reason; the others stand, and the exit code says
so.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from flows.commands.cardholders import cardholders
from flows.commands.context import Context
from flows.commands.overview import reconcile
from flows.commands.programme import programme
from flows.commands.purge import purge
from flows.commands.result import Result
from flows.commands.trace import trace
from flows.commands.worklist import worklist
from flows.configuration import FileUnreadableError
from flows.errors import CardlinkError, GateError
from flows.runs.keys import RunKeys
from flows.runs.stored_run import StoredRun
from tests.builders import quick
from tests.cli.test_reconcile import TOML, bank

COMMANDS: dict[str, Callable[[Context], Result]] = {
    "cardholders": cardholders,
    "reconcile": reconcile,
    "worklist": worklist,
    "programme": programme,
    "trace": lambda context: trace(context, "c-1"),
    "purge": lambda context: purge(context, dry_run=True),
}
# of an issuer without runs these look into the database alone, and do not miss its store
OF_DATABASE = ("cardholders", "trace")


@pytest.fixture(scope="module")
def banks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two issuers that can be read, one before and one behind others that cannot, each for another
    reason.
    """
    folder = tmp_path_factory.mktemp("banks")
    bank(folder)
    bank(folder, "zebra")
    toml = TOML.format(name="NAME", fingerprint="0" * 40)
    (folder / "away.toml").write_text(
        toml.replace("NAME", "away").replace('"store"', '"unmounted"')
    )
    (folder / "torn.toml").write_text('issuer = "torn\n')
    (folder / "wrong.toml").write_text(f'colour = "blue"\n{toml.replace("NAME", "wrong")}')
    (folder / "ruff.toml").write_text("line-length = 120\n")
    return folder


@pytest.mark.parametrize("name", quick(4, list(COMMANDS)))
def test_a_folder_that_cannot_be_listed_is_an_error_and_not_one_without_issuers(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(FileUnreadableError) as error:
        COMMANDS[name](Context(tmp_path / "issuer"))

    assert (
        f"{tmp_path}/issuer (the issuers' folder: --config or CARDLINK_CONFIG) cannot be read"
        in str(error.value)
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_an_issuer_that_cannot_be_read_stops_no_other_and_says_why(banks: Path, name: str) -> None:
    done = COMMANDS[name](Context(banks))

    why = {one["not read"]: str(one["why, and what to do"]) for one in done.facts["unread"]}
    without_store = [] if name in OF_DATABASE else ["away"]
    assert [*without_store, "torn", "wrong"] == sorted(why)
    for issuer in without_store:
        assert "unmounted does not exist (ENOENT). Create it" in why[issuer]
    assert [True, True] == [
        "line 1" in why["torn"] and "Correct the file" in why["torn"],
        "colour" in why["wrong"],
    ]
    assert 2 == done.exit_code
    shown = "\n".join(done.lines)
    assert all(text in shown for text in why.values())
    assert name == "trace" or all(issuer in shown for issuer in ("bank", "zebra"))


def test_an_issuer_that_is_named_and_cannot_be_read_is_its_error(banks: Path) -> None:
    with pytest.raises(CardlinkError, match="unmounted does not exist"):
        worklist(Context(banks), "away")


def test_a_damage_that_nobody_foresaw_is_a_row_as_well(tmp_path: Path) -> None:
    bench = bank(tmp_path)
    bank(tmp_path, "zebra")
    [run] = bench.runs.ids
    bench.store.replace(RunKeys(run).report("summary.json"), [b"{}"])

    done = worklist(Context(tmp_path), everything=True)

    [row] = done.facts["unread"]
    assert ("bank", 1) == (row["not read"], done.exit_code)
    assert str(row["why, and what to do"]).startswith("Internal error in bank (KeyError")
    assert ["zebra"] == [one["run"].partition("-")[0] for one in done.facts["runs"]]


def test_a_run_that_was_refused_says_why(tmp_path: Path) -> None:
    bench = bank(tmp_path)
    with pytest.raises(GateError):
        bench.submit(bench.drop(20, "bank-20261121.csv", bad=1))

    done = worklist(Context(tmp_path), "bank", everything=True)

    refused = next(one for one in done.facts["runs"] if one["state"] == "refused")
    found = StoredRun(bench.adapters, RunKeys(bench.runs.ids[-1])).refusal
    assert found
    assert found.sentence == refused["why"]
    assert any(line.endswith(refused["why"]) for line in done.lines)


def test_the_worklist_says_who_has_a_link_and_for_whom_the_others_wait(tmp_path: Path) -> None:
    bank(tmp_path)
    bank(tmp_path, "zebra")

    done = worklist(Context(tmp_path), everything=True)

    known = cardholders(Context(tmp_path)).facts["issuers"]
    sentences = [f"{issuer['issuer']}: {issuer['sentence']}" for issuer in known]
    assert sentences == [line for line in done.lines if "have a link" in line]
    balances = {
        issuer["issuer"]: {name: issuer[name] for name in issuer.keys() - {"issuer", "links"}}
        for issuer in known
    }
    assert balances == done.facts["cardholders"]
