"""The independent recount a funnel is held against: who came how far, by the service's books."""

from __future__ import annotations

from collections import Counter
from typing import Any

from flows.extensions.simulator.service.books import ServiceState
from flows.extensions.simulator.service.jobs import Job


def recount(state: ServiceState) -> dict[str, Any]:
    """Return links, opened, authenticated, jobs and ends; no card data.

    First the sums, then an entry for each cardholder.
    """
    return {**totals(state), "cardholders": list(_by_cardholder(state).values())}


def totals(state: ServiceState) -> dict[str, Any]:
    """Return the sums of the recount."""
    links = state.links.links.values()
    return {
        "links": len(links),
        "opened": sum(link.opened_on is not None for link in links),
        "authenticated": sum(link.authenticated_on is not None for link in links),
        "jobs": len(state.jobs),
        "ends": dict(Counter(job.termination_type or "running" for job in state.jobs.values())),
    }


def _by_cardholder(state: ServiceState) -> dict[int, dict[str, Any]]:
    entries: dict[int, dict[str, Any]] = {
        cardholder.id: {
            "cardholder_id": cardholder.id,
            "cuid": cardholder.cuid,
            "links": [],
            "opened": False,
            "authenticated": False,
            "jobs": [_job(job) for job in state.jobs_of(cardholder.id)],
        }
        for cardholder in state.links.cardholders.values()
    }
    for link in state.links.links.values():
        entry = entries[link.cardholder_id]
        entry["links"].append(link.id)
        entry["opened"] |= link.opened_on is not None
        entry["authenticated"] |= link.authenticated_on is not None
    return entries


def _job(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "merchant_site": job.site.name,
        "status": job.status,
        "termination_type": job.termination_type,
        "authenticated": job.authenticated,
    }
