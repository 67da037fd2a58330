"""Images without a daemon: ours by `deploy/Dockerfile`, and stand-ins for those that it and
compose.yaml name.

Nothing is pulled. An image of the right name on this machine is taken; a missing one is made of the
packages of Debian and Python that this machine's own settings lead to, which are mounted and do not
stay in the image.
"""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final
from urllib.parse import urlsplit

ROOT: Final = Path(__file__).parent.parent.parent
DEPLOY: Final = ROOT / "deploy"
TOOLS: Final = ("buildah", "podman", "runc", "debootstrap", "iptables")
DEBIAN: Final = "apt-get install --no-install-recommends buildah podman runc debootstrap iptables netavark aardvark-dns"
BASE_PACKAGES: Final = "ca-certificates,netbase,tzdata,python3,python3-venv"
CONTAINERS_CONF: Final = """\
[containers]
default_ulimits = ["nofile=1024:20000", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
"""


def missing() -> str:
    """Return what this machine lacks to build and run images, "" where nothing is."""
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)} (Debian: {DEBIAN})"
    return "" if os.geteuid() == 0 else "only root can do it"


def run(*command: str, stdin: IO[bytes] | None = None) -> str:
    """Run a command that must succeed; return what it says."""
    done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (
        f"{' '.join(command[:4])} ended with {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    )
    return done.stdout


def base() -> str:
    """Return the image that the Dockerfile begins with, or one made of Debian's packages in its
    place.
    """
    [named] = set(
        re.findall(r"^FROM (python:[^\s@]+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    )
    if _there(f"docker.io/library/{named}"):
        return f"docker.io/library/{named}"
    stand_in = f"localhost/stand-in-{named}"
    if not _there(stand_in):
        with TemporaryDirectory() as folder:
            run(
                "debootstrap",
                "--variant=minbase",
                f"--include={BASE_PACKAGES}",
                "bookworm",
                folder,
                _mirror(),
            )
            (Path(folder) / "usr/local/bin/python").symlink_to("/usr/bin/python3")
            with subprocess.Popen(
                ["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE
            ) as packed:
                run("podman", "import", "--quiet", "-", stand_in, stdin=packed.stdout)
    return stand_in


def ours(context: Path, begun: str) -> list[str]:
    """Build our images on a base by the commands at the head of the Dockerfile; return their
    names.
    """
    text = (DEPLOY / "Dockerfile").read_text()
    found = re.findall(
        r"^#   docker build -f deploy/Dockerfile (?:(--build-arg) (\S+) )?-t (\S+) \.$",
        text,
        re.MULTILINE,
    )
    replaced = re.findall(r"^FROM (python:\S+)", text, re.MULTILINE)[0]
    fixed = [
        "--build-context",
        f"{replaced}=container-image://{begun}",
        "-f",
        str(context / "deploy/Dockerfile"),
    ]
    for option, value, name in found:
        before = run("podman", "images", "--quiet", "--no-trunc", f"localhost/{name}").split()
        _build(f"localhost/{name}", context, *fixed, *filter(None, (option, value)), *_mounted())
        if before != run("podman", "images", "--quiet", "--no-trunc", f"localhost/{name}").split():
            # it has no name now
            subprocess.run(["podman", "image", "rm", *before], capture_output=True, check=False)
    return [f"localhost/{name}" for _, _, name in found]


def stand_in(name: str, target: str, begun: str) -> str:
    """Return an image that compose.yaml names, or the stand-in of our Containerfile."""
    if _there(f"docker.io/library/{name}") or _there(f"docker.io/{name}"):
        return name
    made, file = f"localhost/stand-in-{target}", str(Path(__file__).parent / "Containerfile")
    # PostgreSQL's packages write certificates of their own
    mounted = _mounted() if target == "s3" else ()
    _build(
        made,
        ROOT,
        "--build-arg",
        f"BASE={begun}",
        "--target",
        target,
        "-f",
        file,
        "--ignorefile",
        "/dev/null",
        *mounted,
    )
    return made


def _build(name: str, context: Path, *options: str) -> None:
    fixed = [
        "--isolation",
        "chroot",
        "--network",
        "host",
        "--pull-never",
        "--format",
        "docker",
        "--layers",
    ]
    run("buildah", "bud", *fixed, *options, "-t", name, str(context))


def _there(image: str) -> bool:
    return subprocess.run(["podman", "image", "exists", image], check=False).returncode == 0


def _mirror() -> str:
    """Return where this machine has Debian's packages from."""
    files = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").iterdir()]
    text = "\n".join(file.read_text() for file in files if file.is_file())
    [mirror, *_] = re.findall(
        r"^(?:URIs:|deb(?: \[.*?\])?) (\S+/debian)/?(?:\s|$)", text, re.MULTILINE
    )
    return str(mirror)


def _mounted() -> list[str]:
    return [word for place in _settings() for word in ("-v", f"{place}:{place}:ro")]


def _settings() -> Iterator[str]:
    """Yield the files and folders by which this machine reaches its packages: pip's settings,
    indexes, certificates.
    """
    pip = [sys.executable, "-m", "pip", "config"]
    files = re.findall(r"^  (/\S+), exists: True$", run(*pip, "debug"), re.MULTILINE)
    named = [
        urlsplit(word).path for word in re.findall(r"(?:file://)?/[^\s'\\]+", run(*pip, "list"))
    ]
    # files are beside an index
    folders = [str(Path(one).parent) if one.endswith("/simple") else one for one in named]
    certificates = Path(ssl.get_default_verify_paths().openssl_capath).resolve()
    found = dict.fromkeys(
        one
        for one in [*files, *folders]
        if Path(one).exists() and certificates not in Path(one).parents
    )
    yield from [*found, str(certificates)]
