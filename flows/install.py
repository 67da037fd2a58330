"""Put deployments, notification blocks and automations on the Prefect server that PREFECT_API_URL names.

`python -m flows.install`, again and again: the server ends up as `deploy/` and the issuers' TOML files say.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import yaml
from prefect.blocks.abstract import NotificationBlock
from prefect.blocks.notifications import (
    CustomWebhookNotificationBlock,
    PagerDutyWebHook,
    SendgridEmail,
    SlackWebhook,
)
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.events.schemas.automations import AutomationCore
from prefect.exceptions import ObjectNotFound

from flows.errors import OperatorError
from flows.wiring import Channels, channels, config_folder, issuers, load_issuer, work_pool

DEPLOY = Path(__file__).parent.parent / "deploy"
PREFECT = Path(sys.executable).parent / "prefect"


class DeployError(OperatorError):
    """Prefect did not take a deployment."""

    message = "prefect {command} for {subject} ended with code {code}."
    next_step = "Its own message stands above; `prefect version` shows which server it talked to."


class Installed(NamedTuple):
    """What stands on the server now."""

    issuers: list[str]
    channels: list[str]
    automations: list[str]


def install(folder: Path, pool: str, named: Channels) -> Installed:
    """Install everything for the issuers configured in `folder`; DeployError where Prefect refuses."""
    with get_client(sync_client=True) as client:
        _make_pool(client, pool)
        blocks = {name: _save(name, block) for name, block in notifications(named).items()}
        reported = [_automate(client, spec, list(blocks.values())) for spec in automations()]
    there = issuers(folder)
    for issuer in there:
        deploy(folder, issuer, pool)
    return Installed(there, list(blocks), reported)


def deploy(folder: Path, issuer: str, pool: str) -> None:
    """Deploy `deploy/prefect.yaml` for one issuer, with the schedule of its TOML."""
    settings = load_issuer(folder, issuer)
    filled = {
        "CARDLINK_CONFIG": str(folder.resolve()),
        "CARDLINK_ISSUER": issuer,
        "CARDLINK_CRON": settings.schedule.cron,
        "CARDLINK_TIME_ZONE": settings.time_zone,
        "CARDLINK_WORK_POOL": pool,
    }
    _prefect(["deploy", "--prefect-file", str(DEPLOY / "prefect.yaml"), "--all"], issuer, filled)


def notifications(named: Channels) -> dict[str, NotificationBlock]:
    """Return a notification block for each channel that is configured, by its name on the server."""
    found: dict[str, NotificationBlock] = {}
    if named.webhook:
        text = {"subject": "{{subject}}", "text": "{{body}}"}
        found["cardlink-webhook"] = CustomWebhookNotificationBlock(name="cardlink", url=named.webhook, json_data=text)
    if named.slack:
        found["cardlink-slack"] = SlackWebhook.model_validate({"url": named.slack})
    if named.pagerduty:
        found["cardlink-pagerduty"] = PagerDutyWebHook.model_validate(
            {"integration_key": named.pagerduty, "api_key": named.pagerduty}
        )
    if named.email and named.sendgrid:
        found["cardlink-email"] = SendgridEmail.model_validate(
            {"api_key": named.sendgrid, "sender_email": named.sender or named.email, "to_emails": [named.email]}
        )
    return found


def automations() -> list[dict[str, Any]]:
    """Return the automations of `deploy/automations.yaml`, each with its `notification` still to be made actions."""
    found: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "automations.yaml").read_text("utf-8"))["automations"]
    return found


def automation(spec: dict[str, Any], blocks: list[UUID]) -> AutomationCore:
    """Return an automation that notifies every block; without one it fires and does nothing, for all to see."""
    notify = [{"type": "send-notification", "block_document_id": block, **spec["notification"]} for block in blocks]
    actions = notify or [{"type": "do-nothing"}]
    described = {name: value for name, value in spec.items() if name != "notification"}
    return AutomationCore.model_validate({**described, "actions": actions})


def _make_pool(client: SyncPrefectClient, pool: str) -> None:
    """Make a process work pool of that name where there is none; another kind is made by the operator."""
    try:
        client.read_work_pool(pool)
    except ObjectNotFound:
        _prefect(["work-pool", "create", pool, "--type", "process"], pool, {})


def _save(name: str, block: NotificationBlock) -> UUID:
    saved: Any = block.save(name, overwrite=True)  # outside a running event loop it returns the id itself
    return UUID(str(saved))


def _automate(client: SyncPrefectClient, spec: dict[str, Any], blocks: list[UUID]) -> str:
    wanted = automation(spec, blocks)
    there = client.read_automations_by_name(wanted.name)
    if there:
        client.update_automation(there[0].id, wanted)
    else:
        client.create_automation(wanted)
    return wanted.name


def _prefect(arguments: list[str], subject: str, filled: dict[str, str]) -> None:
    done = subprocess.run(
        [PREFECT, "--no-prompt", *arguments], env={**os.environ, **filled}, check=False, stdout=subprocess.DEVNULL
    )
    if done.returncode:
        raise DeployError(command=arguments[0], subject=subject, code=done.returncode)


def main() -> None:
    """Install, and say what stands."""
    done = install(config_folder(), work_pool(), channels())
    sys.stdout.write(
        f"issuers: {', '.join(done.issuers) or 'none'}\n"
        f"alerts go to: {', '.join(done.channels) or 'nobody (name a channel in the environment)'}\n"
        f"automations: {', '.join(done.automations)}\n"
    )


if __name__ == "__main__":
    main()
