"""How the portal answers a chunk: every way that was ever seen, each a function, drawn from a
deck.
"""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable, Sequence
from datetime import timedelta

from tests.twenty.portal import (
    ERROR,
    EXPIRED,
    EXPLAINED,
    LINK,
    LOST,
    TEMPORARY,
    Letter,
    Made,
    Portal,
    Word,
    result,
)

LOGIN = b"<!DOCTYPE html><html><body>Your session has expired<form><input type=password></form>%s</body></html>"


def name_of(chunk: str, more: str = "") -> str:
    """Return how the portal names a chunk's result."""
    return f"card-links-{chunk.partition('.')[0]}-result{more}.csv"


def plainly(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Answer the next day, in order."""
    portal.send(name_of(chunk), made)


def late(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Answer after four days, and say so."""
    letter = portal.send(name_of(chunk), made, after=4)
    portal.words[chunk] = Word(until=letter.day)


def never(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Lose the chunk."""
    portal.words[chunk] = Word(spoils=tuple(made))


def found_again(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Say that the chunk is lost, and answer it six days later all the same."""
    portal.send(name_of(chunk), made, after=6)


def holes(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Leave out every third row, for good."""
    portal.send(name_of(chunk), [one for one in made if one.position % 3])
    portal.words[chunk] = Word(spoils=tuple(one for one in made if not one.position % 3))


def half_now(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Answer half of the rows, and all of them where somebody asks."""
    portal.send(name_of(chunk), made[::2])
    portal.words[chunk] = Word(
        again=Letter(portal.day, name_of(chunk, "-all"), result(made), tuple(made))
    )


def two_halves(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Answer in two files, the second three days after the first."""
    portal.send(name_of(chunk, "-1of2"), made[::2])
    last = portal.send(name_of(chunk, "-2of2"), made[1::2], after=4)
    portal.words[chunk] = Word(until=last.day)


def twice(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Bring the same file under two names."""
    portal.send(name_of(chunk), made)
    portal.send(name_of(chunk, " (1)"), made, after=2)


def merged(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Put the chunk's rows into one file with those of others."""
    portal.send(name_of(chunk), made, way="merged")


def swapped(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Bring the file under the name of another chunk."""
    portal.send(name_of(chunk), made, way="swapped")


def renamed(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Bring the file under a name that says nothing."""
    portal.send(f"download-{portal.chance.getrandbits(32):08x}.csv", made)


def shuffled(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Bring the rows in another order."""
    portal.send(name_of(chunk), portal.chance.sample(made, len(made)))


def packed(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Compress the file, with a byte order mark and Windows' ends of lines in it."""
    content = gzip.compress(b"\xef\xbb\xbf" + result(made).replace(b"\n", b"\r\n"), mtime=0)
    portal.send(name_of(chunk) + ".gz", made, content=content)


def strangers_row(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Put rows of cardholders into the file that nobody sent."""
    portal.send(name_of(chunk), made, content=result([*made, *_strangers(portal, 2)]))
    portal.words[chunk] = Word(EXPLAINED)


def one_more(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Give a cardholder two links; the first counts."""
    linked = _some(portal, made, 1)
    extra = [portal.linked(one) for one in linked]
    portal.send(name_of(chunk), made, content=result([*made, *extra]))
    portal.void |= {one.url for one in extra}
    portal.words[chunk] = Word(EXPLAINED)


def link_and_error(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Give some rows a link and an error; one of the two counts."""
    some = _disputed(portal, chunk, made)
    content = _broken(
        made, some, lambda one: (*_cells(one)[:4], f"Error: {TEMPORARY.replace(',', ';')}")
    )
    portal.send(name_of(chunk), [one for one in made if one not in some], content=content)


def contradicted(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Answer some rows with a link, and two days later with an error."""
    some = _disputed(portal, chunk, made)
    portal.send(name_of(chunk), [one for one in made if one not in some], content=result(made))
    portal.send(
        name_of(chunk, "-2"), [one.refused(TEMPORARY) for one in some], after=3, plain=False
    )


def expired(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Give some rows a link whose last day is over."""
    some, past = _some(portal, made, 2), portal.day - timedelta(days=3)
    content = _broken(made, some, lambda one: (*_cells(one)[:3], f"{past}", ""))
    _troubled(portal, chunk, made, some, content, EXPIRED)


def elsewhere(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Give some rows a link to another host."""
    some = _some(portal, made, 2)
    content = _broken(
        made,
        some,
        lambda one: (*_cells(one)[:2], f"https://evil.example.net/{one.position}", "", ""),
    )
    _troubled(portal, chunk, made, some, content)


def other_card(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Give some rows the last four digits of another card."""
    some = _some(portal, made, 1)
    content = _broken(
        made,
        some,
        lambda one: (one.cuid, f"{(int(one.last_4) + 1) % 10_000:04d}", *_cells(one)[2:]),
    )
    _troubled(portal, chunk, made, some, content)


def nothing_said(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Give some rows neither a link nor an error."""
    some = _some(portal, made, 2)
    _troubled(
        portal,
        chunk,
        made,
        some,
        _broken(made, some, lambda one: (one.cuid, one.last_4, "", "", "")),
    )


def unnamed(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Give a link to nobody."""
    some = _some(portal, made, 1)
    content = _broken(made, some, lambda one: ("", "", *_cells(one)[2:]))
    _troubled(portal, chunk, made, some, content)


def mute(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Write errors that nobody can read, in a file in another order."""
    lost = {one.position for one in _some(portal, made, 3)}
    portal.void |= {one.url for one in made if one.position in lost}
    told = [one.refused(TEMPORARY) if one.position in lost else one for one in made]
    portal.errors += [one for one in told if one.position in lost]
    known = [one for one in told if not one.error]
    content = result(portal.chance.sample(told, len(told)), lambda _: "[object Object]")
    portal.send(name_of(chunk), known, content=content)
    portal.words[chunk] = Word(LOST)


def cut(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Cut the file in the middle of a row; it is whole where somebody asks."""
    content = result(made)
    portal.send(name_of(chunk), made, content=content[: len(content) * 2 // 3], plain=False)
    portal.words[chunk] = Word(
        again=Letter(portal.day, name_of(chunk, "-whole"), content, tuple(made))
    )


def astray(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Bring the file to the other issuer; it comes to the right one where somebody asks."""
    if portal.other is None:
        plainly(portal, chunk, made)
        return
    letter = portal.send(name_of(chunk), made)
    portal.coming.remove(letter)
    portal.other.coming.append(letter._replace(plain=()))
    portal.words[chunk] = Word(again=letter)


def junk(portal: Portal, chunk: str, made: list[Made]) -> None:
    """Bring files that are no results beside the good one."""
    portal.send(name_of(chunk), made)
    mark = f"{portal.chance.getrandbits(32):08x}"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("result.csv", result(_strangers(portal, 2)))
    files: dict[str, bytes] = {
        f"result-{mark}.csv": LOGIN % (b"x" * 144_000),
        f"results-{mark}.zip": archive.getvalue(),
        f"empty-{mark}.csv": b"",
        f"noise-{mark}.csv": portal.chance.randbytes(5000),
        f"strangers-{mark}.csv": result(_strangers(portal, 7)),
        f"long-{mark}.csv": b"cuid,last_4,url,expiration_date,error\n" + b"\\" * 200_000 + b"\n",
    }
    for name, content in files.items():
        portal.send(name, (), content=content or b"\n")


WAYS: tuple[Callable[[Portal, str, list[Made]], None], ...] = (
    plainly, plainly, plainly, late, never, found_again, holes, half_now, two_halves, twice, merged, merged, swapped,
    swapped, renamed, shuffled, packed, strangers_row, one_more, link_and_error, contradicted, expired, elsewhere,
    other_card, nothing_said, unnamed, mute, cut, junk, astray,
)  # fmt: skip


def deck() -> Callable[[Portal, str, list[Made]], None]:
    """Return a way to answer that goes through all of WAYS before any comes again."""
    left: list[Callable[[Portal, str, list[Made]], None]] = []

    def answer(portal: Portal, chunk: str, made: list[Made]) -> None:
        if not left:
            left.extend(portal.chance.sample(WAYS, len(WAYS)))
        way = left.pop()
        if way is not plainly and sum(not one.error for one in made) < 3:
            left.insert(0, way)  # too few links to go wrong with
            way = plainly
        portal.did[way.__name__] += 1
        way(portal, chunk, made)

    return answer


def _some(portal: Portal, made: Sequence[Made], count: int) -> list[Made]:
    """Return some of the rows with a link."""
    return portal.chance.sample([one for one in made if one.url], count)


def _cells(one: Made) -> tuple[str, str, str, str, str]:
    return (one.cuid, one.last_4, one.url, f"{one.ends}", "")


def _broken(
    made: Sequence[Made], some: Sequence[Made], cells: Callable[[Made], tuple[str, ...]]
) -> bytes:
    """Return the result of these rows, some of them with other cells."""
    lines = result(made).splitlines()
    for one in some:
        lines[one.position] = ",".join(cells(one)).encode()
    return b"\n".join([*lines, b""])


def _troubled(
    portal: Portal,
    chunk: str,
    made: Sequence[Made],
    some: Sequence[Made],
    content: bytes,
    word: str = LOST,
) -> None:
    """Bring a result in which some rows need a decision, by which their links are void."""
    portal.void |= {one.url for one in some}
    portal.send(name_of(chunk), [one for one in made if one not in some], content=content)
    portal.words[chunk] = Word(word)


def _disputed(portal: Portal, chunk: str, made: Sequence[Made]) -> list[Made]:
    """Return some rows of which it is disputed whether their links count, and say which it is."""
    some = _some(portal, made, 2)
    word = portal.chance.choice((LINK, ERROR))
    portal.words[chunk] = Word(word)
    portal.void |= {one.url for one in some} if word == ERROR else set()
    return some


def _strangers(portal: Portal, count: int) -> list[Made]:
    names = [f"stranger-{portal.chance.getrandbits(32):08x}" for _ in range(count)]
    return [
        Made("", at, name, "0" * 20, f"https://links.example.com/c/{name}")
        for at, name in enumerate(names)
    ]
