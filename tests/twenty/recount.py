"""The oracle: the rows the portal opened, what it did with them, and what was delivered, against
what is claimed.

It reads no ledger and no report: only opened chunks, the portal's books, the files of the
deliveries, the decisions that were given, the worklist that is left, and unlinked.csv for the
reasons.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from io import BytesIO
from itertools import pairwise

import polars as pl

from flows.runs.keys import reconciliation
from schemas.portal import CITY, CUID, MONTH, PAN, YEAR
from schemas.reasons import CANCELLED_CHUNK
from tests.twenty.life import Bank, Story
from tests.twenty.portal import EXPLAINED, LINK, Made

SOON = timedelta(days=15)  # a link that ends within these days may be replaced


@dataclass
class Findings:
    """What is wrong, each with issuer, day and whose it is, never a card."""

    # cardholders with neither a link nor a reason
    forgotten: list[str] = field(default_factory=list)
    # without a link, though the partner would give one
    hopeful: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)  # cards sent again without anybody's decision
    open: list[str] = field(default_factory=list)  # what is left on a worklist and could be done
    # links that are not the cardholder's, or do not count
    misdelivered: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)  # cards with two links delivered
    stuck: list[str] = field(default_factory=list)  # lines that stay on the list, done as they say
    odd: list[str] = field(default_factory=list)  # commands that ended as none should

    @property
    def wrong(self) -> dict[str, list[str]]:
        """What is wrong, by name."""
        return {name: found for name, found in vars(self).items() if found}


def recount(story: Story) -> Findings:
    """Recount the story of every issuer."""
    findings = Findings(stuck=list(story.operator.stuck), odd=list(story.operator.odd))
    for bank in story.banks:
        _judge_links(story, bank, findings)
        _judge_repeats(story, bank, findings)
        findings.open += [
            f"{bank.name}: {one['kind']}, {one['run']}, {one['command']}"
            for one in bank.left
            if _doable(one["kind"])
        ]
    return findings


def _doable(kind: str) -> bool:
    """Return whether a line is one that the operator must have settled: the others need the issuer
    or the partner.
    """
    return kind not in (
        "rows to correct",
        "errors to ask about",
        "links to confirm",
    ) and not kind.startswith("links end")


def _judge_links(story: Story, bank: Bank, findings: Findings) -> None:
    """Hold what was delivered against the books, and everybody without a link against the
    reasons.
    """
    portal, has = bank.portal, defaultdict[str, list[str]](list)
    for url, row in bank.delivered.items():
        made = portal.links.get(url)
        if made is None or (made.cuid, made.last_4) != (row["cuid"], row["last_4"]):
            findings.misdelivered.append(
                f"{bank.name}: the link delivered to {row['cuid']} is somebody else's"
            )
        elif url in portal.void or made.ends < story.day:
            findings.misdelivered.append(
                f"{bank.name}: the link delivered to {row['cuid']} does not count any more"
            )
        else:
            has[made.card].append(url)
    findings.doubled += [
        f"{bank.name}: {len(urls)} links of one card" for urls in has.values() if len(urls) > 1
    ]
    content = (story.folder / "store" / reconciliation(bank.name) / "unlinked.csv").read_bytes()
    reasons: dict[str, str | None] = {
        row["cuid"].removeprefix("'"): row["reason"]
        for row in pl.read_csv(BytesIO(content), infer_schema=False).to_dicts()
    }
    for who in bank.everybody[: bank.known]:
        card, cuid = f"{who[PAN]}{who[YEAR]}{who[MONTH]}", str(who[CUID])
        if card in has or _ended(portal.links.values(), card, story.day):
            continue
        if not reasons.get(cuid):
            findings.forgotten.append(f"{bank.name}: {cuid}")
        elif (
            card not in portal.unsupported
            and who[CITY] is not None
            and reasons[cuid] != CANCELLED_CHUNK
        ):
            findings.hopeful.append(f"{bank.name}: {cuid}, {reasons[cuid]}")


def _ended(links: Iterable[Made], card: str, day: date) -> bool:
    """Return whether a card's link lived its whole life: only a later extract asks for another."""
    return any(one.card == card and one.ends < day for one in links)


def _judge_repeats(story: Story, bank: Bank, findings: Findings) -> None:
    """Judge every sending of a card after its first: an error, a link that ends, or a decision must
    come before it.
    """
    attempts = defaultdict[str, list[tuple[date, Made]]](list)
    for day, made in bank.portal.received:
        attempts[made.card].append((day, made))
    closed = sorted(
        (one for one in story.operator.closed if one.decision not in (LINK, EXPLAINED)),
        reverse=True,
    )
    # the first about a chunk: another may follow about other rows
    decided = {one.chunk: one.day for one in closed}
    for sendings in attempts.values():
        for (_, before), (day, _) in pairwise(sendings):
            if not _caused(bank, before, day, decided):
                findings.twice.append(
                    f"{bank.name}: {before.cuid} of {before.chunk} again on {day}"
                )


def _caused(bank: Bank, before: Made, day: date, decided: dict[str, date]) -> bool:
    portal = bank.portal
    came = portal.plain.get((before.chunk, before.position), date.max)
    link = next(
        (one for one in portal.links.values() if (one.chunk, one.position) == before[:2]), None
    )
    # planned anew before anybody could know of the upload
    if before.chunk in bank.cancelled and came >= day:
        return True
    # the answer came after the decision, on the same day
    if decided.get(before.chunk, date.max) <= min(came, day):
        return True
    return came <= day and (link is None or link.ends <= day + SOON)


def shown(story: Story, findings: Findings) -> Iterator[str]:
    """Yield the story in figures, then what is wrong, the smallest examples of each."""
    operator = story.operator
    people, delivered = (
        sum(found)
        for found in zip(*((one.known, len(one.delivered)) for one in story.banks), strict=True)
    )
    sent = sum(len(one.portal.received) for one in story.banks)
    yield f"{people:,} cardholders, {sent:,} rows sent, {delivered:,} links delivered, until {story.day}"
    yield f"ways of answering: {dict(sum((one.portal.did for one in story.banks), start=type(operator.gave)()))}"
    yield f"commands of the operator: {sum(operator.gave.values()):,} {dict(operator.gave.most_common())}"
    yield f"commands on a schedule: {sum(operator.scheduled.values()):,}"
    yield f"decisions about rows: {len(operator.closed):,}"
    left = [one["kind"] for bank in story.banks for one in bank.left]
    yield f"left on the worklists: {dict(type(operator.gave)(left))}"
    for name, found in findings.wrong.items():
        yield f"WRONG {name}: {len(found):,}"
        yield from (f"    {one}" for one in found[:5])
