"""`make sbom`: the components of the image as a CycloneDX document, in dist/cardlink.cdx.json.

The Python packages are installed as the image installs them, into a folder that is removed again; so
licences and dependencies are those of the files whose hashes are in `deploy/requirements.txt`. The
packages of Debian are those of a list that the image itself prints:

    docker run --rm cardlink:0.2.0 dpkg-query -W -f '${Package} ${Version} ${Architecture}\\n'
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from tests import lock

ROOT: Final = Path(__file__).parent.parent.parent
REQUIREMENTS: Final = ROOT / "deploy" / "requirements.txt"
BUILD_ONLY: Final = ("hatchling", "trove-classifiers")  # deploy/Dockerfile takes them out, too

Document = dict[str, Any]


class SbomError(Exception):
    """A document could not be made, or is not what CycloneDX allows."""


def environment(requirements: Path) -> Document:
    """Return what is installed by a file of requirements, with licences and dependencies."""
    with TemporaryDirectory(prefix="cardlink-sbom-") as folder:
        python = f"{folder}/bin/python"
        _run(sys.executable, "-m", "venv", folder)
        pip = [python, "-m", "pip", "--quiet"]
        _run(*pip, "install", "--require-hashes", "--no-deps", "-r", str(requirements))
        _run(*pip, "uninstall", "--yes", *BUILD_ONLY)
        tool = [sys.executable, "-m", "cyclonedx_py", "environment"]
        document: Document = json.loads(
            _run(
                *tool, "--pyproject", str(ROOT / "pyproject.toml"), "--spec-version", "1.6", python
            )
        )
    return document


def add_hashes(document: Document, requirements: str) -> None:
    """Add to each component the hashes of the files that the image accepts."""
    hashes = {name: sorted(sha256) for name, (_, sha256) in lock.locked(requirements).items()}
    for component in document["components"]:
        accepted = hashes.get(lock.normal(component["name"]), [])
        if accepted:
            component.setdefault("externalReferences", []).append(
                {
                    "type": "distribution",
                    "url": component["purl"],
                    "comment": "files that the image accepts, one per kind of machine",
                    "hashes": [{"alg": "SHA-256", "content": sha256} for sha256 in accepted],
                }
            )


def add_debian(document: Document, packages: Iterable[str]) -> None:
    """Add the packages of the image's Debian, given as lines of name, version, architecture."""
    for line in packages:
        name, version, architecture = line.split()
        url = PackageURL("deb", "debian", name, version, {"arch": architecture}).to_string()
        document["components"].append(
            {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}
        )


def checked(document: Document) -> str:
    """Return a document as text that CycloneDX 1.6 allows; SbomError."""
    text = json.dumps(document, indent=2) + "\n"
    flaw = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if flaw is not None:
        raise SbomError(f"the document is not CycloneDX 1.6: {flaw}")
    return text


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise SbomError(f"{' '.join(command[1:4])} ended with {done.returncode}: {last}")
    return done.stdout


def main() -> int:
    """Write the document; return the exit code."""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("--debian", type=Path, help="list of the image's Debian packages")
    options.add_argument("--out", type=Path, default=ROOT / "dist" / "cardlink.cdx.json")
    chosen = options.parse_args()
    try:
        document = environment(REQUIREMENTS)
        add_hashes(document, REQUIREMENTS.read_text("utf-8"))
        if chosen.debian:
            add_debian(document, chosen.debian.read_text("utf-8").splitlines())
        text = checked(document)
    except SbomError as error:
        print(f"no SBOM: {error}", file=sys.stderr)
        return 1
    chosen.out.parent.mkdir(exist_ok=True)
    chosen.out.write_text(text, "utf-8")
    print(f"{chosen.out}: {len(document['components'])} components")
    return 0


if __name__ == "__main__":
    sys.exit(main())
