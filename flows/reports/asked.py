"""What the partner was asked already: the history of a run says when its questions were written.

Put here what depends on that; which questions there are is in `flows.operations.questions`.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from flows.reports.work import Work
from flows.reports.work_kinds import ASK_ABOUT, is_asked_about
from flows.runs.adapters import Adapters
from flows.runs.events import ANSWERED, ASKED, record_event
from flows.runs.identity import digest
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently


class _Asked(NamedTuple):
    """What a run's history says of its questions."""

    written: datetime  # the last ones
    answered: datetime | None  # when its last result, or single link, came

    @property
    def is_answered(self) -> bool:
        """Whether something came since."""
        return self.answered is not None and self.answered > self.written


def record_asked(adapters: Adapters, run: StoredRun, questions: Iterable[str]) -> None:
    """Record that these questions about a run, by id, were written; once until it is answered."""
    ids = sorted(questions)
    name = digest("\n".join(ids).encode())[:16]
    last = run.last_event(ASKED)
    history = _asked(run)
    is_same = last is not None and last.facts.get("digest") == name
    if not is_same or history is None or history.is_answered:
        record_event(adapters, run.keys, ASKED, questions=len(ids), digest=name)


def with_asked(runs: StoredRuns, works: Sequence[Work]) -> list[Work]:
    """Return work with the day on which the partner was asked about it, where it was."""
    ids = sorted({work.run for work in works if work.run and is_asked_about(work.kind)})
    histories = concurrently(_asked, [StoredRun.by_id(runs.adapters, run) for run in ids])
    by_run = dict(zip(ids, histories, strict=True))
    return [_with_day(work, by_run.get(work.run)) for work in works]


def _asked(run: StoredRun) -> _Asked | None:
    """Return when the partner was asked about a run; None where it was not."""
    questions = run.last_event(ASKED)
    if questions is None:
        return None
    answer = run.last_event(ANSWERED)
    answers = [answer.at] if answer else []
    answers += [single.answered.at for single in run.single_link_attempts if single.answered]
    return _Asked(questions.at, max(answers, default=None))


def _with_day(work: Work, history: _Asked | None) -> Work:
    """Return work with the day of the questions about its run, unless it is newer than they are."""
    if history is None or not is_asked_about(work.kind):
        return work
    # a refused card is as old as the result that refused it
    known_since = history.answered if work.kind == ASK_ABOUT else work.due
    if known_since is not None and known_since > history.written:
        return work
    return work._replace(asked_on=history.written.date())
