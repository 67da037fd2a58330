"""What `cardlink` says of keys it will not seal to, of names that are no issuer's, and of hosts
that are none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.extensions.simulator.extract import write_sample
from flows.extensions.simulator.portal_key import PortalKey
from flows.runs.keys import extracts, keys_of, results
from tests import keys
from tests.adapters import key_kinds
from tests.night import DAY
from tests.test_command_line import cardlink

TOML = """
issuer = "{issuer}"
root = "store"
test = true
[portal]
fingerprints = ["{pin}"]
allowed_hosts = ["{host}"]
"""


def configured(folder: Path, key: PortalKey, name: str = "bank", **toml: str) -> Path:
    """Return the folder of one issuer with its key and an extract."""
    drop = folder / "store" / extracts(name)
    drop.mkdir(parents=True)
    with (drop / "bank-20261120.csv").open("wb") as out:
        write_sample(out, 20, as_of=DAY)
    settings = {"issuer": name, "pin": key.fingerprint, "host": "links.example.com", **toml}
    (folder / f"{name}.toml").write_text(TOML.format(**settings) + settings.get("more", ""))
    (folder / "portal.asc").write_bytes(key.public)
    return folder


def refusal(folder: Path, *arguments: str) -> tuple[str, str]:
    """Run a command that must be refused; return the error and its message."""
    done = cardlink(folder, "--json", *arguments)
    said = json.loads(done.stdout)
    assert 2 == done.returncode
    found = [(one["error"], one["text"]) for one in said.get("checks", ()) if one["error"]]
    return found[0] if found else (said["error"], said["message"])


@pytest.mark.parametrize("command", [["check", "bank"], ["submit", "bank"]])
def test_a_weak_subkey_is_refused_before_anything_is_read(
    tmp_path: Path, command: list[str]
) -> None:
    key = key_kinds.key("rsa2048", key_kinds.sub("rsa1024"))
    folder = configured(tmp_path, key)

    error, message = refusal(folder, *command)

    assert "KeyAlgorithmError" == error
    assert f"of key {key.fingerprint} is RSA 1024" in message
    assert "Ask the partner for a key of RSA 3072 or Curve25519" in message
    assert ["bank/extracts/bank-20261120.csv"] == [
        str(one.relative_to(folder / "store"))
        for one in (folder / "store").rglob("*")
        if one.is_file() and not {"journal", "metrics"} & {*one.parts}
    ]


def test_the_stock_key_of_gpg_is_sealed_to(tmp_path: Path) -> None:
    folder = configured(tmp_path, key_kinds.stock(2048))

    done = cardlink(folder, "--json", "submit", "bank")

    assert (0, 1) == (done.returncode, json.loads(done.stdout)["runs"][0]["chunks"])


def test_a_nist_curve_needs_its_setting(tmp_path: Path) -> None:
    key = key_kinds.key("nistp384", key_kinds.sub("nistp384"))
    folder = configured(tmp_path / "without", key)
    allowed = configured(tmp_path / "with", key, more='key_curves = ["P-384"]\n')

    error, message = refusal(folder, "check", "bank")
    done = cardlink(allowed, "check", "bank")

    assert ("KeyAlgorithmError", True) == (error, "[portal] key_curves" in message)
    assert 0 == done.returncode


@pytest.mark.parametrize(
    "spelled", [str.lower, lambda pin: " ".join(pin[at : at + 4] for at in range(0, 40, 4))]
)
def test_a_pin_may_be_written_in_lower_case_and_in_groups(
    tmp_path: Path, spelled: Callable[[str], str]
) -> None:
    key = keys.sound()
    folder = configured(tmp_path, key, pin=spelled(key.fingerprint))

    done = cardlink(folder, "--json", "check", "bank")

    assert [key.fingerprint] == json.loads(done.stdout)["fingerprints"]


def test_a_toml_that_names_another_issuer_is_refused(tmp_path: Path) -> None:
    folder = configured(tmp_path, keys.sound(), name="aaa", issuer="zzz")

    refusals = [
        refusal(folder, *command)
        for command in (["check", "aaa"], ["submit", "aaa"], ["ingest", "aaa"])
    ]

    assert {"ConfigurationError"} == {error for error, _ in refusals}
    assert all('aaa.toml: issuer = "zzz"' in message for _, message in refusals)


NAMES = (
    "../x/aaa",
    "x/../aaa",
    "./aaa",
    "/etc/aaa",
    "AAA",
    "aaa.toml",
    "",
    "a" * 42,
    "aaa\n",
    "-aaa",
)
COMMANDS = {
    "submit": ["{}"],
    "check": ["{}"],
    "ingest": ["{}"],
    "init": ["{}"],
    "reconcile": ["{}"],
    "purge": ["{}", "--dry-run"],
    "renew": ["{}"],
    "dismiss": ["{}", "x.csv", "--reason", "a test"],
    "backfill": ["{}", "--from", "2026-11-01", "--to", "2026-11-02"],
    "placements": ["{}"],
    "simulate": ["{}"],
    "practice": ["{}"],
    "practice people": ["{}"],
    "trace": ["c-1", "--issuer", "{}"],
    "job follow": ["{}", "1"],
    "link": ["{}", "--prompt"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_path_is_refused_wherever_an_issuer_is_named(tmp_path: Path, command: str) -> None:
    (tmp_path / "x").mkdir()
    configured(tmp_path / "x", keys.sound(), name="aaa")
    arguments = [one.format("../x/aaa") for one in COMMANDS[command]]
    here = tmp_path / "here"
    here.mkdir()

    error, message = refusal(here, *command.split(), *arguments)

    assert ("IssuerNameError", True) == (error, "'../x/aaa' is not an issuer name" in message)
    assert [] == list(here.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_only_a_plain_name_names_an_issuer(tmp_path: Path, name: str) -> None:
    error, _ = refusal(tmp_path, "check", "--", name)

    assert "IssuerNameError" == error


NO_HOSTS = (
    *(
        "",
        "*",
        "*.com",
        "links",
        "1.2.3.4",
        "x@evil",
        "x@evil.com",
        "a b.com",
        "links.*.com",
        "lïnks.example.com",
    ),
    *(
        "links.example.com:8443",
        "https://links.example.com",
        "links.example.com/",
        "links.example.com.",
    ),
    *("links..example.com", "-links.example.com", "links.example.com\\n"),
)
HOSTS = (
    "links.example.com",
    "LINKS.Example.com",
    "*.example.com",
    "xn--lnks-6pa.example",
    "l.example",
)


@pytest.mark.parametrize("host", NO_HOSTS)
def test_what_is_no_host_name_is_refused(tmp_path: Path, host: str) -> None:
    folder = configured(tmp_path, keys.sound(), host=host)

    error, message = refusal(folder, "check", "bank")

    assert ("ConfigurationError", True) == (error, "portal.allowed_hosts.0" in message)


@pytest.mark.parametrize("host", HOSTS)
def test_host_names_are_accepted_as_links_have_them(tmp_path: Path, host: str) -> None:
    folder = configured(tmp_path, keys.sound(), host=host)

    done = cardlink(folder, "--json", "check", "bank")

    assert [host.lower()] == json.loads(done.stdout)["settings"]["portal.allowed_hosts"]["value"]


@pytest.mark.slow
def test_a_result_named_for_another_issuers_run_is_taken_with_a_notice(tmp_path: Path) -> None:
    folder = configured(tmp_path, keys.sound(), name="aaa")
    (folder / "secret.asc").write_bytes(keys.sound().secret)
    run = json.loads(cardlink(folder, "--json", "submit", "aaa").stdout)["runs"][0]["run"]
    cardlink(folder, "simulate", "aaa", "--secret-key", "secret.asc", "--fail", "0")
    (result,) = (folder / "store" / results("aaa")).iterdir()
    result.rename(result.with_name(result.name.replace("aaa-", "zzz-")))

    done = cardlink(folder, "--json", "ingest", "aaa")

    summary = json.loads((folder / "store" / keys_of(run).report("summary.json")).read_bytes())
    assert 0 == done.returncode
    assert [("STRANGE_NAME", result.name.replace("aaa-", "zzz-"), True)] == [
        (one["name"], one["place"], one["notice"]) for one in summary["breaks"]
    ]
