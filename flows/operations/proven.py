"""What a proof of the audit trail found whole, kept so that the next one need not judge it again.

It is kept beside the book, where whoever writes to the store can write too. So it is believed only
with a proof by the key of the trail (`flows/runs/trail_proof.py`), and without that key everything
is judged each time. It says nothing that time can change: that entries with these digests are
intact and name these objects, and that a run whose objects have these digests hands out no link of
another. An earlier one put back, or an earlier state of the store, is therefore no way around: what
the entries name is compared with what is stored each time.

Where a store marks each write itself (`Marked`), what was read is known by its mark, and is not
read again. In a directory every object is read each time, and its digest compared.
"""

import json
from datetime import datetime
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from flows import __version__
from flows.errors import CardlinkError
from flows.operations.audit_contents import JudgedRun
from flows.operations.audit_entries import ProvenTrail
from flows.runs.identity import canonical, digest
from flows.runs.keys import book
from flows.runs.store import Store, read_if_stored
from flows.runs.trail_proof import Prover

# of the code that judges: what another found whole is judged again
CODE = f"1, cardlink {__version__}"


class Proven(BaseModel):
    """What was found whole, and when."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    code: str = CODE
    at: datetime
    trail: ProvenTrail
    runs: dict[str, JudgedRun]
    marks: dict[str, tuple[str, str]] = {}  # as in `Snapshot`


class _Signature(NamedTuple):
    """The last line of what is stored: the proof of the other, and the key that made it."""

    proof: str
    proved_by: str


def read_proven(store: Store, issuer: str, prover: Prover) -> Proven | None:
    """Return what an earlier proof found whole.

    None where there is none, or none that the key of the trail has proved, or by other code.
    """
    stored = read_if_stored(store, _place(issuer))
    if stored is None or not prover.key:
        return None
    content, _, line = stored.rstrip().rpartition(b"\n")
    try:
        signature = _Signature(**json.loads(line))
        if not prover.is_proof(signature.proof, _signed(issuer, content), signature.proved_by):
            return None
        proven = Proven.model_validate_json(content)
    except (ValueError, TypeError, ValidationError):
        return None
    return proven if proven.code == CODE else None


def keep_proven(store: Store, issuer: str, prover: Prover, proven: Proven) -> bool:
    """Keep what was found whole for the next proof; False without a key, or the right to write."""
    if not prover.key:
        return False
    content = proven.model_dump_json().encode()
    signature = _Signature(prover.proof(_signed(issuer, content)), prover.key)
    try:
        store.replace(_place(issuer), [content + b"\n" + canonical(signature._asdict())])
    except CardlinkError:
        return False
    return True


def _signed(issuer: str, content: bytes) -> bytes:
    """Return what is proved: no entry of a trail begins like this."""
    return f"cardlink: proven of {issuer}: {digest(content)}".encode()


def _place(issuer: str) -> str:
    return f"{book(issuer)}proven.json"
