"""From nothing to links: the wheel has all that its commands need, and deploy/FIRST_ISSUER.md can
be pasted as it is.

The wheel is built once. The quick tests run its unpacked content, the slow one installs it as the
page says.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zipfile import ZipFile

import click
import pytest
from click.testing import CliRunner

from flows.cli.main import main
from flows.extensions.simulator.ui import environment, server
from tests.leftovers import ended
from tests.servers import free_port

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
BLOCK = re.compile(r"(?:<!-- on (?:a )?(\w+) -->\n)?```sh\n(.*?)```", re.DOTALL)
LINK = re.compile(r"https://links\.example\.com/l/\w+")
PATIENCE = 600.0  # seconds; a machine with other work is slow, not wrong


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.iterdir())


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Path:
    """Return an empty folder in which the wheel's content is what `. cardlink-venv/bin/activate`
    activates.
    """
    programs, content = tmp_path / "cardlink-venv" / "bin", tmp_path / "cardlink-venv" / "content"
    with ZipFile(wheel) as archive:
        archive.extractall(content)
    programs.mkdir()
    (programs / "cardlink").write_text(
        f"#!{sys.executable}\nfrom flows.cli.__main__ import run\nrun()\n"
    )
    (programs / "cardlink").chmod(0o755)
    (programs / "activate").write_text(f'export PATH="{programs}:$PATH" PYTHONPATH="{content}"\n')
    return tmp_path


def page(store: str) -> list[str]:
    """Return the commands of the page, block by block, as somebody with that store pastes them."""
    found = BLOCK.findall((DEPLOY / "FIRST_ISSUER.md").read_text("utf-8"))
    return [block for only, block in found if only in ("", store)]


def paste(folder: Path, blocks: list[str], **variables: str) -> str:
    """Type blocks into one terminal, in which every command has to succeed; return what it
    shows.
    """
    done = subprocess.run(
        ["bash", "-e"],
        input="".join(blocks),
        cwd=folder,
        env=clean(variables),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def clean(variables: dict[str, str]) -> dict[str, str]:
    """Return this environment without what leads to the checkout, an S3 server of the tests or a
    Prefect server.
    """
    ours = ("PYTHON", "AWS_", "CARDLINK_CONFIG", "PREFECT_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}", **variables}


@contextmanager
def beside(folder: Path, block: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """Type a block into a terminal of its own, and wait until it has written what the other
    terminal loads.
    """
    text = f". cardlink-venv/bin/activate\n{block}"
    process = subprocess.Popen(
        ["bash", "-c", text], cwd=folder, env=clean(variables), start_new_session=True
    )
    with ended(process):
        end = time.monotonic() + PATIENCE
        while not (folder / "practice" / "env.sh").exists():
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.1)
        yield process


@pytest.mark.slow
def test_the_page_leads_to_links_in_a_directory_with_the_content_of_the_wheel(
    installed: Path,
) -> None:
    blocks = page("directory")
    at = blocks.index("cardlink practice\n")

    with beside(installed, blocks[at]):
        shown = paste(installed, blocks[at + 1 :])

    assert 4 == len(set(LINK.findall(shown)))
    assert "balanced" in shown


@pytest.mark.slow
def test_the_page_leads_to_links_on_s3_with_the_wheel_installed_as_it_says(
    wheel: Path, tmp_path: Path
) -> None:
    (tmp_path / wheel.name).write_bytes(wheel.read_bytes())
    packages = str(Path(click.__file__).parent.parent)  # what the wheel needs is here already
    offline = {
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_IGNORE_INSTALLED": "1",
        "PYTHONPATH": packages,
    }
    blocks = page("s3")
    at = blocks.index("cardlink practice --s3\n")

    before = paste(
        tmp_path, [*blocks[:at], "python -c 'import flows; print(flows.__file__)'\n"], **offline
    )
    with beside(tmp_path, blocks[at], **offline):
        shown = paste(tmp_path, blocks[at + 1 :], **offline)

    assert f"{tmp_path}/cardlink-venv/lib/" in before
    assert "rows        count\nread          200\n" in before
    assert 4 == len(set(LINK.findall(shown)))


def test_the_wheel_holds_the_deploy_files_and_writes_them_where_it_is_told(installed: Path) -> None:
    shown = paste(installed, [". cardlink-venv/bin/activate\n", "cardlink deploy-files files\n"])

    written = {
        path.relative_to(installed / "files")
        for path in (installed / "files").rglob("*")
        if path.is_file()
    }
    kept = {
        path.relative_to(DEPLOY)
        for path in DEPLOY.rglob("*")
        if path.is_file() and path.suffix != ".png"
    }
    assert kept == written
    assert f"files: {len(kept)} files" in shown


def test_the_wheel_installs_the_man_page_where_man_looks(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        [page] = [name for name in archive.namelist() if name.endswith("share/man/man1/cardlink.1")]
        installed_page = archive.read(page)

    assert (DEPLOY / "cardlink.1").read_bytes() == installed_page


def test_the_wheel_says_that_it_is_typed_and_where_it_comes_from(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        [metadata] = [archive.read(name).decode() for name in names if name.endswith("/METADATA")]

    assert {"flows/py.typed", "schemas/py.typed"} <= set(names)
    packages = (name for name in names if "dist-info" not in name and ".data/" not in name)
    assert {"flows", "schemas"} == {name.partition("/")[0] for name in packages}
    assert "\nClassifier: Typing :: Typed\n" in metadata
    assert {"Documentation", "Changelog", "Source"} == set(
        re.findall(r"^Project-URL: (\w+),", metadata, re.MULTILINE)
    )


def test_the_wheel_says_the_number_in_its_name(wheel: Path, installed: Path) -> None:
    _, named, *_ = wheel.name.split("-")

    shown = paste(installed, [". cardlink-venv/bin/activate\n", "cardlink --version\n"])

    assert f"cardlink, version {named}" in shown


def test_deploy_files_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()

    done = CliRunner().invoke(main, ["deploy-files", str(tmp_path)])

    assert (2, True) == (done.exit_code, "already exists. Nothing was written." in done.stderr)
    assert ["mine.txt"] == [path.name for path in tmp_path.iterdir()]


def test_help_of_install_installs_nothing() -> None:
    nowhere = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PREFECT_API_URL": f"http://127.0.0.1:{free_port()}/api",
    }

    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", "install", "--help"],
        env=nowhere,
        capture_output=True,
        text=True,
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert "Put deployments" in done.stdout


def test_install_without_a_server_says_what_to_set_and_starts_none(tmp_path: Path) -> None:
    unnamed = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}

    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", "install"],
        env={**unnamed, "PYTHONPATH": str(ROOT), "PREFECT_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )

    assert (2, "") == (done.returncode, done.stdout)
    assert "PREFECT_API_URL names no Prefect server. Nothing was done." in done.stderr
    assert not list(tmp_path.glob("*.db*"))


@pytest.mark.slow
def test_the_wheel_installs_its_deployments_on_a_prefect_server(installed: Path) -> None:
    port = free_port()
    settings = environment(installed, port, free_port())

    with server(settings, installed / "server.log", port):
        shown = paste(
            installed,
            [". cardlink-venv/bin/activate\n", "cardlink init first-bank\n", "cardlink install\n"],
            **{
                name: value
                for name, value in settings.items()
                if name.startswith(("PREFECT_", "CARDLINK_"))
            },
        )

    assert "issuers: first-bank\n" in shown
    names = ("alert opened", "alert closed", "watch silent", "watch failed", "flow silent")
    assert f"automations: {', '.join(f'cardlink {name}' for name in names)}\n" in shown


def test_practice_without_its_s3_server_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "moto.server", None)

    done = CliRunner().invoke(main, ["practice", "--s3", "--dir", str(tmp_path)])

    assert 2 == done.exit_code
    assert "Install cardlink[practice]" in done.stderr


def test_make_shell_has_cardlink_on_its_path() -> None:
    done = subprocess.run(
        ["make", "--silent", "--old-file=.venv/run-ready", "shell"],
        cwd=ROOT,
        input="echo $PATH",
        env={**os.environ, "SHELL": "/bin/sh"},
        capture_output=True,
        text=True,
    )

    assert done.stdout.startswith(f"{ROOT}/.venv/bin:")


@pytest.mark.slow
def test_what_practice_wrote_for_other_terminals_is_gone_with_it_and_its_key_stays(
    installed: Path,
) -> None:
    with beside(installed, "exec cardlink practice\n") as process:
        first = (installed / "practice" / "portal.fingerprint").read_text()
        process.terminate()
        process.wait()
        left = {path.name for path in (installed / "practice").iterdir()}
    with beside(installed, "exec cardlink practice\n"):
        second = (installed / "practice" / "portal.fingerprint").read_text()

    assert {"portal.asc", "portal-secret.asc", "portal.fingerprint"} == left
    assert first == second
