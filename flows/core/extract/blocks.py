"""What is read of an extract: kinds of physical lines, blocks of rows, and where all lines went."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

REFUSED = {"row": pl.UInt32, "line": pl.UInt32, "code": pl.String}


class Kind(IntEnum):
    """What a physical line is; the first two begin a row and have a row number."""

    RECORD = 0
    REFUSED = 1
    GOES_ON = 2
    BLANK = 3
    COMMENT = 4
    REPEATED_HEADER = 5
    TRAILER = 6


Kinds = npt.NDArray[np.uint8]


class Block(NamedTuple):
    """One block: `rows` (row, line, then the extract's headers, all text) and `refused` (row, line, code)."""

    rows: pl.DataFrame
    refused: pl.DataFrame


@dataclass
class ReadCounts:
    """Where the physical lines went, final after the iteration.

    lines = headers + rows + joined + blank + comments + repeated_headers + trailers; rows = accepted + refused.
    """

    lines: int = 0
    headers: int = 0
    rows: int = 0
    refused: int = 0
    joined: int = 0  # lines that go on with the record of a line before
    blank: int = 0
    comments: int = 0
    repeated_headers: int = 0
    trailers: int = 0
    trailer_count: int | None = None
