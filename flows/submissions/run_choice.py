"""Which of the runs of an extract's content a submit means.

The same request is always the same run, so that repeating a command sends nothing twice; a new one
is planned where none is meant.
"""

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

from flows.runs.context import IssuerContext
from flows.runs.identity import differences, digest, row_settings
from flows.runs.keys import RunId
from flows.runs.run_records import RunRecord
from schemas.manifest import Plan, Selection, SourceIdentity
from schemas.rules import RECIPE


class RunInputs(NamedTuple):
    """What identifies a run besides the extract's bytes."""

    as_of: date
    new_run: str = ""
    selection: Selection | None = None
    known: str = ""  # digest of what other runs know of the issuer's cards
    dated: bool = False  # an operator gave the business date

    @property
    def rows(self) -> str:
        """The digest of the selected rows, "" for all of them."""
        return self.selection.sha256 if self.selection else ""


class Choice(NamedTuple):
    """The run that is meant; `record` is None where it is a new one."""

    run: str
    reason: str
    record: RunRecord | None = None


def pick(
    context: IssuerContext,
    source: SourceIdentity,
    runs: Sequence[RunRecord],
    inputs: RunInputs,
) -> Choice:
    """Return the run that these inputs mean; `runs`: those of the extract's content, by number."""
    same_rows = _with_same_rows(context, runs, inputs)
    last = same_rows[-1] if same_rows else None
    if last is None or inputs.new_run not in ("", last.reason):
        return _new(context, source, runs, inputs, inputs.as_of, inputs.new_run)
    existing = _existing(context, source, same_rows, inputs)
    if existing is not None:
        return Choice(existing.run, existing.reason, existing)
    keeps_date = not inputs.dated and inputs.selection is None
    as_of = last.as_of if keeps_date else inputs.as_of
    return _new(context, source, runs, inputs, as_of, last.reason)


def _with_same_rows(
    context: IssuerContext, runs: Sequence[RunRecord], inputs: RunInputs
) -> list[RunRecord]:
    """Return the runs of the rows that are meant.

    A full portfolio has the same bytes on another date, if nothing changed: that is another run.
    """
    same_rows = [run for run in runs if run.selection == inputs.rows]
    if not context.issuer.full_portfolio or inputs.selection is not None:
        return same_rows
    return [run for run in same_rows if run.as_of == inputs.as_of]


def _new(
    context: IssuerContext,
    source: SourceIdentity,
    runs: Sequence[RunRecord],
    inputs: RunInputs,
    as_of: date,
    reason: str,
) -> Choice:
    """Return a run that there is not yet; its id counts the runs of one date."""
    number = [run.as_of for run in runs].count(as_of) + 1
    content = digest(f"{source.sha256} {inputs.rows}".encode()) if inputs.rows else source.sha256
    return Choice(str(RunId(context.issuer.issuer, as_of, content[:8], number)), reason)


def _existing(
    context: IssuerContext,
    source: SourceIdentity,
    same_rows: Sequence[RunRecord],
    inputs: RunInputs,
) -> RunRecord | None:
    """Return which of the runs of the same rows is meant, None where a new one is.

    Of a whole extract that is one that ended, else one that can still be finished. Selected rows
    may be sent again, so an ended run of them is never meant.
    """
    reason = same_rows[-1].reason
    candidates = [run for run in same_rows if run.reason == reason]
    if inputs.selection is None:
        ended = _ended(candidates)
        if ended is not None:
            return ended
    elif candidates[-1].is_ended:
        return None
    return _unfinished(context, source, candidates, inputs)


def _ended(candidates: Sequence[RunRecord]) -> RunRecord | None:
    """Return the committed run, else the last one, if it was abandoned."""
    for candidate in candidates:
        if candidate.state == "committed":
            return candidate
    last = candidates[-1]
    return last if last.is_ended else None


def _unfinished(
    context: IssuerContext,
    source: SourceIdentity,
    candidates: Sequence[RunRecord],
    inputs: RunInputs,
) -> RunRecord | None:
    """Return the last run that can be finished as it was planned."""
    unfinished = [candidate for candidate in candidates if not candidate.is_ended]
    for candidate in unfinished[::-1]:
        plan = candidate.planned()
        is_same = (plan.known, plan.source.key) == (inputs.known, source.key)
        if is_same and not changes(context, plan, inputs):
            return candidate
    return None


def changes(context: IssuerContext, stored: Plan, inputs: RunInputs) -> list[str]:
    """Return the names of what a stored plan has otherwise than a plan would have it now."""
    changed = differences(stored.settings, row_settings(context.issuer, context.header))
    unchanged = {
        "recipe (another version of cardlink)": stored.recipe == RECIPE,
        "portal.fingerprints": stored.recipients == context.issuer.portal.fingerprints,
        "the business date": not inputs.dated or stored.as_of == inputs.as_of,
    }
    return changed + [name for name, is_same in unchanged.items() if not is_same]
