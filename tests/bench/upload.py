"""Usage: python -m tests.bench.upload FILE s3://bucket/key. Lays an extract into a bucket, as an
issuer would.
"""

from __future__ import annotations

import sys
from pathlib import Path

from flows.adapters.s3 import connect

if __name__ == "__main__":
    folder, _, name = sys.argv[2].rpartition("/")
    with Path(sys.argv[1]).open("rb") as file:
        connect(folder, threads=1).replace(name, iter(lambda: file.read(1 << 20), b""))
