"""Everything that is known of one cardholder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import chain, groupby
from typing import Any, NamedTuple, TypeVar

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.result import Result
from flows.configuration import load_issuer
from flows.errors import OperatorError
from flows.extensions import hooks
from flows.redaction import spare
from flows.steps import Sentence, Step, Text, counted
from flows.wiring import edges, now, wire

with on_first_use():
    from flows.book import book
    from flows.reports import cardholder, cardholder_status, cardholder_trace
    from flows.resend import renewal
    from flows.runs import business_date, erased
    from schemas import ledger

T = TypeVar("T")


class History(NamedTuple):
    """What an extension knows of a cardholder: the name of that, as plain facts, and as lines."""

    name: str
    facts: Sequence[Mapping[str, Any]]
    lines: Sequence[str]


class _Known(NamedTuple):
    """What an issuer's runs say of a cardholder, and the status of each card.

    `forgotten`: since when, "" where the cardholder was not erased.
    """

    trace: cardholder_trace.CardholderTrace
    cards: list[cardholder_status.CardStatus]
    forgotten: str = ""
    handed: Sequence[History] = ()


@entry("trace", form="what is known of one person is kept out of every form's log")
def trace(context: Context, cuid: str, *, issuer: str = "", url: bool = False) -> Result:
    """Show everything that happened to one cardholder, over all runs, and what to do next.

    Of a cuid that nobody has, the exit code is 2.

    Args:
        cuid: The cardholder's reference at the issuer.
        issuer: Only this issuer's runs (default: those of all that are configured).
        url: Show the links themselves: they are personal secrets.

    Example:
        cardlink trace C-1001 --issuer first-bank
    """
    cardholder_trace.refuse_card_number(cuid)

    known, unread = context.each(issuer, lambda name: [_known(context, name, cuid, urls=url)])
    attempts = _together(each.trace.attempts for each in known)
    for link in filter(None, (attempt.url for attempt in attempts)):
        spare(link)
    purged = _together(each.trace.purged for each in known)
    cards = _together(each.cards for each in known)
    forgotten = [each.forgotten for each in known if each.forgotten]
    handed = _together(each.handed for each in known)
    facts: dict[str, Any] = {
        "cuid": cuid,
        "forgotten": forgotten,
        "attempts": [attempt._asdict() for attempt in attempts],
        "stands": [card.facts for card in cards],
        "purged": purged,
    }
    for history in handed:
        facts.setdefault(history.name, []).extend(history.facts)
    lines = [*map(_forgotten_line, forgotten), *_lines(attempts, cards, purged)]
    lines += _together(history.lines for history in handed)
    found = [*attempts, *cards, *forgotten, *(history.facts for history in handed)]
    code = 0 if any(found) else OperatorError.exit_code
    return Result(facts, lines, _next_step(cards), code).beside(unread)


def _forgotten_line(where: str) -> Text:
    return f"forgotten at {where}: nothing is sent for this cuid again"


def _together(parts: Iterable[Iterable[T]]) -> list[T]:
    """Return what is known at each issuer as one list."""
    return list(chain.from_iterable(parts))


def _known(context: Context, issuer: str, cuid: str, *, urls: bool) -> _Known:
    settings = load_issuer(context.folder, issuer)
    adapters = edges(settings, context.folder)
    known = cardholder_trace.trace(adapters, issuer, cuid, urls=urls)
    today = business_date.local_day(now(), settings.time_zone)
    of_cuid = book.book_of_cuid(adapters, issuer, cuid)
    renewals = _renewals(context, of_cuid, cuid, known.attempts, today)
    cards = cardholder_status.card_statuses(of_cuid, cuid, known.attempts, today, renewals)
    act = erased.erasure_of(adapters, issuer, cuid)
    forgotten = f"{issuer} since {act.at:%Y-%m-%d %H:%M}" if act else ""
    handed = [history(adapters, issuer, cuid) for history in hooks("history")]
    return _Known(known, cards, forgotten, handed)


def _renewals(
    context: Context,
    known: book.Book,
    cuid: str,
    attempts: Sequence[cardholder.Attempt],
    today: date,
) -> cardholder_status.Renewals:
    """Return why a renewal leaves out the cards of a cardholder whose link ends, or has ended."""
    soon = today + timedelta(days=cardholder_status.SOON)
    ends = [attempt.expires_on for attempt in attempts if attempt.state == ledger.LINKED]
    if not any(day is not None and day <= soon for day in ends):
        return {}
    issuer_context = wire(context.folder, known.issuer)
    cards = known.cards(today)
    ending = renewal.ending(issuer_context, known, cards, cardholder_status.SOON).filter(cuid=cuid)
    return dict(ending.select("last_4", "why").iter_rows())


def _next_step(cards: Sequence[cardholder_status.CardStatus]) -> Step | None:
    """Return the first command that is advised for a card."""
    advised = [card.then for card in cards if isinstance(card.then, Sentence)]
    steps = chain.from_iterable(sentence.steps for sentence in advised)
    return next(steps, None)


def _lines(
    attempts: Sequence[cardholder.Attempt],
    cards: Sequence[cardholder_status.CardStatus],
    purged: Sequence[str],
) -> Iterator[Text]:
    """Yield every attempt, the status of every card, and what to do next."""
    yield from _attempt_lines(attempts)
    for card in cards:
        yield f"now: card {card_named(card.last_4, card.expiration)} at {card.issuer} {card.stands}"
        if card.standing:
            yield f"    {card.origin}"
    if not attempts and not cards:
        yield "no run with a ledger has this cuid"
    if purged:
        runs = counted(len(purged), "run")
        yield f"not searched: {runs} whose ledgers are purged, {purged[0]} to {purged[-1]}"
    for card in cards:
        if card.then:
            named = card_named(card.last_4, card.expiration)
            yield Sentence("next for card {card}: {then}", card=named, then=card.then)


def _attempt_lines(attempts: Sequence[cardholder.Attempt]) -> Iterator[str]:
    """Yield the lines of every attempt.

    Consecutive runs that suppressed the row for the same reason are one line.
    """
    for _, group in groupby(attempts, _likeness):
        similar = list(group)
        if similar[0].state == ledger.SUPPRESSED and len(similar) > 1:
            yield _suppressed(similar)
            continue
        for attempt in similar:
            yield from _attempt(attempt)


def _likeness(attempt: cardholder.Attempt) -> tuple[object, ...]:
    return attempt.state, attempt.reasons, attempt.issuer


def _suppressed(attempts: Sequence[cardholder.Attempt]) -> str:
    first = attempts[0]
    why = ", ".join(first.reasons)
    runs = f"{counted(len(attempts), 'run')} to {attempts[-1].run}"
    return f"{first.at:%Y-%m-%d %H:%M}  {runs}: not sent, {why}"


def _attempt(attempt: cardholder.Attempt) -> Iterator[str]:
    place = f"{attempt.run} row {attempt.row}" if attempt.run else "typed in"
    if attempt.chunk:
        place += f", chunk {attempt.chunk} position {attempt.position}"
    card = card_named(attempt.last_4, attempt.expiration)
    yield f"{attempt.at:%Y-%m-%d %H:%M}  {place}: card {card}, {attempt.state}"
    known = {
        "repeats": attempt.origin,
        "chunk": attempt.sent,
        "why": ", ".join(attempt.reasons),
        "the partner": attempt.message,
        "link until": attempt.expires_on,
        "link": attempt.url,
        "result": f"{attempt.result} ({attempt.how})" if attempt.result else None,
    }
    for name, value in known.items():
        if value:
            yield f"    {name}: {value}"


def card_named(last_4: str | None, expiration: str | None) -> str:
    """Return how a card is named: its last four digits, and when it expires."""
    until = f" {expiration[2:]}/{expiration[:2]}" if expiration else ""
    return f"..{last_4 or '????'}{until}"
