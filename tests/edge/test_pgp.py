"""Real gpg seals to pinned keys and opens again; whatever goes wrong has a name and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.core.errors import BugError, CardlinkError, OperatorError
from flows.core.key_errors import (
    GpgHungError,
    GpgMissingError,
    KeyCannotEncryptError,
    KeyExpiredError,
    KeyNotPinnedError,
    KeyRevokedError,
    KeyUnknownError,
    KeyUnreadableError,
    ManyKeysError,
    SealBrokenError,
    SealedUnreadableError,
    SecretKeyGivenError,
    SecretKeyUnreadableError,
)
from flows.core.openpgp import inspect
from flows.core.ports import Plain, Sealed
from flows.edge.gpg import PATIENCE
from flows.edge.pgp import GpgOpener, GpgSealer, PortalKey, trial_seal
from tests import keys

TODAY = datetime.now(UTC).date()
CARD = b"4242424242424242"
CHUNKS = [Plain(f"bank-20261120-3f9c21aa-{number:05d}.csv", b"%d," % number + CARD + b"\n") for number in range(1, 6)]


def sealer_to(
    *recipients: PortalKey,
    pins: tuple[str, ...] = (),
    armor: bool = False,
    today: date = TODAY,
    gpg: str = "gpg",
    patience: float = PATIENCE,
) -> GpgSealer:
    """Return a sealer to the keys' own fingerprints, or to other pins."""
    pinned = pins or tuple(key.fingerprint for key in recipients)
    return GpgSealer(
        [key.public for key in recipients],
        pinned,
        armor=armor,
        compression="zip",
        today=today,
        gpg=gpg,
        patience=patience,
    )


def gpg_that(folder: Path, does: str) -> str:
    """Write a gpg that runs some shell lines first; `$real` is gpg, `$@` its arguments. Return its path."""
    script = folder / "gpg-odd"
    script.write_text(f'#!/bin/sh\nreal={shutil.which("gpg")}\n{textwrap.dedent(does)}\nexec $real "$@"\n')
    script.chmod(0o700)
    return str(script)


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


@settings(max_examples=15, deadline=None)
@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=4), st.booleans())
def test_what_is_sealed_opens_to_the_same_bytes(contents: list[bytes], armor: bool) -> None:
    chunks = [Plain(f"c-{number}.csv", content) for number, content in enumerate(contents)]
    key = keys.sound()

    with sealer_to(key, armor=armor) as sealer, GpgOpener([key.secret]) as opener:
        opened = [opener.open(sealed.data, 3000) for sealed in sealer.seal(chunks)]

    assert contents == opened


@pytest.mark.parametrize("algorithm", ["rsa2048", "rsa3072", "rsa4096", "curve25519"])
def test_every_usual_kind_of_key_can_be_sealed_to(algorithm: str) -> None:
    key = keys.sound(algorithm)

    with sealer_to(key) as sealer, GpgOpener([key.secret]) as opener:
        trial_seal(sealer)
        opened = opener.open(sealer.seal(CHUNKS[:1])[0].data, 100)

    assert CHUNKS[0].data == opened


def test_a_group_is_sealed_in_order_and_under_its_names() -> None:
    with sealer_to(keys.sound()) as sealer:
        sealed = sealer.seal(CHUNKS)

    assert [(chunk.name, "") for chunk in CHUNKS] == [(one.name, one.trouble) for one in sealed]


def test_a_group_takes_one_gpg_process(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    gpg = gpg_that(tmp_path, f'case "$*" in *--encrypt*) echo >> {calls};; esac')

    with sealer_to(keys.sound(), gpg=gpg) as sealer:
        sealer.seal(CHUNKS)

    assert "\n" == calls.read_text()


def test_more_chunks_than_a_group_holds_are_sealed_in_several() -> None:
    chunks = [Plain(f"c-{number}.csv", b"%d" % number) for number in range(130)]
    key = keys.sound()

    with sealer_to(key) as sealer, GpgOpener([key.secret]) as opener:
        sealed = sealer.seal(chunks)
        opened = [opener.open(sealed[at].data, 10) for at in (0, 63, 64, 129)]

    assert [b"0", b"63", b"64", b"129"] == opened


def test_two_threads_can_seal_at_once() -> None:
    groups = [[Plain(f"t-{thread}-{n}.csv", b"%d-%d" % (thread, n)) for n in range(32)] for thread in range(4)]
    key = keys.sound()

    with sealer_to(key) as sealer, GpgOpener([key.secret]) as opener, ThreadPoolExecutor(2) as threads:
        sealed = list(threads.map(sealer.seal, groups))
        opened = [opener.open(group[31].data, 10) for group in sealed]

    assert [b"0-31", b"1-31", b"2-31", b"3-31"] == opened


def test_no_chunks_are_no_trouble() -> None:
    with sealer_to(keys.sound()) as sealer:
        assert [] == sealer.seal([])


@pytest.mark.parametrize("name", ["../c.csv", "a/b.csv", "two\nlines.csv", "", "-o.csv"])
def test_a_chunk_name_that_is_no_plain_file_name_is_our_bug(name: str) -> None:
    with sealer_to(keys.sound()) as sealer, pytest.raises(BugError):
        sealer.seal([Plain(name, b"")])


def test_two_chunks_of_one_name_are_our_bug() -> None:
    with sealer_to(keys.sound()) as sealer, pytest.raises(BugError):
        sealer.seal([CHUNKS[0], CHUNKS[0]])


# The keys: refused with their fingerprint and the cause, before anything is sealed.


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (keys.expired, KeyExpiredError),
        (keys.with_expired_subkey, KeyExpiredError),
        (keys.revoked, KeyRevokedError),
        (keys.sign_only, KeyCannotEncryptError),
    ],
)
def test_an_unsound_key_is_refused_by_fingerprint_and_cause(
    key: Callable[[], PortalKey], error: type[CardlinkError]
) -> None:
    unsound = key()

    with pytest.raises(error) as caught:
        sealer_to(unsound)

    assert unsound.fingerprint in str(caught.value)


def test_a_key_with_a_renewed_subkey_is_sealed_to_the_renewed_one() -> None:
    key = keys.with_renewed_subkey()

    with sealer_to(key) as sealer, GpgOpener([key.secret]) as opener:
        opened = opener.open(sealer.seal(CHUNKS[:1])[0].data, 100)

    assert CHUNKS[0].data == opened


def test_another_key_than_the_pinned_one_is_refused_and_named() -> None:
    pinned, found = keys.sound(), keys.sound(copy=2)

    with pytest.raises(KeyNotPinnedError) as caught:
        sealer_to(found, pins=(pinned.fingerprint,))

    assert (pinned.fingerprint, found.fingerprint) == caught.value.args


def test_a_pin_without_a_key_is_refused_and_named() -> None:
    key, other = keys.sound(), keys.sound(copy=2)

    with pytest.raises(KeyUnknownError) as caught:
        sealer_to(key, pins=(key.fingerprint, other.fingerprint))

    assert (other.fingerprint,) == caught.value.args


def test_a_user_id_or_a_short_id_is_no_pin() -> None:
    key = keys.sound()

    for pin in ("portal@example.com", key.fingerprint[-16:], key.fingerprint[-8:]):
        with pytest.raises(OperatorError):
            sealer_to(key, pins=(pin,))


def test_a_secret_key_in_place_of_the_public_one_is_refused() -> None:
    key = keys.sound()

    with pytest.raises(SecretKeyGivenError) as caught:
        sealer_to(key._replace(public=key.secret))

    assert (1, 1, key.fingerprint) == caught.value.args


def test_two_keys_in_one_file_are_refused() -> None:
    key, other = keys.sound(), keys.sound(copy=2)

    with pytest.raises(ManyKeysError) as caught:
        sealer_to(key._replace(public=key.public + other.public))

    assert (1, 1, 2) == caught.value.args


@pytest.mark.parametrize("content", [b"", b"no key", b"\x00" * 50, b"\x99\x00\x05 short", b"\x99\x00\x03abc"])
def test_a_file_that_holds_no_key_is_refused(content: bytes) -> None:
    with pytest.raises(KeyUnreadableError) as caught:
        sealer_to(keys.sound()._replace(public=content))

    assert (1, 1) == caught.value.args[:2]
    assert caught.value.__context__ is None


def test_a_key_cut_short_is_refused() -> None:
    key = keys.sound()

    with pytest.raises(KeyUnreadableError) as caught:
        sealer_to(key._replace(public=key.public[:200]))

    assert (1, 1, "armor.end.missing") == caught.value.args


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\r\n\r\n", b"Your key:\n\n"])
def test_a_key_pasted_with_other_line_ends_or_text_around_it_is_taken(before: bytes) -> None:
    key = keys.sound()
    pasted = before + key.public.replace(b"\n", b"\r\n")

    with sealer_to(key._replace(public=pasted)) as sealer:
        assert (key.fingerprint,) == sealer.fingerprints


@pytest.mark.parametrize(("days", "warned"), [(31, False), (30, True), (1, True)])
def test_a_key_that_ends_within_thirty_days_is_warned_of(days: int, warned: bool) -> None:
    key = keys.lasting(40)
    with sealer_to(key) as sealer:
        end = sealer.key_expiry[key.fingerprint]
    assert end is not None

    with sealer_to(key, today=end - timedelta(days=days)) as sealer:
        warnings = sealer.warnings

    assert warned == any(key.fingerprint in line and str(end) in line for line in warnings)


def test_a_key_is_refused_from_the_day_it_ends_on() -> None:
    key = keys.lasting(40)
    with sealer_to(key) as sealer:
        end = sealer.key_expiry[key.fingerprint]
    assert end is not None

    with pytest.raises(KeyExpiredError) as caught:
        sealer_to(key, today=end)

    assert (key.fingerprint, str(end)) == caught.value.args


def test_several_recipients_can_each_open_and_all_show_outside() -> None:
    portal, escrow = keys.sound("rsa2048"), keys.sound()

    with sealer_to(portal, escrow) as sealer:
        sealed = sealer.seal(CHUNKS[:1])[0]
    with GpgOpener([portal.secret]) as one, GpgOpener([escrow.secret]) as other:
        opened = [one.open(sealed.data, 100), other.open(sealed.data, 100)]

    assert 2 == len(inspect(sealed.data).recipients)
    assert [CHUNKS[0].data] * 2 == opened


def test_with_old_and_new_key_in_the_ring_only_the_pinned_one_can_open() -> None:
    old, new = keys.sound(), keys.sound(copy=2)

    with sealer_to(old, new, pins=(new.fingerprint,)) as sealer:
        sealed = sealer.seal(CHUNKS[:1])[0]

    with GpgOpener([new.secret]) as opener:
        assert CHUNKS[0].data == opener.open(sealed.data, 100)
    with GpgOpener([old.secret]) as opener, pytest.raises(SealedUnreadableError) as caught:
        opener.open(sealed.data, 100)
    assert ("key.secret.missing",) == caught.value.args


# gpg itself: missing, hung, killed, lying.


def test_a_missing_gpg_says_what_to_install() -> None:
    with pytest.raises(GpgMissingError, match="Install GnuPG"):
        sealer_to(keys.sound(), gpg="gpg-that-is-not-there")


def test_a_gpg_that_does_not_start_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(GpgMissingError, match="Install GnuPG"):
        sealer_to(keys.sound(), gpg=gpg_that(tmp_path, "exit 1"))


@pytest.mark.parametrize("odd", ["exec sleep 30", "kill -9 $$"])
def test_a_hung_or_killed_gpg_is_trouble_of_every_chunk_in_the_group(tmp_path: Path, odd: str) -> None:
    gpg = gpg_that(tmp_path, f'case "$*" in *--encrypt*) {odd};; esac')
    chunks = [Plain("large.csv", bytes(10**6)), *CHUNKS]

    with sealer_to(keys.sound(), gpg=gpg, patience=2) as sealer:
        sealed = sealer.seal(chunks)

    assert [Sealed(chunk.name, b"", "seal.process.killed") for chunk in chunks] == sealed


def test_a_gpg_that_hangs_from_the_start_is_passing_trouble(tmp_path: Path) -> None:
    with pytest.raises(GpgHungError):
        sealer_to(keys.sound(), gpg=gpg_that(tmp_path, "exec sleep 30"), patience=0.3)


def test_where_one_chunk_of_a_group_does_not_work_the_others_stand(tmp_path: Path) -> None:
    bad = CHUNKS[2].name
    gpg = gpg_that(tmp_path, f'case "$*" in *--multifile*) exit 2;; *--set-filename\\ {bad}*) exit 2;; esac')
    key = keys.sound()

    with sealer_to(key, gpg=gpg) as sealer, GpgOpener([key.secret]) as opener:
        sealed = sealer.seal(CHUNKS)
        opened = [opener.open(one.data, 100) if one.data else b"" for one in sealed]

    assert ["", "", "seal.process.refused", "", ""] == [one.trouble for one in sealed]
    assert [b"" if chunk.name == bad else chunk.data for chunk in CHUNKS] == opened


def test_a_message_cut_by_a_full_disk_is_trouble_though_gpg_says_ok(tmp_path: Path) -> None:
    gpg = gpg_that(
        tmp_path, 'case "$*" in *--multifile*) exit 2;; *--encrypt*) $real "$@" | head -c 150; exit 0;; esac'
    )

    with sealer_to(keys.sound(), gpg=gpg) as sealer:
        sealed = sealer.seal(CHUNKS[:1])

    assert [Sealed(CHUNKS[0].name, b"", "seal.packet.length.beyond_end")] == sealed


def test_a_message_sealed_to_another_key_is_trouble_and_fails_the_trial(tmp_path: Path) -> None:
    wanted, other = keys.sound(), keys.sound(copy=2)
    swap = f'set -- $(echo "$@" | sed s/{wanted.fingerprint}/{other.fingerprint}/)'
    gpg = gpg_that(tmp_path, f'case "$*" in *--encrypt*) {swap};; esac')

    with sealer_to(wanted, other, pins=(wanted.fingerprint,), gpg=gpg) as sealer:
        sealed = sealer.seal(CHUNKS[:1])
        with pytest.raises(SealBrokenError, match=wanted.fingerprint):
            trial_seal(sealer)

    assert [Sealed(CHUNKS[0].name, b"", "seal.recipients.different")] == sealed


# Opening: bounded, whole, and without a word of the content in any error.


def test_a_message_larger_than_the_limit_is_refused_whatever_its_sealed_size() -> None:
    key = keys.sound()

    with sealer_to(key) as sealer, GpgOpener([key.secret]) as opener:
        bomb = sealer.seal([Plain("bomb.csv", bytes(20_000_000))])[0].data
        with pytest.raises(SealedUnreadableError) as caught:
            opener.open(bomb, 1000)

    assert ("message.content.too_large",) == caught.value.args
    assert len(bomb) < 500_000


@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b"\r\n", b"Dear issuer:\n\n"])
def test_an_armored_message_with_other_line_ends_or_text_around_it_opens(before: bytes) -> None:
    key = keys.sound()

    with sealer_to(key, armor=True) as sealer, GpgOpener([key.secret]) as opener:
        sealed = sealer.seal(CHUNKS[:1])[0].data
        opened = opener.open(before + sealed.replace(b"\n", b"\r\n"), 100)

    assert CHUNKS[0].data == opened


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_a_message_as_large_as_the_limit_opens(size: int) -> None:
    key = keys.sound()

    with sealer_to(key) as sealer, GpgOpener([key.secret]) as opener:
        opened = opener.open(sealer.seal([Plain("c.csv", bytes(size))])[0].data, max(size, 1))

    assert bytes(size) == opened


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_message_with_one_bit_turned_or_cut_is_refused_without_its_content(data: st.DataObject) -> None:
    whole = bytearray(damaged_message())
    at = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        whole[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del whole[at:]

    with GpgOpener([keys.sound().secret]) as opener, pytest.raises(SealedUnreadableError) as caught:
        opener.open(bytes(whole), 10_000)

    assert caught.value.__context__ is None
    assert str(caught.value).isascii()


def damaged_message() -> bytes:
    """Return a message over one card, to be damaged."""
    with sealer_to(keys.sound()) as sealer:
        return sealer.seal(CHUNKS[:1])[0].data


@pytest.mark.parametrize("content", [b"", b"cuid,pan\n1,4242424242424242\n", b"\xcb\x0bt\x00\x00\x00\x00\x00plain"])
def test_what_is_not_sealed_is_not_opened(content: bytes) -> None:
    with GpgOpener([keys.sound().secret]) as opener, pytest.raises(SealedUnreadableError):
        opener.open(content, 1000)


def test_a_key_behind_a_passphrase_opens_with_it_only_and_never_asks() -> None:
    key = keys.sound(passphrase="one two three")
    with sealer_to(key) as sealer:
        sealed = sealer.seal(CHUNKS[:1])[0].data

    with GpgOpener([key.secret], "one two three") as opener:
        assert CHUNKS[0].data == opener.open(sealed, 100)
    for wrong in ("one two", "", None):
        with GpgOpener([key.secret], wrong) as opener, pytest.raises(SealedUnreadableError) as caught:
            opener.open(sealed, 100)
        assert ("key.passphrase.wrong",) == caught.value.args


def test_a_file_without_a_secret_key_is_refused_by_its_number() -> None:
    key = keys.sound()

    for content in (b"", b"no key", key.public):
        with pytest.raises(SecretKeyUnreadableError) as caught:
            GpgOpener([key.secret, content])

        assert (2, 2) == caught.value.args


# What stays behind: nothing.

NIGHT = """
import os, sys
from datetime import date
from flows.core.ports import Plain
from flows.edge.gpg import Keyring
from flows.edge.pgp import GpgOpener, GpgSealer, make_portal_key

key = make_portal_key("curve25519")
sealer = GpgSealer([key.public], [key.fingerprint], armor=False, compression="zip", today=date.today())
opener = GpgOpener([key.secret])
opener.open(sealer.seal([Plain("c.csv", b"4242424242424242")])[0].data, 100)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), 9)
sealer.close(), opener.close()
"""


@contextmanager
def short_temporary_folder() -> Iterator[Path]:
    """Give an empty folder whose path leaves room for an agent's socket."""
    folder = Path(tempfile.mkdtemp(prefix="left-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def night(folder: Path, end: str) -> None:
    """Seal and open in a process of its own whose temporary files lie in a folder."""
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(Path.cwd())}
    subprocess.run([sys.executable, "-c", NIGHT, end], env=environment, check=end == "well")


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of processes that name a folder."""
    lines = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = process.read_bytes().replace(b"\0", b" ").decode("latin-1")
        except OSError:
            continue
        if str(folder) in line:
            lines.append(line)
    return lines


def test_after_a_night_no_file_and_no_process_is_left() -> None:
    with short_temporary_folder() as folder:
        night(folder, "well")

        assert [] == list(folder.iterdir())
        assert [] == processes_of(folder)


SWEEP = "from flows.edge.gpg import sweep_dead_homes; print(sweep_dead_homes())"


def test_homes_of_a_killed_process_are_swept_and_those_of_the_living_kept() -> None:
    with short_temporary_folder() as folder:
        night(folder, "killed")
        left = len(list(folder.iterdir()))
        living = folder / f"cardlink-gpg-{os.getpid()}-alive"
        living.mkdir()
        environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(Path.cwd())}

        subprocess.run([sys.executable, "-c", SWEEP], env=environment, check=True, capture_output=True)

        assert 2 == left
        assert [living] == list(folder.iterdir())
        assert [] == processes_of(folder)


def test_plaintext_is_in_no_file_of_the_home_while_gpg_works(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    search = f'$real "$@"; code=$?; find "$home" -type f -exec grep -l {CARD.decode()} {{}} + >> {seen}; '
    home = 'home=$(echo "$*" | sed "s/.*--homedir \\([^ ]*\\).*/\\1/")'
    count = f'find "$home" -type l >> {seen}.links; exit $code'
    gpg = gpg_that(tmp_path, f'case "$*" in *--encrypt*) {home}; {search}{count};; esac')

    with sealer_to(keys.sound(), gpg=gpg) as sealer:
        sealed = sealer.seal(CHUNKS)

    assert [""] * len(CHUNKS) == [one.trouble for one in sealed]
    assert "" == seen.read_text()
    assert len(CHUNKS) == len(Path(f"{seen}.links").read_text().splitlines())


def test_a_key_pair_shows_no_secret_in_its_repr() -> None:
    key = keys.sound()

    assert f"PortalKey({key.fingerprint})" == repr(key)


def test_the_log_of_python_gnupg_stays_quiet(caplog: pytest.LogCaptureFixture) -> None:
    key = keys.sound()
    caplog.set_level("DEBUG")

    with sealer_to(key) as sealer, GpgOpener([key.secret]) as opener:
        opener.open(sealer.seal(CHUNKS[:1])[0].data, 100)

    assert [] == caplog.messages


# Other programs read what we seal.


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
def test_sequoia_opens_a_chunk(algorithm: str, armor: bool) -> None:
    sequoia = pytest.importorskip("pysequoia")
    key = keys.sound(algorithm)
    with sealer_to(key, armor=armor) as sealer:
        sealed = sealer.seal(CHUNKS[:1])[0].data

    opened = sequoia.decrypt(bytes=sealed, decryptor=sequoia.Tsk.from_bytes(key.secret).decryptor())

    assert CHUNKS[0].data == opened.bytes


OPENPGP_JS = """
import { readFileSync } from 'node:fs';
import * as openpgp from 'openpgp';
const decryptionKeys = await openpgp.readPrivateKey({ armoredKey: readFileSync('secret.asc', 'utf8') });
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


@pytest.mark.parametrize("algorithm", ["rsa2048", "curve25519"])
def test_openpgp_js_opens_a_chunk(openpgp_js: Path, algorithm: str) -> None:
    key = keys.sound(algorithm)
    with sealer_to(key) as sealer:
        (openpgp_js / "chunk.pgp").write_bytes(sealer.seal(CHUNKS[:1])[0].data)
    (openpgp_js / "secret.asc").write_bytes(key.secret)

    opened = subprocess.run(["node", "open.mjs"], cwd=openpgp_js, capture_output=True, check=True).stdout

    assert CHUNKS[0].data == opened
