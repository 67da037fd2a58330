"""How the dates and names of an extract are written, and the parts of them that a column needs."""

import calendar
import html
import re
from collections import Counter
from itertools import product

import polars as pl

from schemas import portal
from schemas.expressions import UNREADABLE
from schemas.patterns import escaped


def present(text: pl.Expr) -> pl.Expr:
    """Return a text without blanks around it, null where nothing is left."""
    text = text.str.strip_chars()
    return pl.when(text != "").then(text)


_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


def unescaped(text: str) -> str:
    """Return a text with the characters that its HTML entities stand for: O'Brien of O&#39;Brien.

    What was escaped twice is undone twice.
    """
    plain = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    return plain if plain == text else unescaped(plain)


# Dates

AUTO = "auto"
_MONTHS = {
    name[:3].lower(): f"{number:02d}" for number, name in enumerate(calendar.month_name) if number
}
_MONTH_NAMES = "|".join(f"{name[:3]}(?:{name[3:]})?" for name in calendar.month_name[1:])
_NAMED = f"(?i:{_MONTH_NAMES}|sept)"
_TOKEN = re.compile(r"YYYY|YY|MON|MM|DD|[^A-Za-z0-9]+")
_SHAPES = {"YYYY": "[0-9]{4}", "YY": "[0-9]{2}", "MM": "[0-9]{2}", "DD": "[0-9]{2}", "MON": _NAMED}
_LONE = {"MM": "[0-9]{1,2}", "DD": "[0-9]{1,2}"}  # between separators, where a zero may be left out
_REAL = _SHAPES | {"YYYY": "20[0-9]{2}", "MM": "0[1-9]|1[0-2]", "DD": "0[1-9]|[12][0-9]|3[01]"}
_LONE_REAL = {"MM": "0?[1-9]|1[0-2]", "DD": "0?[1-9]|[12][0-9]|3[01]"}
_ORDERS = (
    "MM YY",
    "YY MM",
    "YYYY MM",
    "MM YYYY",
    "YYYY MM DD",
    "DD MM YYYY",
    "MM DD YYYY",
    "YY MM DD",
    "DD MM YY",
    "MM DD YY",
    "MON YY",
    "MON YYYY",
    "DD MON YY",
    "DD MON YYYY",
    "YYYY MON DD",
)
_EXAMPLE = {"YYYY": "2027", "YY": "27", "MM": "09", "MON": "SEP", "DD": "30"}
_MARKS = ("", *"/-. ")
_DATE_CELL = "([0-9]{4})-([0-9]{2})-([0-9]{2})(?: [0-9:.]+)?"  # as a workbook's dates are read
# what `auto` chooses from
READINGS = tuple(order.replace(" ", mark) for mark, order in product(_MARKS, _ORDERS))


def date_tokens(form: str) -> list[str]:
    """Return the parts of a date pattern, none where it is no pattern."""
    tokens = _TOKEN.findall(form)
    if "".join(tokens) != form:
        return []
    kinds = Counter(token[:1] for token in tokens)
    is_date = kinds["Y"] == kinds["M"] == 1 and kinds["D"] <= 1
    return tokens if is_date else []


def date_shape(form: str, part: str = "", *, real: bool = False) -> str:
    """Return a regex of dates in this form, with a group around `part` (Y or M); `real`: the date
    may exist.
    """
    shapes = _REAL if real else _SHAPES
    lone_shapes = _LONE_REAL if real else _LONE
    tokens = date_tokens(form)
    shape = ""
    for place, token in enumerate(tokens):
        if token not in shapes:
            shape += escaped(token).replace(" ", " +")
            continue
        neighbours = {*tokens[max(place - 1, 0) : place], *tokens[place + 1 : place + 2]}
        inner = shapes[token]
        if neighbours.isdisjoint(_SHAPES):
            inner = lone_shapes.get(token, inner)
        is_wanted = part and token.startswith(part)
        shape += f"({inner})" if is_wanted else f"(?:{inner})"
    return f"^{shape}$"


def date_part(text: pl.Expr, form: str, target: str, *, real: bool = False) -> pl.Expr:
    """Return year or month; UNREADABLE for a text in another form, which must not look absent."""
    initial = "Y" if target == portal.YEAR else "M"
    part = text.str.extract(date_shape(form, initial, real=real))
    if target != portal.YEAR and "MON" in form:
        part = part.str.to_lowercase().str.slice(0, 3).replace(_MONTHS)
    return pl.when(part.is_null() & text.is_not_null()).then(pl.lit(UNREADABLE)).otherwise(part)


def day_number(text: pl.Expr, form: str) -> pl.Expr:
    """Return a day as the number YYYYMMDD; null for a text that is none in this form.

    Two digits of a year are from 1970 to 2069. A time behind the day does not count.
    """
    text = text.str.replace(r"[ T][0-9]{2}:[0-9]{2}.*$", "")
    year, month, day = (text.str.extract(date_shape(form, part)) for part in "YMD")
    if "MON" in form:
        month = month.str.to_lowercase().str.slice(0, 3).replace(_MONTHS)
    years = year.cast(pl.Int32, strict=False)
    months = month.cast(pl.Int32, strict=False)
    days = day.cast(pl.Int32, strict=False)
    if "YYYY" not in form:
        years = years + pl.when(years < 70).then(2000).otherwise(1900)
    may_exist = months.is_between(1, 12) & days.is_between(1, 31)
    return pl.when(may_exist).then(years * 10_000 + months * 100 + days)


def date_cells_as(text: pl.Expr, form: str) -> pl.Expr:
    """Return the dates of a workbook's cells, YYYY-MM-DD, in a form; other texts as they are.

    In a form without a day only the first and last day of a month are: Excel makes December 27 of
    12/27, and which year was meant cannot be seen.
    """
    tokens = date_tokens(form)
    if not tokens:
        return text
    year, month, day = (text.str.extract(f"^{_DATE_CELL}$", group) for group in (1, 2, 3))
    parts = {"YYYY": year, "YY": year.str.tail(2), "MM": month, "DD": day}
    parts["MON"] = month.replace({number: name.upper() for name, number in _MONTHS.items()})
    written = pl.concat_str(parts.get(token, pl.lit(token)) for token in tokens)
    date = pl.concat_str(year, month, day).str.to_date("%Y%m%d", strict=False)
    may_be_meant = date.is_not_null()
    if "DD" not in tokens:
        may_be_meant &= (day == "01") | (date == date.dt.month_end())
    if "YY" in tokens:
        may_be_meant &= year.str.starts_with("20")
    return pl.when(may_be_meant.fill_null(value=False)).then(written).otherwise(text)


# Names

_NAME_EXAMPLES = {
    "LAST, FIRST": "DOE, JANE",
    "LAST/FIRST": "DOE/JANE",
    "SURNAME/GIVEN": "DOE/JANE",
    "FIRST LAST": "JANE DOE",
    "LAST FIRST": "DOE JANE",
}
NAMES = tuple(_NAME_EXAMPLES)
_PARTICLE = (
    "van|von|vom|zu|der|den|ter|ten|de|del|della|di|da|do|dos|das|du|la|le|los|el|al|bin|st\\.?"
)
_PARTICLES = f"(?:(?:{_PARTICLE}) +)*"
_TITLES = "(?:mr|mrs|ms|miss|mx|dr|prof|rev|sir|mme|mlle)"
_SUFFIX = r"(?i)[, ]+((?:jr|sr|ii|iii|iv)\.?)$"
_SPLITS = {  # last and first name
    ",": (r"^([^,]+)", r"^[^,]*,(.+)$"),
    "/": (r"^([^/]+)", r"^[^/]*/([^/]+)$"),
    "FIRST LAST": (rf"(?i)^(?:\S.*? +)?({_PARTICLES}\S+)$", rf"(?i)^(\S.*?) +{_PARTICLES}\S+$"),
    "LAST FIRST": (rf"(?i)^({_PARTICLES}\S+)", rf"(?i)^{_PARTICLES}\S+ +(.+)$"),
}


def name_part(text: pl.Expr, form: str, target: str) -> pl.Expr:
    """Return last or first name, for any other column both; particles and suffixes belong to the
    last name. A title beside a first name that stands behind a mark, as embossed, is dropped.
    """
    text = text.str.replace_all(r"\s+", " ").str.replace(
        r"(?i)^([^,]+), ?((?:jr|sr|ii|iii|iv)\.?),(.*)$", "${1},${3} ${2}"
    )
    mark = next((mark for mark in ",/" if mark in form), form)
    if mark in ",/":
        before_title = rf"(?i)^([^{mark}]+{mark} ?[^ .{mark}][^{mark}]*?)[ .{mark}]+{_TITLES}\.?$"
        text = text.str.replace(rf"(?i){mark} ?{_TITLES}[ .]+(\S)", f"{mark}${{1}}")
        text = text.str.replace(before_title, "${1}")
    bare = present(text.str.replace(_SUFFIX, ""))
    last, first = (bare.str.extract(pattern).str.strip_chars() for pattern in _SPLITS[mark])
    last = pl.concat_str(last, text.str.extract(_SUFFIX), separator=" ", ignore_nulls=True)
    if target in (portal.LAST_NAME, portal.FIRST_NAME):
        return present(last) if target == portal.LAST_NAME else first
    return present(pl.concat_str(first, last, separator=" ", ignore_nulls=True))


def example(form: str) -> str:
    """Return a date or a name in this form, "" where it is neither."""
    if form in NAMES:
        return _NAME_EXAMPLES[form]
    return "".join(_EXAMPLE.get(token, token) for token in date_tokens(form))
