"""Where `deploy/requirements*.txt` come from: what the images install, in the versions of
constraints.txt, with hashes.

`python -m tests.lock` writes them anew, after constraints.txt has changed; it asks the package
index that pip is configured for. Only names, versions and hashes are kept, so that the image builds from
any mirror of the same files.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PYTHON: Final = "3.11"  # of the image
MACHINES: Final = ("x86_64", "aarch64")
# up to that of the image's Debian
GLIBC: Final = ("2014", "_2_17", "_2_28", "_2_31", "_2_34", "_2_36")
HEAD: Final = """\
# What {image} installs: the versions of constraints.txt with the hashes of their files, \
for {machines}.
# Written by `python -m tests.lock`; used with `pip install --require-hashes --no-deps`.
"""
# what redis needs on Pythons before 3.11.3, which Debian 12 has and we do not run
EARLIER: Final = ("async-timeout",)
FILES: Final = {
    "requirements.txt": ("the image", ()),
    "requirements-kubernetes.txt": (
        "the image of the Kubernetes worker",
        ("prefect-kubernetes<1",),
    ),
}


def wanted() -> list[str]:
    """Return what the product needs, and what builds it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return [*project["project"]["dependencies"], *project["build-system"]["requires"], *EARLIER]


def resolved(requirements: Sequence[str], machine: str) -> dict[str, str]:
    """Return the hash of the file that pip would install of each `name==version`."""
    with TemporaryDirectory() as nowhere:
        options = [
            "--dry-run",
            "--ignore-installed",
            "--quiet",
            "--report",
            "-",
            "--target",
            nowhere,
        ]
        options += [
            "--only-binary",
            ":all:",
            "--python-version",
            PYTHON,
            "-c",
            str(ROOT / "constraints.txt"),
        ]
        options += [
            word for glibc in GLIBC for word in ("--platform", f"manylinux{glibc}_{machine}")
        ]
        command = [sys.executable, "-m", "pip", "install", *options, *requirements]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    found = json.loads(done.stdout)["install"]
    return {
        f"{one['metadata']['name']}=={one['metadata']['version']}": one["download_info"][
            "archive_info"
        ]["hashes"]["sha256"]
        for one in found
    }


def page(image: str, more: Sequence[str]) -> str:
    """Return the content of a file: every package with the hashes of its files for all machines."""
    hashes = defaultdict[str, set[str]](set)
    for machine in MACHINES:
        for package, sha256 in resolved([*wanted(), *more], machine).items():
            hashes[package].add(sha256)
    lines = [
        " \\\n".join([package, *(f"    --hash=sha256:{one}" for one in sorted(found))])
        for package, found in sorted(hashes.items(), key=lambda one: one[0].lower())
    ]
    return "\n".join(
        [HEAD.format(image=image, machines=" and ".join(MACHINES)) + lines[0], *lines[1:], ""]
    )


def locked(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Return version and hashes of every package of a file, by its normalised name."""
    found = re.findall(
        r"^([\w.-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.MULTILINE
    )
    return {
        normal(name): (version, frozenset(re.findall("[0-9a-f]{64}", rest)))
        for name, version, rest in found
    }


def normal(name: str) -> str:
    """Return a package's name as indexes compare it."""
    return re.sub("[-_.]+", "-", name).lower()


if __name__ == "__main__":
    for name, (image, more) in FILES.items():
        (ROOT / "deploy" / name).write_text(page(image, more), "utf-8")
