"""The oracle of the year: what an issuer's files held against what the partner opened and answered.

It knows nothing of how the pipeline decides. Of the store it reads which file a run is of, and what
the ledger says became of each row; whether that is right it judges by the files, the cards opened
from chunks, and the answers.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from datetime import date

from flows.reports.across import reconcile_runs
from schemas.ledger import DUPLICATE, REJECTED, SUBMITTED, SUPPRESSED
from tests.lives.deliveries import Card, Drop, Line
from tests.lives.findings import Findings, resendings
from tests.lives.partner import Received
from tests.lives.year import HELD_BACK, Bank, Run, Year

ACTIVE = ("awaiting", "living")


def recount(year: Year) -> Findings:
    """Recount the year of every bank."""
    findings = Findings(stuck=[*year.desk.stuck], odd=[*year.desk.command_line.odd])
    for bank in year.banks:
        Recount(year, bank, findings).run()
    findings.count("settled", year.desk.settled)
    findings.count("commands", year.place.reaper.did)
    return findings


class Recount:
    """The recount of one bank."""

    def __init__(self, year: Year, bank: Bank, findings: Findings) -> None:
        self._year, self._bank, self._findings = year, bank, findings
        self._end = year.day(year.place.plan.nights + 1)
        self._drops = {
            hashlib.sha256(drop.content).hexdigest(): drop for drop in reversed(bank.drops)
        }
        lines = set[Line]().union(*(drop.lines for drop in bank.drops))
        self._holders = {year.people.card(line): line for line in lines}
        self._by_position = {sent.position: sent for sent in bank.partner.received}
        self._attempts: dict[int, list[tuple[Line, Received]]] = defaultdict(list)
        for sent in bank.partner.received:
            line = self._holders.get(sent.card)
            if line is None:
                where = f"{bank.name}, {sent.day}, {sent.run}"
                findings.unfit.append(f"{where}: a card that no file held")
            else:
                self._attempts[line.person].append((line, sent))

    def run(self) -> None:
        """Look at every run, every file without one, and every card that was sent again."""
        for run in self._bank.runs.values():
            drop = self._drops[run.manifest.source.sha256]
            if drop.whole == "cut":
                size = f"{len(drop.content)} bytes of {drop.name}"
                self._findings.cut.append(f"{self._where(run)}: {size}")
            else:
                self._judge_rows(run, drop)
            if drop.whole == "cut behind a record":
                self._findings.figures["cut files that passed, and nothing could prove it"] += 1
            self._judge_counts(run)
            self._judge_output(run)
        self._judge_files()
        self._judge_end()
        self._judge_repeats()
        self._judge_active()
        self._findings.count("files", Counter(drop.kind for drop in self._bank.drops))

    def _judge_rows(self, run: Run, drop: Drop) -> None:
        """Hold what the ledger says of every row against the truth."""
        times = Counter(self._card(line) for line in drop.lines)
        ledger = self._bank.bench.ledger(run.manifest.run)
        names = {chunk.number: chunk.name for chunk in run.manifest.chunks}
        if ledger.height != len(drop.lines):
            heights = f"{ledger.height} of {len(drop.lines)} rows in the ledger"
            self._findings.lost.append(f"{self._where(run)}: {heights}")
            return
        for line, (fate, chunk, position) in zip(
            drop.lines, ledger.select("fate", "chunk", "position").rows(), strict=True
        ):
            self._findings.figures[f"rows: {fate}"] += 1
            sent = self._by_position.get((names.get(chunk, ""), position))
            whose = f"{self._where(run)}, {drop.kind}: {self._year.people.cuid(line)}"
            if fate == SUBMITTED:
                self._judge_sent(line, sent, whose)
            elif fault := self._fault(line, fate, run, repeated=times[self._card(line)] > 1):
                self._findings.lost.append(f"{whose}: {fault}")

    def _fault(self, line: Line, fate: str, run: Run, *, repeated: bool) -> str:
        """Return what is wrong with a row that was not sent, "" where it is right."""
        if fate == REJECTED and line.fit:
            return "rejected, and fit"
        if fate == DUPLICATE and not repeated:
            return "a duplicate of nothing"
        if fate == SUPPRESSED and line.fit and not self._held(line, run):
            return f"held, with {self._story(line)}"
        return ""

    def _judge_sent(self, line: Line, sent: Received | None, whose: str) -> None:
        """Judge a row that the ledger calls submitted by what the portal opened at its place."""
        if sent is None or sent.card != self._card(line):
            self._findings.lost.append(f"{whose}: another card is at its place, or none")
        elif not line.fit:
            self._findings.unfit.append(f"{whose}: sent, and unfit")

    def _held(self, line: Line, run: Run) -> bool:
        """Return whether this card, or a later one of its holder, has a living link or awaits one
        on that night.
        """
        day = self._year.day(run.night)
        earlier = [
            sent
            for holder, sent in self._attempts[line.person]
            if sent.run != run.manifest.run and holder.version >= line.version and sent.day <= day
        ]
        return any(self._state(sent, day) in ACTIVE for sent in earlier)

    def _state(self, sent: Received, day: date) -> str:
        """Return what was known of a sent row on the night before a day: awaiting, error, living or
        ended.
        """
        if self._bank.partner.came.get(sent.position, day) >= day:
            return "awaiting"
        expires = self._bank.partner.delivered[sent.position].expires
        if expires is None:
            return "error"
        return "living" if expires >= day else "ended"

    def _judge_repeats(self) -> None:
        """Judge every sending of a card after its first, and count changed cards."""
        figures = self._findings.figures
        for attempts in self._attempts.values():
            by_person = resendings((line.person, (line, sent)) for line, sent in attempts)
            for (line_before, before), (line, after) in by_person:
                if line.version > line_before.version:
                    figures[f"changed card sent: {self._state(before, after.day)}"] += 1
            by_card = resendings((sent.card, (line, sent)) for line, sent in attempts)
            for (line, before), (_, after) in by_card:
                state = self._state(before, after.day)
                figures[f"sent again: {state}"] += 1
                if state in ACTIVE:
                    whose = f"{self._bank.name}: {self._year.people.cuid(line)}"
                    days = f"{before.day} and {after.day}, {state}"
                    runs = f"{before.run}, {after.run}"
                    self._findings.twice.append(f"{whose}: {days}: {runs}")

    def _judge_active(self) -> None:
        """Hold the number of cards that are active in more than one run against that of the
        reconciliation.
        """
        sendings = [
            sent for sent in self._bank.partner.received if self._state(sent, self._end) in ACTIVE
        ]
        times = Counter(sent.card for sent in sendings)
        books = sum(number > 1 for number in times.values())
        reported = reconcile_runs(self._bank.bench.context)["active_twice"]
        if reported != books:
            cards = f"{reported} cards active twice, {books} by the books"
            self._findings.miscounted.append(f"{self._bank.name}: {cards}")

    def _judge_files(self) -> None:
        """Judge whole files that became no run."""
        runs = {run.manifest.source.sha256 for run in self._bank.runs.values()}
        for sha256, drop in self._drops.items():
            if drop.whole != "whole" or sha256 in runs:
                continue
            if sha256 in self._bank.dismissed:
                self._findings.figures["whole files dismissed"] += 1
                continue
            where = f"{self._bank.name}, night {drop.night}"
            self._findings.left.append(f"{where}, {drop.kind}: {drop.name}")
            for line in dict.fromkeys(drop.lines):
                if line.fit and not self._attempts[line.person]:
                    whose = self._year.people.cuid(line)
                    self._findings.lost.append(f"{where}, {drop.name}: {whose} was never sent")

    def _judge_end(self) -> None:
        """Judge the submit after the last night: it must find nothing new."""
        last = self._bank.last_submit
        if last is None or last.code or "no new extract to submit" not in last.text:
            text = last.text if last else "no submit"
            self._findings.left.append(f"{self._bank.name}, at the end: {text}")

    def _judge_counts(self, run: Run) -> None:
        """Hold the counts of a run and of its report against the books."""
        counts = run.manifest.counts
        sent = [
            sending for sending in self._bank.partner.received if sending.run == run.manifest.run
        ]
        states = Counter(self._state(sending, self._end) for sending in sent)
        expected = {
            "read": counts.submitted + counts.rejected + counts.duplicate + counts.suppressed,
            "submitted": len(sent),
        }
        reported = {"read": counts.read, "submitted": counts.submitted}
        report = self._bank.bench.stored(run.manifest.run).summary
        if report:
            linked = states["living"] + states["ended"]
            expected |= {"linked": linked, "error": states["error"], "awaiting": states["awaiting"]}
            reported |= {state: report["rows"][state] for state in ("linked", "error", "awaiting")}
        if reported != expected:
            numbers = f"{reported}, where the books have {expected}"
            self._findings.unbalanced.append(f"{self._where(run)}: {numbers}")

    def _judge_output(self, run: Run) -> None:
        """Hold what a submit printed of rows that were held back against the counts."""
        counts = run.manifest.counts
        if not counts.suppressed or not run.output:
            return
        printed = HELD_BACK.findall(run.output.replace(",", ""))
        if (str(counts.suppressed), str(counts.read)) not in printed:
            numbers = f"{counts.suppressed} of {counts.read} held, printed {printed}"
            self._findings.untold.append(f"{self._where(run)}: {numbers}")

    def _story(self, line: Line) -> str:
        attempts = [
            f"card {holder.version} sent on {sent.day}: {self._state(sent, self._end)}"
            for holder, sent in self._attempts[line.person]
        ]
        return f"card {line.version}; " + ("; ".join(attempts) or "never sent")

    def _where(self, run: Run) -> str:
        return f"{self._bank.name}, night {run.night}, {run.manifest.source.key.rpartition('/')[2]}"

    def _card(self, line: Line) -> Card:
        return self._year.people.card(line)
