"""Which extracts an operator dismissed: decisions by content, the last of which counts."""

from collections.abc import Sequence

from flows.runs.adapters import Adapters
from flows.runs.context import IssuerContext
from flows.runs.decisions import EXTRACT, decisions
from schemas.records import Dismissal


def dismissals(adapters: Adapters, issuer: str, sha256: str) -> list[Dismissal]:
    """Return what was decided about an extract's content, the oldest first."""
    return decisions(adapters, issuer, EXTRACT, Dismissal, sha256)


def dismissal(context: IssuerContext, key: str, chain: Sequence[Dismissal]) -> Dismissal | None:
    """Return the dismissal that counts for an extract, None where it is not dismissed.

    A portfolio may repeat its bytes, so there only one of that name counts.
    """
    any_name = not context.issuer.full_portfolio
    records_of_extract = [record for record in chain if any_name or record.key == key]
    if not records_of_extract or records_of_extract[-1].what != "dismissed":
        return None
    return records_of_extract[-1]
