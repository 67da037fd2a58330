"""What became of one link: its opening, its cardholder's jobs, and which of them the cardholder counts by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from flows.core.results.jobs import Job, best, merged


class Placement(NamedTuple):
    """One linked row as far as the service told of it (`schemas.placements.Placements`)."""

    row: int
    cuid: str | None
    last_4: str | None
    cardholder_id: str | None = None
    opened: bool = False
    jobs: tuple[Job, ...] = ()
    reads: int = 0
    trouble: str | None = None
    seen: datetime | None = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Placement:
        """Read a record of the table back."""
        jobs = tuple(Job(**one) for one in record["jobs"] or ())
        return cls(**{name: record[name] for name in cls._fields if name != "jobs"}, jobs=jobs)

    def hear(self, jobs: Iterable[Job]) -> Placement:
        """Add what was told of jobs: whoever has one has opened the link."""
        together = merged((*self.jobs, *jobs))
        return self._replace(jobs=together, opened=self.opened or bool(together))

    def record(self) -> dict[str, Any]:
        """Return the record of the table."""
        chosen, placed = best(self.jobs), any(one.placed for one in self.jobs)
        told = chosen._asdict() if chosen else dict.fromkeys(Job._fields)
        return {
            **self._asdict(),
            "jobs": [one._asdict() for one in self.jobs],
            "authenticated": any(one.authenticated for one in self.jobs),
            **{name: told[name] for name in ("job_id", "status", "termination_type", "merchant_site")},
            "running": any(one.running for one in self.jobs) and not placed,
            "settled": placed and all(one.recorded for one in self.jobs),
        }
