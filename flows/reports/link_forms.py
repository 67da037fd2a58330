"""The forms of the links that were received: how many have a confirmed one, and what others have.

Nothing is written: forms are learned anew whenever somebody asks.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

import polars as pl

from flows.reports.verdicts import OUT_OF_BALANCE
from flows.results.confirmed_forms import confirmed_forms
from flows.results.dropped import result_files
from flows.results.intake import examine
from flows.results.learned_forms import ENOUGH, LearnedForm, learn
from flows.results.links import of_forms
from flows.runs.context import IssuerContext
from flows.runs.store import ObjectMissingError
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from schemas.breaks import LINK_FORM
from schemas.ledger import LINKED
from schemas.link_form import LinkForm
from schemas.records import FormDecision

LINKS = 10_000  # the last ones, from which forms are learned
RUNS = 30  # the last runs, among which those that balance are looked for
FILES = 5  # the last result files that wait, among which links that depart are looked for


class ConfirmedForm(NamedTuple):
    """A confirmed form, the record of it, and how many of the last links have it."""

    form: LinkForm
    decision: FormDecision
    links: int


class LinkForms(NamedTuple):
    """How many links were looked at, the confirmed forms, and the forms of the links without one.

    `learned` are of links that count, `departing` of links that are breaks since they depart.
    """

    links: int
    confirmed: list[ConfirmedForm]
    learned: list[LearnedForm]
    departing: list[LearnedForm]


def link_forms(context: IssuerContext) -> LinkForms:
    """Return the forms of the links of runs that balance, and of those that depart."""
    issuer = context.issuer
    links = received_links(StoredRuns(context.adapters, issuer.issuer))
    forms = confirmed_forms(context.adapters, issuer.issuer)
    confirmed = [
        ConfirmedForm(form, decision, count_links(links, form)) for form, decision in forms.items()
    ]
    learned = _other_forms(links, issuer.portal.allowed_hosts, tuple(forms))
    departing = learn(departing_links(context), issuer.portal.allowed_hosts)
    return LinkForms(len(links), confirmed, learned, departing)


def forms_to_confirm(
    context: IssuerContext, runs: StoredRuns, *, depart: bool
) -> list[LearnedForm]:
    """Return the forms that a person is asked to confirm: learned from enough links.

    With `depart`, also those of links that depart, however few they are.
    """
    hosts = context.issuer.portal.allowed_hosts
    confirmed = confirmed_forms(context.adapters, context.issuer.issuer)
    learned = _other_forms(received_links(runs), hosts, tuple(confirmed))
    departing = learn(departing_links(context), hosts) if depart else []
    return [*(known for known in learned if known.links >= ENOUGH), *departing]


def _other_forms(
    links: pl.Series, hosts: Sequence[str], confirmed: Sequence[LinkForm]
) -> list[LearnedForm]:
    """Return the forms of the links that have no confirmed one."""
    others = links.to_frame("url").filter(~of_forms(confirmed))
    return learn(others["url"], hosts)


def count_links(links: pl.Series, form: LinkForm) -> int:
    """Return how many links have a form."""
    return links.to_frame("url").filter(of_forms([form])).height


def received_links(runs: StoredRuns) -> pl.Series:
    """Return the last links of the runs that balance, those of the newest runs first."""
    parts = [pl.Series("url", dtype=pl.String)]
    missing = LINKS
    for run in _balanced_runs(runs):
        with suppress(ObjectMissingError):  # purged meanwhile
            parts += [rows["url"] for rows in run.rows(["url"], pl.col("state") == LINKED)]
        if sum(map(len, parts)) >= missing:
            break
    return pl.concat(parts).head(missing)


def _balanced_runs(runs: StoredRuns) -> Iterator[StoredRun]:
    for run_id in islice(reversed(runs.ids), RUNS):
        run = runs.run(run_id)
        summary = run.summary
        is_balanced = summary is not None and summary["verdict"] != OUT_OF_BALANCE
        if is_balanced and run.id not in runs.without_ledger:
            yield run


def departing_links(context: IssuerContext) -> list[str]:
    """Return the links that depart, of the newest result files that wait."""
    dropped = result_files(context.adapters, context.issuer.issuer)
    files = [file for file in dropped if file.known is not None and not file.known.is_done]
    files.sort(key=attrgetter("entry.modified"), reverse=True)
    links = list[str]()
    for file in files[:FILES]:
        read, attributed = examine(context, file)
        departing = attributed.outcomes.filter(trouble=LINK_FORM)
        links += read.rows.join(departing, on="position", how="semi")["url"].to_list()
    return links
