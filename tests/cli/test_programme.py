from datetime import date, timedelta
from pathlib import Path

from flows.commands.context import Context
from flows.commands.programme import programme
from tests.cli.test_reconcile import TOML, bank
from tests.night import NOON

BUSINESS_DAY = NOON.date()  # of the extracts that a bench drops


def pages(folder: Path) -> list[str]:
    """Return where a page of the programme is, below the folder."""
    return sorted(str(page.relative_to(folder)) for page in folder.rglob("programme/report.html"))


def elsewhere(folder: Path, name: str) -> None:
    """Give an issuer a root of its own, with nothing in it."""
    (folder / "apart").mkdir()
    toml = TOML.format(name=name, fingerprint="0" * 40).replace('"store"', '"apart"')
    (folder / f"{name}.toml").write_text(toml)


def test_all_issuers_of_a_root_have_one_page_and_one_issuer_its_own(tmp_path: Path) -> None:
    bench = bank(tmp_path)
    bench.answer()
    bench.ingest()
    bank(tmp_path, "zebra")

    together = programme(Context(tmp_path))
    before = (tmp_path / "store/programme/report.html").read_bytes()
    own = programme(Context(tmp_path), "bank", weeks=2)

    assert ["store/bank/programme/report.html", "store/programme/report.html"] == pages(tmp_path)
    assert before == (tmp_path / "store/programme/report.html").read_bytes()
    assert "20 of 40 cardholders have a link; 20 wait for you." == together.sentence
    assert "20 of 20 cardholders have a link; nobody waits." == own.sentence
    assert ("cardlink worklist", None) == (str(together.next_step), own.next_step)


def test_issuers_with_roots_of_their_own_have_pages_of_their_own(tmp_path: Path) -> None:
    bank(tmp_path)
    elsewhere(tmp_path, "zebra")

    shown = programme(Context(tmp_path)).lines

    assert ["apart/programme/report.html", "store/programme/report.html"] == pages(tmp_path)
    assert "zebra" not in (tmp_path / "store/programme/report.html").read_text()
    assert [
        f"files of bank: {tmp_path}/store/programme/",
        f"files of zebra: {tmp_path}/apart/programme/",
    ] == shown[-2:]


def test_cardholders_are_in_the_week_in_which_they_were_named(tmp_path: Path) -> None:
    bank(tmp_path, days_ago=7)

    [week] = programme(Context(tmp_path)).facts["weeks"]

    assert (BUSINESS_DAY - timedelta(BUSINESS_DAY.weekday()), 20) == (
        date.fromisoformat(week["week"]),
        week["named"],
    )


def test_without_issuers_nothing_is_written(tmp_path: Path) -> None:
    result = programme(Context(tmp_path))

    assert (["no issuers yet"], []) == (result.lines, pages(tmp_path))
