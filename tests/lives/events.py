"""What happens to an issuer now and then, in the morning, before the operator begins.

Put a new kind of event here: a function, an entry of `EVENTS`, and its name in a profile.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flows.runs.stored_run import StoredRun
from tests.lives.bank import Bank
from tests.lives.command_line import verb_of
from tests.lives.life import Life
from tests.lives.worklines import filled
from tests.night import copied, put_back

WHY = ("--reason", "the issuer asked for it")
# commands that are given again after a store was put back
DECIDING = (
    "submit",
    "ingest",
    "answers",
    "resubmit",
    "renew",
    "dismiss",
    "link-form",
    "deliver",
    "mend close",
    "mend reopen",
    "outbox hold",
    "outbox release",
    "outbox cancel",
)
INGESTING = ("ingest", "answers", "resubmit")  # those that take results in
EXTRACTS, RESULTS = "extracts", "results"
RENEWED_WITHIN = 14  # days before its end a link is renewed


def hold(life: Life, bank: Bank) -> None:
    """Hold a chunk."""
    chunk = _first_waiting(life, bank)
    if chunk:
        life.schedule("outbox", "hold", chunk["run"], str(chunk["number"]), *WHY)


def cancel(life: Life, bank: Bank) -> None:
    """Cancel a chunk, which somebody then uploads all the same."""
    chunk = _first_waiting(life, bank)
    if not chunk:
        return
    words = (chunk["run"], str(chunk["number"]))
    folder = life.place.folder / "somebody"
    life.schedule("upload", *words, "--to", str(folder))
    life.schedule("outbox", "cancel", *words, *WHY)
    bank.portal.unasked.add(chunk["name"])
    bank.portal.upload(chunk["name"], (folder / chunk["name"]).read_bytes())


def rotate(life: Life, bank: Bank) -> None:
    """Change the portal's key: what still waits is sealed anew, since only the new key opens what
    comes.
    """
    life.place.configure(bank.town.feed, key=2)
    bank.portal.opener = life.openers[1]
    runs = {chunk["run"] for chunk in _waiting(life, bank)}
    for run in sorted(runs):
        resealed = life.schedule("mend", "reseal", run, "--reason", "the portal has a new key")
        life.resealed += len(resealed["chunks"])


def renew(life: Life, bank: Bank) -> None:
    """Renew links about to end."""
    shown = life.schedule("renew", bank.name, "--within", str(RENEWED_WITHIN), "--dry-run")
    if shown.get("next"):
        life.schedule(*filled(shown["next"]))


def back_up(life: Life, bank: Bank) -> None:
    """Copy all that is ours of an issuer's store, and the database."""
    copy = _copy_of(life, bank)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(life.place.folder / "store" / bank.name, copy, ignore=_dropped_by_others)
    rows = _rows_of(life, bank)
    rows.unlink(missing_ok=True)
    copied(life.place.database, rows)
    life.operator.history.clear()
    life.operator.copied_shelf = {**life.operator.shelf}
    life.operator.copied_at = life.place.clock.now()


def restore(life: Life, bank: Bank) -> None:
    """Put store and rows back to their copy before anything was uploaded since, and go on."""
    if _put_back(life, bank):
        life.operator.submit(bank.name)
        _give_again(life, bank, ["ingest", bank.name])
        _mark_uploaded(life, bank)


def restore_later(life: Life, bank: Bank) -> None:
    """Put store and rows back to their copy after the operator's work, and go on as the runbook says:
    give the commands of that time again, and mark what the portal has as uploaded.
    """
    commands = [*life.operator.history]
    if not _put_back(life, bank):
        return
    for words in commands:
        if verb_of(words) in DECIDING and any(bank.name in word for word in words):
            # of a command for several issuers only what was about this one
            several = [word.split(",") for word in words]
            own = (
                bank.name if bank.name in names else word
                for word, names in zip(words, several, strict=True)
            )
            _give_again(life, bank, [*own])
    _mark_uploaded(life, bank)
    life.note(bank)


def _mark_uploaded(life: Life, bank: Bank) -> None:
    """Mark what the portal has as uploaded, a cancelled chunk that somebody uploaded included."""
    for chunk in _waiting(life, bank):
        if chunk["name"] in bank.portal.uploaded:
            life.schedule("upload", chunk["run"], str(chunk["number"]), "--done")


def _give_again(life: Life, bank: Bank, words: Sequence[str]) -> None:
    """Give a command to a store that was put back, which knows no later answers until an ingest."""
    life.note(bank)
    if words[0] in INGESTING:
        bank.behind = None
    life.schedule(*words)
    life.note(bank)


def _put_back(life: Life, bank: Bank) -> bool:
    """Put the store back as a copy of objects does, where there is one, and the issuer's rows; what
    others dropped since is there.
    """
    copy = _copy_of(life, bank)
    folder = life.place.folder / "store" / bank.name
    if not copy.exists():
        return False
    for part in folder.iterdir():
        if part.name not in (EXTRACTS, RESULTS):
            shutil.rmtree(part)
    shutil.copytree(copy, folder, copy_function=shutil.copy, dirs_exist_ok=True)
    put_back(Path(life.place.database.place), _rows_of(life, bank), bank.name)
    life.restored += 1
    bank.behind = life.operator.copied_at
    _put_back_shelf(life, bank)
    bank.census.forget()
    bank.runs = {name: run for name, run in bank.runs.items() if _is_stored(bank, name)}
    return True


def _put_back_shelf(life: Life, bank: Bank) -> None:
    """Put back which chunks of an issuer are on hold or cancelled."""
    operator = life.operator
    prefix = f"{bank.name}-"
    others = {chunk: of for chunk, of in operator.shelf.items() if not chunk.startswith(prefix)}
    own = {chunk: of for chunk, of in operator.copied_shelf.items() if chunk.startswith(prefix)}
    operator.shelf = others | own


def purge(life: Life, bank: Bank) -> None:
    """Delete what retention allows; the oracle looks on before."""
    due = life.schedule("purge", bank.name, "--dry-run")["issuers"][0]["lots"]
    life.watch(life, bank, due)
    bank.gone |= {lot["run"] for lot in due if lot["part"] == "ledger"}
    bank.purged += due
    life.schedule("purge", bank.name)


EVENTS: dict[str, Callable[[Life, Bank], None]] = {
    event.__name__: event
    for event in (hold, cancel, rotate, renew, back_up, restore, restore_later, purge)
}


def _copy_of(life: Life, bank: Bank) -> Path:
    return life.place.folder / f"copy-{bank.name}"


def _rows_of(life: Life, bank: Bank) -> Path:
    return life.place.folder / f"copy-{bank.name}.db"


def _dropped_by_others(folder: str, names: list[str]) -> list[str]:
    is_root = "runs" in names
    return [name for name in names if is_root and name in (EXTRACTS, RESULTS)]


def _is_stored(bank: Bank, run: str) -> bool:
    return StoredRun.by_id(bank.place.adapters, run).manifest is not None


def _waiting(life: Life, bank: Bank) -> list[dict[str, Any]]:
    chunks = life.schedule("upload", bank.name)["chunks"]
    return [chunk for chunk in chunks if chunk["state"] == "waiting"]


def _first_waiting(life: Life, bank: Bank) -> dict[str, Any] | None:
    return next(iter(_waiting(life, bank)), None)
