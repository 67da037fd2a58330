"""The changelog at the terminal."""

import re
from pathlib import Path

from flows import __version__
from flows.commands.changelog import releases_of
from flows.commands.context import Context
from flows.registry import ENTRIES
from flows.wiring import shipped

NAMED = {entry.name: entry for entry in ENTRIES}


def test_the_changelog_begins_with_the_version_that_is_installed_and_says_what_is_new_since() -> (
    None
):
    releases = list(releases_of(shipped("CHANGELOG.md").read_text("utf-8")))

    shown = NAMED["changelog"].invoke(Context(Path()), {"since": "0.1.0"}).facts
    nothing = NAMED["changelog"].invoke(Context(Path()), {"since": "99.0.0"}).facts

    assert __version__ == releases[0].version == shown["installed"]
    assert releases == sorted(releases, key=lambda release: release.number, reverse=True)
    assert [release.version for release in releases] == [
        release["version"] for release in shown["releases"]
    ]
    assert [] == nothing["releases"]
    newest = [__version__]
    for suffix, new in ((".dev12+g1a2b3c4d", newest), ("+c5678abcd", newest), (".post3+g12", [])):
        since = NAMED["changelog"].invoke(Context(Path()), {"since": __version__ + suffix}).facts
        assert new == [release["version"] for release in since["releases"]]
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
