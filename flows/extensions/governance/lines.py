"""The lines of the worklist about requests for a second person."""

from collections.abc import Iterator

from flows.extensions.governance.requests import Request, stopped, unexpired
from flows.reports.work import Work
from flows.reports.work_kinds import OPERATOR, Kind
from flows.runs.context import IssuerContext
from flows.steps import YOUR_NAME, Slot, Step

REQUESTS = Kind(
    "requests for a second person",
    OPERATOR,
    "Requested, and nobody has carried it out",
    Step("worklist", Slot("issuer")),  # each request has its own line instead
    noun="request",
    of_one_run=True,
)
STOPPED = Kind(
    "requests used up",
    OPERATOR,
    "A second person began to carry them out, and the command has not finished",
    Step("worklist", Slot("issuer")),  # each request has its own line instead
    "It is under way, or was stopped. Run the line again to request what is left to do.",
    noun="request",
    of_one_run=True,
)
KINDS = (REQUESTS, STOPPED)


def matters(context: IssuerContext) -> Iterator[Work]:
    """Yield the requests that another person can carry out, and those whose command may have been
    stopped.
    """
    issuer = context.issuer.issuer
    requests = unexpired(context)
    yield from (_open_request(issuer, request) for request in requests if request.is_open)
    for request in stopped(requests):
        note = f"{request.second} began to carry it out for {request.actor}."
        yield _line(issuer, request, STOPPED)._replace(note=note)


def _open_request(issuer: str, request: Request) -> Work:
    reason = f" ({request.reason})" if request.reason else ""
    return _line(issuer, request, REQUESTS)._replace(
        step=request.step.adding(approve=request.number, actor=YOUR_NAME),
        note=(
            f"{request.actor} requested it{reason}; a different person runs the line, or "
            f"lets it expire at {request.until:%Y-%m-%d %H:%M} UTC."
        ),
    )


def _line(issuer: str, request: Request, kind: Kind) -> Work:
    return Work(
        due=request.until,
        kind=kind.name,
        issuer=issuer,
        since=request.since,
        fields=(("name", request.number),),
        step=request.step,
    )
