"""Whole commands with a gpg that is old, hangs, dies, lies or is slow: each ends with its own error
and exit code, nothing is committed by halves, and with a sound gpg the same command finishes it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flows.adapters.gpg_sealer import GpgSealer
from flows.commands.context import Context
from flows.commands.result import Result
from flows.errors import CardlinkError
from flows.runs.sealing import GpgHungError, GpgTooOldError, SealBrokenError
from flows.submissions.publisher import PartialRunError
from tests.adapters.sealers import gpg_that
from tests.builders import quick
from tests.test_dry_runs import CASES, WHY, answered, bank
from tests.torture.acts import NAMED

AT_ENCRYPTION = 'case "$*" in *--encrypt*) {};; esac'
# from its second encryption on, so that the trial before the run passes
LATER = 'case "$*" in *--encrypt*) echo >> calls; if [ $(wc -l < calls) -gt 1 ]; then {}; fi;; esac'
# what a gpg of which the status says "ok" leaves in place of a message
LIE = "echo '[GNUPG:] END_ENCRYPTION' >&2; head -c 200 /dev/zero; exit 0"


class Fault(NamedTuple):
    """What a gpg does, the error that says so, its exit code, and a word of its sentence."""

    does: str
    error: type[CardlinkError] | None
    code: int
    says: str


FAULTS = {
    "is killed at the trial": Fault(
        AT_ENCRYPTION.format("kill -9 $$"), GpgHungError, 75, "did not finish"
    ),
    "lies in the middle": Fault(LATER.format(LIE), PartialRunError, 75, "chunk"),
    "says that it is 1.4": Fault(
        'case "$*" in *--version*) echo "gpg (GnuPG) 1.4.23"; exit;; esac',
        GpgTooOldError, 2, "2.2 is the oldest",
    ),
    "hangs at its version": Fault(
        'case "$*" in *--version*) exec sleep 60;; esac', GpgHungError, 75, "did not finish"
    ),
    "hangs at the trial": Fault(
        AT_ENCRYPTION.format("exec sleep 60"), GpgHungError, 75, "did not finish"
    ),
    "has no memory at the trial": Fault(
        AT_ENCRYPTION.format('echo "gpg: out of core" >&2; exit 2'), GpgHungError, 75, "memory"
    ),
    "lies at the trial": Fault(AT_ENCRYPTION.format(LIE), SealBrokenError, 2, "gpg"),
    "hangs in the middle": Fault(LATER.format("exec sleep 60"), PartialRunError, 75, "chunk"),
    "is killed in the middle": Fault(LATER.format("kill -9 $$"), PartialRunError, 75, "chunk"),
    "is slow": Fault(AT_ENCRYPTION.format("sleep 1"), None, 0, ""),
}  # fmt: skip


def _submit(folder: Path) -> dict[str, Any]:
    bank(folder).drop(12)
    return {"issuer": "bank"}


def _resubmit(folder: Path) -> dict[str, Any]:
    return {"run": answered(folder)[1], "errors": True, **WHY}


COMMANDS = {"submit": _submit, "resubmit": _resubmit, "mend reseal": CASES["mend reseal"]}
EVERY = [(fault, command) for command in COMMANDS for fault in FAULTS]


def ended(folder: Path, command: str, case: dict[str, Any]) -> Result | CardlinkError:
    """Run a command; return its result, or the error that ended it."""
    try:
        return NAMED[command].invoke(Context(folder, actor="ann"), case)
    except CardlinkError as error:
        return error


@pytest.mark.parametrize(("fault", "command"), quick(2, EVERY))
def test_a_faulty_gpg_ends_a_command_with_its_own_sentence_and_a_sound_one_finishes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, command: str
) -> None:
    case = COMMANDS[command](tmp_path)
    expected = FAULTS[fault]
    program = tmp_path / "bin" / "gpg"
    program.parent.mkdir()
    shutil.move(gpg_that(tmp_path, expected.does), program)
    path = os.environ["PATH"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{program.parent}:{path}")
    monkeypatch.setattr("flows.adapters.gpg.STARTUP", 3.0 if "hangs" in fault else 30.0)
    if fault == "hangs in the middle":
        monkeypatch.setitem(GpgSealer.__init__.__kwdefaults__ or {}, "patience", 3.0)

    outcome = ended(tmp_path, command, case)
    monkeypatch.setenv("PATH", path)
    finished = ended(tmp_path, command, case)
    proof = NAMED["audit verify"].invoke(Context(tmp_path), {"issuer": "bank"})

    assert (expected.error or Result) is type(outcome)
    assert expected.code == outcome.exit_code
    assert expected.says in str(outcome)
    assert isinstance(finished, Result), str(finished)
    assert [] == proof.facts["findings"]
