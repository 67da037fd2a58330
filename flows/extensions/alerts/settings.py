"""The table `[channels]`: which channels are told what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import StringConstraints

from schemas.settings import Settings, setting

if TYPE_CHECKING:
    from schemas.issuer import Issuer

ChannelName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,30}$")]


class Channels(Settings):
    """Which channels are told what; their addresses are secrets (`CARDLINK_CHANNELS`).

    One that is down, or that nobody has an address of, is in `check` and an alert; no night waits
    for it.
    """

    alerts: tuple[ChannelName, ...] | None = setting(
        None, "channels that get alerts, by name; unset: all there are"
    )
    nights: tuple[ChannelName, ...] = setting(
        (),
        "channels that get a summary of each night: who has a link, what came of each extract, "
        "what to do next",
    )
    mornings: tuple[ChannelName, ...] = setting((), "the same after answers were ingested")


TABLES: dict[str, Any] = {"channels": (Channels, Channels())}


def channels_of(issuer: Issuer) -> Channels:
    """Return which channels of an issuer are told what."""
    return issuer.table(Channels) or Channels()
