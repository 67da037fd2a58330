"""What is new in this version, as the wheel brings it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, NamedTuple

from flows import __version__
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.parameters import Field
from flows.commands.result import Part, Result
from flows.wiring import shipped

_VERSION = r"\d+\.\d+\.\d+"
# a wheel of a commit between releases has more behind the number of the release
_SINCE = Field(
    metavar="VERSION",
    pattern=rf"{_VERSION}(\.(dev|post)\d+)?(\+[a-z0-9]+)?",
    form="a version such as 0.2.0 or 0.2.0.dev12+g1a2b3c4d",
    longest=60,
)
_HEADING = re.compile(rf"^## ({_VERSION})\n", re.MULTILINE)


class Release(NamedTuple):
    """A version of the changelog, and what is new in it."""

    version: str
    text: str

    @property
    def number(self) -> tuple[int, ...]:
        """The version, to compare."""
        return numbered(self.version)


def numbered(version: str) -> tuple[int, ...]:
    """Return a version as numbers, to compare: a wheel between releases is before the next one."""
    release, *suffix = re.split(r"(?=\.dev|\.post|\+)", version, maxsplit=1)
    is_before = bool(suffix) and not suffix[0].startswith(".post")
    return (*map(int, release.split(".")), -1 if is_before else 0)


@entry("changelog", form="it prints a page; CHANGELOG.md is the same")
def changelog(
    context: Context,
    *,
    since: Annotated[str, _SINCE] = "",
) -> Result:
    """Say what is new in this version of cardlink.

    Args:
        since: Say it of all versions after this one, as `cardlink --version` shows it where an
            earlier one is installed.

    Example:
        cardlink changelog --since 0.1.0
    """
    releases = list(releases_of(shipped("CHANGELOG.md").read_text("utf-8")))
    if since:
        releases = [release for release in releases if release.number > numbered(since)]
    else:
        releases = releases[:1]
    facts = {"installed": __version__, "releases": [release._asdict() for release in releases]}
    shown: list[Part] = []
    for release in releases:
        shown += [f"cardlink {release.version}", "", *release.text.splitlines()]
    return Result(facts, shown or [f"nothing after {since}: this is {__version__}"])


def releases_of(page: str) -> Iterator[Release]:
    """Yield the versions of a changelog, the last one first."""
    _, *parts = _HEADING.split(page)
    for version, text in zip(parts[::2], parts[1::2], strict=True):
        yield Release(version, text.strip())
