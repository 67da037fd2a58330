"""What a watch does: find what needs an operator's attention, and measure; an alert opens once and
closes once.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from itertools import chain
from typing import NamedTuple, get_args
from zoneinfo import ZoneInfo

from flows.errors import CardlinkError, TryAgainError
from flows.extracts.delivery import companions
from flows.reports.summary import FIGURES, OUT_OF_BALANCE, duration
from flows.runs import documents
from flows.runs.chunks import OPEN, State, outbox, outboxes
from flows.runs.context import IssuerContext
from flows.runs.documents import read_end, read_manifest, run_ids, run_status
from flows.runs.identity import date_in_name, day_off, due, facts_as_stored, local_day
from flows.runs.keys import RunId, RunKeys, reconciliation
from flows.runs.store import Store
from flows.runs.versions import read_facts
from flows.submissions.drift import departures
from flows.submissions.pending import WAITING, ExtractState, extract_states, pending
from schemas.records import Abandoned

LOOK_BACK = timedelta(days=60)  # older runs raise no alerts: their links have expired
_STEP = re.compile(r"^(?P<place>.+/.+)/(?P<number>\d{6})\.(?P<what>json|told)$")
_SAFE = re.compile(r"[^A-Za-z0-9.-]+")


class Kind(NamedTuple):
    """A kind of alert: its title, and what to do (the runbook has a section for each)."""

    title: str
    then: str


KINDS: dict[str, Kind] = {
    "extract-missing": Kind(
        "Extract missing by its hour", "Ask the issuer for the file; the next run submits it."
    ),
    "extract-waiting": Kind(
        "Extract incomplete by its hour",
        "Ask the issuer for the file it waits for; the next run submits it.",
    ),
    "night-skipped": Kind(
        "Night skipped by the calendar", "Nothing; the next business day submits what is there."
    ),
    "empty-extract": Kind("Empty extract", "Ask the issuer whether there was nothing to send."),
    "run-refused": Kind(
        "Run refused before its commit", "Read the reason; correct the extract, or open the gate."
    ),
    "extract-changed": Kind(
        "Extract held: its name was committed with other content",
        "Ask the issuer which it is; then open the gate changed-extract, or dismiss the extract.",
    ),
    "extract-unclean": Kind(
        "Extract not found clean by the malware scanner",
        "Do not open it: tell security, have it removed, and ask the issuer for a clean one.",
    ),
    "extract-repeated": Kind(
        "Extract repeated under another name",
        "Ask the issuer for the right one, and dismiss this one.",
    ),
    "flow-failed": Kind(
        "Flow failed", "Read the flow's message; after a temporary failure, run it again."
    ),
    "out-of-balance": Kind(
        "Out of balance", "Read the breaks of the report; each names its next step."
    ),
    "drift": Kind(
        "Extract departs from those before it", "Ask the issuer what it changed, and why."
    ),
    "result-overdue": Kind(
        "Result overdue", "Look at the outbox; fetch the results from the portal."
    ),
    "key-ending": Kind(
        "Portal key expires soon", "Get the next key and pin it, or this one with a new subkey."
    ),
    "key-unusable": Kind(
        "Portal key cannot be used", "Nothing can be sealed: get a valid key from the portal."
    ),
}


class Alert(NamedTuple):
    """One alert; `text` holds names, counts and dates only."""

    kind: str
    issuer: str
    subject: str
    text: str

    @property
    def place(self) -> str:
        """Return the folder of its history: `<kind>/<subject>`."""
        return f"{self.kind}/{self.subject}"


Found = tuple[str, str, str]  # kind, subject and text of an alert


class Change(NamedTuple):
    """One step in an alert's history, by its number in the chain: odd numbers open it, even ones
    close it.
    """

    alert: Alert
    number: int

    @property
    def opened(self) -> bool:
        """True where this step opens the alert."""
        return self.number % 2 == 1


def changes(standing: Mapping[str, Change], holding: Iterable[Alert]) -> list[Change]:
    """Return the alerts to open and to close: `standing` has the last change of each by place."""
    now = {alert.place: alert for alert in holding}
    before = {place: standing.get(place, Change(alert, 0)) for place, alert in now.items()}
    opened = [
        Change(now[place], last.number + 1) for place, last in before.items() if not last.opened
    ]
    over = (last for place, last in standing.items() if last.opened and place not in now)
    return opened + [Change(last.alert, last.number + 1) for last in over]


# A deployment whose last run failed or crashed, and the state that the orchestrator reports.
Failure = tuple[str, str]


def watch(context: IssuerContext, failures: Collection[Failure] = ()) -> list[Change]:
    """Open and close alerts by what the store shows now; return every change not notified yet, in
    order.

    The caller notifies each and calls `record_notified`; killed in between, the next watch returns
    the rest.
    """
    store, issuer = context.adapters.store, context.issuer.issuer
    standing, _ = _history(store, issuer)
    for change in changes(standing, holding(context, failures)):
        step = {
            "at": context.adapters.now().isoformat(),
            "opened": change.opened,
            **change.alert._asdict(),
        }
        # False: another watcher was first
        store.create(_key(issuer, change, "json"), facts_as_stored(step))
    return _history(store, issuer)[1]


def record_notified(context: IssuerContext, change: Change) -> None:
    """Record that a change was notified."""
    context.adapters.store.create(_key(context.issuer.issuer, change, "told"), b"")


def open_alerts(store: Store, issuer: str) -> list[Alert]:
    """Return the alerts that are open."""
    return [last.alert for last in _history(store, issuer)[0].values() if last.opened]


def holding(context: IssuerContext, failures: Collection[Failure] = ()) -> list[Alert]:
    """Return the alerts whose cause exists now."""
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    recent = [
        run
        for run in run_ids(context.adapters.store, context.issuer.issuer)
        if today - run.day <= LOOK_BACK
    ]
    states = extract_states(context, remember=True)
    done = {one.key for one in states if one.entry is not None and one.state == "committed"}
    came = [
        (RunId.parse(one.run), one.entry.modified)
        for one in states
        if one.entry and one.state == "committed"
    ]
    waiting = {
        one.run
        for one in states
        if one.state in (*WAITING, "gone") or (one.state == "replaced" and one.key not in done)
    }
    dropped = {
        run: [moment for other, moment in came if other and other.day == run.day] for run in recent
    }
    problems = (one for run in recent for one in _run_problems(context, run, waiting, dropped[run]))
    failed = (
        ("flow-failed", deployment, f"{deployment} ended {state}") for deployment, state in failures
    )
    found = chain(
        _calendar(context, today, states), _extract_problems(states), _key_problems(context), failed
    )
    named = chain(found, problems, _drift(context, recent))
    return [
        Alert(kind, context.issuer.issuer, _SAFE.sub("-", subject), text)
        for kind, subject, text in named
    ]


def _extract_problems(states: Iterable[ExtractState]) -> Iterator[Found]:
    """Yield the extracts that wait for an operator's decision."""
    for one in states:
        name = one.key.partition("/extracts/")[2]
        subject = f"{name}-{one.sha256[:8]}"
        if one.state == "held":
            text = f"{name} was committed with other content, as run {one.other}: it is held"
            yield "extract-changed", subject, text
        elif one.state == "repeated":
            text = f"{name} has the same bytes as another extract, run {one.other}: it is not submitted"
            yield "extract-repeated", subject, text
        elif one.state == "unclean":
            yield "extract-unclean", name, one.waits


def _calendar(
    context: IssuerContext, today: date, states: Iterable[ExtractState]
) -> Iterator[Found]:
    """Yield that there is no run today, and that an extract is missing or incomplete."""
    schedule, time_zone = context.issuer.schedule, context.issuer.time_zone
    if why := day_off(schedule, today):
        yield "night-skipped", today.isoformat(), f"No nightly run on {today}: {why}"
    expected = due(schedule, context.adapters.now(), time_zone)
    if expected is None:
        return
    day, since = expected
    arrived = [
        (one, one.entry) for one in states if one.entry is not None and one.state != "ignored"
    ]
    # Due is what was dropped since the business day before, or is named by this day or a later one.
    due_now = [
        one
        for one, entry in arrived
        if entry.modified > since or (date_in_name(entry.key) or date.min) >= day
    ]
    complete = any(not one.waits for one in due_now)
    hour = datetime.combine(day, schedule.extract_by or time(), ZoneInfo(time_zone))
    waiting = [
        one
        for one, entry in arrived
        if companions(context.issuer.source) or context.issuer.store.verdict_tag
        if one.state in WAITING and one.waits and (entry.modified <= hour or not complete)
    ]
    for one in waiting:
        name = one.key.partition("/extracts/")[2]
        yield "extract-waiting", name, f"{name} is not taken yet: {one.waits}"
    if not complete and not any(one in due_now for one in waiting):
        yield (
            "extract-missing",
            day.isoformat(),
            f"No extract for {day} by {hour:%H:%M} ({time_zone})",
        )


def _key_problems(context: IssuerContext) -> Iterator[Found]:
    try:
        with context.sealer() as sealer:
            yield from (
                ("key-ending", one.ending, one.text) for one in sealer.warnings if one.ending
            )
    except TryAgainError:  # left to the next watch
        return
    except CardlinkError as error:
        yield "key-unusable", "portal", str(error)


def _run_problems(
    context: IssuerContext, run: RunId, waiting: Collection[str], dropped: Iterable[datetime]
) -> Iterator[Found]:
    """Yield what is wrong with a run; of whole extracts never committed, only with those still
    `waiting`.

    That is over when one is committed for the same business date that was `dropped` after the run
    was first refused.
    """
    store, issuer, keys = context.adapters.store, context.issuer, RunKeys(run)
    manifest = read_end(store, keys)
    if isinstance(manifest, Abandoned):  # an operator has decided about it
        return
    refused = None if manifest else documents.refusal(store, keys)
    over = refused and (
        str(run) not in waiting or any(one.isoformat() > refused.first for one in dropped)
    )
    if over and (plan := documents.read_plan(store, keys)) and plan.selection is None:
        return
    empty = (
        manifest.counts.read == 0
        if manifest
        else bool(refused and refused.error == "EmptyExtractError")
    )
    if refused and not empty:
        yield "run-refused", str(run), f"{run} was refused: {refused.sentence}"
    if empty and issuer.alerts.empty_extract == "alert":
        yield "empty-extract", str(run), f"{run}: the extract has no rows"
    if manifest is None:
        return
    status = run_status(store, run)
    if status.state == OUT_OF_BALANCE:
        yield "out-of-balance", str(run), f"{run} is out of balance"
    if status.awaiting:
        within, moment = timedelta(hours=issuer.portal.answer_within_hours), context.adapters.now()
        late = [
            item.clock
            for item in outbox(context.adapters, str(run))
            if item.overdue(moment, within)
        ]
        if late:
            text = f"{run}: {len(late)} chunks without a result, the oldest for {duration(moment - min(late))}"
            yield "result-overdue", str(run), text


def _drift(context: IssuerContext, recent: Sequence[RunId]) -> Iterator[Found]:
    """Yield how the last extracts depart from those before them, back to one that is as usual."""
    store, limits = context.adapters.store, context.issuer.limits
    for run in reversed(recent) if limits.drift == "alert" else ():
        manifest = read_manifest(store, RunKeys(run))
        if manifest is None or manifest.profile is None:
            continue
        how = departures(manifest.profile, documents.nights_before(store, run), limits.max_drift)
        if not how:
            return
        yield "drift", str(run), f"{run} departs from the extracts before it: {'; '.join(how)}"


def _history(store: Store, issuer: str) -> tuple[dict[str, Change], list[Change]]:
    """Return the last change of every alert by place, and the changes not notified yet."""
    prefix = f"{issuer}/alerts/"
    steps = [
        found
        for entry in store.keys(prefix)
        if (found := _STEP.match(entry.key.removeprefix(prefix)))
    ]
    written = [(step["place"], step["number"]) for step in steps if step["what"] == "json"]
    done = {(step["place"], step["number"]) for step in steps if step["what"] == "told"}
    last = dict(written)  # keys come in order: the highest number of each chain stays
    wanted = {*last.items(), *written} - (done - set(last.items()))
    read = {step: read_facts(store, f"{prefix}{step[0]}/{step[1]}.json") or {} for step in wanted}
    content = {
        at: Change(Alert(*(one[name] for name in Alert._fields)), int(at[1]))
        for at, one in read.items()
    }
    return {place: content[place, at] for place, at in last.items()}, [
        content[at] for at in sorted(wanted - done)
    ]


def _key(issuer: str, change: Change, ending: str) -> str:
    return f"{issuer}/alerts/{change.alert.place}/{change.number:06d}.{ending}"


ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


# One gauge: name, help text, samples (each a number with its labels).
Family = tuple[str, str, Sequence[tuple[float, Mapping[str, str]]]]


def openmetrics(families: Iterable[Family]) -> str:
    """Return the families as OpenMetrics 1.0 text, those without samples left out."""
    lines: list[str] = []
    for name, text, samples in families:
        if samples:
            lines += [f"# TYPE {name} gauge", f"# HELP {name} {text}"]
        for value, labels in samples:
            named = ",".join(f'{one}="{label.translate(ESCAPES)}"' for one, label in labels.items())
            lines.append(f"{name}{{{named}}} {value:.15g}")
    return "\n".join([*lines, "# EOF", ""])


def write_metrics(context: IssuerContext) -> str:
    """Write an issuer's metrics and return them: OpenMetrics 1.0."""
    issuer, store, now = context.issuer.issuer, context.adapters.store, context.adapters.now()
    runs = list(documents.run_statuses(store, issuer))
    chunks = list(outboxes(context.adapters, issuer, get_args(State)))
    rows = {fate: sum(getattr(one, fate) for one in runs) for fate in FIGURES}
    ages: dict[str, float] = {}
    for item in chunks:
        if item.state in OPEN:
            ages[item.state] = max((now - item.clock).total_seconds(), ages.get(item.state, 0.0))
    alerts = Counter(alert.kind for alert in open_alerts(store, issuer))
    # as the last report across runs has them
    hours = (read_facts(store, f"{reconciliation(issuer)}summary.json") or {}).get("hours") or {
        "links": 0
    }
    waits = {one: hours[one] for one in ("median", "slowest")} if hours["links"] else {}
    committed, took = _last_run(store, issuer)

    def family(name: str, text: str, values: Mapping[str, float], label: str = "state") -> Family:
        samples = [
            (value, {"issuer": issuer} | ({label: one} if one else {}))
            for one, value in sorted(values.items())
        ]
        return f"cardlink_{name}", text, samples

    text = openmetrics(
        [
            family("rows", "Rows of all runs by fate.", rows, "fate"),
            family("runs", "Runs by state.", Counter(one.state for one in runs)),
            family("chunks", "Chunks by state.", Counter(str(item.state) for item in chunks)),
            family("oldest_chunk_seconds", "Age of the oldest chunk without a result.", ages),
            family(
                "extracts_waiting",
                "Extracts not submitted yet.",
                {"": len(pending(context, remember=True))},
            ),
            family("alerts_open", "Open alerts by kind.", alerts, "kind"),
            family("last_commit_timestamp_seconds", "Commit time of the newest run.", committed),
            family("last_run_seconds", "Time from plan to commit of the newest run.", took),
            family("link_hours", "Hours from an extract's drop to its links.", waits, "kind"),
            family(
                "links_in_time_ratio",
                "Share of links within the agreed hours.",
                waits and {"": hours["share"]},
            ),
        ]
    )
    store.replace(f"{issuer}/metrics/openmetrics.txt", [text.encode()])
    return text


def _last_run(store: Store, issuer: str) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Return when the newest committed run was committed (epoch), and how many seconds it took from
    its plan.
    """
    for run in reversed(run_ids(store, issuer)):
        keys = RunKeys(run)
        written = {entry.key: entry.modified for entry in store.keys(keys.base, shallow=True)}
        if (
            keys.manifest in written
            and keys.plan in written
            and read_manifest(store, keys) is not None
        ):
            took = written[keys.manifest] - written[keys.plan]
            return {"": written[keys.manifest].timestamp()}, {"": took.total_seconds()}
    return {}, {}
