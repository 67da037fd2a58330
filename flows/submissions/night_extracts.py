"""The extracts that a night takes, and those it leaves since it was refused them as they are.

With `[arrivals]` a night begins every hour, as a net. An extract that was refused for its content
is refused again while its file, the settings and this version are the same: a night leaves it
until one of them changes. One that waits for a decision before anything is planned is left as
well: the watch has an alert for it, and the worklist a line. `submit` tries it whenever it is
typed.
"""

from typing import NamedTuple

from flows.extensions import starts_often
from flows.runs.context import IssuerContext
from flows.runs.stored_run import StoredRun
from flows.submissions.extract_states import UNSUBMITTED, ExtractState, State, extract_states
from flows.submissions.submit import settings_now

_REFUSED = "{key} was refused and has not changed: not tried again"
_UNDECIDED: dict[State, str] = {
    "held back": "{key} is held back: the worklist asks for a decision",
    "repeated": "{key} repeats an extract that was sent: the worklist asks for a decision",
}


class NightExtracts(NamedTuple):
    """Keys of the extracts to submit, oldest first, and a line for each that is left."""

    to_submit: list[str]
    left: list[str]


def night_extracts(context: IssuerContext) -> NightExtracts:
    """Return what a night submits, and what it leaves. Raises CardInNameError."""
    waiting = [
        (extract.entry.modified, extract.key, extract)
        for extract in extract_states(context, remember=True)
        if extract.entry is not None and extract.state in UNSUBMITTED and not extract.waits
    ]
    to_submit: list[str] = []
    left: list[str] = []
    for _, key, extract in sorted(waiting, key=lambda entry: entry[:2]):
        if is_left(context, extract):
            left.append(_UNDECIDED.get(extract.state, _REFUSED).format(key=key))
        else:
            to_submit.append(key)
    return NightExtracts(to_submit, left)


def is_left(context: IssuerContext, extract: ExtractState) -> bool:
    """Return whether this very file was refused for its content, under the settings of now, where
    nights are only a net.
    """
    is_open = extract.state in UNSUBMITTED and extract.entry is not None
    if not starts_often(context.issuer) or not is_open:
        return False
    if extract.state in _UNDECIDED:
        return True
    if not extract.run:
        return False
    run = StoredRun.by_id(context.adapters, extract.run)
    refusal = run.refusal
    if refusal is None or not refusal.of_content:
        return False
    version = extract.entry.version if extract.entry else ""
    is_same_file = run.planned().source.version == version
    return is_same_file and refusal.under == settings_now(context.issuer)
