"""A rule is one entry of the table: one more is applied to every row, whatever the size, the form
or the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import mkdtemp

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.extensions.simulator.extract import write_sample
from flows.submissions.normalise import normalise
from flows.submissions.scan import Scan
from schemas import ledger, rules
from schemas.issuer import RuleSettings
from schemas.manifest import SourceIdentity
from schemas.portal import ADDRESS2, CUSTOMER_KEY, NICKNAME, columns
from schemas.rule import Rule
from tests.builders import quick
from tests.night import DAY, Bench, local_bench
from tests.submissions.made_up import made_up, table

MAPPED = {name: f"FIELD {at:02d}" for at, name in enumerate(reversed(columns()))}
FORMS: dict[str, dict[str, object]] = {
    "portal": {},
    "mapped": {"columns": MAPPED, "source": {"delimiter": ";", "encoding": "cp1252"}},
}
RARE_TEXTS = {
    NICKNAME: ["Reise €", None, "a nickname of many words", None, "Weißgold", None, None],
    CUSTOMER_KEY: [None, None, "k", None, None, None, None, None, "Œuvre 1", None, None],
    ADDRESS2: ["Apt #4", None, "Hinterhaus, dritte Tür links", None, "  Straße "],
}

Outcome = tuple[bool, tuple[str, ...]]  # whether the row is sent, and its "column|code"


@settings(max_examples=10)
@given(st.integers(0, 10_000))
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", quick(1, [1, 2_000, 1_999, 500]))
def test_made_up_rules_are_applied_to_exactly_the_rows_that_break_them(
    rows: int, form: str, seed: int
) -> None:
    found, expected = outcomes(rows, form, seed)

    assert expected == found


@pytest.mark.slow
@settings(max_examples=10)
@given(st.integers(0, 10_000))
@pytest.mark.parametrize("form", FORMS)
def test_made_up_rules_are_applied_to_exactly_those_of_many_rows(form: str, seed: int) -> None:
    found, expected = outcomes(20_000, form, seed)

    assert expected == found


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(3))
def test_made_up_rules_are_applied_to_exactly_those_of_a_large_extract(
    form: str, seed: int
) -> None:
    found, expected = outcomes(200_000, form, seed)

    assert expected == found


def outcomes(rows: int, form: str, seed: int) -> tuple[dict[int, Outcome], dict[int, Outcome]]:
    """Return what becomes of each row by a table with made-up rules, and what must become of it."""
    made = made_up(seed)
    mixed = table(made, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "RULES", mixed)
        found = scanned(rows, form)
    ranks = {rule.code: rank for rank, rule in enumerate(mixed)}
    severities = {rule.code: rule.severity_by(RuleSettings()) for rule in mixed}
    usual = usually(rows, form)
    broken = [[one.rule for one in made if one.broken(row)] for row in normalised(rows)]
    return found, {
        row: _outcome(usual[row][1], broken[row - 1], ranks, severities) for row in usual
    }


def _outcome(
    usual: tuple[str, ...],
    broken: list[Rule],
    ranks: Mapping[str, int],
    severities: Mapping[str, str],
) -> Outcome:
    """Return the outcome of a row: of each cell the first reason of the table, and warnings only
    where it is sent.
    """
    reasons = [*usual, *(f"{rule.column}|{rule.code}" for rule in broken)]
    first: dict[tuple[str, str], str] = {}
    for reason in sorted(reasons, key=lambda one: ranks[one.partition("|")[2]]):
        column, _, code = reason.partition("|")
        first.setdefault((column, severities[code]), reason)
    refused = sorted(reason for (_, severity), reason in first.items() if severity == "reject")
    return not refused, tuple(refused or sorted(first.values()))


@cache
def usually(rows: int, form: str) -> dict[int, Outcome]:
    """Return what becomes of each row by the table as it is."""
    return scanned(rows, form)


def scanned(rows: int, form: str) -> dict[int, Outcome]:
    """Read an extract as every command does; return what becomes of each row."""
    content = extract(rows, form)
    source = SourceIdentity(
        key="a.csv", version="", size=len(content), sha256="0" * 64, newlines=rows + 1
    )
    pieces = list(Scan(bench(form).context, BytesIO(content), source, DAY))
    sent = [
        chunk.select("row", "reasons", fate=pl.lit(ledger.SUBMITTED))
        for one in pieces
        for chunk in one.chunks
    ]
    others = [one.others.select("row", "reasons", "fate") for one in pieces]
    return {
        row: (fate == ledger.SUBMITTED, tuple(sorted(reasons)))
        for row, reasons, fate in pl.concat([*sent, *others]).iter_rows()
    }


@cache
def bench(form: str) -> Bench:
    return local_bench(Path(mkdtemp(prefix="bench-")), **FORMS[form])


@cache
def cells(rows: int) -> pl.DataFrame:
    """Return generated rows, some of them spoiled, some with text where the usual row has none."""
    out = BytesIO()
    write_sample(out, rows, bad=0.05, seed=5, as_of=DAY)
    usual = pl.read_csv(out.getvalue(), infer_schema=False)
    places = pl.Series(range(rows))
    return usual.with_columns(
        pl.coalesce(pl.Series(texts).gather(places % len(texts)), name).alias(name)
        for name, texts in RARE_TEXTS.items()
    )


@cache
def extract(rows: int, form: str) -> bytes:
    """Return them as the portal's own file, or under other names, in another order, and in
    cp1252.
    """
    if form == "portal":
        return cells(rows).write_csv().encode()
    renamed = cells(rows).rename(MAPPED).select(sorted(MAPPED.values()))
    return renamed.write_csv(separator=";").encode("cp1252")


@cache
def normalised(rows: int) -> list[dict[str, str | None]]:
    """Return the cells of every row as the portal spells them; the first is that of row 1."""
    frame = cells(rows).with_row_index("row", 1).with_columns(line=pl.col("row") + 1)
    return (
        normalise(frame.select("row", "line", *columns()), RuleSettings())
        .select(columns())
        .to_dicts()
    )


def test_the_rules_that_are_made_up_are_of_every_kind_and_break_some_rows_but_not_all() -> None:
    made = [one for seed in range(20) for one in made_up(seed)]

    telling = {
        one.rule.code.rpartition(".")[2]
        for one in made
        if 0 < sum(map(one.broken, normalised(500))) < 500
    }

    assert {"alike", "both", "character", "long", "longer", "unwanted"} == telling
