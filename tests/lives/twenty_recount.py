"""The oracle of the twenty nights: the rows the portal opened, what it did with them, and what was
delivered, against what is claimed.

It reads no ledger and no report: only opened chunks, the portal's books, the files of the
deliveries, the decisions that were given, the worklist that is left, and unlinked.csv for the
reasons.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import date, timedelta
from io import BytesIO

import polars as pl

from flows.runs.keys import reconciliation
from flows.runs.store import read
from schemas.portal import CITY, CUID, MONTH, PAN, YEAR
from schemas.reasons import CANCELLED_CHUNK
from tests.lives.findings import Findings, resendings
from tests.lives.issuers import Bank
from tests.lives.portal import EXPLAINED, LINK, Made
from tests.lives.twenty import Story, needs_others

SOON = timedelta(days=15)  # a link that ends within these days may be replaced


def recount(story: Story) -> Findings:
    """Recount the story of every issuer."""
    operator = story.operator
    findings = Findings(stuck=[*operator.stuck], odd=[*operator.command_line.odd])
    for bank in story.banks:
        _judge_links(story, bank, findings)
        _judge_repeats(story, bank, findings)
        for line in bank.left:
            findings.figures[f"left on the worklists: {line['kind']}"] += 1
            if not needs_others(line["kind"]):
                findings.open.append(
                    f"{bank.name}: {line['kind']}, {line['run']}, {line['command']}"
                )
        findings.count("ways of answering", bank.portal.did)
        people = {"cardholders": bank.known, "links delivered": len(bank.delivered)}
        findings.figures.update(people | {"rows sent": len(bank.portal.received)})
    findings.count("commands of the operator", operator.given)
    findings.figures["commands of the operator"] = operator.given.total()
    findings.figures["commands on a schedule"] = operator.scheduled.total()
    findings.figures["decisions about rows"] = len(operator.closed)
    return findings


def _judge_links(story: Story, bank: Bank, findings: Findings) -> None:
    """Hold what was delivered against the books."""
    portal, day = bank.portal, story.place.clock.day
    links = defaultdict[str, list[str]](list)
    for url, row in bank.delivered.items():
        link = portal.links.get(url)
        what = f"{bank.name}: the link delivered to {row['cuid']}"
        if link is None or (link.cuid, link.last_4) != (row["cuid"], row["last_4"]):
            findings.misdelivered.append(f"{what} is somebody else's")
        elif url in portal.void or link.ends < day:
            findings.misdelivered.append(f"{what} does not count any more")
        else:
            links[link.card].append(url)
    findings.doubled += [
        f"{bank.name}: {len(urls)} links of one card" for urls in links.values() if len(urls) > 1
    ]
    # only a later extract asks for another link where one lived its whole life
    ended = {link.card for link in portal.links.values() if link.ends < day}
    _judge_others(story, bank, findings, ended | links.keys())


def _judge_others(story: Story, bank: Bank, findings: Findings, linked: set[str]) -> None:
    """Hold everybody without a link against the reasons."""
    reasons = _reasons(story, bank)
    for person in bank.everybody[: bank.known]:
        card, cuid = f"{person[PAN]}{person[YEAR]}{person[MONTH]}", str(person[CUID])
        reason = reasons.get(cuid)
        if card in linked:
            continue
        if not reason:
            findings.forgotten.append(f"{bank.name}: {cuid}")
        elif not (
            card in bank.portal.unsupported or person[CITY] is None or reason == CANCELLED_CHUNK
        ):
            findings.hopeful.append(f"{bank.name}: {cuid}, {reason}")


def _reasons(story: Story, bank: Bank) -> dict[str, str | None]:
    """Return why cardholders have no link, by cuid."""
    content = read(story.place.store, f"{reconciliation(bank.name)}unlinked.csv")
    rows = pl.read_csv(BytesIO(content), infer_schema=False).to_dicts()
    return {row["cuid"].removeprefix("'"): row["reason"] for row in rows}


def _judge_repeats(story: Story, bank: Bank, findings: Findings) -> None:
    """Judge every sending of a card after its first: an error, a link that ends, or a decision must
    come before it.
    """
    # the first decision about a chunk: another may follow about other rows
    decided: dict[str, date] = {}
    for closed in sorted(story.operator.closed):
        if closed.decision not in (LINK, EXPLAINED):
            decided.setdefault(closed.chunk, closed.day)
    sendings = ((answer.card, (day, answer)) for day, answer in bank.portal.received)
    for (_, before), (day, _) in resendings(sendings):
        if not _caused(bank, before, day, decided):
            whose = f"{bank.name}: {before.cuid} of {before.chunk}"
            findings.twice.append(f"{whose} again on {day}")


def _caused(bank: Bank, before: Made, day: date, decided: dict[str, date]) -> bool:
    place = (before.chunk, before.position)
    came = bank.portal.plain.get(place, date.max)
    # planned anew before anybody could know of the upload
    if before.chunk in bank.cancelled and came >= day:
        return True
    # the answer came after the decision, on the same day
    if decided.get(before.chunk, date.max) <= min(came, day):
        return True
    links = bank.portal.links.values()
    ends = [link.ends for link in links if (link.chunk, link.position) == place]
    return came <= day and (not ends or ends[0] <= day + SOON)
