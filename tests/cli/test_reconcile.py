from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from flows.adapters.local import LocalStore
from flows.commands.context import Context
from flows.commands.overview import reconcile
from tests import keys
from tests.night import Bench, made_once

TOML = """
issuer = "{name}"
root = "store"
test = true
[limits]
max_reject_rate = 0.5
max_error_rate = 0.5
[portal]
fingerprints = ["{fingerprint}"]
allowed_hosts = ["links.example.com"]
"""


@made_once
def bank(folder: Path, /, name: str = "bank", *, days_ago: int = 0) -> Bench:
    """Return a bench whose issuer is configured in `folder`, with one run sent so many days before
    today.
    """
    (folder / f"{name}.toml").write_text(
        TOML.format(name=name, fingerprint=keys.sound().fingerprint)
    )
    (folder / "store").mkdir(exist_ok=True)
    bench = Bench(LocalStore(folder / "store"))
    then = datetime.now(UTC) - timedelta(days=days_ago)
    sending = replace(
        bench, issuer=bench.issuer.model_copy(update={"issuer": name}), now=lambda: then
    )
    sending.submit(sending.drop(20))
    return replace(sending, now=lambda: datetime.now(UTC))


def test_answers_in_time_exit_with_0_and_overdue_ones_with_3(tmp_path: Path) -> None:
    bank(tmp_path)
    bank(tmp_path, "other", days_ago=5)

    codes = [reconcile(Context(tmp_path), name).exit_code for name in ("bank", "other")]

    assert [0, 3] == codes


def test_without_an_issuer_all_are_looked_at_and_the_worst_decides(tmp_path: Path) -> None:
    bank(tmp_path)
    bank(tmp_path, "other", days_ago=5)

    answer = reconcile(Context(tmp_path))

    assert ["bank", "other"] == [one["issuer"] for one in answer.facts["issuers"]]
    assert (3, "cardlink worklist other") == (answer.exit_code, str(answer.next_step))
    assert any("results awaited" in line or "chunks to upload" in line for line in answer.lines)


def test_a_run_out_of_balance_exits_with_4(tmp_path: Path) -> None:
    bench = bank(tmp_path)
    bench.answer(host="elsewhere.example.net")
    bench.ingest()

    answer = reconcile(Context(tmp_path), "bank")

    assert 4 == answer.exit_code


def test_dates_without_runs_have_nothing_outstanding(tmp_path: Path) -> None:
    bank(tmp_path)

    answer = reconcile(
        Context(tmp_path), "bank", from_date=date(2001, 1, 1), to_date=date(2001, 12, 31)
    )

    assert (0, []) == (answer.exit_code, answer.facts["issuers"][0]["runs"])
