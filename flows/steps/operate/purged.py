"""What is gone of an issuer's runs: whoever reads ledgers and reports tells a purged run as one."""

from __future__ import annotations

from pydantic import ValidationError

from flows.core.errors import OperatorError
from flows.core.names import RunKeys, purged
from flows.core.ports import Store
from flows.core.storage.store_errors import ObjectMissingError
from flows.steps.edges import ConflictError, read
from schemas.purged import Part, Purged


class LedgerPurgedError(OperatorError):
    """The ledger and the report of a run are gone, as its issuer's retention asks for."""

    message = "The ledger and the report of {run} were purged on {date} ({setting})."
    next_step = (
        "`cardlink history {run}` shows who did it; its manifest shows what was sent, its extract still has the rows."
    )


def read_purged(store: Store, keys: RunKeys, part: Part) -> Purged | None:
    """Return the record of a part of a run that is gone, None where it is not; ConflictError for what is no record."""
    try:
        return Purged.model_validate_json(read(store, keys.purged(part)))
    except ObjectMissingError:
        return None
    except ValidationError:
        pass
    raise ConflictError(key=keys.purged(part))


def without_ledger(store: Store, issuer: str) -> frozenset[str]:
    """Return the ids of the runs whose ledger is gone, by one listing."""
    found = (entry.key.removeprefix(purged(issuer)).split("/") for entry in store.keys(purged(issuer)))
    return frozenset(names[0] for names in found if names[1:] == ["ledger.json"])


def refuse_purged(store: Store, keys: RunKeys) -> None:
    """Raise LedgerPurgedError where the ledger of a run is gone."""
    record = read_purged(store, keys, "ledger")
    if record is not None:
        raise LedgerPurgedError(run=str(keys.run), date=f"{record.at:%Y-%m-%d}", setting=record.setting)
