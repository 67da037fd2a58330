"""From the image to links: what is shipped, built and run as compose runs it, and a run taken
through it.

Every step asserts what it claims, and says in one line what it found.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from flows.extensions.simulator.demo import ISSUER, prepare
from tests.image import build
from tests.image.build import ROOT, run
from tests.image.composed import LABEL, Composed, left, remove
from tests.ops.browser import CHROMIUM, browser
from tests.ops.stage import FAST, Stage, unscheduled
from tests.servers import free_port

USER: Final = 10001  # of the image
PASSWORD: Final = "p@ss/w:rd#?% '\"$x"  # of a database that lives for minutes
TOKEN: Final = "a-token-of-the-page-server"
EXTRACT: Final = "sample-bank-20261120.csv"
HARDENED: Final = ["--network=none", "--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL"]
HARDENED_TOO: Final = ["--security-opt=no-new-privileges", "--tmpfs=/tmp:mode=1777,size=1g"]
S3: Final = {
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ENDPOINT_URL": "http://s3:5000",
    "AWS_ACCESS_KEY_ID": "practice",
    "AWS_SECRET_ACCESS_KEY": "practice",
}
DROP: Final = """
import boto3, sys
s3 = boto3.client("s3")
s3.create_bucket(Bucket="cards")
s3.put_object(Bucket="cards", Key=sys.argv[1], Body=sys.stdin.buffer.read())
"""
LINKS: Final = """
import boto3, json
s3 = boto3.client("s3")
keys = [one["Key"] for one in s3.list_objects_v2(Bucket="cards")["Contents"]]
[links] = [key for key in keys if key.endswith("/report/links.csv")]
lines = s3.get_object(Bucket="cards", Key=links)["Body"].read().splitlines()
page = links.removeprefix("cardlink/").replace("links.csv", "report.html")
print(json.dumps({"page": page, "links": len(lines) - 1}))
"""
TRIED: Final = """
import os
print(os.getuid(), open("/proc/self/status").read().split("CapBnd:")[1].split()[0])
open("/opt/x", "w")
"""


def images(folder: Path) -> Iterator[str | dict[str, str]]:
    """Build or find every image; yield lines to print, last their names by those in
    compose.yaml.
    """
    begun = build.base()
    yield f"base: {begun}"
    context = folder / "checkout"
    shutil.copytree(
        ROOT,
        context,
        ignore=shutil.ignore_patterns(".*", "tests", "__pycache__", "demo", "ui", "dist"),
    )
    shutil.copy(ROOT / ".dockerignore", context)
    # as on the machine of an operator who builds it there
    for kept in ("env/worker.env", "secrets/private-key.asc"):
        (context / "deploy" / kept).parent.mkdir(exist_ok=True)
        (context / "deploy" / kept).write_text("kept by the operator\n")
    image, of_kubernetes = build.ours(context, begun)
    for one in (image, of_kubernetes):
        yield f"image: {one}, {int(run('podman', 'image', 'inspect', '--format', '{{.Size}}', one)) >> 20} MB"
    _only(of_kubernetes, ["python", "-c", "from prefect_kubernetes import KubernetesWorker"])
    named = {"postgres": "postgres:15.18-bookworm", "s3": "motoserver/moto:5.2.3"}
    found = {name: build.stand_in(name, target, begun) for target, name in named.items()}
    yield f"beside it: {', '.join(found.values())}"
    yield {"cardlink:0.2.0": image, **found}


def alone(image: str, folder: Path) -> Iterator[str]:
    """Try what the image does with nothing around it; write its files of deploy/ to the folder."""
    assert "Put deployments, alert channels" in _only(image, ["cardlink", "install", "--help"])
    yield "help: `cardlink install --help` installs nothing"
    inside = _only(
        image,
        [
            "sh",
            "-c",
            "cd /opt/cardlink/lib/python3.11/site-packages/flows/deploy; ls env; ls; id -u",
        ],
    )
    assert "worker.env\n" not in inside
    assert "secrets" not in inside
    assert inside.endswith(f"{USER}\n")
    yield f"content: nothing that an operator keeps in deploy/; user {USER}"
    said = _only(image, ["cardlink", "demo", "--dir", "/tmp/demo"])
    assert "balanced" in said
    yield f"demo: {said.splitlines()[0]}"
    folder.mkdir()
    os.chown(folder, USER, USER)
    said = _only(image, ["cardlink", "deploy-files", "/out/deploy"], f"--volume={folder}:/out")
    yield f"deploy-files: {said.splitlines()[0]}"


def installed(folder: Path) -> Stage:
    """Fill in the files of deploy/ as its README says; return where the server will be."""
    port, pages, deploy = free_port(), free_port(), folder / "deploy"
    compose = deploy / "compose.yaml"
    text = compose.read_text().replace('"127.0.0.1:4200:4200"', f'"127.0.0.1:{port}:4200"')
    text = text.replace("http://127.0.0.1:4200/api\n", f"http://127.0.0.1:{port}/api\n")
    compose.write_text(text.replace('"127.0.0.1:4201:4201"', f'"127.0.0.1:{pages}:4201"'))
    address = {"CARDLINK_REPORTS_URL": f"http://127.0.0.1:{pages}/{TOKEN}"}
    _fill(
        deploy, "server", {"PREFECT_SERVER_ENCRYPTION_KEY": FAST["PREFECT_SERVER_ENCRYPTION_KEY"]}
    )
    _fill(deploy, "install", {})
    _fill(deploy, "worker", {**S3, **address})
    _fill(deploy, "pages", {**S3, **address})
    practice = folder / "practice"
    prepare(practice, None)
    (deploy / "issuers").mkdir()
    toml = (practice / f"{ISSUER}.toml").read_text()
    (deploy / "issuers" / f"{ISSUER}.toml").write_text(
        re.sub(r'(?m)^root = "store"', 'root = "s3://cards/cardlink"', toml)
    )
    shutil.copy(practice / "portal.asc", deploy / "issuers")
    (deploy / "secrets").mkdir()
    (deploy / "secrets" / "database_password").write_text(PASSWORD)
    # any key will do to open with
    shutil.copy(practice / "portal-secret.asc", deploy / "secrets" / "private-key.asc")
    for file in [*(deploy / "secrets").iterdir(), practice / "portal-secret.asc"]:
        _belongs(file, USER, 0o400)
    return Stage(
        f"http://127.0.0.1:{port}",
        folder,
        {"pages": f"http://127.0.0.1:{pages}/{TOKEN}"},
        [],
        "PostgreSQL",
    )


def night(parts: Composed, stage: Stage) -> Iterator[str]:
    """Take a run from drop to links through the parts of compose.yaml."""
    for part in ("postgres", "server", "s3"):
        parts.start(part)
    yield "server: healthy on its database, whose password has every special character; its UI is served"
    done = parts.once("install", "cardlink", "install")
    assert done.returncode == 0, done.stdout + done.stderr
    unscheduled(stage)
    yield f"install: {len(stage.deployments())} deployments"
    extract = stage.folder / "practice" / "store" / ISSUER / "extracts" / EXTRACT
    drop = ["python", "-c", DROP, f"cardlink/{ISSUER}/extracts/{EXTRACT}"]
    _did(parts.once("worker", *drop, given=extract.read_bytes()))
    key = stage.folder / "deploy" / "secrets" / "private-key.asc"
    _belongs(key, 0, 0o600)
    unread = parts.once("worker", "cardlink", "check", ISSUER)
    assert (unread.returncode, "/run/secrets/private_key" in unread.stdout) == (2, True), unread
    _belongs(key, USER, 0o400)
    _did(parts.once("worker", "cardlink", "check", ISSUER))
    yield "check: a key of another owner is found by it, one of our own is fine"
    parts.start("worker")
    parts.start("pages")
    submitted = stage.do(f"nightly-{ISSUER}")
    assert submitted.state == "Completed", "\n".join([submitted.message, *submitted.logs])
    yield f"nightly: {submitted.state}, {submitted.message}"
    secret = f"{stage.folder / 'practice' / 'portal-secret.asc'}:/run/portal.asc:ro"
    simulate = ["cardlink", "--json", "simulate", ISSUER, "--secret-key", "/run/portal.asc"]
    answered = json.loads(_did(parts.once("worker", *simulate, mounts=[secret])))
    ingested = stage.do(f"ingest-{ISSUER}")
    assert ingested.state in ("Completed", "Balanced"), "\n".join(
        [ingested.message, *ingested.logs]
    )
    yield f"ingest: {ingested.state}, {ingested.message}"
    report = json.loads(_did(parts.once("worker", "python", "-c", LINKS)))
    assert report["links"] == answered["linked"] > 0
    yield f"links: {report['links']} of {answered['linked']} that the simulated portal gave"
    with urlopen(f"{stage.settings['pages']}/{report['page']}") as page:
        assert ISSUER in page.read().decode()
    yield "pages: the report is served to a browser"
    if CHROMIUM:
        with browser(stage.folder / "browser") as seen:
            seen.size(1400, 900)
            seen.go(f"{stage.url}/deployments")
            seen.see(f"nightly-{ISSUER}")
            seen.picture(stage.folder / "ui.png")
        yield "ui: a browser shows the deployments"


def confined(parts: Composed) -> str:
    """Return that the processes of the containers cannot write their root, and hold no
    capability.
    """
    for part in ("server", "worker", "pages", "install"):
        done = parts.once(part, "python", "-c", TRIED)
        assert (done.stdout.split(), "Read-only file system" in done.stderr) == (
            [str(USER), "0" * 16],
            True,
        ), done
    return f"confined: user {USER}, no capability, root read-only"


def walk(folder: Path) -> Iterator[str]:
    """Yield a line for each step that holds; AssertionError says which does not. Nothing is left
    running.
    """
    with _podman(folder):
        names: dict[str, str] = {}
        for one in images(folder):
            if isinstance(one, str):
                yield one
            else:
                names = one
        yield from alone(names["cardlink:0.2.0"], folder / "files")
        stage = installed(folder / "files")
        parts = Composed(folder / "files" / "deploy", names)
        with parts.networks():
            yield confined(parts)
            yield from night(parts, stage)
        assert [] == [one for kind in ("container", "network", "volume") for one in left(kind)]
        yield "left: no container, no network, no volume"


@contextmanager
def _podman(folder: Path) -> Iterator[None]:
    """Let podman do without systemd and without rights that a container of tests lacks."""
    file = folder / "containers.conf"
    file.write_text(build.CONTAINERS_CONF)
    os.environ["CONTAINERS_CONF"] = str(file)
    try:
        yield
    finally:
        remove()  # what a signal interrupted too
        del os.environ["CONTAINERS_CONF"]


def _only(image: str, command: Sequence[str], *options: str) -> str:
    return run(
        "podman",
        "run",
        "--rm",
        f"--label={LABEL}",
        *HARDENED,
        *HARDENED_TOO,
        *options,
        image,
        *command,
    )


def _fill(deploy: Path, part: str, values: dict[str, str]) -> None:
    text = (deploy / "env" / f"{part}.env.example").read_text()
    lines = {line.lstrip("#").partition("=")[0]: line for line in text.splitlines()}
    assert values.keys() <= lines.keys()
    lines |= {name: f"{name}={value}" for name, value in values.items()}
    (deploy / "env" / f"{part}.env").write_text("\n".join(lines.values()) + "\n")


def _belongs(file: Path, user: int, mode: int) -> None:
    os.chown(file, user, user)
    file.chmod(mode)


def _did(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, (
        f"{done.args[:3]} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    )
    return done.stdout
