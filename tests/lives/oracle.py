"""The oracle of every life: what the files held and the portal opened and answered, against what
became of it and what is claimed.

Nothing here reads what the pipeline counted but to hold it against the books.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import date, timedelta
from io import BytesIO
from itertools import chain, combinations
from typing import Any, NamedTuple

import polars as pl

from flows.book.standing import SERVED
from flows.runs.keys import extracts, keys_of, reconciliation, results
from flows.runs.stored_run import StoredRun
from schemas.ledger import DUPLICATE, INELIGIBLE, REJECTED, SUBMITTED, SUPPRESSED
from schemas.reasons import CANCELLED_CHUNK
from tests.lives import engine
from tests.lives.bank import Bank, Run
from tests.lives.books import ACTIVE, Books, resendings
from tests.lives.deliveries import Drop
from tests.lives.findings import Findings
from tests.lives.life import Life
from tests.lives.place import Place, Progress
from tests.lives.portal import Sent
from tests.lives.profile import Profile
from tests.lives.town import Line

HELD_BACK = re.compile(
    r"([\d,]+) of ([\d,]+) (?:rows |cards )?"
    "(?:already have or await a link|are of cards that are given up|are marked as deleted)"
)
FATES = ("read", "submitted", "ineligible", "suppressed")
# how long after its last answer a chunk and a ledger stay
SETTLED = {"chunks": timedelta(days=7), "ledger": timedelta(days=63)}
OUTCOMES = ["chunk", "position", "cuid", "last_4", "state", "url", "expires_on"]


def lived(
    place: Place, profile: Profile, on_progress: Progress = lambda _: None
) -> AbstractContextManager[Life]:
    """Live a life, and hold what is about to be purged against the books while it is there."""
    return engine.lived(place, profile, _witness, on_progress)


def _witness(life: Life, bank: Bank, due: list[dict[str, Any]]) -> None:
    Recount(life, bank, bank.witnessed).judge_purge(due)


def recount(life: Life) -> Findings:
    """Recount the life of every issuer."""
    operator = life.operator
    findings = Findings(stuck=[*operator.stuck], odd=[*operator.command_line.odd])
    for bank in life.banks:
        findings.add(bank.witnessed)
        Recount(life, bank, findings).run()
    findings.count("settled", operator.settled)
    findings.count("commands", life.place.reaper.did)
    findings.count("commands of the operator", operator.given)
    findings.figures["commands of the operator"] = operator.given.total()
    per_thousand = 1000 * operator.given.total() / max(1, findings.figures["cardholders"])
    findings.figures["commands of the operator per 1,000 cardholders"] = round(per_thousand)
    findings.figures["commands on a schedule"] = operator.scheduled.total()
    findings.figures["decisions about rows"] = len(operator.closed)
    findings.figures["chunks sealed anew"] = life.resealed
    findings.figures["stores restored"] = life.restored
    return findings


class Outcome(NamedTuple):
    """What is said of one sent row: by the report, or by the books."""

    cuid: str
    last_4: str
    state: str
    url: str | None = None
    expires: date | None = None


class Recount:
    """The recount of one issuer."""

    def __init__(self, life: Life, bank: Bank, findings: Findings) -> None:
        self._life, self._bank, self._findings = life, bank, findings
        self._people = bank.town.people
        self._now = life.place.clock.now()
        self._books = Books(life, bank)

    def run(self) -> None:
        """Hold everything against the books that this life can tell."""
        for run in self._bank.kept_runs():
            self._judge_run(run)
        for sent in self._books.strange:
            where = f"{self._bank.name}, {sent.day}, {sent.run}"
            self._findings.unfit.append(f"{where}: a card that no file held")
        self._judge_files()
        self._judge_end()
        self._judge_repeats()
        self._judge_keys()
        if self._life.profile.exact:
            self._judge_reconciliation()
        if self._life.profile.exact and self._bank.town.feed.portfolio:
            self._judge_portfolio()
        if self._life.profile.delivers:
            self._judge_links()
        if self._life.profile.settling:
            self._judge_worklist()
        self._count()

    def judge_purge(self, due: list[dict[str, Any]]) -> None:
        """Judge what is about to be purged: the runs whose ledger goes, and whether it is due."""
        for lot in due:
            if lot["part"] == "ledger" and lot["run"] not in self._bank.gone:
                self._judge_run(self._bank.runs[lot["run"]])
            self._judge_lot(lot)

    def _judge_run(self, run: Run) -> None:
        """Judge the rows, counts and report of a run while its ledger is there."""
        drop = self._bank.drops[run.manifest.source.sha256]
        if drop.whole == "cut":
            self._findings.cut.append(f"{self._where(run)}: {drop.name}")
        elif run.manifest.selection is None:
            self._judge_rows(run, drop)
        if drop.whole == "cut behind a record":
            self._findings.figures["cut files that passed, and nothing could prove it"] += 1
        self._judge_counts(run)
        self._judge_output(run)
        if self._life.profile.exact:
            self._judge_report(run)

    def _judge_rows(self, run: Run, drop: Drop) -> None:
        """Hold what the ledger says of every row against the truth."""
        times = Counter(self._people.card(line) for line in drop.lines)
        stored = StoredRun.by_id(self._life.place.adapters, run.manifest.run)
        ledger = pl.concat(stored.ledger()).sort("row")
        names = {chunk.number: chunk.name for chunk in run.manifest.chunks}
        if ledger.height != len(drop.lines):
            heights = f"{ledger.height} of {len(drop.lines)} rows in the ledger"
            self._findings.lost.append(f"{self._where(run)}: {heights}")
            return
        for line, (fate, chunk, position) in zip(
            drop.lines, ledger.select("fate", "chunk", "position").rows(), strict=True
        ):
            self._findings.figures[f"rows: {fate}"] += 1
            whose = f"{self._where(run)}, {drop.kind}: {self._people.cuid(line)}"
            if fate == SUBMITTED:
                sent = self._books.by_position.get((names.get(chunk, ""), position))
                self._judge_sent(line, sent, run, whose)
            elif fault := self._fault(
                line._replace(fit=self._people.is_fit(line, run.manifest.as_of)),
                *(fate, run, times[self._people.card(line)]),
            ):
                self._findings.lost.append(f"{whose}: {fault}")

    def _fault(self, line: Line, fate: str, run: Run, times: int) -> str:
        """Return what is wrong with a row that was not sent, "" where it is right."""
        is_unwanted = not (line.eligible or line.deleted)
        if (fate == INELIGIBLE) != is_unwanted:
            return f"{fate}, and {'not ' * is_unwanted}eligible"
        if fate == REJECTED and line.fit:
            return "rejected, and fit"
        if fate == DUPLICATE and times == 1:
            return "a duplicate of nothing"
        if fate == SUPPRESSED and line.fit and not self._is_held_rightly(line, run):
            return f"held, with {self._story(line)}"
        return ""

    def _is_held_rightly(self, line: Line, run: Run) -> bool:
        """Return whether a row was held for the sake of an earlier sending, or its card given up."""
        card = self._people.cuid(line), self._people.card(line)[12:16]
        return card in self._bank.census.given_up or self._books.holds(line, run)

    def _judge_sent(self, line: Line, sent: Sent | None, run: Run, whose: str) -> None:
        """Judge a row that the ledger calls submitted by what the portal opened at its place."""
        if sent is None or sent.row.card != self._people.card(line):
            self._findings.lost.append(f"{whose}: another card is at its place, or none")
        elif not self._people.is_fit(line, run.manifest.as_of):
            self._findings.unfit.append(f"{whose}: sent, and unfit")

    def _judge_counts(self, run: Run) -> None:
        """Hold the counts of a run against the books."""
        counts = run.manifest.counts
        sent = len(self._books.by_run[run.manifest.run])
        unsent = (counts.rejected, counts.ineligible, counts.duplicate, counts.suppressed)
        fates = counts.submitted + sum(unsent)
        if (counts.read, counts.submitted) != (fates, sent):
            numbers = f"{counts}, where the books have {sent}"
            self._findings.unbalanced.append(f"{self._where(run)}: {numbers}")

    def _judge_output(self, run: Run) -> None:
        """Hold what a submit printed of rows that were held back against the counts."""
        counts = run.manifest.counts
        if not counts.suppressed or not run.output or self._bank.town.feed.portfolio:
            return
        printed = HELD_BACK.findall(run.output.replace(",", ""))
        held = [int(rows) for rows, read in printed if int(read) == counts.read]
        # another file of the same submit may have as many rows
        parts = chain.from_iterable(combinations(held, size) for size in range(1, len(held) + 1))
        if counts.suppressed not in set(map(sum, parts)):
            numbers = f"{counts.suppressed} of {counts.read} held, printed {printed}"
            self._findings.untold.append(f"{self._where(run)}: {numbers}")

    def _judge_report(self, run: Run) -> None:
        """Hold every row and count of a run's report against the books."""
        books = {
            sent.position: self._outcome(sent) for sent in self._books.by_run[run.manifest.run]
        }
        summary = StoredRun.by_id(self._life.place.adapters, run.manifest.run).summary
        if not summary:  # a run without an answer has no report yet
            late = [row for row, outcome in books.items() if outcome.state != "awaiting"]
            self._findings.differing += [f"{self._where(run)}: {row}" for row in late]
            return
        reported = self._reported(run)
        self._findings.differing += [
            f"{run.manifest.run}: {chunk} row {row}"
            for chunk, row in sorted(reported.keys() | books.keys())
            if reported.get((chunk, row)) != books.get((chunk, row))
        ]
        states = Counter(outcome.state for outcome in books.values())
        counted = {state: states[state] for state in ("linked", "error", "awaiting")}
        numbers = {state: summary["rows"][state] for state in counted}
        if numbers != counted:
            self._findings.unbalanced.append(
                f"{self._where(run)}: {numbers}, where the books have {counted}"
            )

    def _reported(self, run: Run) -> dict[tuple[str, int], Outcome]:
        """Return the rows of a run as its report has them."""
        names = {chunk.number: chunk.name for chunk in run.manifest.chunks}
        folder = keys_of(run.manifest.run).report("rows/")
        parts = [self._bank.content(entry.key) for entry in self._life.place.store.keys(folder)]
        rows = chain.from_iterable(
            pl.read_parquet(part, columns=OUTCOMES).select(OUTCOMES).rows() for part in parts
        )
        return {(names[chunk], position): Outcome(*outcome) for chunk, position, *outcome in rows}

    def _outcome(self, sent: Sent) -> Outcome:
        """Return what the books say of a row."""
        row = sent.row
        state = self._books.state(sent, self._now)
        if state == "awaiting" and self._books.is_decided(row.chunk):
            state = "error"
        if state in ("awaiting", "error"):
            return Outcome(row.cuid, row.last_4, state)
        return Outcome(row.cuid, row.last_4, "linked", row.url, row.ends)

    def _judge_lot(self, lot: dict[str, Any]) -> None:
        """Judge whether every row of a run was answered, and the time after that is over."""
        run = lot["run"]
        plain = self._bank.portal.plain
        came = [plain.get(sent.position) for sent in self._books.by_run[run]]
        unanswered = {
            sent.row.chunk
            for sent in self._books.by_run[run]
            if sent.position not in plain and not self._books.is_decided(sent.row.chunk)
        }
        last = max((moment.date() for moment in came if moment), default=keys_of(run).run.day)
        due_on = last + SETTLED[lot["part"]]
        if unanswered or due_on > self._now.date():
            what = f"{lot['part']} of {run}"
            self._findings.too_soon.append(
                f"{what}: {len(unanswered)} chunks without an answer, due on {due_on}"
            )

    def _judge_files(self) -> None:
        """Judge whole files that became no run."""
        sources = {run.manifest.source.sha256 for run in self._bank.runs.values()}
        for sha256, drop in self._bank.drops.items():
            if drop.whole != "whole" or sha256 in sources:
                continue
            if sha256 in self._bank.dismissed:
                self._findings.figures["whole files dismissed"] += 1
                continue
            where = f"{self._bank.name}, {drop.day}"
            self._findings.left.append(f"{where}, {drop.kind}: {drop.name}")
            for line in dict.fromkeys(drop.lines):
                if line.fit and not line.deleted and not self._books.attempts[line.person]:
                    whose = self._people.cuid(line)
                    self._findings.lost.append(f"{where}, {drop.name}: {whose} was never sent")

    def _judge_end(self) -> None:
        """Judge the submit after the last night: it must find nothing new."""
        last = self._bank.last_submit
        if last is None or last.code or "no new extract to submit" not in last.text:
            text = last.text if last else "no submit"
            self._findings.left.append(f"{self._bank.name}, at the end: {text}")

    def _judge_repeats(self) -> None:
        """Judge every sending of a card after its first, and count changed cards."""
        figures = self._findings.figures
        for attempts in self._books.attempts.values():
            by_person = resendings((line.person, (line, sent)) for line, sent in attempts)
            for (line_before, before), (line, after) in by_person:
                if line.version > line_before.version:
                    moment = self._bank.runs[after.run].moment
                    figures[f"changed card sent: {self._books.state(before, moment)}"] += 1
            by_card = resendings((sent.row.card, sent) for _, sent in attempts)
            for before, after in by_card:
                cause = self._books.cause(before, after)
                figures[f"sent again: {cause or 'for no reason'}"] += 1
                if not cause:
                    sendings = [f"{sent.row.chunk} ({sent.day})" for sent in (before, after)]
                    whose = f"{self._bank.name}: {after.row.cuid}"
                    self._findings.twice.append(f"{whose}: {' and '.join(sendings)}")

    def _judge_keys(self) -> None:
        """Judge the files of others: none may be deleted or written."""
        prefixes = (extracts(self._bank.name), results(self._bank.name))
        entries = chain.from_iterable(map(self._life.place.store.keys, prefixes))
        self._findings.foreign += sorted({entry.key for entry in entries} ^ self._bank.keys)

    def _judge_reconciliation(self) -> None:
        """Hold the counts of the reconciliation against the books."""
        facts = json.loads(self._bank.content(f"{reconciliation(self._bank.name)}summary.json"))
        sendings = self._bank.portal.received
        counted = self._cards()
        books = {state: counted[state] for state in ("linked", "awaiting", "left")}
        cards = facts["cardholders"]["cards"]
        reported = {state: cards[state] for state in books}
        reported["linked"] = sum(cards[state.name] for state in SERVED)
        if not self._bank.town.feed.portfolio:
            active = [sent for sent in sendings if self._books.state(sent, self._now) in ACTIVE]
            last = {sent.row.card: sent.content for sent in active}
            times = Counter(sent.row.card for sent in active if sent.content == last[sent.row.card])
            books["active twice"] = sum(number > 1 for number in times.values())
            reported["active twice"] = facts["active_twice"]
        if reported != books:
            numbers = f"{reported}, where the books have {books}"
            self._findings.miscounted.append(f"{self._bank.name}: {numbers}")
        manifests = [run.manifest for run in self._bank.runs.values()]
        submitted = sum(manifest.counts.submitted for manifest in manifests)
        if submitted != len(sendings):
            self._findings.unbalanced.append(f"{submitted} submitted, {len(sendings)} received")

    def _cards(self) -> Counter[str]:
        """Count the cards of the runs that are kept, each once, by what came of its last issue,
        which is the one that expires last.
        """
        kept = {run.manifest.run: run.manifest for run in self._bank.kept_runs()}
        issues: dict[tuple[str, str], list[Sent]] = defaultdict(list)
        for sent in self._bank.portal.received:
            if sent.run in kept:
                issues[sent.row.look].append(sent)
        for look, sendings in issues.items():
            last = max(sent.row.card[16:] for sent in sendings)
            issues[look] = [sent for sent in sendings if sent.row.card[16:] == last]
        left = set[tuple[str, str]]()
        if self._bank.town.feed.portfolio:
            drops = [self._bank.drops[manifest.source.sha256] for manifest in kept.values()]
            rejected = (line for drop in drops for line in drop.lines if not line.fit)
            left = {*issues, *self._looks(rejected)} - self._looks(self._last_drop.lines)
        there = [issue for look, issue in issues.items() if look not in left]
        return Counter(left=len(left)) + Counter(map(self._standing, there))

    @property
    def _last_drop(self) -> Drop:
        return next(drop for drop in self._bank.drops.values() if drop.day == self._bank.last_day)

    def _looks(self, lines: Iterable[Line]) -> set[tuple[str, str]]:
        """Return the cards of lines as they look: cuid and last four digits."""
        return {(self._people.cuid(line), self._people.card(line)[12:16]) for line in set(lines)}

    def _standing(self, issue: list[Sent]) -> str:
        """Return what came of all sendings of a card: a link counts first, then what is awaited."""
        if any(self._books.state(sent, self._now) == "living" for sent in issue):
            return "linked"
        states = {self._outcome(sent).state for sent in issue}
        return "awaiting" if "awaiting" in states else "without a link"

    def _judge_portfolio(self) -> None:
        """Name who is in the last portfolio with a sound row and has neither a living link, an
        error, nor one coming.
        """
        for line in dict.fromkeys(self._last_drop.lines):
            if line.fit and not self._is_served(line):
                self._findings.forgotten.append(f"{self._bank.name}: {self._people.cuid(line)}")

    def _is_served(self, line: Line) -> bool:
        """Return whether the latest card of somebody awaits its answer, was refused, or has a link
        that lives on; an earlier link may outlive the one that followed a change.
        """
        attempts = self._books.attempts[line.person]
        latest = max((holder.version for holder, _ in attempts), default=0)
        sendings = [sent for holder, sent in attempts if holder.version == latest]
        states = [self._books.state(sent, self._now) for sent in sendings]
        lives_on = any(
            state == "living" and sent.row.ends > self._now.date()
            for state, sent in zip(states, sendings, strict=True)
        )
        return lives_on or states[-1:] in (["awaiting"], ["error"])

    def _judge_links(self) -> None:
        """Hold what was delivered against the books."""
        portal = self._bank.portal
        day = self._now.date()
        gone = self._bank.census.gone(self._bank)
        links: dict[str, list[str]] = defaultdict(list)
        for url, row in self._bank.delivered.items():
            link = portal.links.get(url)
            what = f"{self._bank.name}: the link delivered to {row['cuid']}"
            if link is None or (link.cuid, link.last_4) != (row["cuid"], row["last_4"]):
                self._findings.misdelivered.append(f"{what} is somebody else's")
            elif url in portal.void or link.ends < day:
                self._findings.misdelivered.append(f"{what} does not count any more")
            elif (row["cuid"], row["last_4"]) in gone:
                self._findings.misdelivered.append(f"{what} is there, and the card has left")
            else:
                links[link.card].append(url)
        self._findings.doubled += [
            f"{self._bank.name}: {len(urls)} links of one card"
            for urls in links.values()
            if len(urls) > 1
        ]
        # only a later extract asks for another link where one lived its whole life
        ended = {link.card for link in portal.links.values() if link.ends < day}
        self._judge_others(ended | links.keys())

    def _judge_others(self, linked: set[str]) -> None:
        """Hold everybody without a link against the reasons."""
        reasons = self._reasons()
        town = self._bank.town
        for line in (town.latest[person] for person in town.known if person not in town.gone):
            card = self._people.card(line)
            cuid = self._people.cuid(line)
            if not line.eligible:  # its place in the book is judged every day (`census`)
                self._findings.figures["cardholders not eligible at the end"] += 1
                continue
            reason = reasons.get(cuid)
            if card in linked or (cuid, card[12:16]) in self._bank.census.given_up:
                continue
            is_fit = self._people.is_fit(line, self._now.date())
            is_hopeless = card in self._bank.portal.unsupported or not is_fit
            if not reason:
                self._findings.forgotten.append(f"{self._bank.name}: {cuid}")
            elif not is_hopeless and reason != CANCELLED_CHUNK:
                self._findings.hopeful.append(f"{self._bank.name}: {cuid}, {reason}")

    def _reasons(self) -> dict[str, str | None]:
        """Return why cardholders have no link, by cuid."""
        content = self._bank.content(f"{reconciliation(self._bank.name)}unlinked.csv")
        rows = pl.read_csv(BytesIO(content), infer_schema=False).to_dicts()
        return {row["cuid"].removeprefix("'"): row["reason"] for row in rows}

    def _judge_worklist(self) -> None:
        """Name what is left on the worklist."""
        for line in self._bank.left:
            what = f"{line['kind']}, {line['run']}, {line['command']}"
            self._findings.open.append(f"{self._bank.name}: {what}")

    def _count(self) -> None:
        """Count what happened."""
        bank, figures = self._bank, self._findings.figures
        manifests = [run.manifest for run in bank.runs.values()]
        kinds = (run.selection.kind if run.selection else "night" for run in manifests)
        self._findings.count("files", bank.kinds)
        self._findings.count("ways of answering", bank.portal.did)
        self._findings.count("purged", Counter(lot["part"] for lot in bank.purged))
        self._findings.count("runs", Counter(kinds))
        for fate in FATES:
            figures[f"rows of runs: {fate}"] += sum(getattr(run.counts, fate) for run in manifests)
        figures["cardholders"] += len(bank.town.known)
        figures["cardholders who left"] += len(bank.town.gone)
        figures["links delivered"] += len(bank.delivered)
        figures["rows opened by the portal"] += len(bank.portal.received)
        figures["bytes purged"] += sum(lot["bytes"] for lot in bank.purged)
        figures["runs whose report is purged"] += len(bank.gone)

    def _story(self, line: Line) -> str:
        attempts = [
            f"card {holder.version} sent on {sent.day}: {self._books.state(sent, self._now)}"
            for holder, sent in self._books.attempts[line.person]
        ]
        return f"card {line.version}; " + ("; ".join(attempts) or "never sent")

    def _where(self, run: Run) -> str:
        name = run.manifest.source.key.rpartition("/")[2]
        return f"{self._bank.name}, {run.moment.date()}, {name}"
