"""A Prefect that starts runs when the test says so."""

from __future__ import annotations

from flows.arrivals.starts import NotDeployedError, ServerAwayError
from flows.arrivals.targets import Target


class FakePrefect:
    """Runs of deployments, which the test begins, ends and cancels.

    `states` has the state of each run: new, running, ended or cancelled.
    """

    def __init__(self) -> None:
        self.is_away = False
        self.missing = set[Target]()
        self.states: dict[str, str] = {}
        self._runs: dict[Target, list[str]] = {}

    def begin(self, target: Target) -> str | None:
        """Return a run that has not begun, None where one is under way."""
        self._answer()
        if target in self.missing:
            raise NotDeployedError(deployment=target.deployment)
        runs = self._runs.setdefault(target, [])
        for run in runs:
            if self.states[run] in ("new", "running"):
                return run if self.states[run] == "new" else None
        run = f"{target.flow}-{target.issuer}-{len(runs) + 1}"
        runs.append(run)
        self.states[run] = "new"
        return run

    def has_begun(self, run: str) -> bool | None:
        """Return whether a run has begun, None where it was cancelled."""
        self._answer()
        state = self.states[run]
        return None if state == "cancelled" else state != "new"

    def _answer(self) -> None:
        if self.is_away:
            raise ServerAwayError(reason="it cannot be reached (ConnectError)")
