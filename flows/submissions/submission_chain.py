"""The runs of an extract's content, a chain by its digest: which of them a submit means.

A run is found by key, since a listing may be late. The same request is always the same run, so that
repeating a command sends nothing twice; a new one is added where none of the chain is meant.
"""

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

from flows.runs.chains import CONTESTS, records
from flows.runs.context import IssuerContext
from flows.runs.identity import canonical, differences, digest, row_settings
from flows.runs.keys import RunId, keys_of, link, submissions
from flows.runs.store import Store, StoreBusyError
from flows.runs.stored_run import StoredRun
from schemas.manifest import Document, Manifest, Plan, Selection, SourceIdentity
from schemas.records import Abandoned
from schemas.rules import RECIPE

_DIGITS = 3  # of a link's number


class Submission(Document):
    """One link of the chain: the run, the reason for a new one, and its rows."""

    run: str
    reason: str = ""
    selection: str = ""  # digest of the selected rows; "" for all of them


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


def read_chain(store: Store, issuer: str, sha256: str) -> list[Submission]:
    """Return the runs of an extract's content, oldest first."""
    return list(records(store, submissions(issuer, sha256), Submission, digits=_DIGITS))


def submission_of(context: IssuerContext, source: SourceIdentity, inputs: RunInputs) -> Submission:
    """Return the run that these inputs mean, added to the chain where it is new."""
    store = context.adapters.store
    prefix = submissions(context.issuer.issuer, source.sha256)
    for _ in range(CONTESTS):
        chain = read_chain(store, context.issuer.issuer, source.sha256)
        submission = pick(context, source, chain, inputs)
        if submission in chain:
            return submission
        if store.create(link(prefix, len(chain) + 1, _DIGITS), canonical(submission)):
            return submission
    raise StoreBusyError(place=prefix, code="contested")


def pick(
    context: IssuerContext,
    source: SourceIdentity,
    chain: Sequence[Submission],
    inputs: RunInputs,
) -> Submission:
    """Return the run that these inputs mean: one of the chain where it has that, else a new one."""
    same_rows = _with_same_rows(context, chain, inputs)
    last = same_rows[-1] if same_rows else None
    if last is None or inputs.new_run not in ("", last.reason):
        return _new(context, source, chain, inputs, inputs.as_of, inputs.new_run)
    existing = _existing(context, source, same_rows, inputs)
    if existing is not None:
        return existing
    keeps_date = not inputs.dated and inputs.selection is None
    as_of = _business_date(last) if keeps_date else inputs.as_of
    return _new(context, source, chain, inputs, as_of, last.reason)


def _with_same_rows(
    context: IssuerContext, chain: Sequence[Submission], inputs: RunInputs
) -> list[Submission]:
    """Return the runs of the rows that are meant.

    A full portfolio has the same bytes on another date, if nothing changed: that is another run.
    """
    same_rows = [submission for submission in chain if submission.selection == inputs.rows]
    if not context.issuer.full_portfolio or inputs.selection is not None:
        return same_rows
    return [submission for submission in same_rows if _business_date(submission) == inputs.as_of]


def _business_date(submission: Submission) -> date:
    return keys_of(submission.run).run.day


def _new(
    context: IssuerContext,
    source: SourceIdentity,
    chain: Sequence[Submission],
    inputs: RunInputs,
    as_of: date,
    reason: str,
) -> Submission:
    """Return a run that the chain does not have; its id counts the runs of one date."""
    dates = [_business_date(submission) for submission in chain]
    number = dates.count(as_of) + 1
    content = digest(f"{source.sha256} {inputs.rows}".encode()) if inputs.rows else source.sha256
    run = RunId(context.issuer.issuer, as_of, content[:8], number)
    return Submission(run=str(run), reason=reason, selection=inputs.rows)


class _Candidate(NamedTuple):
    """A run that may be meant, and how it ended."""

    submission: Submission
    end: Manifest | Abandoned | None


def _existing(
    context: IssuerContext,
    source: SourceIdentity,
    same_rows: Sequence[Submission],
    inputs: RunInputs,
) -> Submission | None:
    """Return which of the runs of the same rows is meant, None where a new one is.

    Of a whole extract that is one that ended, else one that can still be finished. Selected rows
    may be sent again, so an ended run of them is never meant.
    """
    reason = same_rows[-1].reason
    candidates = [
        _Candidate(submission, StoredRun.by_id(context.adapters, submission.run).end)
        for submission in same_rows
        if submission.reason == reason
    ]
    if inputs.selection is None:
        ended = _ended(candidates)
        if ended is not None:
            return ended
    elif candidates[-1].end is not None:
        return None
    return _unfinished(context, source, candidates, inputs)


def _ended(candidates: Sequence[_Candidate]) -> Submission | None:
    """Return the committed run, else the last one, if it was abandoned."""
    for candidate in candidates:
        if isinstance(candidate.end, Manifest):
            return candidate.submission
    last = candidates[-1]
    return None if last.end is None else last.submission


def _unfinished(
    context: IssuerContext,
    source: SourceIdentity,
    candidates: Sequence[_Candidate],
    inputs: RunInputs,
) -> Submission | None:
    """Return the last run that can be finished."""
    for candidate in reversed(candidates):
        if candidate.end is not None:
            continue
        if _can_be_finished(context, source, candidate.submission, inputs):
            return candidate.submission
    return None


def _can_be_finished(
    context: IssuerContext, source: SourceIdentity, submission: Submission, inputs: RunInputs
) -> bool:
    """Return whether a run that was never committed can be finished as it was planned."""
    run = StoredRun.by_id(context.adapters, submission.run)
    plan = run.plan
    if plan is None:
        return not inputs.dated or _business_date(submission) == inputs.as_of
    if (plan.known, plan.source.key) != (inputs.known, source.key):
        return False
    return not changes(context, plan, inputs)


def changes(context: IssuerContext, stored: Plan, inputs: RunInputs) -> list[str]:
    """Return the names of what a stored plan has otherwise than a plan would have it now."""
    changed = differences(stored.settings, row_settings(context.issuer, context.header))
    unchanged = {
        "recipe (another version of cardlink)": stored.recipe == RECIPE,
        "portal.fingerprints": stored.recipients == context.issuer.portal.fingerprints,
        "the business date": not inputs.dated or stored.as_of == inputs.as_of,
    }
    return changed + [name for name, is_same in unchanged.items() if not is_same]
