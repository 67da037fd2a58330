"""A team of two works a month with every act in `[four_eyes] acts`: what it costs them in steps.

Each act takes one step more, which is a line that the first step prints: nothing is looked up.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, get_args

import pytest
from click.testing import CliRunner

from flows.cli.main import main
from schemas.settings import Act
from tests.night import Bench
from tests.test_dry_runs import bank

NIGHTS = 20  # of a month
WHY = ("--reason", "ticket 4711")
ALWAYS = {"settings", "mapping"}  # changes of the TOML, of which a month may have none


class Team:
    """Anna, who types commands, and bert, who pastes what they print for a second person."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.typed = 0
        self.pasted = 0

    def does(self, *arguments: str | int) -> dict[str, Any]:
        """Type a command; where it needs two, paste its line as the other person."""
        self.typed += 1
        facts, code = self._run([*map(str, arguments), "--actor", "anna"])
        if code == 3 and "request" in facts:
            self.pasted += 1
            line = shlex.split(facts["next"].replace("YOUR_NAME", "bert"))
            facts, code = self._run(line[1:])
        assert code in (0, 3, 4), arguments
        return facts

    def reads(self, *arguments: str) -> dict[str, Any]:
        """Type a command that changes nothing."""
        self.typed += 1
        return self._run(arguments)[0]

    def _run(self, arguments: Any) -> tuple[dict[str, Any], int]:
        line = ["--config", str(self._folder), "--json", *arguments]
        done = CliRunner().invoke(main, line)
        return json.loads(done.stdout or "{}"), done.exit_code


def month(team: Team, bench: Bench, nights: int) -> Iterator[str]:
    """Work so many nights, and yield each act that was done."""
    deliveries = count(1)
    for night in range(1, nights + 1):
        extract = f"bank-202611{night:02d}.csv"
        bench.drop(10, extract, seed=night)
        team.does("submit", "bank", "--extract", extract, "--date", "2026-11-20")
        [run] = [str(each) for each in bench.runs.ids if _is_of(bench, str(each), extract)]
        if night % 5 == 1:
            team.does("outbox", "hold", run, 1, *WHY)
            yield "hold"
            team.does("outbox", "release", run, 1, *WHY)
            yield "release"
        team.does("outbox", "uploaded", run)
        bench.answer(fail_share=0.2, seed=night)
        team.does("ingest", "bank")
        team.reads("worklist", "bank")
        team.does("deliver", "bank")
        yield "deliver"
        team.does("deliver", "bank", "--confirm", next(deliveries), *WHY)
        yield "deliver"
        if night % 5 == 0:
            team.does("mend", "give-up", run, "--row", 1, *WHY)
            yield "give-up"
            team.does("person", "erase", run, "--row", 2, *WHY)
            yield "erase"
    team.does("purge", "bank")
    yield "purge"


def _is_of(bench: Bench, run: str, extract: str) -> bool:
    plan = bench.stored(run).plan
    return plan is not None and plan.source.key.endswith(extract)


@pytest.mark.slow
@pytest.mark.parametrize("nights", [NIGHTS])
def test_a_month_of_two_takes_one_pasted_line_more_for_each_act(
    tmp_path: Path, nights: int
) -> None:
    bench = bank(tmp_path)
    acts = [act for act in get_args(Act) if act not in ALWAYS]
    with (tmp_path / "bank.toml").open("a") as toml:
        toml.write(f"\n[four_eyes]\nacts = {json.dumps(acts)}\n")
    team = Team(tmp_path)

    done = list(month(team, bench, nights))

    assert len(done) == team.pasted
    print(f"{nights} nights: {team.typed} commands, {team.pasted} lines pasted by the other")
