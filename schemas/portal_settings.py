"""The table `[portal]` of the issuer's TOML: the partner's keys, the form of chunks, link hosts."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, model_validator

from schemas.portal import MAX_ROWS
from schemas.settings import Fingerprint, Settings, setting

_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"(\*\.({_LABEL}\.)+|({_LABEL}\.)+)[a-z]([a-z0-9-]{{0,61}}[a-z0-9])")


def _host(text: str) -> str:
    if len(text) > 253 or not _HOST.fullmatch(text.lower()):
        raise ValueError(
            "no host name such as links.example.com, or *.example.com for its subdomains"
        )
    return text.lower()


class PortalSettings(Settings):
    """The partner's portal: its public key, the form of chunks, and the hosts a link may point
    to.
    """

    key_file: str | tuple[str, ...] = setting(
        "portal.asc", "public key beside the TOML; more for escrow or rotation"
    )
    fingerprints: tuple[Fingerprint, ...] = setting(
        (), "full fingerprints of the keys, checked over another channel"
    )
    key_curves: tuple[Literal["Curve25519", "P-256", "P-384", "P-521"], ...] = setting(
        ("Curve25519",), "elliptic curves that a key may use, beside RSA of 2048 bits or more"
    )
    sealed: bool = setting(
        True, "`false`: chunks in the clear; for a test issuer and published test cards only"
    )
    template: str | None = setting(
        None, "the portal's blank template, where its header names or their order differ"
    )
    extension: str = setting(
        "csv.pgp", "extension of chunks; `csv` if unsealed", pattern=r"^[a-z0-9]+(\.[a-z0-9]+)*$"
    )
    armor: bool = setting(False, "write ASCII-armored messages")
    compression: Literal["zip", "none"] = setting("zip", "compression inside the OpenPGP message")
    rows_per_chunk: int = setting(
        MAX_ROWS, "rows of a chunk; the portal takes at most 1000", ge=1, le=MAX_ROWS
    )
    allowed_hosts: tuple[Annotated[str, AfterValidator(_host)], ...] = setting(
        ...,
        "hosts a card link may point to; a link to any other is a break. Names as they appear in "
        "links, so `xn--` for other alphabets; no address and no port; `*.example.com`: its "
        "subdomains",
        min_length=1,
    )
    day_first: bool | None = setting(
        None,
        "whether 03/04/2027 in a result is the 3rd of April or the 4th of March; unset: the other "
        "days of the file have to show it",
    )
    answer_within_hours: int = setting(
        48, "from upload to result; a chunk without a result is overdue after it", ge=1
    )
    link_within_hours: int = setting(
        72, "from an extract's drop to its links; reports show the share within it", ge=1
    )

    @model_validator(mode="before")
    @classmethod
    def _plain_extension(cls, table: Any) -> Any:
        """Name unsealed chunks `.csv` unless an extension is set."""
        if isinstance(table, dict) and table.get("sealed") is False:
            return {"extension": "csv", **table}
        return table

    @model_validator(mode="after")
    def _pinned(self) -> Self:
        if self.sealed and not self.fingerprints:
            raise ValueError("fingerprints: at least one, the full fingerprint of the portal's key")
        return self
