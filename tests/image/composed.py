"""The services of deploy/compose.yaml as podman's containers, confined as that file says: it is
read, not repeated.

What podman gets otherwise than from compose: images that stand in for others, free ports of this
machine, no restarts.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from tests.image.build import run

LABEL: Final = f"cardlink-image={os.getpid()}"
PREFIX: Final = f"cardlink-image-{os.getpid()}"
PATIENCE: Final = 600.0  # seconds: a machine with other work is slow, not wrong


class Composed:
    """A compose file whose services can be started, asked and run once."""

    def __init__(self, folder: Path, images: Mapping[str, str]) -> None:
        self._folder, self._images = folder, images
        self._file: dict[str, Any] = yaml.safe_load((folder / "compose.yaml").read_text())

    def start(self, name: str) -> None:
        """Start a service; wait until it is healthy, where it says how to know."""
        service = self._file["services"][name]
        ports = [word for port in service.get("ports", ()) for word in ("--publish", port)]
        stop = ["--stop-signal", service["stop_signal"]] if "stop_signal" in service else []
        run(
            "podman",
            "run",
            "--detach",
            "--name",
            f"{PREFIX}-{name}",
            *stop,
            *ports,
            *self._run(name),
        )
        if test := service.get("healthcheck", {}).get("test"):
            command = ["sh", "-c", test[1]] if test[0] == "CMD-SHELL" else test[1:]
            self._wait(name, [_dollar(word) for word in command])

    def once(
        self, name: str, *command: str, given: bytes = b"", mounts: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a service's place, as `docker compose run --rm` does."""
        more = [word for mount in mounts for word in ("--volume", mount)]
        words = ["podman", "run", "--rm", "--interactive", *more, *self._run(name, command)]
        done = subprocess.run(words, input=given, capture_output=True, check=False)
        return subprocess.CompletedProcess(
            command, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    def logs(self, name: str) -> str:
        """Return what a service printed."""
        done = subprocess.run(
            ["podman", "logs", f"{PREFIX}-{name}"], capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    @contextmanager
    def networks(self) -> Iterator[None]:
        """Make its networks and volumes until the block ends; then nothing of it is left, its
        containers included.
        """
        try:
            for name, network in self._file["networks"].items():
                internal = ["--internal"] if network.get("internal") else []
                run("podman", "network", "create", "--label", LABEL, *internal, f"{PREFIX}-{name}")
            for name in self._file["volumes"]:
                run("podman", "volume", "create", "--label", LABEL, f"{PREFIX}-{name}")
            yield
        finally:
            remove()

    def _run(self, name: str, command: Sequence[str] = ()) -> list[str]:
        """Return options, image and command of a service."""
        service = self._file["services"][name]
        words = ["--label", LABEL]
        for network in service["networks"]:
            alias = f":alias={name}" if not command else ""
            words += ["--network", f"{PREFIX}-{network}{alias}"]
        if service.get("read_only"):
            words += ["--read-only", "--read-only-tmpfs=false"]
        words += [f"--cap-drop={capability}" for capability in service.get("cap_drop", ())]
        words += [
            f"--security-opt={option.removesuffix(':true')}"
            for option in service.get("security_opt", ())
        ]
        words += [f"--tmpfs={place}" for place in service.get("tmpfs", ())]
        words += [f"--user={service['user']}"] if "user" in service else []
        variables = {**self._of_files(service), **service.get("environment", {})}
        words += [f"--env={variable}={value}" for variable, value in variables.items()]
        for secret in service.get("secrets", ()):
            words.append(
                f"--volume={(self._folder / self._file['secrets'][secret]['file']).resolve()}:/run/secrets/{secret}:ro"
            )
        for volume in service.get("volumes", ()):
            source, _, rest = volume.partition(":")
            place = (
                (self._folder / source).resolve()
                if source.startswith(".")
                else f"{PREFIX}-{source}"
            )
            words.append(f"--volume={place}:{rest}")
        image = self._images.get(service["image"], service["image"])
        return [*words, image, *(command or [_dollar(word) for word in service.get("command", ())])]

    def _of_files(self, service: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables of its `env_file`."""
        texts = [(self._folder / file).read_text() for file in service.get("env_file", ())]
        return dict(
            line for text in texts for line in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE)
        )

    def _wait(self, name: str, healthy: list[str]) -> None:
        container, end = f"{PREFIX}-{name}", time.monotonic() + PATIENCE
        while subprocess.run(
            ["podman", "exec", container, *healthy], capture_output=True, check=False
        ).returncode:
            up = (
                run("podman", "inspect", "--format", "{{.State.Running}}", container).strip()
                == "true"
            )
            assert up, f"{name} has ended:\n{self.logs(name)[-4000:]}"
            assert time.monotonic() < end, f"{name} is not healthy:\n{self.logs(name)[-4000:]}"
            time.sleep(3)


def remove() -> None:
    """Remove the containers, networks and volumes of this process."""
    removed = {
        "container": ["rm", "--time", "20"],
        "network": ["network", "rm"],
        "volume": ["volume", "rm"],
    }
    for kind, command in removed.items():
        if found := left(kind):
            run("podman", *command, "--force", *found)


def left(kind: str) -> list[str]:
    """Return the containers, networks or volumes of this process that are there."""
    shown = {
        "container": ["ps", "--all"],
        "network": ["network", "ls"],
        "volume": ["volume", "ls"],
    }[kind]
    return run("podman", *shown, "--quiet", "--filter", f"label={LABEL}").split()


def _dollar(word: str) -> str:
    return word.replace("$$", "$")
