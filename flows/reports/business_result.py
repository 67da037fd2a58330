"""The business result: who has a link, and for whom the others wait; of a run, and of an issuer.

Every report of a run says it first. It counts the cards of one extract as the run's own rows have
them, and as what was sent again left them. What is said of an issuer counts its cardholders, as its
book has them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from flows.book.book import read_book
from flows.book.people import Balance, balance_of, waiting_sentence
from flows.book.standing import actor_of
from flows.reports.tally import Tally
from flows.results.row_states import REFUSED
from flows.runs.adapters import Adapters
from flows.runs.chunks import OutboxChunk
from flows.runs.stored_run import StoredRun
from flows.steps import counted
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.manifest import Manifest

# states of chunks about whose rows the operator decides, since the partner does not have them
NOT_UPLOADED = ("waiting", "held", "cancelled")


def issuer_balance(adapters: Adapters, issuer: str, today: date) -> Balance:
    """Return the balance over an issuer's cardholders, by its book."""
    return balance_of(read_book(adapters, issuer), today)


def result_sentence(run: StoredRun) -> str:
    """Return the business result of a run as its report has it, "" before the first."""
    result = ((run.summary or {}).get("open") or {}).get("result") or {}
    sentence: str = result.get("sentence", "")
    return sentence


def business_result(
    manifest: Manifest, total: Tally, items: Iterable[OutboxChunk]
) -> dict[str, Any]:
    """Return the business result of a reconciled run as facts.

    `cards`: rows read, without those repeated, suppressed or not eligible; `linked`: those with a
    link; `waits`: the others by who has to act, none where nobody has to; `sentence` says it.
    """
    counts = manifest.counts
    cards = counts.read - counts.duplicate - counts.suppressed - counts.ineligible
    linked = int(total.chunks["linked"].sum())
    waits = _waits(counts.rejected, total, items)
    has = "card has" if cards == 1 else "cards have"
    return {
        "cards": cards,
        "linked": linked,
        "waits": dict(waits),
        "sentence": f"{linked:,} of {cards:,} {has} a link; {waiting_sentence(waits)}.",
    }


def with_attempts(result: Mapping[str, Any], after: Mapping[str, int]) -> dict[str, Any]:
    """Return the business result of a run of which rows were sent again, after all attempts.

    `after`: its rows by their last state (`flows.results.row_states.after_all`).
    """
    others = {"without an answer": after[AWAITING], "refused": after[ERROR] + after[REFUSED]}
    parts = [f"{number:,} {words}" for words, number in others.items() if number]
    cards = counted(result["cards"], "card has", "cards have")
    without_link = ", ".join(parts) or "nobody waits"
    sentence = f"{after[LINKED]:,} of {cards} a link, with what was sent again; {without_link}."
    return {**result, "waits": result["waits"] if parts else {}, "sentence": sentence}


def _waits(rejected: int, total: Tally, items: Iterable[OutboxChunk]) -> Counter[str]:
    """Count the cards without a link by who has to act."""
    waits = Counter({"issuer": rejected})
    for code, rows in total.first_reasons.iter_rows():
        waits[actor_of(code)] += rows
    not_uploaded = {item.chunk.number for item in items if item.state in NOT_UPLOADED}
    broken = _unsettled_rows(total)
    for chunk, awaiting in total.chunks.select("chunk", "awaiting").iter_rows():
        for_operator = awaiting if chunk in not_uploaded else min(awaiting, broken[chunk])
        waits["operator"] += for_operator
        waits["partner"] += awaiting - for_operator
    return +waits  # those without anybody are left out


def _unsettled_rows(total: Tally) -> Counter[int]:
    """Count the rows of open breaks, by chunk."""
    rows = total.broken.drop_nulls(["chunk", "row"]).select("chunk", "row").unique()
    sizes = rows.group_by("chunk").len()
    return Counter(dict(sizes.iter_rows()))
