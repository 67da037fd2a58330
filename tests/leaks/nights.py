"""The nights a scan goes over: what is done in each, and how much of it in the small size."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from flows.cli.main import main
from tests.leaks.echoes import echoing_results
from tests.leaks.place import BANK, CARDS, EXTRACT, STARTER, Place, Said, rows
from tests.leaks.tracing import traced
from tests.night import portal_csv

ENDED = re.compile(r"^ended with (\d+)$", re.MULTILINE)


class GateFacts(NamedTuple):
    """One kind of night; `play(place, full)` does it."""

    name: str
    play: Callable[[Place, bool], None]


def good(place: Place, full: bool) -> None:
    """Run every command there is, with -v, over a night that goes well."""
    place.drop(portal_csv(rows()))
    place.dropped.append(place.folder / "sample.csv")
    first: list[Sequence[str]] = [
        ["check", BANK, EXTRACT],
        ["--json", "check", BANK, EXTRACT],
        ["submit", BANK],
        ["simulate", BANK, "--secret-key", "secret.asc", "--fail", "0.3"],
        ["ingest", BANK],
    ]
    assert {0} == {*_commands(place, full, *first)}
    run = run_of(place)
    others = list(every_command(run))
    again = ["resubmit", run, "--errors", "--reason", "the portal was busy"]
    sent = json.loads(place.cardlink("--json", *again, "--dry-run").out)["rows"]
    again += ["--rows", str(sent)]
    codes = _commands(place, full, again, *others, *(["--json", *one] for one in others if full))
    assert 0 == codes[0]


def run_of(place: Place) -> str:
    """Return the id of the newest run."""
    return max(path.name for path in (place.folder / "store" / BANK / "runs").iterdir())


def every_command(run: str) -> Iterator[list[str]]:
    """Yield a command line for every command and subcommand, filled in from the names of its
    parameters.
    """
    for path, command in _leaves(main, []):
        # a night of its own, with Prefect; a server until Ctrl-C
        if path not in (["demo"], ["practice"]):
            yield [
                *path,
                *(word for parameter in command.params for word in _filled(parameter, run)),
            ]


def _leaves(group: click.Group, path: list[str]) -> Iterator[tuple[list[str], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _leaves(command, [*path, name])
        else:
            yield [*path, name], command


def _filled(parameter: click.Parameter, run: str) -> list[str]:
    values = {
        "issuer": BANK,
        "run": run,
        "extract": EXTRACT,
        "file": "sample.csv",
        "secret_key": "secret.asc",
    }
    name = parameter.name or ""
    if isinstance(parameter, click.Argument):
        return [values[name]] if name in values else []
    return [parameter.opts[0], values.get(name, "a-word")] if parameter.required else []


def damaged(place: Place, full: bool) -> None:
    """Submit damaged extracts: lines refused, and contents refused whole."""
    place.dropped.append(place.folder / "store" / BANK / "extracts")
    _child(place, f"damage({1 if full else 8})")
    headless = portal_csv(rows()).partition(b"\n")[2]
    place.drop(headless, "bank-20261121.csv")
    assert [2, 2] == _commands(place, full, ["check", BANK, "bank-20261121.csv"], ["submit", BANK])


def misnamed(place: Place, full: bool) -> None:
    """Drop extracts whose own names hold a card number, beside one that is well named."""
    place.drop(portal_csv(rows()))
    names = [f"{CARDS[0]}.csv", "cards 4111-1111-1111-1111.csv"]
    for name in names if full else names[:1]:
        dropped = place.drop(b"not read", name)
        assert 2 == _commands(place, full, ["submit", BANK], ["check", BANK, "another.csv"])[0], (
            name
        )
        dropped.unlink()
    assert place.cardlink("submit", BANK).code == 0


def broken(place: Place, full: bool) -> None:
    """Let functions raise, one after another, foreign exceptions that hold every cell they were
    given.
    """
    place.dropped += [place.folder / "store" / BANK / folder for folder in ("extracts", "results")]
    _child(place, f"break_steps({0 if full else 5})")


def crashed(place: Place, full: bool) -> None:
    """Kill submits with -9 after a number of objects, look at what is left, and run them to their
    end.
    """
    place.drop(portal_csv(rows()))
    for objects in range(1, 24) if full else (1, 5):
        with place.started([sys.executable, *STARTER, "-v", "submit", BANK]) as process:
            kill_after(process.pid, place.folder / "store" / BANK / "runs", objects)
        place.look()
    assert place.cardlink("submit", BANK).code in (0, 75)
    place.cardlink("simulate", BANK, "--secret-key", "secret.asc")
    for objects in (3, 5, 8, 12) if full else (4,):
        with place.started([sys.executable, *STARTER, "-v", "ingest", BANK]) as process:
            kill_after(process.pid, place.folder / "store" / BANK / "runs", objects)
        place.look()


def kill_after(process: int, folder: Path, objects: int) -> None:
    """Kill a process and its children once there are that many more objects below a folder, or it
    has ended.
    """
    before = sum(path.is_file() for path in folder.rglob("*"))
    end = time.monotonic() + 120
    # empty: it has ended
    while time.monotonic() < end and Path(f"/proc/{process}/cmdline").read_bytes():
        if sum(path.is_file() for path in folder.rglob("*")) - before >= objects:
            break
        time.sleep(0.001)
    os.killpg(process, signal.SIGKILL)


def unsealed(place: Place, full: bool) -> None:
    """Let sealing fail in every way a key, a gpg and a disk can."""
    place.drop(portal_csv(rows()))
    toml = (place.folder / f"{BANK}.toml").read_text()
    for gpg in FAKES if full else ["writes plaintext"]:
        assert place.cardlink("submit", BANK, env={"PATH": fake_gpg(place, gpg)}).code != 0, gpg
    changes = (
        ("portal.asc", "secret.asc"),
        ("portal.asc", "missing.asc"),
        ('fingerprints = ["', 'fingerprints = ["0'),
    )
    for change in changes if full else changes[:1]:
        place.configure(
            toml.replace("[portal]", '[portal]\nkey_file = "portal.asc"').replace(*change)
        )
        assert place.cardlink("submit", BANK).code == 2, change
    place.configure(toml.replace("[portal]", "[portal]\nsealed = false"))
    assert place.cardlink("submit", BANK).code == 2  # most of the cards are generated ones
    place.configure(toml)


FAKES = {
    "says what it reads": 'cat "$@" 2>/dev/null >&2; cat >&2; exit 2',
    "prints what it reads": 'while read -r f; do cat "$f"; cat "$f" >&2; done; exit 0',
    "writes plaintext": 'while read -r f; do cp "$f" "$f.gpg"; done; exit 0',
    "is killed": "kill -9 $$",
}


def fake_gpg(place: Place, name: str) -> str:
    """Return a PATH whose gpg fails as named at sealing, and is the real one otherwise."""
    folder = place.folder / "fakes" / name.replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    real = shutil.which("gpg")
    script = f'#!/bin/sh\ncase "$*" in *--encrypt*) {FAKES[name]};; esac\nexec {real} "$@"\n'
    (folder / "gpg").write_text(script)
    (folder / "gpg").chmod(0o700)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def hostile(place: Place, full: bool) -> None:
    """Take up results that echo cards and CVV hashes, are no results at all, or try to be more than
    that.
    """
    place.drop(portal_csv(rows()))
    assert place.cardlink("submit", BANK).code == 0
    for name, content in echoing_results():
        place.drop(content, name, "results")
    run = run_of(place)
    _commands(
        place, full, ["ingest", BANK], ["--json", "ingest", BANK], ["report", run], ["status"]
    )


def flows_failing(place: Place, full: bool) -> None:
    """Let the Prefect flows fail at every step, and look at all that Prefect keeps: database, logs,
    storage.
    """
    place.dropped += [place.folder / "store" / BANK / folder for folder in ("extracts", "results")]
    _child(place, f"fail_flows({60 if full else 4})", PREFECT)
    kept = [path.name for path in (place.folder / "prefect").rglob("*") if path.is_file()]
    assert "prefect.db" in kept


def traced_night(place: Place, full: bool) -> None:
    """Submit and ingest under a tracer that sees every write to a file."""
    place.drop(portal_csv(rows()))
    for command in (
        ["submit", BANK],
        ["simulate", BANK, "--secret-key", "secret.asc"],
        ["ingest", BANK],
    ):
        said, leaks = traced(place, [sys.executable, *STARTER, "-v", *command])
        assert said.code == 0, said.err
        place.found += [leak for leak in leaks if not leak.place.startswith("name of")]


def unguarded(place: Place, full: bool) -> None:
    """Run one failing flow without the boundary: the control that shows what the scans of Prefect's
    home are worth.
    """
    place.dropped += [place.folder / "store" / BANK / folder for folder in ("extracts", "results")]
    _child(place, "bare_flow()", PREFECT)


PREFECT = {
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_LEVEL": "DEBUG",
}


def _child(place: Place, call: str, env: Mapping[str, str] | None = None) -> Said:
    said = place.run([sys.executable, "-c", f"from tests.leaks.children import *; {call}"], env)
    assert said.code == 0, said.err[-3000:]
    return said


def _commands(place: Place, full: bool, *lines: Sequence[str]) -> list[int]:
    """Run commands, in the full size each as a process of its own; return their exit codes."""
    if full:
        return [place.cardlink(*line).code for line in lines]
    return [
        int(code)
        for code in ENDED.findall(_child(place, f"run_commands({[*map(list, lines)]!r})").out)
    ]


BY_COMMAND = (
    GateFacts("a good night, every command", good),
    GateFacts("damaged extracts", damaged),
    GateFacts("extracts named after cards", misnamed),
    GateFacts("crashed nights", crashed),
)
FAILING = (
    GateFacts("failed seals", unsealed),
    GateFacts("results that echo cards", hostile),
    GateFacts("every step failing", broken),
    GateFacts("Prefect flows failing at every step", flows_failing),
)
NIGHTS = (*BY_COMMAND, *FAILING)
