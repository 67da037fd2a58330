"""The four actions of a reason, as reports, filters and documents show them."""

from __future__ import annotations

FIX = "fix at source"  # the issuer corrects the row
RESUBMIT = "resubmit as is"  # the row is correct
NOTHING = "nothing"
ASK = "ask the partner"
