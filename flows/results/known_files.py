"""What is known of ingested result files: those that are done, and those that wait for what.

A file with rows that could not be placed waits: it is read again once something it depends on has
changed, and reported again only if that changed its outcome.

It is stored with a digest of what its outcome depends on (the turn of the last commit, the key that
opens results, what links are judged by, time zone, version) and one of the outcome. So results may
arrive before their run's commit, and a link counts once its host is allowed or its form confirmed.
"""

from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import select, update

from flows import __version__
from flows.results.confirmed_forms import link_rules
from flows.runs.adapters import Adapters
from flows.runs.answers import SETTLED, runs_of
from flows.runs.commits import read_last_turn
from flows.runs.context import IssuerContext
from flows.runs.identity import canonical, digest
from flows.runs.store import Entry
from schemas.database import RESULT_FILE


class KnownFile(NamedTuple):
    """A result file as it was ingested last; `runs`: of one that waits, those that it answers."""

    number: int
    file: str
    size: int
    version: str
    decisions: int  # how many decisions about it were known
    basis: str | None  # what its outcome depends on; empty: it is read each time
    outcome: str
    told: str  # empty where the report of its run says all
    runs: frozenset[str] = frozenset()

    @property
    def is_done(self) -> bool:
        """Whether nothing can change its outcome any more."""
        return self.basis is SETTLED

    @property
    def is_stray(self) -> bool:
        """Whether it has breaks that belong to no run."""
        return bool(self.told) and not self.runs

    def is_of(self, entry: Entry, decisions: int) -> bool:
        """Return whether it is a file as it is stored, with so many decisions about it."""
        return (self.size, self.version, self.decisions) == (entry.size, entry.version, decisions)


def known_files(adapters: Adapters, issuer: str) -> dict[str, KnownFile]:
    """Return the result files that were ingested, by what each is known by (`file_id`)."""
    columns = [RESULT_FILE.c[name] for name in KnownFile._fields if name != "runs"]
    newest = (RESULT_FILE.c.issuer == issuer) & ~RESULT_FILE.c.is_superseded
    with adapters.database.snapshot() as connection:
        files = [KnownFile(*row) for row in connection.execute(select(*columns).where(newest))]
        waiting = [file.number for file in files if not file.is_done]
        runs = runs_of(connection, issuer, waiting) if waiting else {}
    return {file.file: file._replace(runs=frozenset(runs.get(file.number, ()))) for file in files}


def forget_told(adapters: Adapters, issuer: str, gone: Iterable[KnownFile]) -> None:
    """Note that result files that wait are there no more: one that comes again is told of again."""
    numbers = [file.number for file in gone]
    of_them = (RESULT_FILE.c.issuer == issuer) & RESULT_FILE.c.number.in_(numbers)
    forgotten = update(RESULT_FILE).where(of_them).values(basis="", outcome="", told="")
    if numbers:
        adapters.database.act(issuer, lambda connection: connection.execute(forgotten).close())


class Basis(NamedTuple):
    """Digests of what outcomes depend on: where rows belong and what links are judged by (`all`).

    `links` is of the latter alone: nothing else can change a file whose rows were all attributed.
    """

    all: str
    links: str


def basis_of(context: IssuerContext) -> Basis:
    """Return what the outcomes of result files depend on now."""
    issuer = context.issuer
    last_turn = read_last_turn(context.adapters, issuer.issuer)
    rules = link_rules(context)
    links = {
        "hosts": list(rules.hosts),
        "forms": list(map(str, rules.forms)),
        "day_first": issuer.portal.day_first,
    }
    known = [last_turn, context.opener_key(), issuer.time_zone, __version__]
    return Basis(digest(canonical({"known": known, **links})), digest(canonical(links)))
