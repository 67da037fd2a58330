"""What a link is: the one place that answers it, for result files and for single links.

A URL is a link where nothing of this holds; the first that does is its break (`schemas.breaks`):

- LINK_CUT: it is cut. A file that ends with a URL, without a line end, may end within it: the URL
  is whole where the confirmed form says how long it is, else where no link of the file is longer. A
  URL that is the beginning of a link of the confirmed form is cut anywhere.
- URL_NOT_ALLOWED: it is not https, or its host is not one of the issuer's.
- LINK_SHOWS_CARD: it has the number of the card it is for, a CVV that it names, or the hash of one.
- LINK_FORM: it has characters that no link has, such as `<` and quotes, or it is not of the form of
  the partner's links. That is learned from the links of runs that balance (`learned_forms`), and
  holds once a person has confirmed it. Before that, a link departs where more than half of the
  links of its file have the same outline and it has another.

Check digits do not tell a card from an identifier: a tenth of all numbers passes. We do not keep
card numbers, so the one of its own card is recognised by the last four digits as sent, the check
digit and the first digit of a card's brand. One key of 16 decimal digits in 200,000 has all of
them by chance, and it counts: such a row is sent again. Within keys of more digits they are found
more often: where most links of a file have as many, the number counts only if most show theirs, or
if the link is of another length than they are. The number of another card, of which only check
digit and brand are known, counts where most links of the file show one, or where they have no
number and the link is of another length.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import polars as pl

from flows.card_numbers import numbers_alone, numbers_within
from flows.redaction import cvv_hashes, shows_secret
from flows.secret_words import CVV_SIGNS
from flows.spellings import readings
from schemas import breaks
from schemas.digits import number_shape
from schemas.expressions import PAN_DIGITS
from schemas.link_form import LinkForm

# links with the same outline from which on another outline departs
MAJORITY: Final = 3
# links of one length from which on a shorter one at the end of their file is cut
EQUALLY_LONG: Final = 20
# links that show some card number from which on it is not chance, and of how many links of a file
NOT_BY_CHANCE: Final = 6
SAMPLE: Final = 50

_NUMBER = number_shape(PAN_DIGITS)
_LONGER = number_shape(PAN_DIGITS + 1)
_SPELLED = r"[^ -~]|[\\%<]|&(?:#|[A-Za-z]{2,8};)"  # may have digits that are spelled otherwise
# searched for together, which takes a third of the time
_MAY_SHOW = f"{_NUMBER}|{_SPELLED}"
_MAY_NAME_CVV = f"(?i:{'|'.join(CVV_SIGNS)})|{_SPELLED}"
_NO_LINK = r"""[<>"'`{}|\\^]"""  # what RFC 3986 lets no URL have, and the apostrophe
_CODED = "^[^/]*//[^/]*/.*?[0-9A-Za-z+/_-]{40}"  # behind the host


class LinkRules(NamedTuple):
    """What an issuer's links are judged by: its allowed hosts, and the forms that are confirmed."""

    hosts: Sequence[str]
    forms: Sequence[LinkForm] = ()


def judge_links(rows: pl.DataFrame, rules: LinkRules) -> pl.DataFrame:
    """Return result_row and link_trouble, the break, of every row whose URL is not a link.

    `rows`: result_row, file, url, last_4_sent (the digits of whom the URL is for), is_last (of its
    file) and open_ended (its file ends with this URL, without a line end).
    """
    links = rows.drop_nulls("url").with_columns(length=pl.col("url").str.len_bytes())
    if links.is_empty():
        return links.select("result_row", link_trouble=pl.lit(None, pl.String))
    card_rows = _showing_cards(links)
    is_odd = pl.col("url").str.contains(_NO_LINK)
    formed = _judge_forms(links.with_columns(allowed=allowed("url", rules.hosts)), rules.forms)
    cases = (  # the first that holds
        (pl.col("open_ended") & ~pl.col("whole"), breaks.LINK_CUT),
        (~pl.col("allowed"), breaks.URL_NOT_ALLOWED),
        (pl.col("result_row").is_in(card_rows.implode()), breaks.LINK_SHOWS_CARD),
        (pl.col("cut"), breaks.LINK_CUT),
        (pl.col("departs") | is_odd, breaks.LINK_FORM),
    )
    trouble = pl.coalesce(pl.when(holds).then(pl.lit(name)) for holds, name in cases)
    return formed.select("result_row", link_trouble=trouble).drop_nulls("link_trouble")


def judge_link(url: str, last_4: str | None, rules: LinkRules) -> str | None:
    """Return the break of one URL that came by itself; None where it is a link."""
    row = {
        "result_row": 0,
        "file": 0,
        "url": url,
        "last_4_sent": last_4,
        "is_last": False,
        "open_ended": False,
    }
    links = pl.DataFrame([row], schema_overrides={"last_4_sent": pl.String})
    trouble = next(iter(judge_links(links, rules)["link_trouble"]), None)
    # a secret that is known, as of a request: exactly
    return trouble or (breaks.LINK_SHOWS_CARD if shows_secret(url) else None)


def of_forms(forms: Sequence[LinkForm]) -> pl.Expr:
    """Return whether the column `url` has a link of one of these forms."""
    return _matches((form.host, form.pattern) for form in forms)


def allowed(column: str, hosts: Sequence[str]) -> pl.Expr:
    """Return whether a URL is https on one of `hosts`, with no user or other port.

    A host `*.host` stands for its subdomains.
    """
    patterns = "|".join(map(_host_pattern, hosts))
    url = pl.col(column)
    # (?i) takes ſ for s and the Kelvin sign for k
    is_ascii = url.str.len_bytes() == url.str.len_chars()
    return url.str.contains(_url_pattern(patterns, "(?:[/?#][!-~]*)?")) & is_ascii


def _url_pattern(host: str, path: str) -> str:
    return rf"^(?i:https://(?:{host}))(?::443)?(?:{path})$"


def _host_pattern(host: str) -> str:
    if host.startswith("*."):
        return rf"(?:[a-z0-9-]+\.)+{re.escape(host[2:].lower())}"
    return re.escape(host.lower())


# Forms
# --------------------------------------------------------------------------------------------------


def _judge_forms(links: pl.DataFrame, forms: Sequence[LinkForm]) -> pl.DataFrame:
    """Return links with `whole` (where they might be cut), `cut` and `departs`."""
    longest_other = pl.when(~pl.col("is_last")).then("length").max().over("file")
    with_longest = links.with_columns(longest_other=longest_other)
    if forms:
        return _judge_by_forms(with_longest, forms)
    return _judge_by_file(with_longest)


def _judge_by_forms(links: pl.DataFrame, forms: Sequence[LinkForm]) -> pl.DataFrame:
    """Judge links by the forms that are confirmed, at least one."""
    fits = of_forms(forms)
    is_fixed = of_forms([form for form in forms if form.is_fixed])
    begins = _matches((form.host, form.beginning) for form in forms)
    return links.with_columns(
        whole=fits & (is_fixed | _is_as_long()), cut=~fits & begins, departs=~fits
    )


def _judge_by_file(links: pl.DataFrame) -> pl.DataFrame:
    """Judge links by the others of their file."""
    lengths = pl.when(~pl.col("is_last")).then("length").drop_nulls()
    are_equal = (lengths.len() >= EQUALLY_LONG) & (lengths.n_unique() == 1)
    is_short = pl.col("is_last") & are_equal.over("file") & ~_is_as_long()
    outlined = links.with_columns(outline=_outline())
    # mostly all have one outline, from which none departs
    departs = _departs() if outlined["outline"].n_unique() > 1 else pl.lit(value=False)
    return outlined.with_columns(whole=_is_as_long(), cut=is_short, departs=departs)


def _is_as_long() -> pl.Expr:
    """Return whether no other link of the file, of which there are some, is longer."""
    return (pl.col("length") >= pl.col("longest_other")).fill_null(value=False)


def _matches(patterns: Iterable[tuple[str, str]]) -> pl.Expr:
    """Return whether a URL has one of these hosts, followed by what its pattern says."""
    of_pattern = [
        pl.col("url").str.contains(_url_pattern(_host_pattern(host), path))
        for host, path in patterns
    ]
    return pl.any_horizontal(pl.lit(value=False), *of_pattern)


def _outline() -> pl.Expr:
    """Return what links have in common: the steps of the path, and the names of the query."""
    url = pl.col("url")
    query_start = url.str.find("[?#]")  # null where it has none
    steps = url.str.slice(0, query_start).str.count_matches("/", literal=True)
    query = url.str.slice(query_start).str.replace_all("=[^&#]*", "=")
    return pl.concat_str(steps, query.fill_null(""))


def _departs() -> pl.Expr:
    """Return whether a URL on an allowed host has another outline than most of its file."""
    is_allowed = pl.col("allowed")
    with_outline = is_allowed.sum().over("file", "outline")
    is_majority = (with_outline >= MAJORITY) & (2 * with_outline > is_allowed.sum().over("file"))
    is_usual = is_allowed & is_majority
    return is_allowed & ~is_usual & is_usual.any().over("file")


# Cards
# --------------------------------------------------------------------------------------------------


def _showing_cards(links: pl.DataFrame) -> pl.Series:
    """Return the `result_row` of the links that show a card number, a CVV or its hash."""
    url = pl.col("url")
    showing = set(_numbers(links))
    named = links.filter(url.str.contains(_MAY_NAME_CVV))
    secrets = pl.concat([named, _like_hashes(links)]).select("result_row", "url")
    showing.update(row for row, link in secrets.iter_rows() if shows_secret(link))
    return pl.Series("result_row", sorted(showing), links["result_row"].dtype)


def _numbers(links: pl.DataFrame) -> Iterator[int]:
    """Yield the rows whose link shows a card number."""
    url = pl.col("url")
    may_show = links.select(url.str.contains(_MAY_SHOW)).to_series()
    if not may_show.any():
        return
    in_file = pl.len().over("file")
    is_usual = 2 * pl.len().over("file", "length") > in_file
    numbered = (
        links.with_columns(is_odd=~is_usual & is_usual.any().over("file"), half=in_file / 2)
        .filter(may_show)
        # of these alone: whether most links of the file are among them
        .with_columns(
            are_numbers=in_file > pl.col("half"),
            are_longer=url.str.contains(_LONGER).sum().over("file") > pl.col("half"),
        )
    )
    yield from _own_numbers(numbered)
    yield from _other_numbers(numbered)


def _own_numbers(numbered: pl.DataFrame) -> Iterator[int]:
    """Yield the rows whose link has the number of the card that it is for."""
    spelled = pl.col("url").str.contains(_SPELLED)
    digits = pl.col("url").str.replace_all("[^0-9]", "")
    may_be_own = digits.str.contains(pl.col("last_4_sent"), literal=True) | spelled
    possible = numbered.filter(may_be_own & pl.col("last_4_sent").is_not_null())
    maybe_chance = defaultdict[tuple[int, float], list[int]](list)
    for link in possible.iter_rows(named=True):
        if _has_own(numbers_alone, link["url"], link["last_4_sent"]):
            yield link["result_row"]
        elif _has_own(numbers_within, link["url"], link["last_4_sent"]):
            if link["is_odd"] or not link["are_longer"]:
                yield link["result_row"]
            maybe_chance[link["file"], link["half"]].append(link["result_row"])
    for (_, half), rows in maybe_chance.items():
        if len(rows) > half:
            yield from rows


def _has_own(numbers: Callable[[str], Iterator[str]], url: str, last_4: str) -> bool:
    """Return whether one of the numbers in a URL, in any spelling, ends in these digits."""
    in_readings = chain.from_iterable(numbers(reading.text) for reading in readings(url))
    return any(number.endswith(last_4) for number in in_readings)


def _other_numbers(numbered: pl.DataFrame) -> Iterator[int]:
    """Yield the rows whose link has the number of any card, where that is not chance."""
    odd = numbered.filter(pl.col("is_odd") & ~pl.col("are_numbers"))
    yield from _rows_with_number(odd)
    for links in numbered.filter("are_numbers").partition_by("file"):
        shown = sum(map(_shows_number, links["url"].head(SAMPLE)))
        if shown >= NOT_BY_CHANCE and 2 * shown > min(links.height, SAMPLE):
            yield from _rows_with_number(links)


def _rows_with_number(links: pl.DataFrame) -> Iterator[int]:
    rows = links.select("result_row", "url").iter_rows()
    return (row for row, url in rows if _shows_number(url))


def _shows_number(url: str) -> bool:
    return any(next(numbers_alone(reading.text), None) for reading in readings(url))


def _like_hashes(links: pl.DataFrame) -> pl.DataFrame:
    """Return the links that may have the hash of a CVV.

    Looking for all of them takes 30 ms, and in each link by itself too long for 200,000.
    """
    url = pl.col("url")
    coded = links.filter(url.str.contains(_CODED))
    if coded.is_empty():
        return coded
    spellings = pl.concat_str(url.str.replace_many({"-": "+", "_": "/"}), url.str.to_lowercase())
    beginnings = list({beginning[:8] for beginning in cvv_hashes()})
    return coded.filter(spellings.str.contains_any(beginnings))
