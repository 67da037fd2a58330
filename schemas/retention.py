"""The table `[retention]` of the issuer's TOML: how long what names cardholders is kept once everything is answered."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from schemas.settings import Settings


class Retention(Settings):
    """Days after a run's last answer; what is unsent, unanswered or has an open break stays, however old.

    Links have no term of their own: they lie in the report, the outcomes and the result files alike, and go with
    the ledger. The result files are the operator's, like everything that is dropped.
    """

    chunks_days: int = Field(7, ge=0)  # sealed chunks: the portal has them, and the source makes them again
    ledger_days: int = Field(395, ge=63)  # ledger, outcomes, report: no shorter than a link lives (interface.md 8)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.chunks_days > self.ledger_days:
            raise ValueError("chunks_days is more than ledger_days: a chunk cannot be told apart without its ledger")
        return self
