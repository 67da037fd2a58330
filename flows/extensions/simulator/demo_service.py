"""The practice service of the demo: it answers the night's chunks and plays their cardholders.

It serves beside the demo's flows. Its clock stands at the night's date, and only its cardholders
take it ahead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from functools import partial
from itertools import islice
from socket import socket
from typing import Any, Final, NamedTuple

from flows.extensions.simulator.chance import chance
from flows.extensions.simulator.practice import portal_opener
from flows.extensions.simulator.service.app import create_app
from flows.extensions.simulator.service.books import Client, Habits, ServiceState
from flows.extensions.simulator.service.people_at_links import let_cardholders_act
from flows.extensions.simulator.service.recount import totals
from flows.extensions.simulator.service.refusals import Disturbance
from flows.extensions.simulator.service.serving import address, serving
from flows.extensions.simulator.service.wire import CARDHOLDER_MESSAGES, LINKS, Spoken
from schemas.issuer import Issuer

SEED: Final = 1
# what the service does not say of some links, so that the report shows how that looks
_REFUSED: Final = Disturbance(403)
_MISSING: Final = Disturbance(404)
_UNREADABLE: Final = Disturbance(200, "down for maintenance")
_LONGEST: Final = 300.0  # seconds


class DemoService(NamedTuple):
    """A practice service that is being served: where, and its books."""

    base_url: str
    state: ServiceState
    loop: asyncio.AbstractEventLoop

    def play_people(self) -> dict[str, Any]:
        """Let cardholders act until all their jobs have ended; return the recount.

        Of a few links the service refuses to say anything, knows no record, or says what nobody can
        read.
        """
        return self._between_requests(_evening)

    def _between_requests(self, do: Callable[[ServiceState], dict[str, Any]]) -> dict[str, Any]:
        async def on_the_loop() -> dict[str, Any]:
            return do(self.state)

        return asyncio.run_coroutine_threadsafe(on_the_loop(), self.loop).result(_LONGEST)


@contextmanager
def demo_service(
    issuer: Issuer, listener: socket, secret_key: bytes, today: date, expires: date
) -> Iterator[DemoService]:
    """Serve on a listening socket until the block ends; links end on the day `expires`."""
    base_url = address(listener)
    habits = Habits(host=issuer.portal.allowed_hosts[0], seed=SEED, expires=expires)
    noon = datetime.combine(today, time(12), UTC)
    with portal_opener(secret_key) as opener:
        state = ServiceState(opener, noon, habits)
        app = create_app(state, Spoken(), lambda: state.now)
        with serving(app, listener) as loop:
            yield DemoService(base_url, state, loop)


def client_variables() -> dict[str, str]:
    """Return the environment variables of a client that the service lets in."""
    return {f"CARDLINK_SERVICE_{name.upper()}": value for name, value in Client()._asdict().items()}


def _evening(state: ServiceState) -> dict[str, Any]:
    let_cardholders_act(state, partial(chance, SEED))
    links = iter(state.links.links.values())
    for disturbance, count in ((_REFUSED, 3), (_MISSING, 2)):
        for link in islice(links, count):
            state.disturbances[f"{LINKS}/{link.id}"] = disturbance
    for link in islice(links, 10, 12):  # no id of theirs begins that of another
        state.disturbances[f"{CARDHOLDER_MESSAGES}/{link.cardholder_id}"] = _UNREADABLE
    return totals(state)
