"""A rule: an entry of the table in `schemas.rules`, and what it is for one run.

Put here: what every rule has. Keep out: the rules themselves.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import date
from typing import NamedTuple, cast, get_args

import polars as pl

from schemas.actions import FIX
from schemas.challenges import asked_columns
from schemas.expressions import lacks_all
from schemas.issuer import RuleSettings, Severity
from schemas.portal import COLUMNS

# The settings of [rules] that decide what happens to a row: reject, warn or off.
SEVERITY_SETTINGS = {
    name
    for name, field in RuleSettings.model_fields.items()
    if get_args(field.annotation) == get_args(Severity)
}

# What a rule asks, where that depends on the business date or the settings.
Condition = Callable[[date, RuleSettings], pl.Expr]


@dataclass(frozen=True, eq=False)  # told apart by identity: a dict of cells has no hash
class Rule:
    """One rule of the table."""

    code: str  # entity.property.kind
    column: str  # the portal column it is reported on
    # false where a row breaks it; true or null, which is nothing to judge, where not
    holds: pl.Expr | Condition
    _: KW_ONLY
    example: Mapping[str, str | None]  # cells that break it, in a row that is good otherwise
    severity: str = "reject"  # reject, warn, or the setting of `[rules]` that decides
    action: str = FIX  # who acts
    hint: str = ""  # what would be accepted, where that is not what its column accepts
    # a wider rule, broken by every row that breaks this one, which names the mistake exactly
    narrows: str = ""
    # a cheaper question, asked first: the shape that a cell has which may break it
    screen: str = ""
    # whether nobody could answer a challenge that asks for its column: where one does, it rejects
    is_answer: bool = False

    def __post_init__(self) -> None:
        """Refuse an entry that could not work, or that nobody could see at work."""
        if not self.example:
            raise ValueError(f"{self.code}: a rule needs an example that breaks it")
        unknown = {self.column, *self.example} - COLUMNS.keys()
        unknown |= {self.severity} - {"reject", "warn", *SEVERITY_SETTINGS}
        if unknown:
            names = ", ".join(sorted(unknown))
            raise ValueError(f"{self.code}: no such column or severity: {names}")

    def severity_by(self, settings: RuleSettings) -> Severity:
        """Return what happens to a row that breaks the rule: what a challenge at the link asks for
        must be there, whatever the rule's own setting says.
        """
        if self.is_answer and self.column in asked_columns(settings.challenges):
            return "reject"
        return cast(Severity, getattr(settings, self.severity, self.severity))

    def expression(self, as_of: date, settings: RuleSettings) -> pl.Expr:
        """Return the expression on a business date; a rule judges what is there, so null holds."""
        holds = self.holds
        if not isinstance(holds, pl.Expr):
            holds = holds(as_of, settings)
        if self.screen:
            holds |= lacks_all(self.column, [self.screen])
        return holds.fill_null(True)


class ActiveRule(NamedTuple):
    """A rule on a business date, by an issuer's settings, which have not turned it off."""

    rank: int  # its place in the table: of the rules that a cell breaks the first is reported
    rule: Rule
    severity: Severity  # reject or warn
    holds: pl.Expr  # false where a row breaks it, else true


def rules_in_force(
    table: Sequence[Rule], as_of: date, settings: RuleSettings
) -> tuple[ActiveRule, ...]:
    """Return the rules of the table that are not turned off, in order."""
    ranked = [(rank, rule, rule.severity_by(settings)) for rank, rule in enumerate(table)]
    return tuple(
        ActiveRule(rank, rule, severity, rule.expression(as_of, settings))
        for rank, rule, severity in ranked
        if severity != "off"
    )


def remarks(table: Sequence[Rule], settings: RuleSettings) -> Iterator[str]:
    """Yield what is doubtful of an issuer's challenges: there is only one, or a setting that it has
    itself does not count beside them.
    """
    if len(settings.challenges) == 1:
        yield (
            "[rules] challenges has only one: the partner strongly recommends two, since a link "
            "may come into the wrong hands"
        )
    for rule in table:
        if rule.severity not in settings.model_fields_set:
            continue
        own = getattr(settings, rule.severity)
        if own != rule.severity_by(settings):
            yield (
                f'[rules] {rule.severity} = "{own}" does not count for {rule.code}: `challenges` '
                "asks for it, so such a row is rejected"
            )
