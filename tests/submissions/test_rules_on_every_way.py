"""Whatever sends a row: it was validated by pandera in that command, by the rules as they are at
that moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import cache
from io import StringIO
from pathlib import Path
from tempfile import mkdtemp
from types import MappingProxyType
from typing import Any, NamedTuple

import polars as pl
import pytest

from flows.adapters.local import LocalStore
from flows.extensions.partner_api.link_requests import Terms
from flows.extensions.partner_api.linking import link_row, link_typed
from flows.extensions.partner_api.service import LinkRequestError
from flows.operations.reread import RowsDifferError
from flows.operations.reseal import reseal
from flows.resend.renewal import renew
from flows.resend.resubmission import Request, plan_resubmit
from flows.resend.selection import UNCHANGED, RowSelection
from flows.resend.template import correction_template
from schemas.portal import ADDRESS1, ADDRESS2, CITY, CUID, CUSTOMER_KEY, NICKNAME, PAN
from schemas.rule import Rule
from tests import keys
from tests.again import PANS, again, correct
from tests.builders import portal_rows, quick
from tests.extensions.partner_api.linker import REACHED, SERVICE, TYPED, Linker
from tests.night import NOON, Bench, local_bench, portal_csv
from tests.submissions.made_up import Asked, added, watched

Cells = Mapping[str, str | None]
NOTHING: Cells = MappingProxyType({})
LINKS_END, DUE = date(2027, 1, 20), date(2027, 1, 6)
NEW = keys.sound(copy=2)
LONG = Rule(
    "made.up.long",
    NICKNAME,
    pl.col(NICKNAME).str.len_chars() <= 9,
    example={NICKNAME: "ten chars!"},
)
TWICE = Rule(
    "made.up.twice",
    ADDRESS2,
    pl.col(ADDRESS2) != pl.col(CUSTOMER_KEY),
    example={CUSTOMER_KEY: "Building 4", ADDRESS2: "Building 4"},
)
SNOWMAN = Rule(
    "made.up.character",
    ADDRESS2,
    ~pl.col(ADDRESS2).str.contains("☃"),
    example={ADDRESS2: "the house with the ☃"},
)


class Sent(NamedTuple):
    """What a command sent: the cuids, and code or error by cuid of what it did not send."""

    cuids: set[str]
    refused: dict[str, str]


class Way(NamedTuple):
    """A way rows are sent: what happens before the rule is there, and the command itself."""

    before: Callable[[Path, Cells], Bench]
    command: Callable[[Bench, Cells], Sent]
    rule: Rule
    refusal: str = ""  # why the row is not sent, where that is not the code of the rule


def of_run(bench: Bench, run: str) -> Sent:
    """Return what the ledger of a run says; c-1 and c-3 keep the rule, c-2 breaks it."""
    found = bench.ledger(run)
    refused = found.filter(pl.col("fate") != "submitted")
    reasons = {
        cuid: one[0].rpartition("|")[2] for cuid, one in refused.select("cuid", "reasons").rows()
    }
    return Sent(set(found.filter(fate="submitted")["cuid"]), reasons)


def a_bench(folder: Path, **settings: Any) -> Bench:
    wide = {"max_reject_rate": 1.0, "max_error_rate": 1.0, "max_row_jump": 1.0}
    return local_bench(folder, limits=wide, service=SERVICE, **settings)


def people(broken: Cells, every: Cells = NOTHING) -> bytes:
    """Return an extract of three, each with a card of their own; the second breaks the rule."""
    rows = [
        {PAN: pan, **REACHED, **every, **cells}
        for pan, cells in zip(PANS, [{}, broken, {}], strict=False)
    ]
    return portal_csv(portal_rows(*rows))


def nothing(folder: Path, broken: Cells) -> Bench:
    return a_bench(folder)


def submitted(folder: Path, broken: Cells) -> Bench:
    bench = a_bench(folder)
    bench.submit(bench.drop_bytes(people(broken)))
    return bench


def refused_by_the_partner(folder: Path, broken: Cells) -> Bench:
    bench = submitted(folder, broken)
    bench.answer(fail_share=1.0)
    bench.ingest()
    return bench


def linked(folder: Path, broken: Cells) -> Bench:
    bench = submitted(folder, broken)
    bench.answer(expires=LINKS_END)
    bench.ingest()
    return replace(bench, now=lambda: datetime.combine(DUE, NOON.time(), UTC))


def portfolio(folder: Path, broken: Cells) -> Bench:
    bench = a_bench(folder, full_portfolio=True)
    bench.submit(bench.drop_bytes(people({})))
    bench.answer(expires=LINKS_END)
    bench.ingest()
    return bench


def lacking_a_city(folder: Path, broken: Cells) -> Bench:
    bench = a_bench(folder)
    bench.submit(bench.drop_bytes(people({}, {CITY: None})))
    return bench


def first_run(bench: Bench) -> str:
    return next(run.id for run in bench.runs.committed())


def submit(bench: Bench, broken: Cells) -> Sent:
    return of_run(bench, bench.submit(bench.drop_bytes(people(broken))).manifest.run)


def resubmit(bench: Bench, broken: Cells) -> Sent:
    request = Request(first_run(bench), RowSelection(errors=True), "again")
    left = plan_resubmit(bench.context, request).rows.drop_nulls("why")
    done = of_run(bench, again(bench, request.run, request.selection).manifest.run)
    return done._replace(refused=dict(left.select("cuid", "why").rows()))


def resubmit_a_corrected_extract(bench: Bench, broken: Cells) -> Sent:
    name = correct(bench, people(broken))
    return of_run(
        bench, again(bench, first_run(bench), RowSelection(rejects=True), extract=name).manifest.run
    )


def resubmit_with_corrections(bench: Bench, broken: Cells) -> Sent:
    run = first_run(bench)
    template = pl.concat(correction_template(bench.context, run))
    cities = template.filter(column=CITY).with_columns(correction=pl.lit("Boston"))
    wrong = [
        {"run": run, "row": 2, "column": column, "correction": cell}
        for column, cell in broken.items()
    ]
    more = pl.DataFrame(
        wrong, {name: cities.schema[name] for name in ("run", "row", "column", "correction")}
    )
    name = correct(bench, pl.concat([cities, more], how="diagonal").write_csv().encode())
    return of_run(bench, again(bench, run, RowSelection(), corrections=name).manifest.run)


def renewal(bench: Bench, broken: Cells) -> Sent:
    (done,) = renew(bench.context, 14).runs
    return of_run(bench, done.manifest.run)


def portfolio_night(bench: Bench, broken: Cells) -> Sent:
    content = people(broken, {ADDRESS1: "2 Main St"})
    return of_run(bench, bench.submit(bench.drop_bytes(content, "bank-20261121.csv")).manifest.run)


def single_links(bench: Bench, broken: Cells) -> Sent:
    run = first_run(bench)
    return asked_for(
        lambda linker, row: link_row(bench.context, linker, run, row, terms=Terms("for a test"))
    )


def typed_links(bench: Bench, broken: Cells) -> Sent:
    typed = [
        {**TYPED, PAN: PANS[at - 1], CUID: f"c-{at}", **(broken if at == 2 else {})}
        for at in (1, 2, 3)
    ]
    cells = [{name: cell or "" for name, cell in one.items()} for one in typed]
    return asked_for(lambda linker, row: link_typed(bench.context, linker, cells[row - 1]))


def asked_for(link: Callable[[Linker, int], object]) -> Sent:
    """Ask for a single link for each of three rows."""
    linker, refused = Linker(), {}
    for row in (1, 2, 3):
        try:
            link(linker, row)
        except LinkRequestError as error:
            refused[f"c-{row}"] = next(
                rule.code for rule in (LONG, TWICE) if rule.code in str(error)
            )
    return Sent({str(request.cardholder.cuid) for request in linker.asked}, refused)


WAYS = {
    "submit": Way(nothing, submit, LONG),
    "submit, two columns": Way(nothing, submit, TWICE),
    "submit, a character": Way(nothing, submit, SNOWMAN),
    "resubmit": Way(refused_by_the_partner, resubmit, TWICE, UNCHANGED),
    "corrected extract": Way(lacking_a_city, resubmit_a_corrected_extract, SNOWMAN),
    "corrections": Way(lacking_a_city, resubmit_with_corrections, LONG),
    "renewal": Way(linked, renewal, TWICE),
    "portfolio": Way(portfolio, portfolio_night, SNOWMAN),
    "single link of a row": Way(submitted, single_links, LONG),
    "single link as typed": Way(nothing, typed_links, TWICE),
}


class Outcome(NamedTuple):
    """What a command sent, what pandera was given meanwhile, and everything that was logged."""

    sent: Sent
    asked: Asked
    log: str


@cache
def outcome(name: str) -> Outcome:
    """Run a command after a rule was added that the second row breaks."""
    way, log = WAYS[name], StringIO()
    handler = logging.StreamHandler(log)
    bench = way.before(Path(mkdtemp(prefix="way-")), way.rule.example)
    logging.getLogger().addHandler(handler)
    try:
        with added(way.rule), watched() as asked:
            return Outcome(way.command(bench, way.rule.example), asked, log.getvalue())
    finally:
        logging.getLogger().removeHandler(handler)


@pytest.mark.parametrize("way", quick(6, list(WAYS)))
def test_a_rule_that_was_added_holds_for_every_row_that_is_sent_from_then_on(way: str) -> None:
    found = outcome(way)

    assert Sent({"c-1", "c-3"}, {"c-2": WAYS[way].refusal or WAYS[way].rule.code}) == found.sent


@pytest.mark.parametrize("way", WAYS)
def test_pandera_was_given_every_row_that_is_sent(way: str) -> None:
    found = outcome(way)

    assert set() == found.sent.cuids - set(found.asked.cuids)
    assert len(found.sent.cuids) <= len(found.asked.cuids)


@pytest.mark.parametrize("way", WAYS)
def test_no_value_stays_in_what_pandera_says_or_logs(way: str) -> None:
    found = outcome(way)

    assert (0, set()) == (found.asked.kept, found.asked.leaked)
    assert [] == [
        text for text in (*PANS, *WAYS[way].rule.example.values()) if text and text in found.log
    ]


@pytest.mark.parametrize("rule", [LONG, SNOWMAN], ids=lambda rule: rule.code)
def test_a_row_that_no_longer_passes_is_not_sealed_anew_and_named(
    tmp_path: Path, rule: Rule
) -> None:
    bench = rotated(submitted(tmp_path, rule.example))
    before = bench.snapshot()

    with added(rule), pytest.raises(RowsDifferError, match=r"1 row .*\(rows 2\)"):
        resealed(bench)

    assert before == bench.snapshot()


@pytest.mark.slow
def test_pandera_was_given_every_row_that_is_sealed_anew(tmp_path: Path) -> None:
    bench = rotated(submitted(tmp_path, {}))

    with watched() as asked:
        resealed(bench)

    assert {"c-1", "c-2", "c-3"} == set(asked.cuids)


def rotated(bench: Bench) -> Bench:
    """Return the bench with a portal that has a new key."""
    portal = bench.issuer.portal.model_copy(update={"fingerprints": (NEW.fingerprint,)})
    return replace(bench, issuer=bench.issuer.model_copy(update={"portal": portal}), key=NEW)


def resealed(bench: Bench) -> None:
    assert isinstance(bench.store, LocalStore)
    reseal(bench.context, bench.store, first_run(bench), (), "the portal has a new key")
