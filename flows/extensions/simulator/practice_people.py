"""`cardlink practice people`: cardholders open their links at the practice service, and act."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.parameters import Field, Issuer, Share
from flows.commands.result import Result
from flows.configuration import load_issuer
from flows.errors import OperatorError
from flows.extensions.simulator.commands import NO_FORM
from flows.steps import Sentence, Slot, Step, counted

if TYPE_CHECKING:
    from schemas import issuer as issuers


class NoPracticeError(OperatorError):
    """Cardholders are played at a practice service only, and the issuer has none."""

    message = "[service] of {issuer} leads to no practice service."
    next_step = Sentence(
        "{practice} prints the lines of its TOML that do.",
        practice=Step("practice", Slot("issuer")),
    )


class NoSuchSiteError(OperatorError):
    """The practice service has no such merchant site."""

    message = "The practice service has no merchant site {site}."
    next_step = "Its sites are {sites}."


@entry("practice people", form=NO_FORM)
def practice_people(
    context: Context,
    issuer: Issuer,
    *,
    open_share: Annotated[Share, Field("--open")] = 0.8,
    forget: Share = 0.1,
    second: Share = 0.2,
    wrong: Share = 0.1,
    silent: Share = 0.05,
    sites: Annotated[str, Field(metavar="SITE,SITE")] = "",
    running: bool = False,
    seed: int = 0,
) -> Result:
    """Let cardholders open their links at the practice service, and place their cards, or fail.

    Who has not opened the link yet may open it, answer the challenges, choose merchant sites, give
    credentials and codes. The service's clock is taken ahead until all jobs have ended. Who lets a
    link lie does so for the same seed again; another seed lets others act.

    Args:
        issuer: Whose cardholders.
        open_share: Share of the cardholders who open their link.
        forget: Share of those who answer the challenges wrong, and give up.
        second: Share of the others who choose two merchant sites, not one.
        wrong: Share of the answers to a site that are wrong.
        silent: Share of the questions of a site that nobody answers.
        sites: Merchant sites they choose from (default: all of the practice service).
        running: Leave jobs running as they are started, to follow or answer them by
            `cardlink job follow`.
        seed: The same seed lets the same cardholders act alike.

    Example:
        cardlink practice people first-bank --open 0.8
    """
    from flows.extensions.simulator.service_portal import practice_address

    settings = load_issuer(context.folder, issuer)
    base_url = practice_address(settings)
    if base_url is None:
        raise NoPracticeError(issuer=issuer)
    evening: dict[str, Any] = {
        "seed": seed,
        "open": open_share,
        "forget": forget,
        "second": second,
        "wrong": wrong,
        "silent": silent,
        "merchant_sites": _known_sites(sites),
        "until_ended": not running,
    }
    facts = {"issuer": issuer, "service": base_url, **let_people_act(settings, base_url, evening)}
    return Result(facts, list(lines_of(facts)), Step("placements", issuer))


def let_people_act(
    issuer: issuers.Issuer, base_url: str, evening: Mapping[str, Any]
) -> dict[str, Any]:
    """Let the cardholders of a practice service act; return its recount.

    `evening`: as `flows.extensions.simulator.service.wire.Evening`. NoPracticeServiceError.
    """
    from flows.extensions.simulator.service_portal import practice_http

    with practice_http(issuer, base_url) as http:
        response = http.post("/__people", json=evening)
        totals: dict[str, Any] = response.raise_for_status().json()
    return totals


def lines_of(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield how far all cardholders of a practice service came by now."""
    yield (
        f"{counted(facts['links'], 'link')}: {facts['opened']:,} opened, "
        f"{facts['authenticated']:,} past the challenges"
    )
    ends = ", ".join(f"{number:,} {end}" for end, number in sorted(facts["ends"].items()))
    yield f"{facts['jobs']:,} jobs: {ends}" if ends else "no jobs"


def _known_sites(sites: str) -> Sequence[str]:
    from flows.extensions.simulator.service.sites import SITES

    names = [name.strip() for name in sites.split(",") if name.strip()]
    for name in names:
        if name not in SITES:
            raise NoSuchSiteError(site=name, sites=", ".join(SITES))
    return names
