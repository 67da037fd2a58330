"""The four actions of a reason, as reports, filters and documents show them; and the gates an operator may open."""

from __future__ import annotations

from typing import Literal

FIX = "fix at source"  # the issuer corrects the row
RESUBMIT = "resubmit as is"  # the row is correct
NOTHING = "nothing"
ASK = "ask the partner"

Gate = Literal["reject-rate", "row-jump", "seen-before"]  # a gate that an operator may open for a run
