import base64
import hashlib
import re
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.book.opening import NOBODY_REMOVED
from flows.commands.results import FILES
from flows.reports.page import _environment, across_page, run_page
from flows.reports.summary import FIGURES
from flows.reports.tally import KINDS
from flows.reports.wording import percent
from flows.wiring import forms_url
from schemas.breaks import Break, break_of
from tests.facts import facts

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}</style>"


def shapes(text: str) -> pl.DataFrame:
    return pl.DataFrame([(text, "card.pan.other", 3, text)], schema=KINDS, orient="row")


def across(**changes: Any) -> dict[str, Any]:
    sizes = {"count": 0, "rows": 0}
    ages = dict.fromkeys(("under 1 day", "1 to 2 days", "2 to 7 days", "over 7 days"), sizes)
    rows = dict.fromkeys(
        (
            "read",
            "linked",
            "error",
            "awaiting",
            "rejected",
            "ineligible",
            "duplicate",
            "suppressed",
        ),
        0,
    )
    outstanding = {**sizes, "overdue": sizes, "missing": {"no result": sizes}, "ages": ages}
    empty = {
        "issuer": "bank",
        "from": None,
        "to": None,
        "seen": "2026-11-20T09:00:00+00:00",
        "answer_within_hours": 48,
        "verdict": "nothing outstanding",
        "rows": rows,
        "runs": [],
        "outstanding": outstanding,
        "links": [{"when": "expired", "links": 0}],
        "reasons": [],
        "unlinked": {"cardholders": 0, "by_attempts": [], "reasons": []},
        "cardholders": {
            "sentence": "0 of 0 cardholders have a link; nobody waits.",
            "named": 0,
            "people": {},
            "cards": {},
            "waits": {},
            "nameless": 0,
            "removed": NOBODY_REMOVED.facts,
        },
        "active_twice": 0,
        "to_do": {"results overdue": 3},
        "worklist": [],
        "more_work": 0,
    }
    return {**empty, **changes}


def test_a_page_loads_nothing_runs_nothing_and_calls_nobody() -> None:
    pages = [run_page(*facts(missing=1, rejected=7)), across_page(across())]

    found_in = [
        re.findall(
            r"<script|https?://|\bsrc=|\bhref=\"(?!\.\./|\w)|@import|url\(|\son\w+=|style=", page
        )
        for page in pages
    ]

    assert [[], []] == found_in


def test_a_report_links_its_lists_and_workbook_and_never_the_links() -> None:
    page = run_page(*facts(missing=1, rejected=7))

    linked = set(re.findall(r'href="([^"]+)"', page))

    beside = {name for name in FILES.split() if name not in ("report.html", "links.csv")}
    up = "../../../reconciliation/"
    assert {*beside, "chunks.csv", f"{up}report.html", f"{up}report.html#worklist"} == linked


def test_pages_link_the_forms_where_the_address_of_prefect_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PREFECT_UI_URL", "https://prefect.example.com/")

    pages = [run_page(*facts(), forms_url()), across_page(across(), forms_url())]

    link = 'href="https://prefect.example.com/deployments?deployments.tags.name=by-hand&amp;'
    assert [1, 1] == [page.count(link) for page in pages]


@pytest.mark.parametrize("address", ["", "prefect.example.com", "javascript:alert(1)"])
def test_what_is_no_address_of_prefect_is_not_linked(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_UI_URL", address)

    assert "" == forms_url()


@pytest.mark.parametrize(("start", "up"), [(None, "../"), ("2026-11-01", "../../")])
def test_the_page_across_runs_links_the_reports_that_are_there(start: str | None, up: str) -> None:
    names = {
        "balanced": "bank-1",
        "balanced (purged)": "bank-2",
        "committed, to be uploaded": "bank-3",
    }
    rows = dict.fromkeys(FIGURES, 1)
    runs = [
        {"run": name, "as_of": "2026-11-20", "state": state, **rows}
        for state, name in names.items()
    ]

    page = across_page(across(runs=runs, **{"from": start}))

    linked = re.findall(r'href="([^"]+runs/[^"]+)"', page)
    assert [f"{up}runs/bank-1/report/report.html"] == linked


def test_the_policy_admits_exactly_the_style_sheet_of_the_page() -> None:
    page = run_page(*facts())

    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)

    assert style is not None
    assert policy is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
        == policy[1]
    )


def test_hostile_texts_stand_on_the_page_as_text() -> None:
    breaks = frozenset({break_of("FOREIGN_FILE", 1, f"{HOSTILE}.csv")})

    page = run_page(*facts(shapes=shapes(HOSTILE), breaks=breaks))

    assert page.count("&lt;script&gt;alert(1)") == 2
    assert "{{ 7*7 }}" in page
    assert not re.search(r"<script|<img", page)
    assert page.count("</style>") == 1


@given(st.text(max_size=60))
def test_no_text_changes_the_tags_of_a_page(text: str) -> None:
    plain = run_page(*facts(shapes=shapes("plain")))

    page = run_page(*facts(shapes=shapes(text)))

    assert re.findall(r"<[^>]*>", plain) == re.findall(r"<[^>]*>", page)


@pytest.mark.parametrize(
    ("reasons", "who"),
    [
        ({"card.pan.other": 2}, "refused by partner"),
        ({"row.result.lost": 2}, "decided by an operator"),
        ({"card.pan.other": 1, "row.result.lost": 1}, "1 by partner, 1 decided"),
    ],
)
def test_the_errors_of_a_run_say_who_made_them(reasons: dict[str, int], who: str) -> None:
    summary, chunks = facts()
    partner = [
        {"code": code, "rows": rows, "warned": 0, "first": [1], "action": "", "hint": ""}
        for code, rows in reasons.items()
    ]
    changed = {
        "rows": {**summary["rows"], "error": 2},
        "reasons": {"submit": [], "partner": partner},
    }

    page = run_page({**summary, **changed}, chunks)

    assert f">{who}<" in page


def test_a_page_over_millions_of_rows_is_small() -> None:
    breaks = frozenset(
        break_of("RESULT_SHORT", chunk, f"chunk {chunk}") for chunk in range(1, 1500)
    )
    report = facts(3_000, missing=1_500, rejected=123_456, breaks=breaks)

    page = run_page(*report)

    assert "3,123,456" in page
    assert len(page.encode()) < 200_000


@pytest.mark.parametrize("chunks", [0, 1])
def test_a_run_of_no_rows_and_a_small_one_have_pages_too(chunks: int) -> None:
    page = run_page(*facts(chunks))

    assert "Where every row of the extract went" in page


def test_breaks_of_one_kind_stand_on_one_line_with_their_first_places() -> None:
    breaks = frozenset(Break("RESULT_SHORT", 2, f"chunk {chunk}", "Ask.") for chunk in range(1, 10))

    page = run_page(*facts(9, breaks=breaks))

    assert page.count(">RESULT_SHORT<") == 1
    assert "chunk 1 (2); chunk 2 (2)" in page
    assert "and 3 more" in page


def test_a_hostile_chunk_name_across_runs_stands_as_text() -> None:
    runs = [{"run": HOSTILE, "as_of": "2026-11-20", "state": "out of balance", **across()["rows"]}]

    page = across_page(across(runs=runs, verdict="out of balance"))

    assert "<script" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0%"),
        (0.00001, "< 0.1%"),
        (0.001, "0.1%"),
        (0.5, "50.0%"),
        (0.999, "99.9%"),
        (0.99999, "> 99.9%"),
        (1.0, "100%"),
    ],
)
def test_a_share_is_never_rounded_to_nothing_or_to_all(share: float, text: str) -> None:
    assert text == percent(share)


def test_what_is_in_backticks_is_shown_as_code_and_stays_escaped() -> None:
    shown = str(_environment().filters["code"]("then `cardlink ingest` <b> it"))

    assert "then <code>cardlink ingest</code> &lt;b&gt; it" == shown
