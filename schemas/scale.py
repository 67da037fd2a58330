"""The table `[scale]` of the issuer's TOML: in how many parts an extract is read, and who reads them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.settings import Settings


class Scale(Settings):
    """One part and one machine unless said otherwise; rows stay where they are read, only references travel."""

    parts: int = Field(1, ge=1, le=1024)  # ranges the extract is cut into; each is read and sealed by one worker
    least_part_mib: int = Field(64, ge=4)  # no part is smaller: reading twice has to pay
    workers: int = Field(2, ge=1, le=1024)  # parts under way at a time
    runner: Literal["threads", "dask"] = "threads"  # in a Prefect flow: this process, or a Dask cluster
    scheduler: str = ""  # address of the cluster's scheduler; "": a cluster of its own on this machine
