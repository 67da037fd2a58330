"""Matters by their numbers: all about one, and a choice that is carried out on what was shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry, entry_named
from flows.commands.form import Form
from flows.commands.parameters import DryRun, Field, Number, Reason
from flows.commands.result import Part, Result, of_several
from flows.commands.worklist import conversation
from flows.configuration import issuers
from flows.runs.shown_rows import OtherRowsError
from flows.steps import Placeholder, Sentence, Slot, Step
from flows.wiring import config_folder, wire

with on_first_use():
    from flows.operations import matters as stored
    from flows.operations import undecided_work
    from flows.reports import survey as surveys
    from flows.reports import work as works
    from flows.reports import work_kinds as kinds
    from flows.runs import context as contexts
    from flows.runs import errors

MOST = 40  # ranges of row numbers that are shown

OneIssuer = Annotated[
    str,
    Field(names=lambda: issuers(config_folder()), help="The issuer, as its TOML file is named."),
]
Numbers = Annotated[
    str,
    Field(
        pattern=r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*",
        help="The numbers of matters of one kind, as the worklist has them: 12,15-18.",
    ),
]
ChoiceName = Annotated[str, Field(pattern=r"[A-Za-z][A-Za-z-]*")]


class ChangedMatterError(OtherRowsError):
    """What a matter is about is not what was shown last."""

    message = "{issuer} {number}: {difference}. Nothing was done."
    next_step = Sentence(
        "Look again, then decide: {show}", show=Step("show", Slot("issuer"), Slot("number"))
    )


class _Known(NamedTuple):
    """What is known of an issuer: its work with the numbers of open matters, and these."""

    context: contexts.IssuerContext
    survey: surveys.Survey
    listed: Sequence[works.Work]
    matters: dict[int, stored.Matter]  # all of these numbers, also those that are over

    @property
    def issuer(self) -> str:
        return self.context.issuer.issuer

    def by_number(self, number: int) -> works.Work:
        """Return the work of an open matter; NotFoundError."""
        matter = self.matters.get(number)
        for work in self.listed:
            if work.number == number:
                return work
        absent = f"open matter {number}"
        if matter is not None:
            is_news = matter.ended is None and kinds.is_news(matter.kind)
            absent += ": there is nothing to decide about it" if is_news else ": it is over"
        raise _absent(self.issuer, absent, Step("worklist", self.issuer))


def _absent(place: str, absent: str, command: Step) -> errors.NotFoundError:
    return errors.NotFoundError(place=place, what=absent, command=command)


@entry("show", form=Form("matter", "matter {issuer} {number}", actor="none"))
def show(context: Context, issuer: OneIssuer, number: Number) -> Result:
    """Show all about one matter of the worklist: what, why, its first step, and what can be chosen.

    Rows are named by their numbers, never by what they contain. A decision about the matter is then
    about what was shown.

    Args:
        number: Its number, as the worklist has it.

    Example:
        cardlink show first-bank 12
    """
    known = _known(context, issuer, [number])
    matter = known.matters.get(number)
    if matter is not None and matter.ended is None and kinds.is_news(matter.kind):
        return _news(issuer, matter)
    work = known.by_number(number)
    stored.numbered(known.context, known.listed)
    line = works.Line((work,))
    moment = known.context.adapters.now()
    rows = stored.rows_of(known.context.adapters, work, known.survey.cards)
    ranges = works.in_ranges(rows).split(",")
    facts = {**line.facts(moment), "issuer": issuer, "number": number, "row_numbers": rows}
    shown: list[Part] = [*conversation(line, moment)]
    if rows:
        more = f" and {len(ranges) - MOST:,} ranges more" if len(ranges) > MOST else ""
        shown.append(f"   rows of {work.run}: {', '.join(ranges[:MOST])}{more}")
    if work.codes:
        shown.append(f"   reasons: {', '.join(sorted(work.codes))}")
    shown += _choices(line)
    return Result(facts, shown, line.first, headline=line.sentence)


def _news(issuer: str, matter: stored.Matter) -> Result:
    """Show what people were only told of."""
    kind = kinds.kind_named(matter.kind)
    facts = {"issuer": issuer, "number": matter.number, "kind": matter.kind, "matter": matter.text}
    step = kind.first.filled({"issuer": issuer})
    return Result(facts, [matter.text, str(kind.then)], step)


def _choices(line: works.Line) -> Iterator[Part]:
    """Yield what each choice does."""
    for choice in line.decisions:
        yield f"   {choice.label}: {choice.effect}"
        if choice.does is not None:
            yield Sentence("      it carries out {does:bare}", does=choice.does)


@entry("decide", form=Form("decide", "decide {issuer} {numbers}", needs=("reason",)))
def decide(
    context: Context,
    issuer: OneIssuer,
    numbers: Numbers,
    choice: ChoiceName,
    *,
    reason: Reason = "",
    dry_run: DryRun = False,
) -> Result:
    """Decide about matters of the worklist: carry out one of their choices on what was shown.

    Where a matter is about other rows by now than those that the worklist or `show` has shown last,
    nothing is done, and the difference is said.

    Args:
        choice: What is decided, as the worklist names it.
        reason: Why; kept with the decision.

    Example:
        cardlink decide first-bank 12,15-18 give-up --reason 'account closed'
    """
    chosen = works.numbers_in(numbers)
    known = _known(context, issuer, chosen)
    _refuse_partly_over(known, chosen)
    selected = [known.by_number(number) for number in chosen]
    for work in selected:
        _refuse_changed(known, work)
    steps = _commands(known, selected, choice)
    results = [_carried_out(context, step, reason, dry_run=dry_run) for step in steps]
    together = of_several(list(zip(map(str, steps), results, strict=True)), {})
    facts = {
        "issuer": issuer,
        "numbers": numbers,
        "choice": choice,
        "dry_run": dry_run,
        "outcomes": [result.facts for result in results],
    }
    return together._replace(facts=facts, outbox=issuer)


def _known(context: Context, issuer: str, numbers: Sequence[int]) -> _Known:
    issuer_context = wire(context.folder, issuer)
    adapters = issuer_context.adapters
    survey = surveys.survey(issuer_context, beside=undecided_work.beside_runs())
    by_number = {matter.number: matter for matter in stored.by_numbers(adapters, issuer, numbers)}
    listed = stored.with_numbers(adapters, issuer, survey.work)
    return _Known(issuer_context, survey, listed, by_number)


def _refuse_partly_over(known: _Known, numbers: Sequence[int]) -> None:
    """Raise ChangedMatterError where some of the matters are over, and others are open."""
    still_open = {work.number for work in known.listed}.intersection(numbers)
    over = [number for number in numbers if number not in still_open]
    if over and still_open:
        difference = f"it is over, and {works.in_ranges(sorted(still_open))} is open"
        raise ChangedMatterError(issuer=known.issuer, number=over[0], difference=difference)


def _refuse_changed(known: _Known, work: works.Work) -> None:
    """Raise ChangedMatterError where a matter is not what was shown last."""
    before = known.matters[work.number].shown
    after = work.shown
    if before == after:
        return
    if before is None:
        difference = "it was not shown yet"
    else:
        parts = [
            f"{name}: {_plain(before.get(name))} when it was shown, {_plain(after.get(name))} now"
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)
        ]
        difference = "; ".join(parts)
    raise ChangedMatterError(issuer=known.issuer, number=work.number, difference=difference)


def _plain(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def _commands(known: _Known, selected: Sequence[works.Work], choice: str) -> list[Step]:
    """Return the commands that carry out a choice: one for all of a line, else one for each matter.

    NotFoundError.
    """
    numbers = {work.number for work in selected}
    whole = [line for line in works.lines(known.listed) if numbers.issuperset(_numbers_of(line))]
    in_whole = set().union(*map(_numbers_of, whole)) if whole else set[int]()
    parts = [*whole, *(works.Line((work,)) for work in selected if work.number not in in_whole)]
    steps: list[Step] = []
    for part in parts:
        own = _offered(part, choice)
        singles = [works.Line((work,)) for work in part.works]
        of_each = [own] if own is not None else [_offered(single, choice) for single in singles]
        if None in of_each:
            place = f"{known.issuer} {works.in_ranges(sorted(numbers))}"
            raise _not_offered(place, known.issuer, part, choice)
        steps += filter(None, of_each)
    return steps


def _not_offered(place: str, issuer: str, line: works.Line, choice: str) -> errors.NotFoundError:
    """Return the error of a choice that a line does not offer; it names those that it offers."""
    labels = ", ".join(each.label for each in line.choices if each.needs_reason_alone)
    absent = f"choice {choice!r} now; it has {labels or 'none'}"
    return _absent(place, absent, Step("show", issuer, line.works[0].number))


def _numbers_of(line: works.Line) -> set[int]:
    return {work.number for work in line.works}


def _offered(line: works.Line, choice: str) -> Step | None:
    """Return the command of a choice, None where it cannot be made by number."""
    choices = [each for each in line.choices if each.needs_reason_alone]
    return next((each.command for each in choices if choice in (each.label, each.name)), None)


def _carried_out(context: Context, step: Step, reason: str, *, dry_run: bool) -> Result:
    """Carry out a command for a reason; one that has to be rehearsed first, after its dry run."""
    command = entry_named(step.entry)
    values = _values(step, reason)
    if dry_run and not command.has_parameter("dry_run"):
        return Result({"dry_run": True}, [Sentence("dry run: {step:bare}", step=step)])
    if not values.get("dry_run") or dry_run:
        return command(context, **{**values, **({"dry_run": True} if dry_run else {})})
    rehearsed = command(context, **values)
    following = rehearsed.next_step
    if following is None or following.entry != step.entry:
        return rehearsed
    return command(context, **_values(following, reason))


def _values(step: Step, reason: str) -> dict[str, Any]:
    """Return the values of a command, with the reason in the place of a word for it."""
    values = entry_named(step.entry).values_of(step)
    return {
        name: reason if isinstance(value, Placeholder) else value for name, value in values.items()
    }
