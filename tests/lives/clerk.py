"""The operator: acts by what a submit prints, or by the worklist alone. It pastes commands, does
what they say next, and asks who is to act.
"""

from __future__ import annotations

import csv
import random
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import polars as pl

from flows.runs.keys import keys_of
from tests.lives.bank import Bank, WorkLine
from tests.lives.command_line import CommandLine, Output, verb_of
from tests.lives.portal import EXPLAINED, LOST, SEND_AGAIN, chunk_name, number_of, run_of
from tests.lives.worklines import (
    Name,
    choices,
    files_of,
    filled,
    is_inquiry,
    is_past,
    joined,
    key_of,
    meanings,
    names_of,
    targets_of,
    things,
    to_file,
    write_rows,
)

SHELVED = {"hold": "on hold", "cancel": "cancelled", "release": ""}
# what can wait is done every third day
SELDOM = {
    "rows to correct",
    "card fields to correct",
    "changed since their link",
    "links not replaced",
    "newer rows refused",
    "links to renew",
}
ROUND = 3  # days
WEEK = 7  # days from one look at what is given up to the next
OFTEN = 5  # times that a line that stays may be done as it says
REHEARSED = 0.2  # of what can be tried before it is done
TO_UPLOAD = "chunks to upload"
PATIENCE = timedelta(days=7)  # until the issuer is asked about the same rows again
PASTE = re.compile(r"`cardlink (?:--config \S+ )?([^`]+)`")
REFUSED = re.compile(r"^(?:refused|cardlink): (.*)$", re.MULTILINE)
HELD = "--open changed-extract"
OPENED = 0.6  # of the files that are held; the others are dismissed


class Closed(NamedTuple):
    """A decision that lets rows of a chunk be sent again."""

    day: date
    chunk: str
    decision: str


@dataclass
class Operator:
    """One operator at a command line, with the portal and the issuer at the telephone."""

    command_line: CommandLine
    chance: random.Random
    given: Counter[str] = field(default_factory=Counter)  # commands, by verb
    scheduled: Counter[str] = field(default_factory=Counter)  # those that no person gives
    closed: list[Closed] = field(default_factory=list)
    # lines and refusals that stay, though done as they say
    stuck: list[str] = field(default_factory=list)
    unsettled: set[str] = field(default_factory=set)  # refusals that the issuer was told of
    settled: Counter[str] = field(default_factory=Counter)  # refusals
    # the day the issuer was asked about the same rows, or by the same template
    asked: dict[object, date] = field(default_factory=dict)
    history: list[tuple[str, ...]] = field(default_factory=list)  # since the store was copied
    # chunks that are on hold or cancelled
    shelf: dict[str, str] = field(default_factory=dict)
    copied_shelf: dict[str, str] = field(default_factory=dict)  # when the store was copied
    copied_at: datetime | None = None
    late: set[str] = field(default_factory=set)  # chunks that may be given up today
    inquired: frozenset[Name] = frozenset()  # what the partner was asked about
    questions: list[dict[str, str]] = field(default_factory=list)  # that it has not answered
    answering: str = ""  # the command that reads its answers
    # how often a line was done as it says, and stood there again
    repeated: dict[str, int] = field(default_factory=dict)
    has_sent: set[str] = field(default_factory=set)  # issuers with new chunks today
    # what decisions by number carry out
    meanings: dict[tuple[str, ...], Sequence[str]] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where the operator keeps files."""
        return self.command_line.place.folder

    @property
    def day(self) -> date:
        """Today."""
        return self.command_line.place.clock.day

    def give(self, *words: str, by: Counter[str] | None = None) -> WorkLine:
        """Give one command; return what it reports."""
        counted = self.given if by is None else by
        meant = self.meant(words)
        counted[verb_of(meant)] += 1
        self.history.append(words)
        if meant[0] == "outbox" and meant[1] in SHELVED:
            self._shelve(meant[1], meant[2], meant[3 : meant.index("--reason")])
        return self.command_line.give(*words, options=("--json",)).report

    def meant(self, words: Sequence[str]) -> Sequence[str]:
        """Return the command that a decision by number carries out, as the worklist has it."""
        return self.meanings.get(tuple(words[:4]), words)

    def _shelve(self, act: str, run: str, numbers: Sequence[str]) -> None:
        """Note where chunks of a run are that were held, cancelled or released."""
        for number in numbers:
            self.shelf.pop(chunk_name(run, int(number)), None)
            if SHELVED[act]:
                self.shelf[chunk_name(run, int(number))] = SHELVED[act]

    def submit(self, issuer: str) -> Output:
        """Submit what is new; return what is printed."""
        self.scheduled["submit"] += 1
        self.history.append(("submit", issuer))
        return self.command_line.give("submit", issuer)

    def settle(self, printed: str) -> str:
        """Settle every file that a submit refused or held; return what is printed."""
        outputs = chain.from_iterable(map(self._settle, REFUSED.findall(printed)))
        return "\n".join(output.text for output in outputs)

    def _settle(self, refusal: str) -> Iterator[Output]:
        """Open or dismiss a file that is held, dismiss one that is refused, by the line that the
        refusal offers.
        """
        held = HELD in refusal
        command = "submit" if held and self.chance.random() < OPENED else "dismiss"
        words = _offered(refusal, command)
        if not words:  # the issuer sends it again, it says; another night it must be gone
            if held or refusal in self.unsettled:
                self.stuck.append(f"no line to {command}: {refusal}")
            self.unsettled.add(refusal)
            return
        if "--reason" in words:
            words[words.index("--reason") + 1] = "the issuer says so"
        output = self.command_line.give(*words)
        if output.code:
            self.stuck.append(f"{shlex.join(words)}: {output.text}")
        self.settled[f"{'held' if held else 'refused'}, {command}: exit {output.code}"] += 1
        yield output

    def upload_all(self, bank: Bank) -> None:
        """Upload every chunk that waits."""
        chunks = self.give("upload", bank.name)["chunks"]
        for run in sorted({chunk["run"] for chunk in chunks if chunk["state"] == "waiting"}):
            self._upload(["upload", run, "--to", "FOLDER"], [bank])

    def work(self, banks: Sequence[Bank]) -> None:
        """Work through the list once, ask the partner, upload, and note what was on it."""
        by_name = {bank.name: bank for bank in banks}
        self.has_sent.clear()
        report = self.give("worklist")
        self.meanings = dict(meanings([*report["worklist"], *report["together"]]))
        over = {bank.name for bank in banks if bank.is_over}
        left = [line for line in things(report["worklist"]) if not is_past(line, over)]
        for bank in banks:
            bank.left = [line for line in left if line["issuer"] == bank.name]
        singles = chain.from_iterable(line["each"] for line in left)
        self.late = {str(single["name"]) for single in singles if single["late"]}
        lines = [*joined(left, report["together"])]
        inquiries = [line for line in lines if is_inquiry(line)]
        others = [line for line in lines if not is_inquiry(line) and line["kind"] != TO_UPLOAD]
        self._work_through(others, by_name)
        self._inquire(inquiries, by_name)
        self._upload_all(left, by_name)

    def _work_through(self, lines: Iterable[WorkLine], banks: Mapping[str, Bank]) -> None:
        """Do every line once that is done today; note those that stay though they were done."""
        repeated: dict[str, int] = {}
        for line in lines:
            key = key_of(line)
            repeated[key] = self.repeated.get(key, 0)
            if self._is_put_off(line):
                continue
            repeated[key] += self._act(line, [banks[name] for name in line["issuer"].split(",")])
            if repeated[key] > OFTEN:
                self.stuck.append(f"{self.day}: {key}")
        self.repeated = repeated

    def _is_put_off(self, line: WorkLine) -> bool:
        """Return whether work is not done today."""
        every = ROUND if line["kind"] in SELDOM else 1
        return self.day.toordinal() % (WEEK if "is_given_up" in line else every) > 0

    def _upload_all(self, left: Iterable[WorkLine], banks: Mapping[str, Bank]) -> None:
        """Upload what waits, all at once: what the list has, and what was sent again since."""
        names = self.has_sent | {line["issuer"] for line in left if line["kind"] == TO_UPLOAD}
        if names:
            own = [banks[name] for name in sorted(names)]
            self._upload(["upload", _together(own), "--to", "FOLDER"], own)

    def _act(self, line: WorkLine, banks: list[Bank]) -> bool:
        """Do what a line says; False where only others can do something today."""
        words = filled(line["command"]) if line["command"] else []
        bank = banks[0]
        for each in banks:
            each.census.note(self.meant(words), each.name, targets_of(line, each.name))
        match line["kind"].split():
            case _ if "is_given_up" in line:
                self._do(words, banks)
            case ["results", "awaited"] | ["links", "to", "confirm"]:
                return False  # the receiving side confirms in its own time
            case ["links", "to", "deliver"]:
                return False  # delivered in the evening, by schedule
            case ["break", "DAMAGED_FILE"]:
                return False  # it comes whole, as the partner is asked about its rows
            case ["break", *_]:
                return self._decide(line, bank)
            case _ if words[:1] == ["corrections"]:
                return self._correct(line, words, banks)
            case ["refused", "extracts"] if bank.deliverer.late:
                return False  # the issuer sends it again
            case ["result", "files", "to", "look", "at"]:
                for name in files_of(line):  # the next ingest is in the morning
                    bank.take_away(name)
            case ["links", "to", "renew"] | ["links", "that", *_] | ["business", "days", *_]:
                self._do(words, banks)
                return False  # the new links, or the files, come later
            case _:
                self._do(words, banks)
        return True

    def _do(self, words: list[str], banks: Iterable[Bank]) -> bool:
        """Give a command, and note whether there are chunks to upload by it."""
        report = self.give(*words)
        if "--dry-run" in words:  # its next line does it, with the number of rows
            if not report.get("next"):
                return False
            report = self.give(*filled(report["next"]))
        has_sent = " upload " in (report.get("next") or "")
        if has_sent:
            self.has_sent |= {bank.name for bank in banks}
        return has_sent

    def _upload(self, words: list[str], banks: Sequence[Bank]) -> None:
        folder = self.folder / "outbox"
        fetched = self.give(*(str(folder) if word == "FOLDER" else word for word in words))
        for bank, report in zip(banks, fetched.get("issuers", [fetched]), strict=True):
            for chunk in report.get("chunks", ()):
                bank.portal.upload(chunk["name"], (folder / chunk["name"]).read_bytes())
        if fetched.get("next"):
            self.give(*filled(fetched["next"]))

    def _inquire(self, inquiries: Iterable[WorkLine], banks: Mapping[str, Bank]) -> None:
        """Ask the partner, where there is something new to ask, and decide as it answers today.

        The first step of some lines is to ingest, which was done this morning.
        """
        singles = [*chain.from_iterable(line["each"] for line in inquiries)]
        names = frozenset(chain.from_iterable(map(names_of, inquiries)))
        if names - self.inquired:
            self._ask([banks[name] for name in sorted({single["issuer"] for single in singles})])
        promised = [bank.portal.promise(self.questions) for bank in banks.values()]
        self._drop({"chunk": set[str]().union(*promised)})
        answered = [answer for answer in self._answered(singles, banks) if answer["answer"]]
        chunks = {answer["chunk"] for answer in answered}
        # what stays on the list although it was answered is asked again
        self.inquired = frozenset(name for name in names if name.chunk not in chunks)
        if answered:
            for bank in banks.values():
                own = (question for question in answered if question["issuer"] == bank.name)
                self._note_answers(own, bank)
            write_rows(Path(filled(self.answering)[1]), answered)
            self._send(self.answering, [*banks.values()])
            self._drop({"id": {question["id"] for question in answered}})

    def _answered(
        self, singles: Iterable[WorkLine], banks: Mapping[str, Bank]
    ) -> Iterator[dict[str, str]]:
        """Yield the questions that are still open, with the answers of the partner, "" for none."""
        places = {(single["run"], single["name"]) for single in singles}
        for question in self.questions:
            chunk = question["chunk"]
            is_early = not question["cuid"] and chunk not in self.late
            is_open = not places.isdisjoint([(run_of(chunk), chunk), (run_of(chunk), "")])
            if is_open and not is_early:
                answer = banks[question["issuer"]].portal.answer_to(question)
                yield question | {"answer": answer}

    def _drop(self, settled: Mapping[str, Collection[str]]) -> None:
        """Ask no more about questions that have one of these values in these columns."""
        self.questions = [
            question
            for question in self.questions
            if not any(question[column] in values for column, values in settled.items())
        ]

    def _ask(self, banks: Sequence[Bank]) -> None:
        """Write all questions about issuers, and send them to the partner."""
        names = _together(banks)
        file = self.folder / f"questions-{names}.csv"  # after a restore its issuers are looked for
        file.unlink(missing_ok=True)
        inquiry = self.give("questions", names, "--to", str(file))
        self.answering = inquiry["next"] or ""
        content = file.read_text("utf-8-sig") if inquiry["questions"] else ""
        self.questions = list(csv.DictReader(content.splitlines()))

    def _note_answers(self, answered: Iterable[dict[str, str]], bank: Bank) -> None:
        """Note what the partner answers about an issuer."""
        decisions = {(question["chunk"], question["answer"]) for question in answered}
        for chunk, answer in sorted(decisions):
            if bank.profile.overrides and answer == LOST:
                self._override(chunk, bank)
            if answer not in (EXPLAINED, SEND_AGAIN):
                self.closed.append(Closed(self.day, chunk, answer))

    def _decide(self, line: WorkLine, bank: Bank) -> bool:
        """Ask about the chunks of breaks that no file of questions has, then close all that have
        the same answer at once.
        """
        chunks = {single["name"] for single in line["each"]}
        words = {chunk: bank.portal.asked_about(chunk) for chunk in sorted(chunks)}
        if any(word.until > self.day or word.again is not None for word in words.values()):
            return False
        usual = next(iter(choices(line)))
        answers = {
            chunk: word.decision if word.decision in choices(line) else usual
            for chunk, word in words.items()
        }
        parts = [line] if len({*answers.values()}) == 1 else line["each"]
        for part in parts:
            answer = answers[part.get("name", min(chunks))]
            self.give(*filled(choices(part)[answer]))
        closed = {chunk: answer for chunk, answer in answers.items() if answer != EXPLAINED}
        self.closed += [Closed(self.day, chunk, answer) for chunk, answer in closed.items()]
        return True

    def _override(self, chunk: str, bank: Bank) -> None:
        """Send the rows of a chunk again that have no answer, on a recorded word."""
        run = run_of(chunk)
        folder = keys_of(run).report("rows/")
        parts = [bank.content(entry.key) for entry in bank.place.store.keys(folder)]
        rows = pl.concat(pl.read_parquet(part) for part in parts)
        awaiting = rows.filter(chunk=number_of(chunk), state="awaiting")["row"]
        selected = chain.from_iterable(("--row", str(row)) for row in awaiting)
        words = ("--reason", "the partner lost them", "--override", "the partner lost them")
        if len(awaiting):
            self.give("resubmit", run, *selected, *words)

    def _correct(self, line: WorkLine, words: list[str], banks: Sequence[Bank]) -> bool:
        """Let the issuer fill in the template, and send what it filled in."""
        names = names_of(line)
        was_today = self.asked.get(words[1]) == self.day  # by another line
        if was_today or self.day - self.asked.get(names, date.min) < PATIENCE:
            return False
        self.asked |= {names: self.day, words[1]: self.day}
        file = self.folder / f"{words[1]}-{self.given['corrections']}.csv"
        template = self.give(*to_file(file, words))
        rows = list(csv.DictReader(file.read_text("utf-8-sig").splitlines()))
        known = [bank for bank in banks if bank.fill_in(_rows_of(bank, rows))]
        if not known:
            return False
        write_rows(file, rows)
        return self._send(template["next"], banks)

    def _send(self, command: str, banks: Sequence[Bank]) -> bool:
        """Give a command that shows what it would do, and then does it; what is done every day is
        not always shown first. Return whether rows were sent by it.
        """
        words = filled(command)
        if self.chance.random() >= REHEARSED:
            words.remove("--dry-run")
        return self._do(words, banks)


def _rows_of(bank: Bank, rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Return the lines of a template that are about an issuer."""
    return [row for row in rows if row["run"].startswith(f"{bank.name}-")]


def _together(banks: Iterable[Bank]) -> str:
    """Return issuers as a command takes several."""
    return ",".join(sorted(bank.name for bank in banks))


def _offered(refusal: str, command: str) -> list[str]:
    """Return the first line that a refusal offers to dismiss the file, or to submit it opened."""
    for line in PASTE.findall(refusal):
        words = shlex.split(line)
        if words[0] == command and (command == "dismiss" or "--open" in words):
            return words
    return []
