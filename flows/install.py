"""Everything on the Prefect server that PREFECT_API_URL names: deployments, notification blocks,
automations, filters of the list of runs.

Run `cardlink install` as often as you like: the server ends up as `deploy/` and the issuers' TOML
files say. Prefect is imported when a command runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from uuid import UUID

from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.parameters import Field
from flows.commands.result import OUT_OF_BALANCE, Result
from flows.configuration import FileThereError, load_issuer
from flows.errors import OperatorError
from flows.extensions import hooks
from flows.steps import counted
from flows.wiring import shipped, work_pool

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.events.schemas.automations import AutomationCore

    from schemas.issuer import Issuer

OFTEN = "*/10 * * * *"  # the ingest, where nothing else starts it
MONTH = -30 * 24 * 3600  # seconds from now
FILTERS: dict[str, dict[str, list[str]]] = {  # what the page of runs offers as saved filters
    "nights (cardlink)": {"tag": ["nightly"]},
    "out of balance (cardlink)": {"tag": ["cardlink"], "state": [OUT_OF_BALANCE]},
    "failures (cardlink)": {"tag": ["cardlink"], "state": ["Failed", "Crashed", "TimedOut"]},
}


class DeployError(OperatorError):
    """Prefect refused a deployment."""

    message = "prefect {command} for {subject} ended with code {code}."
    next_step = "Its own message is above; `prefect version` shows which server it used."


def automations() -> list[dict[str, Any]]:
    """Return the automations of `deploy/automations.yaml`, each with a `notification` to make
    actions from, where the server sends it.
    """
    import yaml

    text = (shipped("deploy") / "automations.yaml").read_text("utf-8")
    specs: list[dict[str, Any]] = yaml.safe_load(text)["automations"]
    return specs


def automation(spec: dict[str, Any], blocks: list[UUID]) -> AutomationCore:
    """Return an automation that notifies every block; without blocks, or where the watch sends the
    notification, it only shows in the UI that it fired.
    """
    from prefect.events.schemas.automations import AutomationCore

    notify = [
        {"type": "send-notification", "block_document_id": block, **spec["notification"]}
        for block in blocks
        if "notification" in spec  # else the watch sends it
    ]
    described = {name: value for name, value in spec.items() if name != "notification"}
    return AutomationCore.model_validate(
        {**described, "actions": notify or [{"type": "do-nothing"}]}
    )


def _prefect(arguments: list[str], subject: str, filled: dict[str, str]) -> None:
    command = [sys.executable, "-m", "prefect", "--no-prompt", *arguments]
    done = subprocess.run(
        command, env={**os.environ, **filled}, check=False, stdout=subprocess.DEVNULL
    )
    if done.returncode:
        raise DeployError(command=arguments[0], subject=subject, code=done.returncode)


def _deploy(file: str, subject: str, filled: dict[str, str]) -> None:
    """Deploy everything in a file of `deploy/`."""
    _prefect(["deploy", "--prefect-file", str(shipped("deploy") / file), "--all"], subject, filled)


class Scheduled(NamedTuple):
    """Deployments that an extension schedules for an issuer, each named `TAG-ISSUER-NAME`.

    `file`: of `deploy/`; `variables` fill it in, by name.
    """

    tag: str
    file: str
    variables: Mapping[str, Mapping[str, str]]


def _deploy_scheduled(issuer: str, scheduled: Scheduled, filled: dict[str, str]) -> None:
    """Deploy what an extension schedules; what it does not schedule any more goes."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags

    from flows.prefect_answers import answering

    for name, variables in scheduled.variables.items():
        _deploy(scheduled.file, f"{issuer} {name}", {**filled, **variables})
    names = {f"{scheduled.tag}-{issuer}-{name}" for name in scheduled.variables}
    own = DeploymentFilter(tags=DeploymentFilterTags(all_=["cardlink", scheduled.tag, issuer]))
    with answering(), get_client(sync_client=True) as client:
        for deployment in client.read_deployments(deployment_filter=own):
            if deployment.name not in names:
                client.delete_deployment(deployment.id)


def _save_channels() -> dict[str, UUID]:
    """Save the channels to people; return the id of the notification block of each by its name."""
    blocks: dict[str, UUID] = {}
    for saved_channels in hooks("saved_channels"):
        blocks |= saved_channels()
    return blocks


def _save_automations(client: SyncPrefectClient, blocks: list[UUID]) -> list[str]:
    """Create or update every automation, and return their names."""
    specs = [automation(spec, blocks) for spec in automations()]
    for spec in specs:
        if existing := client.read_automations_by_name(spec.name):
            client.update_automation(existing[0].id, spec)
        else:
            client.create_automation(spec)
    return [spec.name for spec in specs]


def _save_filters(client: SyncPrefectClient) -> None:
    """Create or replace the saved filters: of the last month, so that nights can be compared."""
    of_month = {"range": {"type": "span", "seconds": MONTH}}
    for name, criteria in FILTERS.items():
        parts = [
            {"object": "flowRun", "property": part, "type": "", "operation": "", "value": value}
            for part, value in {**criteria, **of_month}.items()
        ]
        client.request("PUT", "/saved_searches/", json={"name": name, "filters": parts})


def schedules(issuer: Issuer) -> dict[str, str]:
    """Return when the night and the ingest of an issuer start, as the variables of `prefect.yaml`,
    unless an extension starts them otherwise.
    """
    variables = {"CARDLINK_CRON": issuer.schedule.cron, "CARDLINK_INGEST_CRON": OFTEN}
    for changed in hooks("schedules"):
        variables |= changed(issuer)
    return variables


@entry("install", form="it puts the forms on the server")
def install(context: Context) -> Result:
    """Put deployments, alert channels and automations on the Prefect server that PREFECT_API_URL
    names.

    Run it after every change of TOML files, schedule or version.

    Example:
        cardlink install
    """
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    from flows.prefect_answers import answering, require_server

    require_server()
    folder = context.folder
    pool = work_pool()
    with answering(), get_client(sync_client=True) as client:
        try:
            client.read_work_pool(pool)
        except ObjectNotFound:  # a pool of another kind than process is made by the operator
            _prefect(["work-pool", "create", pool, "--type", "process"], pool, {})
        blocks = _save_channels()
        names = _save_automations(client, list(blocks.values()))
        _save_filters(client)

    def deploy(issuer: str) -> list[str]:
        settings = load_issuer(folder, issuer)
        filled = {
            "CARDLINK_CONFIG": str(folder.resolve()),
            "CARDLINK_ISSUER": issuer,
            **schedules(settings),
            "CARDLINK_TIME_ZONE": settings.time_zone,
            "CARDLINK_WORK_POOL": pool,
        }
        _deploy("prefect.yaml", issuer, filled)
        for scheduled in hooks("scheduled"):
            _deploy_scheduled(issuer, scheduled(settings), filled)
        return [issuer]

    configured, unread = context.each("", deploy)
    lines = [
        f"issuers: {', '.join(configured) or 'none'}",
        f"alerts go to: {', '.join(blocks) or 'no channel (name one in the environment)'}",
        f"automations: {', '.join(names)}",
        f"saved filters of the list of runs: {', '.join(FILTERS)}",
    ]
    facts = {
        "issuers": configured,
        "channels": list(blocks),
        "automations": names,
    }
    return Result(facts, lines).beside(unread)


@entry("deploy-files", form="it writes files on the operator's machine")
def deploy_files(
    context: Context, folder: Annotated[Path, Field(metavar="DIR", folder=True)]
) -> Result:
    """Write the files of `deploy/` to a new folder: units, policies, container files, runbook,
    reference.

    Args:
        folder: Where to; it must not exist yet, or be empty.

    Example:
        cardlink deploy-files deploy
    """
    if folder.exists() and any(folder.iterdir()):
        raise FileThereError(path=str(folder))
    shutil.copytree(shipped("deploy"), folder, dirs_exist_ok=True)
    written = sum(path.is_file() for path in folder.rglob("*"))
    facts = {"folder": str(folder), "files": written}
    return Result(facts, [f"{folder}: {counted(written, 'file')}; README.md says what each is"])
