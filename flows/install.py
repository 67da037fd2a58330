"""Put deployments, notification blocks and automations on the Prefect server that PREFECT_API_URL names.

Run `python -m flows.install` as often as you like: the server ends up as `deploy/` and the issuers' TOML files say.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml
from prefect.blocks.abstract import NotificationBlock
from prefect.blocks.notifications import CustomWebhookNotificationBlock, PagerDutyWebHook, SendgridEmail, SlackWebhook
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.events.schemas.automations import AutomationCore
from prefect.exceptions import ObjectNotFound

from flows.errors import OperatorError
from flows.wiring import Channels, channels, config_folder, issuers, load_issuer, work_pool

DEPLOY = Path(__file__).parent.parent / "deploy"
PREFECT = Path(sys.executable).parent / "prefect"


class DeployError(OperatorError):
    """Prefect refused a deployment."""

    message = "prefect {command} for {subject} ended with code {code}."
    next_step = "Its own message is above; `prefect version` shows which server it used."


def notifications(named: Channels) -> dict[str, NotificationBlock]:
    """Return a notification block for each configured channel, by its name on the server."""
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
    """Return the automations of `deploy/automations.yaml`, each with a `notification` to make actions from."""
    found: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "automations.yaml").read_text("utf-8"))["automations"]
    return found


def automation(spec: dict[str, Any], blocks: list[UUID]) -> AutomationCore:
    """Return an automation that notifies every block; without blocks it only shows in the UI that it fired."""
    notify = [{"type": "send-notification", "block_document_id": block, **spec["notification"]} for block in blocks]
    described = {name: value for name, value in spec.items() if name != "notification"}
    return AutomationCore.model_validate({**described, "actions": notify or [{"type": "do-nothing"}]})


def _automate(client: SyncPrefectClient, wanted: AutomationCore) -> str:
    """Create an automation, or update the one of its name."""
    existing = client.read_automations_by_name(wanted.name)
    if existing:
        client.update_automation(existing[0].id, wanted)
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
    """Install everything for the configured issuers, and print what the server now has; DeployError."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    folder, pool = config_folder(), work_pool()
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(pool)
        except ObjectNotFound:  # a pool of another kind than process is made by the operator
            _prefect(["work-pool", "create", pool, "--type", "process"], pool, {})
        blocks: dict[str, UUID] = {}
        for name, block in notifications(channels()).items():
            saved: Any = block.save(name, overwrite=True)  # outside a running event loop it returns the id itself
            blocks[name] = UUID(str(saved))
        installed = [_automate(client, automation(spec, list(blocks.values()))) for spec in automations()]
    configured = issuers(folder)
    for issuer in configured:
        settings = load_issuer(folder, issuer)
        filled = {
            "CARDLINK_CONFIG": str(folder.resolve()),
            "CARDLINK_ISSUER": issuer,
            "CARDLINK_CRON": settings.schedule.cron,
            "CARDLINK_TIME_ZONE": settings.time_zone,
            "CARDLINK_WORK_POOL": pool,
        }
        _prefect(["deploy", "--prefect-file", str(DEPLOY / "prefect.yaml"), "--all"], issuer, filled)
    sys.stdout.write(
        f"issuers: {', '.join(configured) or 'none'}\n"
        f"alerts go to: {', '.join(blocks) or 'no channel (name one in the environment)'}\n"
        f"automations: {', '.join(installed)}\n"
    )


if __name__ == "__main__":
    main()
