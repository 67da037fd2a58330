"""The floor: what the machine has to do whoever writes the program.

Usage: python -m tests.bench.floor EXTRACT. Reads the CSV with polars and writes it in 1000-row
pieces to memory, beside the physical cost of sealing each piece on the cores at hand: AES-256-CFB
and SHA-1 over it and one RSA operation.
"""

from __future__ import annotations

import hashlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import polars as pl
from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES


class Physics:
    """Sealing with nothing around it; not a message anyone could read."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048).public_key()

    def seal(self, piece: bytes) -> int:
        """Do the arithmetic of one message."""
        secret = os.urandom(32)
        digest = hashlib.sha1(piece, usedforsecurity=False).digest()
        work = Cipher(AES(secret), CFB(bytes(16))).encryptor()
        return len(
            work.update(piece + digest)
            + work.finalize()
            + self._key.encrypt(secret, padding.PKCS1v15())
        )


def main(extract: Path) -> None:
    """Read, cut, seal; nothing is kept."""
    rows, physics = pl.read_csv(extract, infer_schema=False), Physics()
    with ThreadPoolExecutor(os.cpu_count()) as cores:
        sealed = []
        for piece in rows.iter_slices(1000):
            out = BytesIO()
            piece.write_csv(out)
            sealed.append(cores.submit(physics.seal, out.getvalue()))
        assert all(one.result() for one in sealed)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
