"""`python -m tests.quarter --nights 90 --rows 20000`: a quarter in full size, and the recount at
its end.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Collection
from datetime import date
from pathlib import Path

from flows.reports.across import reconcile_runs
from tests.quarter.life import Plan, Quarter, asked, lived
from tests.quarter.recount import Witness, cardholders, forgotten, sent_without_cause


def main() -> int:
    """Live through a quarter, print what happened and what does not agree; 1 where anything does
    not.
    """
    plan = asked("quarter", Plan())
    witness = Witness()
    with (
        tempfile.TemporaryDirectory(prefix="quarter-") as folder,
        lived(Path(folder), plan, witness, _print_line) as quarter,
    ):
        wrong, causes = sent_without_cause(quarter)
        faults: dict[str, Collection[str]] = {
            "reports that differ from the books": witness.differing(quarter),
            "cards sent twice without cause": wrong,
            "cardholders left without a link": forgotten(quarter),
            "purged too soon": witness.too_soon,
        }
        facts = reconcile_runs(quarter.bench.context)
        counted = cardholders(quarter, date.fromisoformat(facts["cardholders_since"]), witness.gone)
        faults["cardholders counted otherwise"] = [
            f"{state}: {number} by the books, {facts['cardholders'][state]} reported"
            for state, number in counted.items()
            if number != facts["cardholders"][state]
        ]
        for line in _reported(quarter, witness, causes):
            _print_line(line)
    for name, found in faults.items():
        _print_line(f"{name}: {len(found)} {', '.join(map(str, list(found)[:5]))}".rstrip())
    return int(any(faults.values()))


def _reported(quarter: Quarter, witness: Witness, causes: Counter[str]) -> list[str]:
    """Return what happened, in figures."""
    runs = quarter.runs()
    kinds = Counter(run.selection.kind if run.selection else "night" for run in runs)
    rows = Counter(
        {
            fate: sum(getattr(run.counts, fate) for run in runs)
            for fate in ("read", "submitted", "suppressed")
        }
    )
    states = Counter("linked" if row.url else "error" for row in quarter.partner.delivered.values())
    gone = Counter(
        lot.record.part for _, due in quarter.purged for lot in due.lots if not lot.resumed
    )
    cpu = sum(os.times()[:4])
    return [
        f"runs {dict(kinds)}, of which {len(witness.gone)} are purged and were held against the books before",
        f"rows {dict(rows)}, received by the portal {len(quarter.partner.received):,}, delivered {dict(states)}",
        f"sent again because of {dict(causes)}",
        f"steps {dict(sorted(quarter.did.items()))}",
        f"purged {dict(gone)}, {sum(lot.record.bytes for _, due in quarter.purged for lot in due.lots):,} bytes",
        f"CPU {cpu:.0f} s",
    ]


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
