"""Proofs of the audit trail by a key of AWS KMS, which never leaves it.

The worker needs `kms:GenerateMac`, who verifies `kms:VerifyMac`. Keys are symmetric, of the spec
HMAC_256.
"""

from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from flows.errors import TryAgainError
from flows.runs.identity import digest
from flows.runs.read_once import read_once

_ALGORITHM = "HMAC_SHA_256"
_KNOWN_BY = "kms:"


class KmsError(TryAgainError):
    """KMS did not make or check a proof."""

    message = "KMS answered {code} for the key {key} of the audit trail."
    next_step = (
        "The role needs kms:GenerateMac (workers) or kms:VerifyMac (`audit verify`) for that key, "
        "and the key must be enabled, of the spec HMAC_256. Then run {same_command} again."
    )


class KmsProver:
    """Makes and checks proofs by one key of KMS."""

    def __init__(self, key: str) -> None:
        self._key = key

    @read_once
    def _client(self) -> Any:
        return boto3.client("kms")

    @property
    def key(self) -> str:
        """What the key is known by."""
        return _KNOWN_BY + self._key

    def proof(self, content: bytes) -> str:
        """Return the MAC of a content's digest, 64 hexadecimal digits; KmsError."""
        answer = self._asked("generate_mac", content)
        mac: bytes = answer["Mac"]
        return mac.hex()

    def is_proof(self, proof: str, content: bytes, key: str) -> bool | None:
        """Return whether it is the proof of a content; None where another key made it; KmsError."""
        if key != self.key:
            return None
        if not content:  # asked for the key alone
            return True
        try:
            mac = bytes.fromhex(proof)
        except ValueError:
            return False
        return bool(self._asked("verify_mac", content, Mac=mac)["MacValid"])

    def _asked(self, method: str, content: bytes, **more: bytes) -> Any:
        try:
            return getattr(self._client, method)(
                KeyId=self._key,
                MacAlgorithm=_ALGORITHM,
                Message=digest(content).encode(),
                **more,
            )
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code == "KMSInvalidMacException":
                return {"MacValid": False}
        except BotoCoreError as error:
            code = type(error).__name__
        raise KmsError(code=code, key=self._key)
