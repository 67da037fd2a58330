"""Each part of an installation has what it needs and nothing else, by compose, systemd and
Kubernetes alike.

One table says what a part may have. The files are read as they are: what they name and the table
lacks fails.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from packaging.requirements import Requirement

from flows import __version__
from tests import lock

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
AWS = "AWS_(DEFAULT_REGION|ENDPOINT_URL|ACCESS_KEY_ID|SECRET_ACCESS_KEY)"


class Part(NamedTuple):
    """What a part may have: variables as a pattern, secrets, and the networks it is on."""

    variables: str
    secrets: frozenset[str] = frozenset()
    networks: frozenset[str] = frozenset()


PARTS = {
    "server": Part(  # browsers reach it: nothing of S3, of the partner, or of ours
        r"PREFECT_SERVER_\w+|PREFECT_HOME|PREFECT_LOGGING_SETTINGS_PATH|DO_NOT_TRACK",
        frozenset({"database_password"}),
        frozenset({"database", "api"}),
    ),
    "install": Part(
        r"PREFECT_API_URL|PREFECT_HOME|PREFECT_SERVER_EPHEMERAL_ENABLED|CARDLINK_(CONFIG|WORK_POOL|CHANNELS(_FILE)?|HEARTBEAT_URL(_FILE)?)",
        networks=frozenset({"api"}),
    ),
    "worker": Part(
        rf"PREFECT_(API_URL|UI_URL|HOME|LOGGING_\w+|SERVER_EPHEMERAL_ENABLED|WORKER_QUERY_SECONDS)|{AWS}|OTEL_EXPORTER_OTLP_\w+|"
        r"CARDLINK_(CONFIG|DATABASE_URL(_FILE)?|LOGS|TRACES|PRIVATE_KEY_FILE|PASSPHRASE_FILE|AUDIT_KEY(_FILE)?|ACTORS?|WORK_POOL|REPORTS_URL|PURGE_PROFILE|SERVICE_\w+|WEBHOOK_SECRET_\w+|CHANNELS(_FILE)?|HEARTBEAT_URL(_FILE)?)",
        frozenset({"private_key"}),
        frozenset({"api", "web"}),
    ),
    "arrivals": Part(
        rf"PREFECT_(API_URL|HOME|SERVER_EPHEMERAL_ENABLED)|CARDLINK_CONFIG|{AWS}",
        networks=frozenset({"api", "web"}),
    ),
    "pages": Part(rf"CARDLINK_(CONFIG|REPORTS_URL)|{AWS}", networks=frozenset({"web"})),
}
ISSUERS = "./issuers:/etc/cardlink:ro"
VOLUMES = {part: frozenset({ISSUERS}) for part in PARTS} | {
    "server": frozenset[str](),
    "worker": frozenset({ISSUERS, "cardlink:/var/lib/cardlink"}),  # with the database
}
SENSITIVE = re.compile(
    r"AWS_(ACCESS|SECRET)|PRIVATE_KEY|AUDIT_KEY|PASSPHRASE|CARDLINK_SERVICE|PURGE_PROFILE"
)


def variables_of(part: str) -> set[str]:
    """Return the variables of a part's own file of the environment."""
    return set(
        re.findall(
            r"^#?([A-Z]\w+)=", (DEPLOY / "env" / f"{part}.env.example").read_text(), re.MULTILINE
        )
    )


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def unit(part: str) -> list[tuple[str, str]]:
    """Return the settings of a part's unit, in order."""
    text = (DEPLOY / "systemd" / f"cardlink-{part}.service").read_text()
    return re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE)


def allowed(part: str, named: set[str]) -> list[str]:
    """Return the variables that a part may not have."""
    return sorted(name for name in named if not re.fullmatch(PARTS[part].variables, name))


def test_server_and_installer_have_nothing_that_opens_data_or_the_partners_service() -> None:
    samples = (
        "AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY CARDLINK_PRIVATE_KEY_FILE CARDLINK_PASSPHRASE_FILE"
    )
    secrets = [*samples.split(), "CARDLINK_SERVICE_PASSWORD", "CARDLINK_PURGE_PROFILE"]

    held = {
        part: [name for name in secrets if re.fullmatch(PARTS[part].variables, name)]
        for part in PARTS
    }

    assert all(SENSITIVE.search(name) for name in secrets)
    aws = secrets[:2]
    assert {
        "server": [],
        "install": [],
        "worker": secrets,
        "arrivals": aws,
        "pages": aws,
    } == held
    assert ["worker"] == [part for part, one in PARTS.items() if "private_key" in one.secrets]


@pytest.mark.parametrize("part", PARTS)
def test_compose_gives_a_part_what_the_table_says_and_no_more(part: str) -> None:
    service = compose()["services"][part]

    given = set(service["environment"]) | variables_of(part)

    assert [f"env/{part}.env"] == service["env_file"]
    assert [] == allowed(part, given)
    assert PARTS[part].secrets == frozenset(service.get("secrets", ()))
    assert PARTS[part].networks == frozenset(service["networks"])
    assert VOLUMES[part] == frozenset(service.get("volumes", ()))


def test_prefects_database_is_reached_by_its_server_alone() -> None:
    found = compose()

    near = [name for name, one in found["services"].items() if "database" in one["networks"]]

    assert ["postgres", "server"] == near
    assert found["networks"]["database"]["internal"]
    assert all(one["networks"] for one in found["services"].values())


def names_of_wiring(place: str) -> set[str]:
    """Return what the files of a part take from `flows.wiring`."""
    files = [ROOT / f"{place}.py"] if (ROOT / f"{place}.py").is_file() else (ROOT / place).iterdir()
    trees = [ast.parse(file.read_text()) for file in files if file.suffix == ".py"]
    imports = [node for tree in trees for node in ast.walk(tree)]
    return {
        alias.name
        for node in imports
        if isinstance(node, ast.ImportFrom) and node.module == "flows.wiring"
        for alias in node.names
    }


def test_cardlinks_database_is_reached_by_the_worker_alone() -> None:
    services = compose()["services"]
    address = "sqlite:////var/lib/cardlink/cardlink.db"
    name = "CARDLINK_DATABASE_URL"

    in_compose = {part: one.get("environment", {}).get(name) for part, one in services.items()}
    units = {part: " ".join(value for _, value in unit(part)) for part in PARTS}

    assert {"worker": address} == {part: one for part, one in in_compose.items() if one}
    assert ["worker"] == [part for part in PARTS if name in variables_of(part)]
    assert ["worker"] == [part for part in PARTS if f"{name}={address}" in units[part].split()]
    assert ["worker"] == [part for part in PARTS if name in units[part]]
    assert "StateDirectory=cardlink".partition("=")[::2] in unit("worker")  # the folder, writable


def test_no_other_part_has_code_that_opens_cardlinks_database() -> None:
    parts = {
        "arrivals": names_of_wiring("flows/extensions/arrivals"),
        "pages": names_of_wiring("flows/pages"),
        "install": names_of_wiring("flows/install"),
    }

    assert all(parts.values())
    openers = {"wire", "edges", "open_database"}  # of `flows.wiring`
    assert {} == {part: names & openers for part, names in parts.items() if names & openers}


def test_the_image_has_the_folder_of_the_database_for_its_own_user_alone() -> None:
    text = (DEPLOY / "Dockerfile").read_text()

    made = re.findall(r"install --directory (.+)$", text, re.MULTILINE)

    assert ["--owner=10001 --group=10001 --mode=0700 /var/lib/cardlink"] == made
    assert "cardlink" in compose()["volumes"]  # a named volume takes over owner and mode


def test_runs_of_several_machines_share_a_postgresql_and_those_of_one_a_file() -> None:
    templates = {
        kind: json.loads((DEPLOY / kind / "job-template.json").read_text())
        for kind in ("docker", "ecs", "kubernetes")
    }
    variables = {kind: one["variables"]["properties"] for kind, one in templates.items()}

    addresses = {
        kind: one["env"]["default"].get("CARDLINK_DATABASE_URL", "a secret")
        for kind, one in variables.items()
    }
    [task] = templates["ecs"]["job_configuration"]["task_definition"]["containerDefinitions"]

    file = "sqlite:////var/lib/cardlink/cardlink.db"
    assert {"docker": file, "ecs": "a secret", "kubernetes": "a secret"} == addresses
    assert "cardlink:/var/lib/cardlink" in variables["docker"]["volumes"]["default"]
    assert ["CARDLINK_DATABASE_URL"] == [one["name"] for one in task["secrets"]]
    assert [] == [
        kind for kind in ("ecs", "kubernetes") if "sqlite" in json.dumps(templates[kind]).lower()
    ]


@pytest.mark.parametrize("part", PARTS)
def test_systemd_gives_a_part_what_the_table_says_and_no_more(part: str) -> None:
    settings = unit(part)
    lines = [value for name, value in settings if name == "Environment"]

    given = {word.partition("=")[0] for line in lines for word in line.split()} | variables_of(part)

    assert [f"/etc/cardlink/{part}.env"] == [
        value for name, value in settings if name == "EnvironmentFile"
    ]
    assert [] == allowed(part, given)
    loaded = [value for name, value in settings if name == "LoadCredential"]
    assert loaded == (["private-key.asc:/etc/cardlink/private-key.asc"] if part == "worker" else [])
    users = [(name, value) for name, value in settings if name in ("User", "DynamicUser")]
    # no two parts are one user
    assert users == [("User", "cardlink") if part == "worker" else ("DynamicUser", "yes")]
    confined = {
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "PrivateTmp": "yes",
        "LimitCORE": "0",
    }
    assert confined.items() <= dict(settings).items()


def test_every_unit_is_one_of_the_parts_and_every_part_has_a_file_of_its_environment() -> None:
    units = {file.stem.removeprefix("cardlink-") for file in (DEPLOY / "systemd").iterdir()}
    files = {file.name.removesuffix(".env.example") for file in (DEPLOY / "env").iterdir()}

    assert PARTS.keys() == units == files


def kubernetes(kind: str) -> list[dict[str, Any]]:
    found = yaml.safe_load_all((DEPLOY / "kubernetes" / "worker.yaml").read_text())
    return [one for one in found if one["kind"] == kind]


def test_in_kubernetes_keys_and_secrets_reach_the_runs_alone_the_token_the_worker_alone() -> None:
    worker, arrivals = kubernetes("Deployment")
    pod = worker["spec"]["template"]["spec"]
    template = json.loads((DEPLOY / "kubernetes" / "job-template.json").read_text())
    job = template["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]

    named = {one["name"] for one in pod["containers"][0]["env"]}
    assert {"PREFECT_API_URL", "PREFECT_WORKER_QUERY_SECONDS"} == named
    assert "secret" not in json.dumps(pod).lower()
    hearing = arrivals["spec"]["template"]["spec"]
    assert not hearing["automountServiceAccountToken"]
    assert [{"secretRef": {"name": "cardlink-arrivals", "optional": True}}] == hearing[
        "containers"
    ][0]["envFrom"]
    assert ["issuers", "tmp"] == [one["name"] for one in hearing["volumes"]]
    assert ["issuers", "keys", "tmp"] == [one["name"] for one in job["volumes"]]
    assert [{"secretRef": {"name": "cardlink-run", "optional": True}}] == job["containers"][0][
        "envFrom"
    ]
    assert not job["automountServiceAccountToken"]
    assert [] == allowed("worker", set(template["variables"]["properties"]["env"]["default"]))


def test_in_kubernetes_pods_reach_what_their_kind_needs_and_nobody_reaches_them() -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in kubernetes("NetworkPolicy")}
    worker, arrivals = kubernetes("Deployment")
    template = json.loads((DEPLOY / "kubernetes" / "job-template.json").read_text())
    job = template["job_configuration"]["job_manifest"]["spec"]["template"]["metadata"]["labels"]

    reached = {
        name: [sorted({port["port"] for port in rule["ports"]}) for rule in spec["egress"]]
        for name, spec in policies.items()
    }
    [outside] = [one["ipBlock"] for one in policies["cardlink-run"]["egress"][0]["to"]]
    [database] = policies["cardlink-run"]["egress"][1]["to"]

    assert {
        "cardlink": [[53], [4200]],
        "cardlink-worker": [[443, 6443]],
        "cardlink-run": [[443], [5432]],
        "cardlink-arrivals": [[443]],
    } == reached
    assert {"kubernetes.io/metadata.name": "postgres"} == database["namespaceSelector"][
        "matchLabels"
    ]
    assert ["Ingress", "Egress"] == policies["cardlink"]["policyTypes"]
    assert "ingress" not in policies["cardlink"]  # named and not given: none
    assert {"169.254.0.0/16", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"} <= set(
        outside["except"]
    )
    chosen = [
        policies[name]["podSelector"]["matchLabels"].items()
        for name in ("cardlink", "cardlink-run")
    ]
    assert all(labels <= job.items() for labels in chosen)
    for name, deployment in (("cardlink-worker", worker), ("cardlink-arrivals", arrivals)):
        held = deployment["spec"]["template"]["metadata"]["labels"].items()
        assert policies[name]["podSelector"]["matchLabels"].items() <= held


def test_every_image_that_a_file_names_is_built_by_a_command_that_stands_there() -> None:
    texts = [file.read_text() for file in sorted(DEPLOY.rglob("*.yaml"))]
    texts += [file.read_text() for file in sorted(DEPLOY.rglob("job-template.json"))]

    named = {
        one for text in texts for one in re.findall(r"\bcardlink(?:-\w+)?:\d+\.\d+\.\d+", text)
    }

    built = set(
        re.findall(
            r"^#   docker build .*-t (\S+) \.", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE
        )
    )
    assert {f"cardlink:{__version__}", f"cardlink-worker:{__version__}"} == named == built


AS_A_SERVER = """
import os
from pathlib import Path
from prefect.server.api.server import create_ui_app
from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL
from sqlalchemy.engine import make_url

url = PREFECT_API_DATABASE_CONNECTION_URL.value()
found = make_url(url.get_secret_value() if hasattr(url, "get_secret_value") else url)
create_ui_app(ephemeral=False)
written = Path(os.environ["PREFECT_SERVER_UI_STATIC_DIRECTORY"], "v1", "index.html").is_file()
print(found.password, found.host, found.username, written, sep="|")
"""


@pytest.mark.slow  # it imports the whole server
def test_the_server_takes_any_password_for_its_database_and_writes_its_ui_where_it_may(
    tmp_path: Path,
) -> None:
    server, password = compose()["services"]["server"], "p@ss/w:rd#?% '\"$x"
    (tmp_path / "password").write_text(password + "\n")
    ui = server["environment"]["PREFECT_SERVER_UI_STATIC_DIRECTORY"]
    places = {
        "PREFECT_HOME": str(tmp_path),
        "PREFECT_SERVER_UI_STATIC_DIRECTORY": str(tmp_path / "ui"),
    }
    line = (
        server["command"][2]
        .replace("$$", "$")
        .replace("/run/secrets/database_password", str(tmp_path / "password"))
    )
    line = line.replace(
        "exec prefect server start --host 0.0.0.0", f'exec "{sys.executable}" -c "$CODE"'
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}

    told = subprocess.run(
        ["sh", "-c", line],
        env={**clean, **server["environment"], **places, "CODE": AS_A_SERVER},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()

    assert f"{password}|postgres|prefect|True" == told
    assert [f"{ui.rpartition('/')[0]}:mode=1777,size=1g"] == server["tmpfs"]
    homes = " ".join(value for name, value in unit("server") if name == "Environment")
    assert "PREFECT_SERVER_UI_STATIC_DIRECTORY=/var/lib/cardlink-server/ui" in homes


def needed(names: set[str]) -> set[str]:
    """Return the packages that these need on this machine, with those that they need, by normalised
    name.
    """
    found, left = set[str](), {(name, "") for name in names}
    while left:
        name, extra = left.pop()
        found.add(name)
        for line in requires(name) or ():
            one = Requirement(line)
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                wanted = {(lock.normal(one.name), more) for more in ("", *one.extras)}
                left |= {pair for pair in wanted if pair[0] not in found or pair[1]}
        left = {pair for pair in left if pair != (name, extra)}
    return found


@pytest.mark.parametrize("name", lock.FILES)
def test_what_an_image_installs_is_pinned_with_hashes_and_is_all_that_is_needed(
    name: str,
) -> None:
    text = (DEPLOY / name).read_text()
    constraints = {
        lock.normal(one): version
        for one, version in re.findall(
            r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE
        )
    }

    found = lock.locked(text)

    own = {
        lock.normal(Requirement(line).name)
        for line in requires("cardlink") or ()
        if "extra ==" not in line
    }
    assert len(re.findall("==", text)) == len(found) > 100
    assert [] == [
        one for one, (version, _) in found.items() if constraints.get(one, version) != version
    ]
    assert set() == needed(own) - found.keys()
    assert all(hashes for _, hashes in found.values())
    assert "//" not in text  # neither an index nor a file's address
