"""How the portal answers a chunk: every way that was ever seen."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from tests.lives.portal import (
    ERROR,
    EXPIRED,
    EXPLAINED,
    HOST,
    LINK,
    LOST,
    TEMPORARY,
    Cells,
    Letter,
    Made,
    Portal,
    Word,
    cells,
    result,
)

LOGIN = (
    b"<!DOCTYPE html><html><body>Your session has expired<form><input type=password></form>"
    b"%s</body></html>"
)
Way = Callable[[Portal, str, list[Made]], None]


def name_of(chunk: str, more: str = "") -> str:
    """Return how the portal names a chunk's result."""
    return f"card-links-{chunk.partition('.')[0]}-result{more}.csv"


def plainly(
    portal: Portal, chunk: str, answers: list[Made], *, after: int = 1, way: str = ""
) -> Letter:
    """Answer in order, usually the next day; `way`: see Letter."""
    return portal.send(name_of(chunk), answers, after=after, way=way)


def late(portal: Portal, chunk: str, answers: list[Made]) -> None:
    """Answer after four days, and say so."""
    portal.words[chunk] = Word(until=plainly(portal, chunk, answers, after=4).day)


def never(portal: Portal, chunk: str, answers: list[Made]) -> None:
    """Lose the chunk."""
    portal.words[chunk] = Word(spoils=tuple(answers))


def holes(portal: Portal, chunk: str, answers: list[Made]) -> None:
    """Leave out every third row, for good."""
    plainly(portal, chunk, [row for row in answers if row.position % 3])
    portal.words[chunk] = Word(spoils=tuple(row for row in answers if not row.position % 3))


def half_now(portal: Portal, chunk: str, answers: list[Made]) -> None:
    """Answer half of the rows, and all of them where somebody asks."""
    plainly(portal, chunk, answers[::2])
    letter = Letter(portal.day, name_of(chunk, "-all"), result(answers), tuple(answers))
    portal.words[chunk] = Word(again=letter)


def two_halves(portal: Portal, chunk: str, answers: list[Made]) -> None:
    """Answer in two files, the second three days after the first."""
    portal.send(name_of(chunk, "-1of2"), answers[::2])
    last = portal.send(name_of(chunk, "-2of2"), answers[1::2], after=4)
    portal.words[chunk] = Word(until=last.day)


def whole_later(portal: Portal, chunk: str, answers: list[Made]) -> None:
    """Leave out every third row; a week later bring all of them."""
    plainly(portal, chunk, [row for row in answers if row.position % 3])
    last = portal.send(name_of(chunk, "-whole"), answers, after=7)
    portal.words[chunk] = Word(until=last.day)


def twice(portal: Portal, chunk: str, answers: list[Made]) -> None:
    """Bring the same file under two names."""
    plainly(portal, chunk, answers)
    portal.send(name_of(chunk, " (1)"), answers, after=2)


def renamed(portal: Portal, chunk: str, answers: list[Made]) -> None:
    """Bring the file under a name that says nothing."""
    portal.send(f"download-{_mark(portal)}.csv", answers)


def shuffled(portal: Portal, chunk: str, answers: list[Made]) -> None:
    """Bring the rows in another order."""
    plainly(portal, chunk, portal.chance.sample(answers, len(answers)))


def packed(portal: Portal, chunk: str, answers: list[Made]) -> None:
    """Compress the file, with a byte order mark and Windows' ends of lines in it."""
    content = gzip.compress(b"\xef\xbb\xbf" + result(answers).replace(b"\n", b"\r\n"), mtime=0)
    portal.send(name_of(chunk) + ".gz", answers, content=content)


def strangers_row(portal: Portal, chunk: str, answers: list[Made]) -> None:
    """Put rows of cardholders into the file that nobody sent."""
    portal.send(name_of(chunk), answers, content=result([*answers, *_strangers(portal, 2)]))
    portal.words[chunk] = Word(EXPLAINED)


def one_more(portal: Portal, chunk: str, answers: list[Made]) -> None:
    """Give a cardholder two links; the first counts."""
    extra = [portal.linked(row) for row in _some(portal, answers, 1)]
    portal.send(name_of(chunk), answers, content=result([*answers, *extra]))
    portal.void |= {row.url for row in extra}
    portal.words[chunk] = Word(EXPLAINED)


def link_and_error(portal: Portal, chunk: str, answers: list[Made]) -> None:
    """Give some rows a link and an error; one of the two counts."""
    disputed = _disputed(portal, chunk, answers)
    error = f"Error: {TEMPORARY.replace(',', ';')}"
    content = _broken(answers, disputed, lambda row: cells(row)._replace(error=error))
    portal.send(name_of(chunk), _without(answers, disputed), content=content)


def contradicted(portal: Portal, chunk: str, answers: list[Made]) -> None:
    """Answer some rows with a link, and two days later with an error."""
    disputed = _disputed(portal, chunk, answers)
    errors = [row.refused(TEMPORARY) for row in disputed]
    portal.send(name_of(chunk), _without(answers, disputed), content=result(answers))
    portal.send(name_of(chunk, "-2"), errors, after=3, plain=False)


def mute(portal: Portal, chunk: str, answers: list[Made]) -> None:
    """Write errors that nobody can read, in a file in another order."""
    lost = _some(portal, answers, 3)
    errors = [row.refused(TEMPORARY) for row in answers if row in lost]
    portal.void |= {row.url for row in lost}
    portal.errors += errors
    refused = {row.position: row for row in errors}
    rows = [refused.get(row.position, row) for row in answers]
    content = result(portal.chance.sample(rows, len(rows)), lambda _: "[object Object]")
    portal.send(name_of(chunk), [row for row in rows if not row.error], content=content)
    portal.words[chunk] = Word(LOST)


def cut(portal: Portal, chunk: str, answers: list[Made]) -> None:
    """Cut the file in the middle of a row; it is whole where somebody asks."""
    content = result(answers)
    part = content[: len(content) * 2 // 3]
    whole_rows = answers[: part.count(b"\n") - 1]
    portal.send(name_of(chunk), whole_rows, content=part)
    letter = Letter(portal.day, name_of(chunk, "-whole"), content, tuple(answers))
    portal.words[chunk] = Word(again=letter)


def astray(portal: Portal, chunk: str, answers: list[Made]) -> None:
    """Bring the file to the other issuer; it comes to the right one where somebody asks."""
    letter = plainly(portal, chunk, answers)
    if portal.other is not None:
        portal.coming.remove(letter)
        portal.other.coming.append(letter._replace(plain=()))
        portal.words[chunk] = Word(again=letter)


def junk(portal: Portal, chunk: str, answers: list[Made]) -> None:
    """Bring files that are no results beside the good one."""
    plainly(portal, chunk, answers)
    mark = _mark(portal)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("result.csv", result(_strangers(portal, 2)))
    files: dict[str, bytes] = {
        f"result-{mark}.csv": LOGIN % (b"x" * 144_000),
        f"results-{mark}.zip": archive.getvalue(),
        f"empty-{mark}.csv": b"\n",
        f"noise-{mark}.csv": portal.chance.randbytes(5000),
        f"strangers-{mark}.csv": result(_strangers(portal, 7)),
        f"long-{mark}.csv": b"cuid,last_4,url,expiration_date,error\n" + b"\\" * 200_000 + b"\n",
    }
    for name, content in files.items():
        portal.send(name, (), content=content)


class Fault(NamedTuple):
    """What is wrong in some rows with a link, and what the partner decides about them."""

    rows: int
    cells: Callable[[Portal, Made], Cells]
    word: str = LOST


def faulty(fault: Fault, portal: Portal, chunk: str, answers: list[Made]) -> None:
    """Bring a result in which some rows need a decision, by which their links are void."""
    some = _some(portal, answers, fault.rows)
    portal.void |= {row.url for row in some}
    content = _broken(answers, some, partial(fault.cells, portal))
    portal.send(name_of(chunk), _without(answers, some), content=content)
    portal.words[chunk] = Word(fault.word)


def _ended(portal: Portal, row: Made) -> Cells:
    return cells(row)._replace(expiration_date=f"{portal.day - timedelta(days=3)}")


def _elsewhere(_: Portal, row: Made) -> Cells:
    url = f"https://evil.example.net/{row.position}"
    return cells(row)._replace(url=url, expiration_date="")


def _other_card(_: Portal, row: Made) -> Cells:
    return cells(row)._replace(last_4=f"{(int(row.last_4) + 1) % 10_000:04d}")


WAYS: dict[str, Callable[[Portal, str, list[Made]], object]] = {
    "plainly": plainly,
    "late": late,
    "never": never,
    "found_again": partial(plainly, after=6),  # said to be lost, and answered all the same
    "holes": holes,
    "half_now": half_now,
    "two_halves": two_halves,
    "whole_later": whole_later,
    "twice": twice,
    "merged": partial(plainly, way="merged"),
    "swapped": partial(plainly, way="swapped"),
    "renamed": renamed,
    "shuffled": shuffled,
    "packed": packed,
    "strangers_row": strangers_row,
    "one_more": one_more,
    "link_and_error": link_and_error,
    "contradicted": contradicted,
    "expired": partial(faulty, Fault(2, _ended, EXPIRED)),
    "elsewhere": partial(faulty, Fault(2, _elsewhere)),
    "other_card": partial(faulty, Fault(1, _other_card)),
    "nothing_said": partial(faulty, Fault(2, lambda _, row: Cells(row.cuid, row.last_4))),
    "unnamed": partial(faulty, Fault(1, lambda _, row: cells(row)._replace(cuid="", last_4=""))),
    "mute": mute,
    "cut": cut,
    "junk": junk,
    "astray": astray,
}
# in which some rows have no answer that counts before somebody decides
DISPUTES = (
    "one_more",
    "link_and_error",
    "contradicted",
    "expired",
    "elsewhere",
    "other_card",
    "nothing_said",
    "unnamed",
    "mute",
    "cut",
)


# by which nobody can tell whose answer it is, where the same rows were sent in two chunks
NAMELESS = ("renamed", "merged", "swapped")


def deck(ways: Mapping[str, int]) -> Way:
    """Return a way to answer that goes through all of these before any comes again."""
    cards = list(Counter(ways).elements())
    left: list[str] = []

    def answer(portal: Portal, chunk: str, answers: list[Made]) -> None:
        if not left:
            left.extend(portal.chance.sample(cards, len(cards)))
        name = left.pop()
        too_few = sum(not row.error for row in answers) < 3  # links to go wrong with
        if (name != "plainly" and too_few) or (name in NAMELESS and chunk in portal.unasked):
            left.insert(0, name)
            name = "plainly"
        portal.did[name] += 1
        WAYS[name](portal, chunk, answers)
        if name in DISPUTES:
            portal.disputed |= {row.place for row in answers}

    return answer


def _mark(portal: Portal) -> str:
    return f"{portal.chance.getrandbits(32):08x}"


def _some(portal: Portal, answers: Sequence[Made], count: int) -> list[Made]:
    """Return some of the rows with a link."""
    return portal.chance.sample([row for row in answers if row.url], count)


def _without(answers: Sequence[Made], some: Sequence[Made]) -> list[Made]:
    return [row for row in answers if row not in some]


def _broken(answers: Sequence[Made], some: Sequence[Made], other: Callable[[Made], Cells]) -> bytes:
    """Return the result of these rows, some of them with other cells."""
    lines = result(answers).splitlines()
    for row in some:
        lines[row.position] = ",".join(other(row)).encode()
    return b"\n".join([*lines, b""])


def _disputed(portal: Portal, chunk: str, answers: Sequence[Made]) -> list[Made]:
    """Return some rows of which it is disputed whether their links count, and say which it is."""
    some = _some(portal, answers, 2)
    word = portal.chance.choice((LINK, ERROR))
    portal.words[chunk] = Word(word)
    if word == ERROR:
        portal.void |= {row.url for row in some}
    return some


def _strangers(portal: Portal, count: int) -> list[Made]:
    names = [f"stranger-{_mark(portal)}" for _ in range(count)]
    return [Made("", place, name, "0" * 20, f"{HOST}{name}") for place, name in enumerate(names)]
