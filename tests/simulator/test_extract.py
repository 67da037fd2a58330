from __future__ import annotations

import csv
import io
from datetime import date

import polars as pl
import pytest

from flows.extensions.simulator.extract import Dialect, SampleTruth, flaws, write_sample
from flows.submissions.normalise import normalise
from flows.submissions.validate import validate
from schemas import portal
from schemas.expressions import PUBLISHED
from schemas.issuer import RuleSettings
from tests.simulator.uploads import DAY, paper_seal, people, upload_csv
from tests.simulator.uploads import portal as desk


def written(
    rows: int, *, bad: float = 0.0, seed: int = 0, dialect: Dialect | None = None
) -> tuple[bytes, SampleTruth]:
    out = io.BytesIO()
    truth = write_sample(out, rows, as_of=DAY, bad=bad, seed=seed, dialect=dialect)
    return out.getvalue(), truth


def as_frame(content: bytes) -> pl.DataFrame:
    text = pl.read_csv(content, infer_schema=False)
    return text.with_row_index("row", 1).with_columns(pl.col("row").alias("line") + 1)


def test_the_sample_has_the_portals_header_and_as_many_rows_as_asked() -> None:
    content, truth = written(1234)

    header, *rows = list(csv.reader(io.StringIO(content.decode(), newline="")))
    assert portal.columns() == tuple(header)
    assert (1234, 1234) == (len(rows), truth.rows)


@pytest.mark.parametrize("rows", [0, 1, 7, 8])
def test_small_samples_are_whole_too(rows: int) -> None:
    content, truth = written(rows, bad=1.0)

    assert rows + 1 == len(list(csv.reader(io.StringIO(content.decode(), newline=""))))
    assert rows == truth.bad.height


def test_every_good_row_passes_the_portals_own_checks() -> None:
    for seed in range(3):
        books = desk()
        books.upload("a.csv.pgp", paper_seal(upload_csv(people(1000, seed))))
        assert not [row for row in books.books[0].rows if row.faults]


def test_good_rows_pass_the_rules_without_even_a_warning() -> None:
    content, _ = written(5000)

    verdicts = validate(normalise(as_frame(content), RuleSettings()), DAY, RuleSettings())

    assert [] == verdicts["code"].unique().to_list()


def test_bad_rows_are_refused_with_the_code_they_were_made_for_and_no_other_row_is() -> None:
    content, truth = written(5000, bad=0.3)

    verdicts = validate(normalise(as_frame(content), RuleSettings()), DAY, RuleSettings()).filter(
        severity="reject"
    )

    expected = set(truth.bad.select("row", "column", "code").iter_rows())
    assert expected <= set(verdicts.select("row", "column", "code").iter_rows())
    assert set(truth.bad["row"]) == set(verdicts["row"])
    assert {flaw.code for flaw in flaws(DAY)} == set(truth.bad["code"])


def test_cards_are_published_ones_or_of_the_test_range_and_never_the_same_twice() -> None:
    pans = [row[portal.PAN] for row in people(20_000)]

    assert list(PUBLISHED) == pans[: len(PUBLISHED)]
    assert {"400000"} == {pan[:6] for pan in pans[len(PUBLISHED) :]}
    assert 20_000 == len(set(pans))


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    first, again, other = (written(500, bad=0.1, seed=seed)[0] for seed in (3, 3, 4))

    assert first == again
    assert first != other


def test_a_sample_is_written_in_the_issuers_dialect() -> None:
    names = {portal.CUID: "CUSTOMER_NO", portal.PAN: "CARD_NO", portal.LAST_NAME: "SURNAME"}
    dialect = Dialect(";", "cp1252", "\r\n", names, trailer="TRAILER;{rows}")

    content, _ = written(300, dialect=dialect)

    lines = content.decode("cp1252").split("\r\n")
    assert "CUSTOMER_NO;CARD_NO;SURNAME" == lines[0]
    assert ["TRAILER;300", ""] == lines[-2:]
    assert 303 == len(lines)


def test_some_rows_bring_a_hash_instead_of_a_cvv_and_none_brings_both() -> None:
    rows = people(1000)

    kinds = {(bool(row[portal.CVV]), bool(row[portal.CVV_HASH])) for row in rows}

    assert {(True, False), (False, True)} == kinds


def test_cards_of_a_sample_outlive_their_links_on_any_day() -> None:
    out = io.BytesIO()
    write_sample(out, 1000, as_of=date(2027, 12, 31))

    rows = normalise(as_frame(out.getvalue()), RuleSettings())
    assert 0 == validate(rows, date(2027, 12, 31), RuleSettings()).height
