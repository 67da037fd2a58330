"""What the bench works on: a folder with an issuer, a throwaway RSA-2048 key, and a generated
extract of test cards.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import NamedTuple

from flows.extensions.simulator.portal_key import PortalKey, make_portal_key
from tests.bench.measure import Contender

BANK = "bank"
DAY = date(2026, 11, 20)
EXTRACT = "bank-20261120.csv"
CARDLINK = str(Path(sys.executable).parent / "cardlink")
TOML = """\
issuer = "{issuer}"
root = "{root}"
test = true

[limits]
max_reject_rate = 0.5
max_error_rate = 0.5

[portal]
fingerprints = ["{fingerprint}"]
allowed_hosts = ["links.example.com"]
compression = "{compression}"
"""


class Scene(NamedTuple):
    """One issuer's folder: TOML, keys, and a directory store with one extract."""

    folder: Path
    key: PortalKey

    @property
    def extract(self) -> Path:
        """The extract."""
        return self.folder / "store" / BANK / "extracts" / EXTRACT

    def clear(self) -> None:
        """Leave the extract only: of the store, and no database."""
        bank = self.folder / "store" / BANK
        others = [path for path in bank.iterdir() if path.name != "extracts"]
        self.put_aside(*others, *self.folder.glob("cardlink.db*"))

    def put_aside(self, *folders: Path) -> None:
        """Move folders out of the way: ext4 makes files slowly right after many were removed."""
        aside = Path(tempfile.mkdtemp(prefix="aside-", dir=self.folder))
        for folder in folders:
            with suppress(FileNotFoundError):
                folder.rename(aside / folder.name)

    def configure(self, *, root: str = "store", compression: str = "zip") -> None:
        """Write the issuer's TOML."""
        write_toml(self.folder, BANK, self.key, root=root, compression=compression)

    def submit(self, name: str = "cardlink submit", *, compression: str = "zip") -> Contender:
        """Return the real command on this scene."""

        def clear() -> None:
            self.clear()
            self.configure(compression=compression)

        return Contender(name, clear, [CARDLINK, "--config", str(self.folder), "submit", BANK])


def make_scene(
    folder: Path, rows: int, key: PortalKey | None = None, bad: float = 0.01, seed: int = 0
) -> Scene:
    """Make a scene with an extract of `rows` rows, a share `bad` of them with a flaw."""
    scene = Scene(folder, key or make_portal_key())
    scene.extract.parent.mkdir(parents=True)
    # By a child: a child's peak of memory begins at its parent's, so the bench itself has to stay
    # small.
    shape = ["--rows", str(rows), "--bad", str(bad), "--date", DAY.isoformat(), "--seed", str(seed)]
    subprocess.run(
        [CARDLINK, "sample", str(scene.extract), *shape], check=True, capture_output=True
    )
    (folder / "portal.asc").write_bytes(scene.key.public)
    (folder / "secret.asc").write_bytes(scene.key.secret)
    scene.configure()
    return scene


def write_toml(
    folder: Path, issuer: str, key: PortalKey, *, root: str = "store", compression: str = "zip"
) -> None:
    """Write one issuer's TOML beside the public key."""
    text = TOML.format(
        issuer=issuer, root=root, fingerprint=key.fingerprint, compression=compression
    )
    (folder / f"{issuer}.toml").write_text(text)
