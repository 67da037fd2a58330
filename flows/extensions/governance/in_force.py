"""The settings that are in force for an issuer: recorded, compared with its TOML, and agreed to.

They are rows of the table `settings_in_force`; the last one is in force. Every command that changes
something compares the TOML with it. A change that one person may make is recorded by the command
that meets it, before it does anything else; of others nothing is done until two persons agree to
them, as the settings in force say, and not the file at hand.

The first command of an issuer records what it finds.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, func, select

from flows.errors import BalanceError, CardlinkError, GateError
from flows.extensions.governance.changes import Change, Values, changes, in_words, settings_of
from flows.extensions.governance.tables import SETTINGS_IN_FORCE
from flows.redaction import redact
from flows.runs.adapters import Adapters
from flows.runs.context import IssuerContext
from flows.runs.documents import record_of_row
from flows.runs.journal import Act, enter
from flows.runs.stored_run import StoredRun
from flows.steps import WHY, Sentence, Slot, Step, Text
from flows.wiring import SettingsMovedError
from schemas.database import JOURNAL
from schemas.records import Record

RECORDED = "settings recorded"
AGREED = "settings agreed to"
PART = "settings"  # of `check`


class SettingsNotAgreedError(GateError):
    """The TOML has settings that need a second person, and nobody agreed to them."""

    message = (
        "{issuer}: its settings changed, and two persons must agree: {changes}. Nothing was done."
    )
    next_step = Sentence(
        "Put them back as they were, or agree to them: {agree}.",
        agree=Step("agree", Slot("issuer"), reason=WHY),
    )


class SettingsLostError(BalanceError):
    """The journal has settings that the database does not have."""

    message = (
        "{issuer}: entry {entry} of the journal recorded settings, and they are gone: "
        "somebody removed them. Nothing was done."
    )
    next_step = Sentence(
        "Find out what was removed: {verify}.", verify=Step("audit verify", Slot("issuer"))
    )


class Recorded(Record):
    """Settings that are an issuer's from then on, and the number of the entry that recorded them.

    Found by the first command, changed in the TOML and met by a command, or agreed to.
    """

    number: int
    entry: int
    what: str
    settings: dict[str, Any]


class Compared(NamedTuple):
    """The settings of a TOML, those in force where there are any, and what is changed of them."""

    toml: dict[str, Any]
    last: Recorded | None
    changed: list[Change]

    @property
    def number(self) -> int:
        """The number of those in force, 0 for none."""
        return self.last.number if self.last else 0

    @property
    def is_same(self) -> bool:
        """Whether the TOML has the settings in force."""
        return self.last is not None and not self.changed

    @property
    def needing_two(self) -> list[Change]:
        """The changes that two persons must agree to."""
        return [
            change
            for change in self.changed
            if change.act in self.acts or (self.acts and change.name.startswith("four_eyes."))
        ]

    @property
    def ruling(self) -> Values:
        """The settings in force; where none are recorded yet, those of the TOML."""
        return self.last.settings if self.last else self.toml

    @property
    def acts(self) -> tuple[str, ...]:
        """The acts that need a second person."""
        return tuple(self.ruling.get("four_eyes.acts") or ())

    @property
    def persons(self) -> Mapping[str, str]:
        """The pinned keys of persons."""
        return self.ruling.get("four_eyes.persons") or {}

    @property
    def hours(self) -> int:
        """The hours of a request."""
        return int(self.ruling["four_eyes.hours"])


def compared(context: IssuerContext) -> Compared:
    """Return the settings of an issuer's TOML beside those in force."""
    toml = settings_of(context.issuer, context.header.line.decode())
    last = _newest(context.adapters, context.issuer.issuer)
    changed = changes(last.settings, toml.values, toml.defaults) if last else []
    return Compared(toml.values, last, changed)


def govern(context: IssuerContext, *, is_rehearsal: bool) -> list[Text]:
    """Record the settings of the TOML where they are not in force; return what a person should
    know of them.

    In a rehearsal nothing is recorded, and what would be refused is told. SettingsNotAgreedError,
    SettingsLostError.
    """
    comparison = compared(context)
    issuer = context.issuer.issuer
    if comparison.is_same:
        return []
    if is_rehearsal:
        return list(_told(issuer, comparison)) if comparison.last else []

    def record(act: Act) -> list[Text]:
        now = compared(context._replace(adapters=context.adapters.within(act.connection)))
        if now.is_same:  # a concurrent process was first
            return []
        if now.needing_two:
            raise not_agreed(issuer, now)
        origin = "changed" if now.last else "found"
        _record(act, context, now, origin, "a command met them in the TOML")
        return list(_told(issuer, now))

    return enter(context.adapters, issuer, RECORDED, record)


def not_agreed(issuer: str, comparison: Compared) -> SettingsNotAgreedError:
    """Return the error of changes that need a second person."""
    return SettingsNotAgreedError(issuer=issuer, changes=in_words(comparison.needing_two))


def agree(context: IssuerContext, comparison: Compared, reason: str) -> None:
    """Record that the settings of the TOML are those in force; NoReasonError, SettingsLostError.

    SettingsMovedError where another command recorded others meanwhile.
    """
    issuer = context.issuer.issuer
    reason = context.adapters.signed(reason)["reason"]

    def record(act: Act) -> None:
        now = compared(context._replace(adapters=context.adapters.within(act.connection)))
        if now.number != comparison.number:
            raise SettingsMovedError(issuer=issuer)
        _record(act, context, comparison, "agreed", reason)

    enter(context.adapters, issuer, AGREED, record, reason=reason)


def _record(
    act: Act, context: IssuerContext, comparison: Compared, origin: str, reason: str
) -> None:
    """Record the settings of the TOML as those in force; SettingsLostError."""
    _refuse_lost(act, comparison.last)
    act.insert(
        SETTINGS_IN_FORCE,
        number=comparison.number + 1,
        entry=act.number,
        **context.adapters.signed(reason),
        what=origin,
        settings=comparison.toml,
    )


def _refuse_lost(act: Act, last: Recorded | None) -> None:
    """Raise SettingsLostError where the last record is not the last that was entered."""
    entry = JOURNAL.c
    entered = select(func.max(entry.number)).where(
        entry.issuer == act.issuer, entry.run.is_(None), entry.what.in_((RECORDED, AGREED))
    )
    number = act.connection.scalar(entered) or 0
    if number != (last.entry if last else 0):
        raise SettingsLostError(issuer=act.issuer, entry=number)


def settings_numbered(context: IssuerContext, number: int) -> Values:
    """Return the settings of a record; none where there is no such record."""
    column = SETTINGS_IN_FORCE.c
    which = (column.issuer == context.issuer.issuer, column.number == number)
    with context.adapters.database.snapshot() as connection:
        settings: Values = connection.scalar(select(column.settings).where(*which)) or {}
    return settings


def made_with(run: StoredRun) -> Recorded | None:
    """Return the settings that were in force when a run was planned; None for none."""
    entry = JOURNAL.c
    of_run = select(func.min(entry.number)).where(entry.issuer == run.issuer, entry.run == run.id)
    before = SETTINGS_IN_FORCE.c.entry < of_run.scalar_subquery()
    return _newest(run.adapters, run.issuer, before)


def _newest(adapters: Adapters, issuer: str, *which: ColumnElement[bool]) -> Recorded | None:
    """Return the last record of settings of which all these hold."""
    columns = [SETTINGS_IN_FORCE.c[name] for name in Recorded.model_fields]
    query = select(*columns).where(SETTINGS_IN_FORCE.c.issuer == issuer, *which)
    newest = query.order_by(SETTINGS_IN_FORCE.c.number.desc()).limit(1)
    with adapters.database.snapshot() as connection:
        row = connection.execute(newest).mappings().first()
    return (
        record_of_row(dict(row), f"Settings in force, {row['number']}", Recorded) if row else None
    )


def checks(context: IssuerContext) -> Iterator[tuple[str, Text | CardlinkError]]:
    """Yield what of the TOML's settings changed since those in force were recorded, and the error
    where two persons must agree.
    """
    comparison = compared(context)
    last = comparison.last
    if last is None:
        yield PART, "not recorded yet: the first command that changes something records them"
        return
    for change in comparison.changed:
        yield PART, f"changed since record {last.number}: {redact(str(change))}"
    if not comparison.changed:
        yield PART, f"as in record {last.number} by {last.by} on {last.at:%Y-%m-%d}"
    if comparison.needing_two:
        yield PART, not_agreed(context.issuer.issuer, comparison)


def _told(issuer: str, comparison: Compared) -> Iterator[Text]:
    """Yield what a person should know of settings that are recorded, or would be."""
    if comparison.last is None:
        yield (
            f"{issuer}: its settings are recorded as they are now (record 1); "
            "from now on every change is told"
        )
    else:
        changed = in_words(comparison.changed)
        yield f"{issuer}: settings changed since record {comparison.number}: {changed}"
    if comparison.needing_two:
        yield Sentence(
            "{issuer}: a real run is refused until two persons agree to that: {agree}",
            issuer=issuer,
            agree=Step("agree", issuer, reason=WHY),
        )
