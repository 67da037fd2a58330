"""The addresses of channels and of the switch outside: secrets, which `check` tries and `install`
keeps on the Prefect server for its workers.
"""

import json
import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

from flows.errors import CardlinkError, OperatorError
from flows.extensions.alerts.channels import (
    apprise_url,
    check_ping,
    is_webhook,
    open_channels,
)
from flows.extensions.alerts.notices import require_channels
from flows.extensions.alerts.settings import channels_of
from flows.runs.context import IssuerContext
from flows.wiring import secret

if TYPE_CHECKING:
    from prefect.blocks.abstract import NotificationBlock

HEARTBEAT = "heartbeat"  # no channel, but a switch outside
KEPT_CHANNELS = "cardlink-channels"  # a secret on the Prefect server: addresses by name, as JSON
PART = "channels"  # of an installation


class ChannelsError(OperatorError):
    """The secret with the channels is not as it should be; it is not shown."""

    message = "CARDLINK_CHANNELS has a line that is not `name = URL`."
    next_step = "Correct it: lower-case names, one channel a line; a line may begin with #."


def channel_addresses() -> dict[str, str]:
    """Return the addresses of the channels to people, by name; ChannelsError.

    `CARDLINK_CHANNELS` has a line `name = URL` for each; `heartbeat` is the switch outside that
    each good watch pings, from `CARDLINK_HEARTBEAT_URL`.
    """
    addresses = dict[str, str]()
    if heartbeat := secret("CARDLINK_HEARTBEAT_URL"):
        addresses[HEARTBEAT] = heartbeat
    for line in secret("CARDLINK_CHANNELS").splitlines():
        name, _, address = (part.strip() for part in line.partition("="))
        if not line.strip() or line.startswith("#"):
            continue
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", name) or "://" not in address:
            raise ChannelsError()
        addresses[name] = address
    return addresses


def known_addresses() -> dict[str, str]:
    """Return the addresses of this environment, else those that `install` keeps on the server.

    One that cannot be read is none: `check` and news say so.
    """
    from httpx import HTTPError
    from prefect.blocks.system import Secret

    try:
        known = channel_addresses()
    except CardlinkError as error:
        logging.getLogger(__name__).warning("%s", error.what_happened)
        known = {}
    if known.keys() - {HEARTBEAT}:
        return known
    kept: Any = {}
    # ValueError: there is none; HTTPError: the server is away
    with suppress(ValueError, HTTPError):
        kept = Secret.load(KEPT_CHANNELS).get()  # type: ignore[union-attr]
        if isinstance(kept, str):  # Prefect gives JSON as it is, or read
            kept = json.loads(kept)
    return {**kept, **known}


def checks(context: IssuerContext) -> Iterator[tuple[str, str | CardlinkError]]:
    """Try the channels to people, and the switch outside, as far as that sends nothing."""
    addresses = dict[str, str]()
    try:
        addresses = channel_addresses()
    except ChannelsError as error:
        yield PART, error
    heartbeat = addresses.pop(HEARTBEAT, "")
    opened = open_channels(addresses)
    tries = {channel.name: channel.check for channel in opened}
    if heartbeat:
        tries[HEARTBEAT] = lambda: check_ping(heartbeat)
    for name, check in tries.items():
        try:
            yield PART, f"{name}: {check()}"
        except CardlinkError as error:
            yield PART, error
    if opened:
        try:
            require_channels(context, opened)
        except CardlinkError as error:
            yield PART, error
    elif channels_of(context.issuer).model_fields_set:
        yield (
            PART,
            "none in this process; those count that an installation gave the server",
        )


def saved_channels() -> dict[str, UUID]:
    """Save the channels on the Prefect server: their addresses, for the watch, and a notification
    block of each. Returns the id of each block by its name.
    """
    from prefect.blocks.system import Secret
    from pydantic import SecretStr

    blocks: dict[str, UUID] = {}
    addresses = channel_addresses()
    # without any, it says so to the watch, instead of those that were taken away
    Secret(value=SecretStr(json.dumps(addresses))).save(KEPT_CHANNELS, overwrite=True)
    for name, address in addresses.items():
        if name != HEARTBEAT:
            # outside a running event loop it returns the id itself
            saved: Any = notification(address).save(f"cardlink-{name}", overwrite=True)
            blocks[f"cardlink-{name}"] = UUID(str(saved))
    return blocks


def notification(address: str) -> "NotificationBlock":
    """Return a notification block for a channel.

    The server sends by it what the watch cannot send itself, since it is silent.
    """
    from prefect.blocks import notifications as blocks

    if is_webhook(address):
        text = {"subject": "{{subject}}", "text": "{{body}}"}
        return blocks.CustomWebhookNotificationBlock(name="cardlink", url=address, json_data=text)
    # this block takes every URL of Apprise
    return blocks.SlackWebhook.model_validate({"url": apprise_url(address)})
