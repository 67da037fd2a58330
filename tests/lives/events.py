"""What happens to an issuer now and then, in the morning, before the operator begins.

Put a new kind of event here: a function, an entry of `EVENTS`, and its name in a profile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.lives.bank import Bank
from tests.lives.life import Life

WHY = ("--reason", "the issuer asked for it")
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
    life.schedule("outbox", "fetch", *words, "--to", str(folder))
    life.schedule("outbox", "cancel", *words, *WHY)
    bank.portal.upload(chunk["name"], (folder / chunk["name"]).read_bytes())
    bank.cancelled.add(chunk["name"])


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
    life.schedule("renew", bank.name, "--within", str(RENEWED_WITHIN))


def purge(life: Life, bank: Bank) -> None:
    """Delete what retention allows; the oracle looks on before."""
    due = life.schedule("purge", bank.name, "--dry-run")["issuers"][0]["lots"]
    life.watch(life, bank, due)
    bank.gone |= {lot["run"] for lot in due if lot["part"] == "ledger"}
    bank.purged += due
    life.schedule("purge", bank.name)


EVENTS: dict[str, Callable[[Life, Bank], None]] = {
    event.__name__: event for event in (hold, cancel, rotate, renew, purge)
}


def _waiting(life: Life, bank: Bank) -> list[dict[str, Any]]:
    chunks = life.schedule("outbox", "list", bank.name)["chunks"]
    return [chunk for chunk in chunks if chunk["state"] == "waiting"]


def _first_waiting(life: Life, bank: Bank) -> dict[str, Any] | None:
    return next(iter(_waiting(life, bank)), None)
