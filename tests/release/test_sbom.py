"""`make sbom`: components with versions, licences, dependencies and the hashes that are accepted."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests import lock
from tests.release.sbom import (
    BUILD_ONLY,
    REQUIREMENTS,
    ROOT,
    Document,
    SbomError,
    add_debian,
    add_hashes,
    checked,
    environment,
)


def document_of(names: Iterable[tuple[str, str]]) -> Document:
    """Return a document of packages as the tool makes it, without hashes."""
    components = [
        {"type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}
        for name, version in names
    ]
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "components": components}


def test_every_package_of_the_image_has_the_hashes_of_the_files_it_accepts() -> None:
    locked = lock.locked(REQUIREMENTS.read_text())
    packages = [(name, version) for name, (version, _) in locked.items()]
    document = document_of(packages)

    add_hashes(document, REQUIREMENTS.read_text())

    accepted = {
        lock.normal(component["name"]): {
            item["content"] for item in component["externalReferences"][-1]["hashes"]
        }
        for component in document["components"]
    }
    assert {name: set(hashes) for name, (_, hashes) in locked.items()} == accepted
    document["components"] = document["components"][:2]
    assert packages[0][1] in checked(document)


def test_packages_of_debian_are_components_with_their_architecture() -> None:
    document = document_of([])

    add_debian(document, ["gnupg 2.2.40-1.1+deb12u2 all", "tini 0.19.0-1+b3 amd64"])

    assert [
        "pkg:deb/debian/gnupg@2.2.40-1.1%2Bdeb12u2?arch=all",
        "pkg:deb/debian/tini@0.19.0-1%2Bb3?arch=amd64",
    ] == [component["purl"] for component in document["components"]]
    assert checked(document)


def test_a_document_that_cyclonedx_does_not_allow_is_refused() -> None:
    with pytest.raises(SbomError, match="not CycloneDX"):
        checked({"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{"name": "x"}]})


@pytest.mark.slow  # it installs all that the image installs
def test_the_document_of_the_image_has_licences_and_who_needs_whom() -> None:
    document = environment(REQUIREMENTS)

    components = {lock.normal(component["name"]): component for component in document["components"]}
    [root] = [
        needed
        for needed in document["dependencies"]
        if needed["ref"] == document["metadata"]["component"]["bom-ref"]
    ]
    assert lock.locked(REQUIREMENTS.read_text()).keys() - set(BUILD_ONLY) <= components.keys()
    assert set(BUILD_ONLY).isdisjoint(components)
    assert [] == [name for name, component in components.items() if not component.get("licenses")]
    assert "polars" in {name.partition("==")[0] for name in root["dependsOn"]}


def test_the_dockerfile_takes_out_what_only_builds() -> None:
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()

    assert f"pip uninstall --yes {' '.join(BUILD_ONLY)}" in dockerfile
