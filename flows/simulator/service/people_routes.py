"""Cardholders played over HTTP: what `cardlink practice people` asks the service for.

No session: it is the simulator's own, like its recount.
"""

from functools import partial
from typing import Any

from fastapi import APIRouter

from flows.simulator.chance import chance
from flows.simulator.service import wire
from flows.simulator.service.desk import ServiceHandle, refusals
from flows.simulator.service.people_at_links import Shares, let_cardholders_act
from flows.simulator.service.recount import totals
from flows.simulator.service.refusals import refused
from flows.simulator.service.sites import SITES


def people_routes(handle: ServiceHandle) -> APIRouter:
    """Return the route that lets cardholders act."""
    routes = APIRouter()
    books = handle.books

    @routes.post("/__people", responses=refusals())
    async def act(evening: wire.Evening) -> dict[str, Any]:
        """Let the cardholder of every link that nobody opened yet act; return the recount.

        The clock is taken ahead until their jobs have ended, unless they are to be left running.
        """
        sites = evening.merchant_sites or list(SITES)
        if not set(sites) <= SITES.keys():
            raise refused(422, "placement", "unknown", "is no merchant site here", "merchant_sites")
        shares = Shares(**{name: getattr(evening, name) for name in Shares._fields})
        let_cardholders_act(
            books,
            partial(chance, evening.seed),
            shares=shares,
            sites=sites,
            until_ended=evening.until_ended,
        )
        handle.keep_moment()
        return totals(books)

    return routes
