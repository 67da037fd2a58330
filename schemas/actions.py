"""The six actions of a reason, as reports, filters and documents show them; and the gates an
operator may open.
"""

from collections.abc import Mapping
from typing import Final, Literal

FIX = "fix at source"  # the issuer corrects the row
RESUBMIT = "resubmit as is"  # the row is correct
RENEW = "renew"  # the card needs a new link
NOTHING = "nothing"
NOT_ELIGIBLE = "not eligible"  # nobody acts: the row is right, and its card gets no link
ASK = "ask the partner"

# A gate that an operator may open for a run.
Gate = Literal[
    "reject-rate",
    "ineligible-rate",
    "row-jump",
    "seen-before",
    "changed-extract",
    "sequence-gap",
    "drift",
    "one-value",
    "leavers",
    "newcomers",
    "unknown-status",
]

# the gate that refused a run, by the error that its refusal is recorded with
GATE_OF: Final[Mapping[str, Gate]] = {
    "RejectRateError": "reject-rate",
    "IneligibleRateError": "ineligible-rate",
    "RowJumpError": "row-jump",
    "RowFallError": "row-jump",
    "SeenBeforeError": "seen-before",
    "ChangedExtractError": "changed-extract",
    "SequenceGapError": "sequence-gap",
    "DriftError": "drift",
    "OneValueError": "one-value",
    "LeaversError": "leavers",
    "NewcomersError": "newcomers",
    "UnknownStatusError": "unknown-status",
}
