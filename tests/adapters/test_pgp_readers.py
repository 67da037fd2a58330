"""Other programs open what we seal: plain gpg, Sequoia and openpgp.js."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flows.extensions.simulator.portal_key import Algorithm
from tests import keys
from tests.adapters.sealers import CHUNKS, sealer_to


@contextmanager
def plain_gpg(secret: bytes) -> Iterator[keys.Gpg]:
    """Give calls of plain gpg in a home that holds one secret key, and end its agent."""
    home = Path(tempfile.mkdtemp(prefix="plain-"))
    try:
        gpg = keys.Gpg(home)
        gpg("--import", given=secret)
        yield gpg
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "gpg-agent"], check=True)
        shutil.rmtree(home, ignore_errors=True)


def test_plain_gpg_opens_a_chunk_and_sees_its_name() -> None:
    key = keys.sound("rsa2048")
    with sealer_to(key) as sealer:
        sealed = sealer.seal(CHUNKS[:1])[0].data

    with plain_gpg(key.secret) as gpg:
        opened = gpg("--decrypt", given=sealed)
        packets = gpg("--list-packets", given=sealed)

    assert CHUNKS[0].data == opened.encode()
    assert f'name="{CHUNKS[0].name}"' in packets
    assert "compressed packet: algo=1" in packets


@pytest.mark.parametrize("algorithm", ["rsa2048", "curve25519"])
@pytest.mark.parametrize("armor", [True, False])
def test_sequoia_opens_a_chunk(algorithm: Algorithm, armor: bool) -> None:
    sequoia = pytest.importorskip("pysequoia")
    key = keys.sound(algorithm)
    with sealer_to(key, armor=armor) as sealer:
        sealed = sealer.seal(CHUNKS[:1])[0].data

    opened = sequoia.decrypt(bytes=sealed, decryptor=sequoia.Tsk.from_bytes(key.secret).decryptor())

    assert CHUNKS[0].data == opened.bytes


OPENPGP_JS = """
import { readFileSync } from 'node:fs';
import * as openpgp from 'openpgp';
const armoredKey = readFileSync('secret.asc', 'utf8');
const decryptionKeys = await openpgp.readPrivateKey({ armoredKey });
const message = await openpgp.readMessage({ binaryMessage: readFileSync('chunk.pgp') });
const { data } = await openpgp.decrypt({ message, decryptionKeys, format: 'binary' });
process.stdout.write(data);
"""


@pytest.fixture(scope="session")
def openpgp_js(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder where node can import openpgp."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("node or npm is not installed")
    folder = tmp_path_factory.mktemp("openpgp-js")
    patience = ["--fetch-retries=0", "--fetch-timeout=15000", "--prefer-offline"]
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", *patience, "openpgp@6"]
    if subprocess.run(install, cwd=folder, capture_output=True, check=False).returncode:
        pytest.skip("npm cannot install openpgp here")
    (folder / "open.mjs").write_text(OPENPGP_JS)
    return folder


@pytest.mark.slow  # npm fetches it
@pytest.mark.parametrize("algorithm", ["rsa2048", "curve25519"])
def test_openpgp_js_opens_a_chunk(openpgp_js: Path, algorithm: Algorithm) -> None:
    key = keys.sound(algorithm)
    with sealer_to(key) as sealer:
        (openpgp_js / "chunk.pgp").write_bytes(sealer.seal(CHUNKS[:1])[0].data)
    (openpgp_js / "secret.asc").write_bytes(key.secret)

    opened = subprocess.run(
        ["node", "open.mjs"], cwd=openpgp_js, capture_output=True, check=True
    ).stdout

    assert CHUNKS[0].data == opened
