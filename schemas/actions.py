"""Who acts on a row that was refused: the four actions of a reason, as reports, filters and documents show them."""

from __future__ import annotations

FIX = "fix at source"  # the issuer corrects the row
RESUBMIT = "resubmit as is"  # nothing is wrong with the row
NOTHING = "nothing"
ASK = "ask the partner"
