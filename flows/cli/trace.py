"""The body of `cardlink trace`: one cardholder's story over all runs, where each card stands, what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from flows.cli.answer import Answer
from flows.core.report.trace import Attempt, stands
from flows.core.run.calendar import local_day
from flows.steps.operate.trace import Trace, refuse_card, trace
from flows.wiring import edges, issuers, load_issuer, now
from schemas import ledger


def trace_cardholder(folder: Path, cuid: str, name: str | None, *, url: bool) -> Answer:
    """Trace a cardholder over the runs of one issuer or of all; the links themselves only with `url`."""
    refuse_card(cuid)
    found: list[Trace] = []
    told = []
    for issuer in [name] if name else issuers(folder):
        settings = load_issuer(folder, issuer)
        found.append(trace(edges(settings.root, folder), issuer, cuid, urls=url))
        told += stands(found[-1].attempts, local_day(now(), settings.time_zone))
    attempts = [one for trace_ in found for one in trace_.attempts]
    purged = [run for trace_ in found for run in trace_.purged]
    lines = list(_story(attempts))
    lines += [f"now: card {_card(one.last_4, one.expiration)} at {one.issuer} {one.stands}" for one in told]
    facts = {
        "cuid": cuid,
        "attempts": [one._asdict() for one in attempts],
        "stands": [one._asdict() for one in told],
        "purged": purged,
    }
    then = "; ".join(dict.fromkeys(one.then for one in told if one.then))
    return Answer(facts, [*(lines or ["no run that has its ledger still knows this cuid"]), *_gone(purged)], then)


def _story(attempts: Sequence[Attempt]) -> Iterator[str]:
    """Yield the lines of every attempt; nights in a row that sent nothing, for the same reason, are one line."""
    for (state, *_), alike in groupby(attempts, lambda one: (one.state, one.reasons, one.issuer)):
        found = list(alike)
        if state == ledger.SUPPRESSED and len(found) > 1:
            why = ", ".join(found[0].reasons)
            yield f"{found[0].at:%Y-%m-%d %H:%M}  {len(found):,} runs to {found[-1].run}: not sent, {why}"
        else:
            yield from (line for one in found for line in _lines(one))


def _lines(one: Attempt) -> Iterator[str]:
    where = f", chunk {one.chunk} position {one.position}" if one.chunk else ""
    row = f"{one.run} row {one.row}" if one.run else "typed in"
    card = _card(one.last_4, one.expiration)
    yield f"{one.at:%Y-%m-%d %H:%M}  {row}{where}: card {card}, {one.state}"
    known = {
        "repeats": one.origin,
        "chunk": one.sent,
        "why": ", ".join(one.reasons),
        "the partner": one.message,
        "link until": one.expires_on,
        "link": one.url,
        "result": f"{one.result} ({one.how})" if one.result else None,
    }
    yield from (f"    {name}: {value}" for name, value in known.items() if value)


def _card(last_4: str | None, expiration: str | None) -> str:
    until = f" {expiration[2:]}/{expiration[:2]}" if expiration else ""
    return f"..{last_4 or '????'}{until}"


def _gone(purged: list[str]) -> list[str]:
    if not purged:
        return []
    return [f"{len(purged):,} runs are purged, from {purged[0]} to {purged[-1]}: what they knew is gone"]
