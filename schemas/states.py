"""What a row that was sent has come to: the states of `report/rows/`, links.csv, errors.csv and every count of them."""

from __future__ import annotations

LINKED = "linked"  # it has a verified link
ERROR = "error"  # the partner refused it, and said why
AWAITING = "awaiting"  # nobody has said anything of it yet
BROKEN = "broken"  # of an answer: it settles nothing, so the row stays awaiting and the break says why
