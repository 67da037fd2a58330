"""Which extracts an operator dismissed: a chain of records by content, the last of which counts."""

from collections.abc import Sequence

from flows.runs.chains import records
from flows.runs.context import IssuerContext
from flows.runs.keys import dismissed
from flows.runs.store import Store
from schemas.records import Dismissal


def dismissals(store: Store, issuer: str, sha256: str) -> tuple[Dismissal, ...]:
    """Return the chain of dismissals of an extract's content."""
    return tuple(records(store, f"{dismissed(issuer)}{sha256}/", Dismissal))


def dismissal(context: IssuerContext, key: str, chain: Sequence[Dismissal]) -> Dismissal | None:
    """Return the dismissal that counts for an extract, None where it is not dismissed.

    A portfolio may repeat its bytes, so there only one of that name counts.
    """
    any_name = not context.issuer.full_portfolio
    records_of_extract = [record for record in chain if any_name or record.key == key]
    if not records_of_extract or records_of_extract[-1].what != "dismissed":
        return None
    return records_of_extract[-1]
