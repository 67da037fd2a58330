"""The files of deploy/, each held to its schema, its linter, or the code it speaks of."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3.session
import check_jsonschema  # type: ignore[import-untyped]  # ships no types
import kubernetes_validate  # type: ignore[import-untyped]  # ships no types
import pytest
import yaml
from botocore.validate import ParamValidator
from click.testing import CliRunner
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # ships no types

import flows
from flows.errors import CardlinkError
from flows.extensions.alerts.addresses import ChannelsError, channel_addresses, notification
from flows.install import automation, automations
from flows.reports.work_kinds import every_kind
from flows.runs.keys import cleaned
from tests.reference import PERSONAL, sample_deployments

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
BRANCHES = (
    "CardlinkError",
    "ExtractError",
    "GateError",
    "OperatorError",
    "TryAgainError",
    "BalanceError",
)


def run(*command: str | Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([str(word) for word in command], input=given, capture_output=True)


def prefect_file() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "prefect.yaml").read_text())
    return found


def test_every_entrypoint_is_a_flow_by_module_and_nothing_is_pulled() -> None:
    deployments = prefect_file()["deployments"]
    entries = [one["entrypoint"] for one in deployments]

    for entry in entries:
        module, _, name = entry.partition(":")
        flow = type(getattr(importlib.import_module(module), name))
        assert "Flow" in {each.__name__ for each in flow.__mro__}

    assert prefect_file()["pull"] == []
    # of a flow at most two: on a schedule, and by hand
    ways = [(one["entrypoint"], "by-hand" in one["tags"]) for one in deployments]
    assert len(ways) == len(set(ways))


def test_the_root_of_a_checkout_has_the_deployments_of_the_sample_issuer_by_name() -> None:
    sample = (ROOT / "prefect.yaml").read_text()

    names = [one["name"] for one in yaml.safe_load(sample)["deployments"]]

    assert sample == sample_deployments(), "run: python -m tests.reference"
    assert {"nightly-sample-bank", "ingest-sample-bank", "rerun"} <= set(names)


def test_every_parameter_of_a_deployed_flow_has_a_help_text_and_there_are_at_most_eight() -> None:
    for one in prefect_file()["deployments"]:
        module, _, name = one["entrypoint"].partition(":")
        shown = getattr(importlib.import_module(module), name).parameters.model_dump()["properties"]
        assert len(shown.keys() - {"actor", "approve"}) <= 8  # those two are the same in every form
        assert [
            parameter for parameter, described in shown.items() if not described.get("description")
        ] == []


def all_errors() -> set[str]:
    for module in pkgutil.walk_packages(flows.__path__, "flows."):
        importlib.import_module(module.name)
    classes, found = [CardlinkError], set[str]()
    while classes:
        one = classes.pop()
        classes += one.__subclasses__()
        # tests have some of their own
        found |= {one.__name__} if one.__module__.startswith("flows.") else set()
    return {name for name in found if name not in BRANCHES}


def test_the_runbook_has_every_error_of_the_tree_and_no_other() -> None:
    runbook = (DEPLOY / "RUNBOOK.md").read_text()

    named = set(re.findall(r"^\| `(\w+Error)` \|", runbook, re.MULTILINE))

    assert named == all_errors()


def test_the_runbook_has_every_kind_of_alert_and_every_automation() -> None:
    runbook = (DEPLOY / "RUNBOOK.md").read_text()

    told = [kind.name for kind in every_kind() if kind.is_alert]
    missing = [name for name in told if f"| `{name}` |" not in runbook]

    assert [name for name in missing if not name.startswith("break ")] == []
    assert [
        one["name"] for one in automations()[2:] if f"`{one['name']}` (Prefect)" not in runbook
    ] == []


def test_the_automations_are_ones_prefect_takes_with_and_without_a_channel() -> None:
    made = [automation(spec, blocks) for spec in automations() for blocks in ([], [uuid4()])]

    assert {one.actions[0].type for one in made} == {"do-nothing", "send-notification"}


# the library under Prefect's notifications imports it
@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")
def test_every_channel_of_the_environment_makes_a_notification_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = "https://hooks.example.com/x"
    mail = "smtp://mail.example/?from=a@b.c&to=d@e.f"
    monkeypatch.setenv("CARDLINK_CHANNELS", f"webhook = {url}\nmail = {mail}\n")
    monkeypatch.setenv("CARDLINK_HEARTBEAT_URL", url)

    addresses = channel_addresses()

    assert {"webhook", "mail", "heartbeat"} == set(addresses)
    assert ["CustomWebhookNotificationBlock", "SlackWebhook"] == [
        type(notification(addresses[name])).__name__ for name in ("webhook", "mail")
    ]


@pytest.mark.parametrize("line", ["mail", "Mail = smtp://x", "mail = x"])
def test_a_line_that_names_no_channel_is_refused_without_being_shown(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARDLINK_CHANNELS", f"# a remark\n\n{line}")

    with pytest.raises(ChannelsError) as raised:
        channel_addresses()

    assert line not in str(raised.value)


def test_the_templates_of_the_environment_name_every_variable_and_hold_no_secret() -> None:
    text = "".join(file.read_text() for file in (DEPLOY / "env").iterdir())
    wiring = inspect.getsource(importlib.import_module("flows.wiring"))

    named = set(re.findall(r"^#?(\w+)=", text, re.MULTILINE))

    asked = set(re.findall(r'environ\.get\("(CARDLINK_\w+)"', wiring))
    asked |= {"CARDLINK_CHANNELS", "CARDLINK_HEARTBEAT_URL"}
    assert asked - PERSONAL <= named
    assert not PERSONAL & named
    assert not re.search(r"^#?\w*(SECRET|KEY|PASSWORD|SENDGRID)\w*=\S", text, re.MULTILINE)


def test_the_compose_file_fits_its_schema_and_every_service_is_confined() -> None:
    file = str(DEPLOY / "compose.yaml")
    done = CliRunner().invoke(
        check_jsonschema.main, ["--builtin-schema", "vendor.compose-spec", file]
    )

    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert done.exit_code == 0, done.output
    hardened = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}
    assert [name for name, one in services.items() if not hardened.items() <= one.items()] == []
    assert all(
        port.startswith("127.0.0.1:") for one in services.values() for port in one.get("ports", [])
    )


def test_the_kubernetes_manifests_fit_their_schemas() -> None:
    objects = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "worker.yaml").read_text()))

    assert objects
    for part in objects:
        assert_fits_its_schema(part)


def assert_fits_its_schema(part: dict[str, Any]) -> None:
    """Hold an object of Kubernetes to its schema, of the newest version there is; no field but
    those of the schema.
    """
    kubernetes_validate.validate(part, kubernetes_validate.latest_version(), strict=True)


def filled(value: Any, variables: dict[str, Any]) -> Any:
    """Return a job template as a worker fills it with its defaults: what has none is left out."""
    if isinstance(value, dict):
        made = {key: filled(one, variables) for key, one in value.items()}
        return {key: one for key, one in made.items() if one is not None}
    if isinstance(value, list):
        return [filled(one, variables) for one in value]
    found = re.fullmatch(r"\{\{ (\w+) \}\}", value) if isinstance(value, str) else None
    return variables.get(found[1], {}).get("default") if found else value


@pytest.mark.parametrize("kind", ["kubernetes", "docker", "ecs"])
def test_a_job_templates_variables_are_a_schema_and_all_that_is_used_is_declared(kind: str) -> None:
    text = (DEPLOY / kind / "job-template.json").read_text()
    template = json.loads(text)

    Draft202012Validator.check_schema(template["variables"])

    used = set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(template["job_configuration"])))
    assert used <= template["variables"]["properties"].keys()


def test_the_job_of_the_kubernetes_template_fits_its_schema() -> None:
    template = json.loads((DEPLOY / "kubernetes" / "job-template.json").read_text())
    job = filled(template["job_configuration"]["job_manifest"], template["variables"]["properties"])
    container = job["spec"]["template"]["spec"]["containers"][0]
    container.update(
        env=[{"name": name, "value": value} for name, value in container["env"].items()], args=["x"]
    )
    job["metadata"]["name"] = "a-run"  # the cluster makes it of generateName

    assert_fits_its_schema(yaml.safe_load(yaml.safe_dump(job)))
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= 1800


def test_the_ecs_task_is_one_the_service_model_takes() -> None:
    template = json.loads((DEPLOY / "ecs" / "job-template.json").read_text())
    task = filled(
        template["job_configuration"]["task_definition"], template["variables"]["properties"]
    )
    task = {**task, "cpu": str(task["cpu"]), "memory": str(task["memory"])}
    task["containerDefinitions"][0].setdefault("name", "cardlink")
    model = (
        boto3.session.Session("a", "b", region_name="us-east-1")
        .client("ecs")
        .meta.service_model.operation_model("RegisterTaskDefinition")
    )

    report = ParamValidator().validate(task, model.input_shape)

    assert report.generate_report() == ""


def copied_into_the_image() -> set[str]:
    """Return the files and folders of the project that the Dockerfile copies."""
    text = (DEPLOY / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    return {name for line in copied for name in line.split()}


def test_the_dockerfile_is_pinned_and_does_not_run_as_root() -> None:
    text = (DEPLOY / "Dockerfile").read_text()

    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    installed = re.findall(r"pip install (.+?)(?: \\)?$", text, re.MULTILINE)
    users = re.findall(r"^USER (\S+)", text, re.MULTILINE)

    [base] = set(bases)
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", base)
    assert users == ["10001:10001"]
    assert "gnupg" in text
    assert [
        "--require-hashes --no-deps -r ${REQUIREMENTS}",
        "--no-deps --no-build-isolation .",
    ] == installed
    assert [name for name in copied_into_the_image() if not (ROOT / name).exists()] == []


def test_the_dockerfile_copies_all_that_the_wheel_is_built_of() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    hatch = project["tool"]["hatch"]
    wheel = hatch["build"]["targets"]["wheel"]

    named = {*wheel["only-include"], *wheel["force-include"], *wheel["shared-data"]}
    named.add(hatch["version"]["path"])

    assert {name.partition("/")[0] for name in named} <= copied_into_the_image()


def test_what_an_operator_keeps_beside_the_compose_file_is_not_sent_to_a_build() -> None:
    ignored = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if not line.startswith("#")
    ]
    text = (DEPLOY / "compose.yaml").read_text()

    kept = {f"deploy/{folder}" for folder in re.findall(r"\./(issuers|secrets)\b", text)} | {
        "deploy/env/*.env"
    }

    let_in = [line for line in ignored if line.startswith("!")]
    assert "*" == ignored[0]
    assert kept <= set(ignored[1 + len(let_in) :])  # after what lets the folder in
    roots = {name.partition("/")[0] for name in copied_into_the_image()}
    assert {line.removeprefix("!") for line in let_in} == roots


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in sorted((DEPLOY / "systemd").iterdir()):
        text = (
            unit.read_text()
            .replace("/opt/cardlink/bin/prefect", "/bin/true")
            .replace("/opt/cardlink/bin/python", "/bin/true")
            .replace("/opt/cardlink/bin/cardlink", "/bin/true")
        )
        (tmp_path / unit.name).write_text(text)

    done = run("systemd-analyze", "verify", *sorted(tmp_path.glob("*.service")))

    assert done.stderr.decode() == ""


def test_the_lifecycle_rules_are_ones_s3_takes_and_reach_just_what_is_cleaned() -> None:
    rules = json.loads((DEPLOY / "s3-lifecycle.json").read_text())
    model = boto3.session.Session("a", "b", region_name="us-east-1").client("s3").meta.service_model

    shape = model.operation_model("PutBucketLifecycleConfiguration").input_shape
    report = ParamValidator().validate({"Bucket": "b", "LifecycleConfiguration": rules}, shape)

    expiring = [
        one["Filter"]["Prefix"]
        for one in rules["Rules"]
        if one.keys() & {"NoncurrentVersionExpiration"}
    ]
    assert report.generate_report() == ""
    assert sorted(expiring) == sorted(f"PREFIX/{prefix}" for prefix in cleaned("ISSUER"))


def test_the_linter_of_iam_policies_has_nothing_to_say(tmp_path: Path) -> None:
    policies = [shutil.copy(policy, tmp_path) for policy in DEPLOY.glob("*policy.json")]

    done = run(BIN / "parliament", "--directory", tmp_path)

    assert policies
    assert (done.returncode, done.stdout) == (0, b"")
