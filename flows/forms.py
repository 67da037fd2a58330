"""The choices of the forms in the Prefect UI."""

# Prefect makes a form from a flow's signature when the flow is imported, so the choice of issuers is read then:
# the one thing this package does at import. A new issuer stands in the forms after the next `prefect deploy`.
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from flows.wiring import config_folder, issuers
from schemas.breaks import KINDS

if TYPE_CHECKING:
    IssuerName = str
    BreakName = str
else:
    _there = issuers(config_folder())
    IssuerName = StrEnum("IssuerName", {name: name for name in _there}) if _there else str
    _breaks = [name for name, kind in KINDS.items() if not kind.notice]
    BreakName = StrEnum("BreakName", {name: name for name in ("none", *_breaks)})

RunIdText = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*-\d{8}-[0-9a-f]{8}(-r\d+)?$")]
ExtractName = Annotated[str, Field(pattern=r"^[^/\\.][^/\\]*(/[^/\\.][^/\\]*)*$", max_length=200)]
Reason = Annotated[str, Field(max_length=200, pattern=r"^[^0-9]*([0-9][^0-9]*){0,12}$")]  # no room for a card number
ChunkPlace = Annotated[str, Field(pattern=r"^(chunk [0-9]{1,5})?$")]
ChunkNumber = Annotated[int, Field(ge=1)]
