"""A night that is a net leaves an extract that was refused as it is, until something changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flows.errors import CardlinkError
from flows.submissions.night_extracts import night_extracts
from schemas.portal import CUID, POSTAL_CODE
from tests.builders import portal_rows
from tests.night import Bench, issuer, local_bench, portal_csv


def refused(folder: Path, **settings: object) -> tuple[Bench, str]:
    """Return a bench whose only extract was refused, and its key."""
    bench = local_bench(folder, **settings)
    cells = [{CUID: f"C-{number}", POSTAL_CODE: "ABC"} for number in range(3)]
    extract = bench.drop_bytes(portal_csv(portal_rows(*cells)))
    with pytest.raises(CardlinkError):
        bench.submit(extract)
    return bench, f"bank/extracts/{extract}"


def test_an_extract_that_was_refused_is_left_while_it_and_the_settings_are_the_same(
    tmp_path: Path,
) -> None:
    bench, extract = refused(tmp_path, arrivals={})

    nights = [night_extracts(bench.context).to_submit]
    loose = replace(bench, issuer=issuer(arrivals={}, limits={"max_reject_rate": 1.0}))
    nights.append(night_extracts(loose.context).to_submit)
    bench.drop_bytes(portal_csv(portal_rows({CUID: "C-9"})))
    nights.append(night_extracts(bench.context).to_submit)

    assert [[], [extract], [extract]] == nights


def test_an_extract_that_waits_for_a_decision_is_left_and_said(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, arrivals={})
    bench.submit(bench.drop_bytes(portal_csv(portal_rows({CUID: "C-1"}))))
    bench.drop_bytes(portal_csv(portal_rows({CUID: "C-9"})))

    night = night_extracts(bench.context)

    assert [] == night.to_submit
    assert ["held back" in line for line in night.left] == [True]


def test_a_night_without_arrivals_tries_a_refused_extract_each_time(tmp_path: Path) -> None:
    bench, extract = refused(tmp_path)

    assert ([extract], []) == night_extracts(bench.context)
