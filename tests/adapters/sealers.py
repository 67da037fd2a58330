"""What the tests of sealing share: a sealer in one call, chunks with a test card, and gpgs that
behave oddly.
"""

from __future__ import annotations

import shutil
import textwrap
from datetime import UTC, date, datetime
from pathlib import Path

from flows.adapters.gpg import PATIENCE
from flows.adapters.gpg_sealer import GpgSealer
from flows.extensions.simulator.portal_key import PortalKey
from flows.runs.openpgp import Compression
from flows.runs.sealing import Plain

TODAY = datetime.now(UTC).date()
CARD = b"4242424242424242"
CHUNKS = [
    Plain(f"bank-20261120-3f9c21aa-{number:05d}.csv", b"%d," % number + CARD + b"\n")
    for number in range(1, 6)
]


def sealer_to(
    *recipients: PortalKey,
    pins: tuple[str, ...] = (),
    armor: bool = False,
    today: date = TODAY,
    gpg: str = "gpg",
    patience: float = PATIENCE,
    compression: Compression = "zip",
) -> GpgSealer:
    """Return a sealer to the keys' own fingerprints, or to other pins."""
    pinned = pins or tuple(key.fingerprint for key in recipients)
    return GpgSealer(
        [key.public for key in recipients],
        pinned,
        armor=armor,
        compression=compression,
        today=today,
        gpg=gpg,
        patience=patience,
    )


def gpg_that(folder: Path, does: str) -> str:
    """Write a gpg that runs some shell lines first; `$real` is gpg, `$@` its arguments. Return its
    path.
    """
    script = folder / "gpg-odd"
    script.write_text(
        f'#!/bin/sh\nreal={shutil.which("gpg")}\n{textwrap.dedent(does)}\nexec $real "$@"\n'
    )
    script.chmod(0o700)
    return str(script)
