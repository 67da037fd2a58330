"""The settings that are in force for an issuer: recorded, compared with its TOML, and agreed to.

They are rows of the table `settings_in_force`; the last one is in force. Every command that changes
something compares the TOML with it. A change that one person may make is recorded by the command
that meets it, before it does anything else; of others nothing is done until two persons agree to
them, as the settings in force say, and not the file at hand.

The first command of an issuer records what it finds.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from sqlalchemy import select

from flows.errors import BalanceError, CardlinkError, GateError, TryAgainError
from flows.redaction import redact, redacted
from flows.runs.adapters import Adapters
from flows.runs.commits import read_commits, read_last_turn
from flows.runs.context import IssuerContext
from flows.runs.documents import record_of_row
from flows.runs.identity import canonical, digest
from flows.runs.journal import Act, enter
from flows.runs.stored_journal import flush_journal, refuse_other_journal
from flows.steps import WHY, Sentence, Slot, Step, Text
from schemas.database import SETTINGS_IN_FORCE
from schemas.governed import ACTS, HOURS, PERSONS, Change, changes, governed_settings, needing_two
from schemas.manifest import Manifest
from schemas.records import SettingsInForce

MOST = 8  # changes that are named in a sentence


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
    """Runs name settings that the database does not have."""

    message = (
        "{issuer}: run {run} was made with settings {sha256}, of which there is no record: "
        "somebody removed it. Nothing was done."
    )
    next_step = Sentence(
        "Find out what was removed: {verify}.", verify=Step("audit verify", Slot("issuer"))
    )


class SettingsMovedError(TryAgainError):
    """The TOML was changed while a command worked with it."""

    message = "{issuer}: its settings were changed while the command ran. It went no further."
    next_step = "Run {same_command} again: it has the settings as they are now."


class Compared(NamedTuple):
    """The settings of a TOML beside those in force: `number` is of their record, 0 for none."""

    settings: dict[str, Any]
    number: int
    last: SettingsInForce | None

    @property
    def sha256(self) -> str:
        """The digest of the TOML's settings."""
        return digest(canonical(self.settings))

    @property
    def is_same(self) -> bool:
        """Whether the TOML has the settings in force."""
        return self.last is not None and self.last.sha256 == self.sha256

    @property
    def changed(self) -> list[Change]:
        """What the TOML has otherwise than the settings in force."""
        return changes(self.last.settings, self.settings) if self.last else []

    @property
    def needing_two(self) -> list[Change]:
        """What of that two persons must agree to."""
        return needing_two(self.last.settings, self.changed) if self.last else []

    @property
    def acts(self) -> tuple[str, ...]:
        """The acts that need a second person by the settings in force, else by the TOML."""
        return tuple((self.last.settings if self.last else self.settings).get(ACTS) or ())

    @property
    def persons(self) -> Mapping[str, str]:
        """The pinned keys of persons by the settings in force, else by the TOML."""
        return (self.last.settings if self.last else self.settings).get(PERSONS) or {}

    @property
    def hours(self) -> int:
        """The hours of a request, by the settings in force, else by the TOML."""
        return int((self.last.settings if self.last else self.settings)[HOURS])


class Governing:
    """How a command treats settings that are not those in force; `remarks` is what it says of them.

    Nothing is recorded in a rehearsal.
    """

    def __init__(self, is_rehearsal: bool) -> None:
        self.remarks: list[Text] = []
        self._is_rehearsal = is_rehearsal
        self._known: dict[str, str] = {}  # digests of the settings that it works with, by issuer
        self._adapters: dict[str, Adapters] = {}  # by issuer

    def applied_to(self, context: IssuerContext) -> IssuerContext:
        """Return a context whose settings are in force; raises as `governed` does.

        SettingsMovedError where they are not those that the command began with.
        """
        issuer = context.issuer.issuer
        sha256 = digest_of(context)
        known = self._known.get(issuer)
        if known is None:
            refuse_other_journal(context.adapters, issuer)
            self._adapters[issuer] = context.adapters
            remarks = governed(context, is_rehearsal=self._is_rehearsal)
            self.remarks += remarks
            self._known[issuer] = sha256
        elif known != sha256:
            # what was agreed to is not what would be done
            raise SettingsMovedError(issuer=issuer)
        return context._replace(settings_in_force=sha256)

    def end(self) -> None:
        """Store what the command has entered in journals; where that fails, the next one does."""
        for issuer, adapters in self._adapters.items():
            with suppress(CardlinkError):
                flush_journal(adapters, issuer)


def compared(context: IssuerContext) -> Compared:
    """Return the settings of an issuer's TOML beside those in force."""
    columns = [SETTINGS_IN_FORCE.c[name] for name in ("number", *SettingsInForce.model_fields)]
    query = select(*columns).where(SETTINGS_IN_FORCE.c.issuer == context.issuer.issuer)
    newest = query.order_by(SETTINGS_IN_FORCE.c.number.desc()).limit(1)
    with context.adapters.database.snapshot() as connection:
        row = connection.execute(newest).mappings().first()
    if row is None:
        return Compared(values_of(context), 0, None)
    facts = {name: row[name] for name in SettingsInForce.model_fields}
    last = record_of_row(facts, f"Settings in force, {row['number']}", SettingsInForce)
    return Compared(values_of(context), row["number"], last)


def digest_of(context: IssuerContext) -> str:
    """Return the digest of the settings of an issuer's TOML."""
    return digest(canonical(values_of(context)))


def governed(context: IssuerContext, *, is_rehearsal: bool) -> Sequence[Text]:
    """Record the settings of the TOML where they are not in force; return what a person should
    know of them.

    In a rehearsal nothing is recorded, and what would be refused is told. SettingsNotAgreedError,
    SettingsLostError.
    """
    comparison = compared(context)
    issuer = context.issuer.issuer
    if comparison.is_same:
        return ()
    if is_rehearsal:
        return list(_rehearsed(issuer, comparison))
    refuse_unagreed(issuer, comparison)
    _refuse_lost(context)

    def record(act: Act) -> Sequence[Text]:
        now = compared(context._replace(adapters=context.adapters.within(act.connection)))
        if now.is_same:  # a concurrent process was first
            return ()
        refuse_unagreed(issuer, now)
        origin: Literal["found", "changed"] = "changed" if now.last else "found"
        _record(act, context, now, origin, "a command met them in the TOML")
        return list(_recorded(issuer, now))

    return enter(context.adapters, issuer, "settings recorded", record)


def refuse_unagreed(issuer: str, comparison: Compared) -> None:
    """Raise SettingsNotAgreedError where changes need a second person."""
    needed = comparison.needing_two
    if needed:
        raise SettingsNotAgreedError(issuer=issuer, changes=in_words(needed))


def agree(context: IssuerContext, comparison: Compared, reason: str) -> None:
    """Record that the settings of the TOML are those in force; NoReasonError, SettingsLostError.

    SettingsMovedError where another command recorded others meanwhile.
    """
    issuer = context.issuer.issuer
    signed = context.adapters.signed(reason)
    _refuse_lost(context)

    def record(act: Act) -> None:
        now = compared(context._replace(adapters=context.adapters.within(act.connection)))
        if now.number != comparison.number:
            raise SettingsMovedError(issuer=issuer)
        _record(act, context, comparison, "agreed", signed["reason"])

    enter(context.adapters, issuer, "settings agreed to", record, reason=signed["reason"])


def _record(
    act: Act,
    context: IssuerContext,
    comparison: Compared,
    origin: Literal["found", "changed", "agreed"],
    reason: str,
) -> None:
    """Record the settings of the TOML as those in force."""
    act.insert(
        SETTINGS_IN_FORCE,
        number=comparison.number + 1,
        **context.adapters.signed(reason),
        what=origin,
        sha256=comparison.sha256,
        settings=comparison.settings,
    )


def settings_of(context: IssuerContext, sha256: str) -> dict[str, Any] | None:
    """Return the settings of that digest, None where no record has them."""
    which = SETTINGS_IN_FORCE.c
    query = select(which.settings).where(
        which.issuer == context.issuer.issuer, which.sha256 == sha256
    )
    with context.adapters.database.snapshot() as connection:
        return connection.execute(query.limit(1)).scalar()


def since_last_run(context: IssuerContext) -> Iterator[Text]:
    """Yield what of the TOML's settings changed since the last run, or since they were recorded."""
    comparison = compared(context)
    if comparison.last is None:
        yield "not recorded yet: the first command that changes something records them"
        return
    run = last_run(context)
    made_with = settings_of(context, run.settings_in_force) if run else None
    since = f"run {run.run}" if run and made_with else f"record {comparison.number}"
    changed = changes(made_with or comparison.last.settings, comparison.settings)
    for change in changed:
        yield f"changed since {since}: {redact(str(change))}"
    if not changed:
        day = f"{comparison.last.at:%Y-%m-%d}"
        yield f"as in {since}; record {comparison.number} by {comparison.last.by} on {day}"


def last_run(context: IssuerContext) -> Manifest | None:
    """Return the issuer's run that was committed last, None before the first."""
    turn = read_last_turn(context.adapters, context.issuer.issuer)
    last = read_commits(context.adapters, context.issuer.issuer, turn - 1)
    return last[-1].manifest if last else None


def in_words(changed: Sequence[Change]) -> str:
    """Return changes as one text, at most MOST of them."""
    more = f"; and {len(changed) - MOST} more" if len(changed) > MOST else ""
    return redact("; ".join(map(str, changed[:MOST])) + more)


def values_of(context: IssuerContext) -> dict[str, Any]:
    """Return the settings of the TOML as they are stored."""
    values = governed_settings(context.issuer, context.header.line.decode())
    return {name: _shown(name, value) for name, value in values.items()}


def _shown(name: str, value: Any) -> Any:
    """Return a setting as it is stored: free texts with card numbers masked.

    What two persons agree to is stored as it is, so that no two values look the same.
    """
    return value if Change(name, value, None).act == "settings" else redacted(value)


def _refuse_lost(context: IssuerContext) -> None:
    """Raise SettingsLostError where the last run names settings that have no record."""
    run = last_run(context)
    if run is None or not run.settings_in_force:
        return
    if settings_of(context, run.settings_in_force) is None:
        raise SettingsLostError(
            issuer=context.issuer.issuer, run=run.run, sha256=run.settings_in_force[:12]
        )


def _recorded(issuer: str, comparison: Compared) -> Iterator[Text]:
    """Yield what a person should know of settings that were recorded."""
    number = comparison.number + 1
    if comparison.last is None:
        yield (
            f"{issuer}: its settings are recorded as they are now "
            f"(record {number}, {comparison.sha256[:12]}); from now on every change is told"
        )
    elif comparison.changed:
        yield (
            f"{issuer}: settings changed since record {comparison.number}, "
            f"now recorded as {number}: {in_words(comparison.changed)}"
        )


def _rehearsed(issuer: str, comparison: Compared) -> Iterator[Text]:
    """Yield what a person should know of settings that a real run would record, or refuse."""
    if comparison.changed:
        changed = in_words(comparison.changed)
        yield f"{issuer}: settings changed since record {comparison.number}: {changed}"
    if comparison.needing_two:
        yield Sentence(
            "{issuer}: a real run is refused until two persons agree to that: {agree}",
            issuer=issuer,
            agree=Step("agree", issuer, reason=WHY),
        )
