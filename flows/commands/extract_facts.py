"""Extracts as commands show them: what became of each, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from flows.commands import on_first_use
from flows.commands.result import Table

with on_first_use():
    from flows.book import known_runs
    from flows.runs import context as contexts
    from flows.runs import run_status, stored_run
    from flows.submissions import extract_states, night_extracts


class Extract(NamedTuple):
    """An extract as plain facts; its name below the folder; whether its run was refused."""

    facts: dict[str, Any]
    name: str
    is_refused: bool

    @property
    def is_open(self) -> bool:
        """Whether it still needs a run or a decision."""
        is_stored: bool = self.facts["entry"]
        return is_stored and self.facts["state"] in extract_states.UNSUBMITTED

    @property
    def word(self) -> str:
        """Its state in one word or two."""
        if self.is_refused:
            return "refused"
        return "waiting" if self.facts["waits"] else str(self.facts["state"])


def extract_table(extracts: Sequence[Extract]) -> Table:
    """Return a table of extracts."""
    rows = [
        [each.name, each.facts["state"], each.facts["run"], "; ".join(each.facts["why"])]
        for each in extracts
    ]
    return Table(("extract", "state", "run", "why"), rows)


def extracts_of(
    context: contexts.IssuerContext, plans: Iterable[known_runs.KnownPlan]
) -> list[Extract]:
    """Return every extract of an issuer, and why it is in its state; `plans`: those of all runs."""
    return [_extract(context, state) for state in extract_states.extract_states(context, plans)]


def _refusal(
    context: contexts.IssuerContext, extract: extract_states.ExtractState
) -> run_status.Refusal | None:
    """Return what refused the last run of an extract that still needs one, or is gone."""
    is_open = extract.state in extract_states.UNSUBMITTED or extract.entry is None
    if not extract.run or not is_open:
        return None
    return stored_run.StoredRun.by_id(context.adapters, extract.run).refusal


def _extract(context: contexts.IssuerContext, extract: extract_states.ExtractState) -> Extract:
    refusal = _refusal(context, extract)
    why = list(_why(extract, refusal))
    if refusal is not None and night_extracts.is_left(context, extract):
        why.append("nights leave it while it and the settings are the same; `submit` tries it")
    facts = {
        **extract._asdict(),
        "entry": extract.entry is not None,
        "why": why,
        "dismissals": [record.model_dump(mode="json") for record in extract.dismissals],
    }
    _, _, name = extract.key.split("/", 2)
    return Extract(facts, name, is_refused=refusal is not None)


def _why(extract: extract_states.ExtractState, refusal: run_status.Refusal | None) -> Iterator[str]:
    """Yield why an extract is in its state."""
    if refusal is not None:
        yield f"refused: {refusal.sentence}"
    if extract.other:
        content = "other content than" if extract.state == "held back" else "same bytes as"
        yield f"{content} {extract.other}"
    for record in extract.dismissals[-1:]:
        yield f"{record.what} by {record.by} on {record.at:%Y-%m-%d}: {record.reason}"
    if extract.waits:
        yield extract.waits
    if extract.entry is None:
        yield "the file is gone or has other content"
