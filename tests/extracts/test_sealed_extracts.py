"""Extracts that are PGP-encrypted: `init` opens them as every other command does, or says which key
it needs.
"""

from pathlib import Path

import pytest

from flows.adapters.gpg import Keyring
from flows.extensions.simulator.portal_key import PortalKey
from flows.runs.openpgp import recipients
from tests import keys
from tests.extracts.test_exports import cardlink
from tests.extracts.usual_exports import seven


@pytest.fixture
def sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An export, PGP-encrypted to `keys.sound()`; no private key is configured."""
    monkeypatch.delenv("CARDLINK_PRIVATE_KEY_FILE", raising=False)
    export = next(iter(seven().values()))
    file = tmp_path / "export.csv.pgp"
    file.write_bytes(encrypted(export.content, keys.sound()))
    return file


def encrypted(content: bytes, key: PortalKey) -> bytes:
    with Keyring() as ring:
        gpg = keys.Gpg(ring.home)
        gpg("--import", given=key.public)
        recipient = ["--trust-model", "always", "-r", key.fingerprint]
        return gpg("--encrypt", "--armor", *recipient, given=content).encode()


def test_init_guesses_from_a_sealed_extract_what_it_guesses_from_the_plain_one(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret.asc"
    secret.write_bytes(keys.sound().secret)
    plain = tmp_path / "plain.csv"
    plain.write_bytes(next(iter(seven().values())).content)
    monkeypatch.setenv("CARDLINK_PRIVATE_KEY_FILE", str(secret))

    of_sealed = cardlink(tmp_path, "init", "sealed-bank", "--from", str(sealed))
    cardlink(tmp_path, "init", "plain-bank", "--from", str(plain))

    toml = (tmp_path / "sealed-bank.toml").read_text()
    assert 0 == of_sealed.exit_code, of_sealed.output
    assert (tmp_path / "plain-bank.toml").read_text().replace("plain-", "sealed-") == toml


def test_init_says_which_key_a_sealed_extract_needs_and_never_asks_for_it_in_clear(
    sealed: Path, tmp_path: Path
) -> None:
    done = cardlink(tmp_path, "init", "bank", "--from", str(sealed))

    [key] = recipients(sealed.read_bytes())
    assert 2 == done.exit_code
    assert f"PGP-encrypted to the key {key}" in done.output
    assert "CARDLINK_PRIVATE_KEY_FILE" in done.output
    assert "as text" not in done.output


def test_init_says_that_the_private_key_is_another(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "other.asc"
    secret.write_bytes(keys.sound(copy=2).secret)
    monkeypatch.setenv("CARDLINK_PRIVATE_KEY_FILE", str(secret))

    done = cardlink(tmp_path, "init", "bank", "--from", str(sealed))

    [key] = recipients(sealed.read_bytes())
    assert 2 == done.exit_code
    assert f"the key {key}, which is not the private key of CARDLINK_PRIVATE_KEY_FILE" in (
        done.output
    )
