"""Practice with the simulated partner: let it answer what a store holds, or serve its whole interface."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import Any, NamedTuple

from flows.runs.sealing import Opener
from flows.runs.store import Store
from flows.simulator.answer import answer_store
from flows.simulator.portal import Portal
from schemas.issuer import Issuer


class Behaviour(NamedTuple):
    """How the simulated partner behaves: share of rows that fail, in another order than sent, by which seed."""

    fail_share: float
    shuffle: bool
    seed: int


def answer(
    issuer: Issuer,
    store: Store,
    header: list[str],
    opener: Opener,
    behaviour: Behaviour,
    today: date,
    expires: date | None = None,
) -> dict[str, Any]:
    """Answer every committed chunk that has no result yet; return the counts and what was refused."""
    host = issuer.portal.allowed_hosts[0]
    portal = Portal(opener, host=host, header=header, today=today, expires=expires, **behaviour._asdict())
    done = answer_store(store, issuer.issuer, portal)
    counts = {"files": len(done.delivered), "linked": done.linked, "errors": done.errors}
    return {"issuer": issuer.issuer, **counts, "refused": [list(one) for one in done.refused]}


def serve(
    issuer: Issuer,
    header: list[str],
    opener: Opener,
    behaviour: Behaviour,
    port: int,
    clock: Callable[[], datetime],
    announce: Callable[[str, dict[str, str]], None],
) -> dict[str, Any]:
    """Serve until SIGTERM or Ctrl-C, announcing the address and the client's credentials first; return the counts."""
    from flows.simulator.service.app import create_app
    from flows.simulator.service.books import Habits, ServiceState
    from flows.simulator.service.recount import recount
    from flows.simulator.service.serving import address, listen, serve_until_stopped
    from schemas.partner_api.service import ServiceSettings

    with listen(port) as listener:
        base_url = address(listener)
        spoken = issuer.service.model_dump() if issuer.service else {}
        settings = ServiceSettings.model_validate({**spoken, "base_url": base_url})
        host = issuer.portal.allowed_hosts[0]
        books = ServiceState(opener, clock(), Habits(host=host, fi_key=settings.fi_key, **behaviour._asdict()), header)
        announce(base_url, books.habits.client._asdict())
        serve_until_stopped(create_app(books, settings, clock), listener)
    totals = {what: value for what, value in recount(books).items() if what != "cardholders"}
    return {"issuer": issuer.issuer, "address": base_url, **totals}
