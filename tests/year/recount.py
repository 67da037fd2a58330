"""The oracle: what an issuer's files held, held against what the partner opened and answered.

It knows nothing of how the pipeline decides. Of the store it reads which file a run is of, and what
the ledger says became of each row; whether that is right it judges by the files, the cards opened
from chunks, and the answers.
"""

from __future__ import annotations

import hashlib
import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise

from flows.reports.across import reconcile_runs
from flows.runs.stored_run import StoredRun
from flows.simulator.portal import Booked
from schemas.ledger import DUPLICATE, REJECTED, SUBMITTED, SUPPRESSED
from tests.quarter.life import FIRST
from tests.year.deliveries import Card, Drop, Line
from tests.year.life import TOLD, Bank, Run, Sent, Year


@dataclass
class Findings:
    """What is wrong, each with bank, night and whose it is (never a card), and figures of what is
    right.
    """

    twice: list[str] = field(default_factory=list)  # cards sent again without anybody's word
    # rows fit to be sent that were neither sent nor rightly held
    lost: list[str] = field(default_factory=list)
    # rows that were sent, or called duplicates, and ought not
    unfit: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)  # cut files that passed
    # whole files that nobody dismissed and that became no run
    left: list[str] = field(default_factory=list)
    unbalanced: list[str] = field(default_factory=list)
    # cards active in two runs that are counted otherwise
    miscounted: list[str] = field(default_factory=list)
    # runs whose output does not say how many rows were held
    untold: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)  # refusals that no line of theirs settles
    odd: list[str] = field(default_factory=list)  # commands that ended as none should
    figures: Counter[str] = field(default_factory=Counter)

    @property
    def wrong(self) -> dict[str, list[str]]:
        """What is wrong, by name."""
        return {name: found for name, found in vars(self).items() if name != "figures" and found}


def recount(year: Year) -> Findings:
    """Recount the year of every bank."""
    findings = Findings()
    for bank in year.banks:
        Recount(year, bank, findings).run()
    findings.stuck += year.desk.stuck
    findings.odd += [
        f"{shlex.join(said.words)} ended with {said.code}: {said.text}" for said in year.desk.odd
    ]
    findings.figures.update(
        {f"settled: {how}": number for how, number in year.desk.settled.items()}
    )
    findings.figures.update({f"commands: {what}": number for what, number in year.did.items()})
    return findings


class Recount:
    """The recount of one bank."""

    def __init__(self, year: Year, bank: Bank, findings: Findings) -> None:
        self._year, self._bank, self._findings = year, bank, findings
        self._drops = {
            hashlib.sha256(drop.content).hexdigest(): drop for drop in reversed(bank.drops)
        }
        self._whose: dict[Card, Line] = {}
        for line in {line for drop in bank.drops for line in drop.lines}:
            self._whose.setdefault(year.people.card(line), line)
        self._at = {(one.chunk, one.position): one for one in bank.sent}
        self._attempts: dict[int, list[tuple[Line, Sent]]] = defaultdict(list)
        for one in bank.sent:
            whose = self._whose.get(one.card)
            if whose is None:
                findings.unfit.append(
                    f"{bank.name}, night {one.night}, {one.run}: a card that no file held"
                )
            else:
                self._attempts[whose.person].append((whose, one))

    def run(self) -> None:
        """Look at every run, every file without one, and every card that was sent again."""
        runs: dict[str, list[Run]] = defaultdict(list)
        for run in self._bank.runs.values():
            runs[run.manifest.source.sha256].append(run)
            drop = self._drops[run.manifest.source.sha256]
            self._judge_cut(run, drop)
            self._judge_rows(run, drop)
            self._judge_counts(run)
        self._judge_files(runs.keys())
        self._judge_repeats()
        self._judge_active()
        self._findings.figures.update(f"files: {drop.kind}" for drop in self._bank.drops)

    def _judge_cut(self, run: Run, drop: Drop) -> None:
        if drop.whole == "cut":
            self._findings.cut.append(
                f"{self._where(run)}: {len(drop.content)} bytes of {drop.name}"
            )
        elif drop.whole != "whole":
            self._findings.figures["cut files that passed, and nothing could prove it"] += 1

    def _judge_rows(self, run: Run, drop: Drop) -> None:
        """Hold what the ledger says of every row against the truth."""
        if drop.whole == "cut":
            return
        lines, figures = Counter(map(self._key, drop.lines)), self._findings.figures
        ledger = self._bank.bench.ledger(run.manifest.run)
        names = {chunk.number: chunk.name for chunk in run.manifest.chunks}
        if ledger.height != len(drop.lines):
            self._findings.lost.append(
                f"{self._where(run)}: {ledger.height} of {len(drop.lines)} rows in the ledger"
            )
            return
        rows = ledger.select("fate", "chunk", "position").rows()
        for line, (fate, chunk, position) in zip(drop.lines, rows, strict=True):
            figures[f"rows: {fate}"] += 1
            whom = f"{self._where(run)}, {drop.kind}: {self._year.people.cuid(line)}"
            if fate == SUBMITTED:
                found = self._at.get((names[chunk], position))
                if found is None or found.card != self._year.people.card(line):
                    self._findings.lost.append(f"{whom}: another card is at its place, or none")
                elif not line.fit:
                    self._findings.unfit.append(f"{whom}: sent, and unfit")
            elif fate == REJECTED and line.fit:
                self._findings.lost.append(f"{whom}: rejected, and fit")
            elif fate == DUPLICATE and lines[self._key(line)] < 2:
                self._findings.lost.append(f"{whom}: a duplicate of nothing")
            elif fate == SUPPRESSED and line.fit and not self._held(line, run):
                self._findings.lost.append(f"{whom}: held, with {self._story(line)}")

    def _held(self, line: Line, run: Run) -> bool:
        """Return whether this card, or a later one of its holder, has a living link or awaits one
        on that night.
        """
        return any(
            sent.run != run.manifest.run and sent.night <= run.night and known.version >= line.version
            and self._state(sent, run.night) in ("awaiting", "living")
            for known, sent in self._attempts[line.person]
        )  # fmt: skip

    def _state(self, sent: Sent, night: int) -> str:
        """Return what was known of a sent row on a night: awaiting, error, living or ended."""
        at = (sent.chunk, sent.position)
        if self._bank.answered.get(at, night + 1) > night:
            return "awaiting"
        booked: Booked = self._bank.partner.delivered[at]
        if booked.expires is None:
            return "error"
        return (
            "living"
            if booked.expires >= FIRST + timedelta(days=night * self._year.plan.stride)
            else "ended"
        )

    def _judge_repeats(self) -> None:
        """Judge every sending of a card after its first, and count changed cards."""
        for attempts in self._attempts.values():
            for (was, before), (line, after) in pairwise(attempts):
                if line.version > was.version:
                    self._findings.figures[
                        f"changed card sent: {self._state(before, after.night)}"
                    ] += 1
            by_card: dict[Card, list[tuple[Line, Sent]]] = defaultdict(list)
            for line, sent in attempts:
                by_card[sent.card].append((line, sent))
            for sendings in by_card.values():
                for (line, before), (_, after) in pairwise(sendings):
                    state = self._state(before, after.night)
                    self._findings.figures[f"sent again: {state}"] += 1
                    if state in ("awaiting", "living"):
                        whom = f"{self._bank.name}: {self._year.people.cuid(line)}"
                        self._findings.twice.append(
                            f"{whom}: nights {before.night} and {after.night}, {state}: {before.run}, {after.run}"
                        )

    def _judge_active(self) -> None:
        """Hold the number of cards that are active in more than one run against that of the
        reconciliation.
        """
        end = self._year.plan.nights + 1
        active = Counter(
            sent.card
            for sent in self._bank.sent
            if self._state(sent, end) in ("awaiting", "living")
        )
        books = sum(number > 1 for number in active.values())
        told = reconcile_runs(self._bank.bench.context)["active_twice"]
        if told != books:
            self._findings.miscounted.append(
                f"{self._bank.name}: {told} cards active twice, {books} by the books"
            )

    def _judge_files(self, runs: Collection[str]) -> None:
        """Judge whole files that became no run."""
        for sha256, drop in self._drops.items():
            if drop.whole != "whole" or sha256 in runs:
                continue
            if sha256 in self._bank.dismissed:
                self._findings.figures["whole files dismissed"] += 1
                continue
            self._findings.left.append(
                f"{self._bank.name}, night {drop.night}, {drop.kind}: {drop.name}"
            )
            gone = {line for line in drop.lines if line.fit and not self._attempts[line.person]}
            self._findings.lost += [
                f"{self._bank.name}, night {drop.night}, {drop.name}: {self._year.people.cuid(line)} was never sent"
                for line in gone
            ]
        last = self._bank.last_word
        if last is None or last.code or "no new extract to submit" not in last.text:
            self._findings.left.append(
                f"{self._bank.name}, at the end: {last.text if last else 'not asked'}"
            )

    def _judge_counts(self, run: Run) -> None:
        """Hold the counts of a run, of its report and of its output against the books."""
        counts, sent = (
            run.manifest.counts,
            [one for one in self._bank.sent if one.run == run.manifest.run],
        )
        told = Counter(self._state(one, self._year.plan.nights + 1) for one in sent)
        report = StoredRun.by_id(self._bank.bench.store, run.manifest.run).summary
        expected = {
            "read": counts.submitted + counts.rejected + counts.duplicate + counts.suppressed,
            "submitted": len(sent),
        }
        found = {"read": counts.read, "submitted": counts.submitted}
        if report:
            found |= {state: report["rows"][state] for state in ("linked", "error", "awaiting")}
            linked = told["living"] + told["ended"]
            expected |= {"linked": linked, "error": told["error"], "awaiting": told["awaiting"]}
        if found != expected:
            self._findings.unbalanced.append(
                f"{self._where(run)}: {found}, where the books have {expected}"
            )
        if not counts.suppressed or not run.told:
            return
        said = [
            tuple(int(number.replace(",", "")) for number in pair)
            for pair in TOLD.findall(run.told)
        ]
        if (counts.suppressed, counts.read) not in said:
            self._findings.untold.append(
                f"{self._where(run)}: {counts.suppressed} of {counts.read} held, told {said}"
            )

    def _story(self, line: Line) -> str:
        told = [
            f"card {known.version} sent on night {sent.night}: {self._state(sent, self._year.plan.nights + 1)}"
            for known, sent in self._attempts[line.person]
        ]
        return f"card {line.version}; " + ("; ".join(told) or "never sent")

    def _where(self, run: Run) -> str:
        return f"{self._bank.name}, night {run.night}, {run.manifest.source.key.rpartition('/')[2]}"

    def _key(self, line: Line) -> Card:
        return self._year.people.card(line)


def shown(findings: Findings) -> Iterator[str]:
    """Yield the findings as lines: figures first, then what is wrong, the smallest examples of
    each.
    """
    for name, number in sorted(findings.figures.items()):
        yield f"{name}: {number:,}"
    for name, found in findings.wrong.items():
        yield f"WRONG {name}: {len(found):,}"
        yield from (f"    {one}" for one in found[:5])
