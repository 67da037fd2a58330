"""What the last line of an extract is: a row, a trailer with the row count, or a comment."""

import re

from flows.extensions.init.control_records import digits_form, generalised
from flows.extensions.init.guess import Guess
from flows.extensions.init.sample import CARD, Lines
from flows.extracts.status_words import shape
from schemas.patterns import escaped
from schemas.reference import toml

_WORDS = "TRA?I?LE?R?|TL?R|FTR|FOOTER|EOF|END|TOTALS?|RECORDS?|T|Z|9+"
_OTHERS = "summe|gesamt|anzahl|somme|suma|soma|registros|fin|fim|ende"
_TAG = re.compile(
    rf'["(*#=-]*(?:{_WORDS}|(?i:totals?|trailer|eof|{_OTHERS}))(?=[^A-Za-z-]|$)|[(*#=-]+'
)
# as SQL*Plus, Db2 and others end what they print: `30 rows selected.`
_SENTENCE = re.compile(r"([0-9]+) (row|record)(?:s|\(s\))?( [a-z]+)?\.?", re.IGNORECASE)


def guess_trailer(lines: Lines, rows: int, delimiter: str) -> Guess | None:
    """Guess `trailer` where the last line has the number of rows, `comment` where it has not.

    None where it is a row. `rows`: the lines above it that are data; `delimiter`: "" for fixed
    width.
    """
    tag = _TAG.match(lines.last)
    if tag is None:
        return _guess_sentence(lines.last, rows)
    count = _count(lines.last, rows, delimiter)
    has_card = CARD.search(lines.last.replace(f"{rows:09d}", ""))
    if has_card and not _is_apart(lines, rows, tag, count):
        return None
    if count is None:
        return _guess_comment(lines, rows, tag)
    return _guess_count(lines.last, _pattern(lines.last, tag, count, delimiter), count, rows)


def _guess_sentence(last: str, rows: int) -> Guess | None:
    """Guess `trailer` where the last line is what a client of a database says of its rows."""
    sentence = _SENTENCE.fullmatch(last.strip())
    if sentence is None:
        return None
    pattern = rf"^([0-9]+) {sentence[2]}(?:s|\(s\))?{generalised(sentence[3] or '')}\.? *$"
    return _guess_count(last, pattern, sentence, rows)


def _guess_count(last: str, pattern: str, count: re.Match[str], rows: int) -> Guess:
    stated = int(re.sub("[^0-9]", "", count[0]))
    question = ""
    if stated != rows:
        question = f"It says {stated:,}, with {rows:,} lines above: is it the count?"
    reason = "the last line; the group is the number of rows"
    return Guess("trailer", toml(pattern), reason, question, shown=(shape(last),))


def _is_apart(lines: Lines, rows: int, tag: re.Match[str], count: re.Match[str] | None) -> bool:
    """Return whether a last line with as many digits as a card, a hash total, is no row.

    It has the exact number of rows, and no other line begins like it.
    """
    beginning = lines.last[: tag.end() + 1]
    others = lines.sampled[:-1] if lines.sampled[-1] == lines.last else lines.sampled
    is_like_others = any(line.startswith(beginning) for line in others)
    return count is not None and int(count[0]) == rows and not is_like_others


def _count(last: str, rows: int, delimiter: str) -> re.Match[str] | None:
    """Return the place of the number of rows."""
    numbers = sorted(re.finditer("[0-9]+", last), key=lambda number: abs(int(number[0]) - rows))
    for number in numbers:
        if 0.8 * rows < int(number[0]) <= rows:  # cells may span lines
            return number
    if delimiter:
        return None
    for width in range(12, 4, -1):  # fixed width: within a longer run of digits
        within = re.search(f"{rows:0{width}}", last)
        if within:
            return within
    return None


def _guess_comment(lines: Lines, rows: int, tag: re.Match[str]) -> Guess | None:
    """Guess `comment` by the form of the last line; None where other lines begin like it."""
    beginning = tag[0] + re.sub("[A-Za-z0-9].*$", "", lines.last[tag.end() :])[:1]
    others = [line for line in lines.sampled if line != lines.last]
    if any(line.startswith(beginning) for line in others):
        return None
    question = ""
    if re.search("[0-9]", lines.last):
        question = f"The last line does not have the number of rows, {rows:,}: what is it?"
    reason = "the last line is not a row"
    form = toml(form_of(lines.last, tag[0]))
    return Guess("comment", form, reason, question, shown=(shape(lines.last),))


def form_of(line: str, tag: str) -> str:
    """Return the regular expression of whole lines that have a tag and go on like this one.

    Their numbers and words may be others. The tag alone may be what a row begins with.
    """
    return f"^{escaped(tag)}{generalised(line.rstrip()[len(tag) :])} *$"


def _pattern(last: str, tag: re.Match[str], count: re.Match[str], delimiter: str) -> str:
    """Return a regular expression of the trailer up to the count, its group."""
    digits = digits_form(len(count[0]), fixed=not delimiter)
    return f"^{escaped(tag[0])}{generalised(last[tag.end() : count.start()])}({digits})"
