"""`python -m tests.stored.make ARCHIVE [CODE]`: write a store by the cardlink in the folder CODE
(default: this one).

Every command runs in a process of its own, with the clock at the day of the run; README.md says
what became of each run. Keys and the mapped extracts are those of `nights.tar.xz`, so that they
stand once.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import tarfile
import time
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

HERE = Path(__file__).parent
FIRST, SECOND = "first-bank", "second-bank"
SHARED = ("portal.asc", "portal-secret.asc", f"{SECOND}.toml")
DELIVERED = {
    "20240110": 12,
    "20240401": 28,
    "20240403": 24,
    "20240404": 20,
    "20240405": 30,
    "20240406": 18,
}
FORM = "https://links.example.com/l/{hex:32}"
LATER, DISMISSED, MOVED = "20240407", "20240408", "20240409"
TOML = """issuer = "first-bank"
root = "store"
test = true
[limits]
max_reject_rate = 0.5
max_error_rate = 0.6
max_row_jump = 20.0
[portal]
key_file = "portal.asc"
fingerprints = ["ADBE32BB5580779A224C83CB045DB46131AFFFAC"]
allowed_hosts = ["links.example.com"]
rows_per_chunk = 8
[retention]
ledger_days = 63
"""
TOLD = """[acknowledgement]
receipt_within_hours = 24
"""
DELIVERING = """[deliveries.default]
schedule = "by-hand"
[deliveries.marketing]
schedule = "by-hand"
format = "jsonl"
key_file = "portal.asc"
fingerprint = "ADBE32BB5580779A224C83CB045DB46131AFFFAC"
"""
# The command with its clock at argv[1]; it kills itself where it is about to create a key that fits
# argv[2].
CHILD = """
import os, re, signal, sys, time
from datetime import datetime
import flows.wiring
moment, fatal = datetime.fromisoformat(sys.argv[1]), sys.argv[2]
flows.wiring.now = lambda: moment
from flows.adapters.local import LocalStore
create = LocalStore.create
def mortal(self, key, data):
    if fatal and re.search(fatal, key):
        time.sleep(1)  # what other threads have begun is written
        os.kill(os.getpid(), signal.SIGKILL)
    return create(self, key, data)
LocalStore.create = mortal
from flows.cli.main import main
main(sys.argv[3:])
"""


class Bank:
    """A configuration folder with its store, driven by the command line of the cardlink in
    `code`.
    """

    def __init__(self, folder: Path, code: Path) -> None:
        self.folder, self.code = folder, code
        self.now = datetime.fromisoformat("2024-01-10T01:30:00+00:00")
        self.store = folder / "store"

    def at(self, day: str, hour: int = 2) -> None:
        """Set the clock."""
        self.now = datetime.fromisoformat(f"{day}T{hour:02d}:00:00+00:00")

    def type(self, *words: object, fatal: str = "", expected: tuple[int, ...] = (0,)) -> None:
        """Run a command; what it wrote is as old as its clock says."""
        began, given = (
            time.time() - 1,
            [self.now.isoformat(), fatal, "--config", self.folder, *words],
        )
        environment = {**os.environ, "PYTHONPATH": str(self.code), "CARDLINK_ACTOR": "ann"}
        done = subprocess.run(
            [sys.executable, "-c", CHILD, *map(str, given)],
            cwd=self.folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode not in ((-9,) if fatal else expected):
            raise SystemExit(f"{words}: {done.returncode}\n{done.stdout}{done.stderr}")
        self.date(began)
        self.now += timedelta(minutes=7)

    def date(self, began: float) -> None:
        """Give what was written since the age of the clock."""
        for path in self.folder.rglob("*"):
            if path.is_file() and path.stat().st_mtime >= began:
                os.utime(path, (self.now.timestamp(), self.now.timestamp()))

    def drop(self, day: str, rows: int) -> None:
        """Drop a generated extract of first-bank, whose cards expire in 2042."""
        began, extract = time.time() - 1, self.store / FIRST / "extracts" / f"{FIRST}-{day}.csv"
        self.type("sample", extract, "--rows", rows, "--bad", 0.15, "--seed", int(day))
        with extract.open(encoding="utf-8", newline="") as file:
            header, *lines = csv.reader(file)
        year, cuid = (
            header.index(f"{name}") for name in ("service_card.expiration_year", "cardholder.cuid")
        )
        for line in lines:
            line[year] = "42" if line[year].isdigit() else line[year]
            # every extract has people of its own
            line[cuid] = line[cuid] and f"{line[cuid]}-{day[4:]}"
        with extract.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *lines])
        self.date(began)

    def drop_changed(self, day: str, before: str, run: str) -> None:
        """Drop an extract with the rows of an earlier one that have a link, at other addresses."""
        began, folder = time.time() - 1, self.store / FIRST / "extracts"
        linked = pl.read_csv(self.store / FIRST / "runs" / run / "report/links.csv")["cuid"]
        rows = pl.read_csv(folder / f"{FIRST}-{before}.csv", infer_schema=False)
        moved = rows.filter(pl.col("cardholder.cuid").is_in(linked.implode())).with_columns(
            pl.lit("2 Side St").alias("service_card.address.address1")
        )
        moved.write_csv(folder / f"{FIRST}-{day}.csv")
        self.date(began)

    def run_of(self, issuer: str, day: str, which: int = -1) -> str:
        """Return the id of a run of that day."""
        return sorted(
            path.name for path in (self.store / issuer / "runs").glob(f"{issuer}-{day}-*")
        )[which]

    def rejected(self, run: str) -> int:
        """Return the first rejected row of a run that names its card."""
        [part] = sorted((self.store / run.partition("-2")[0] / "runs" / run / "ledger").iterdir())
        ledger = pl.read_parquet(part, columns=["row", "fate", "cuid", "last_4"]).drop_nulls()
        return int(ledger.filter(fate="rejected")["row"].min())  # type: ignore[arg-type]  # a number

    def answer(self, issuer: str, fail: float) -> None:
        """Let the portal answer what is committed."""
        self.type(
            "simulate",
            issuer,
            "--secret-key",
            self.folder / "portal-secret.asc",
            "--fail",
            fail,
            "--seed",
            7,
        )


def write(bank: Bank) -> None:
    """Do everything that README.md says of the store."""
    for day, rows in DELIVERED.items():
        bank.now = datetime.strptime(f"{day} +0000", "%Y%m%d %z")
        bank.drop(day, rows)
    submit = ("submit", FIRST, "--extract")

    bank.at("2024-01-10")
    bank.type(*submit, f"{FIRST}-20240110.csv")
    bank.answer(FIRST, 0.2)
    bank.type("ingest", FIRST)

    bank.at("2024-04-01")
    bank.type("purge", FIRST)
    if (bank.code / "flows/operations/stored_format.py").exists():
        bank.type("upgrade", FIRST, "--reason", "a week without trouble")
    bank.type(*submit, f"{FIRST}-20240401.csv", "--open", "row-jump")
    answered = bank.run_of(FIRST, "20240401")
    bank.type("outbox", "uploaded", answered)
    bank.answer(FIRST, 0.4)
    last = max((bank.store / FIRST / "results").glob(f"card-links-{answered}-*"))
    began, lines = time.time() - 1, last.read_text("utf-8").splitlines(keepends=True)
    last.write_text("".join(lines[:-1]), "utf-8")  # a row short
    bank.date(began)
    bank.type("ingest", FIRST, expected=(4,))
    chunk = int(last.name.rpartition("-result")[0][-5:])
    bank.type(
        "mend",
        "close",
        answered,
        "RESULT_SHORT",
        f"chunk {chunk}",
        "--decision",
        "lost",
        "--reason",
        "confirmed",
    )
    if (bank.code / "flows/commands/link_forms.py").exists():  # earlier versions have no forms
        bank.type("link-form", FIRST, FORM, "--reason", "says the partner")
    bank.type("deliver", FIRST)
    receivers: list[list[str]] = [[]]
    if has_receivers(bank.code):
        receivers = [["default"], ["marketing"]]
    for receiver in receivers:
        bank.type("deliver", FIRST, *receiver, "--confirm", 1, "--reason", "receipt 1")
    if (bank.code / "flows/operations/acknowledgement.py").exists():
        bank.type("acknowledge", FIRST, "--confirm", 1, "--reason", "receipt 1")

    bank.at("2024-04-02")
    bank.type("resubmit", answered, "--errors", "--reason", "once more")
    bank.answer(FIRST, 0.2)  # its result waits to be ingested

    bank.at("2024-04-03")
    bank.type(*submit, f"{FIRST}-20240403.csv")
    waiting = bank.run_of(FIRST, "20240403")
    bank.type("outbox", "uploaded", waiting, 1)
    bank.type("outbox", "hold", waiting, 2, "--reason", "the partner asked")
    if (bank.code / "flows/operations/giving_up.py").exists():
        closed = ("--row", bank.rejected(waiting), "--reason", "the account is closed")
        bank.type("mend", "give-up", waiting, *closed)

    for day, fatal in (
        ("20240404", "/seals/"),
        ("20240405", "/chunks/.*-00003"),
        ("20240406", "/manifest.json"),
    ):
        bank.at(f"{day[:4]}-{day[4:6]}-{day[6:]}")
        bank.type(*submit, f"{FIRST}-{day}.csv", fatal=fatal)

    for day, extract in (
        ("20240304", "2024-04-01"),
        ("20240305", "2024-04-02"),
        ("20240306", "2024-04-03"),
    ):
        bank.at(extract, 5)
        last_night = {"fatal": "/seals/"} if day == "20240306" else {}
        bank.type("submit", SECOND, "--extract", f"cards-{day}.txt", **last_night)  # type: ignore[arg-type]
        if day == "20240304":
            bank.answer(SECOND, 0.2)
            bank.type("ingest", SECOND)

    bank.at("2024-04-08")
    bank.drop(LATER, 16)  # never submitted
    bank.drop(DISMISSED, 10)
    bank.type("dismiss", FIRST, f"{FIRST}-{DISMISSED}.csv", "--reason", "sent by mistake")
    if (bank.code / "flows/operations/keeping_links.py").exists():
        bank.drop_changed(MOVED, "20240401", answered)
        opened = ("--open", "row-jump", "--open", "seen-before")
        bank.type(*submit, f"{FIRST}-{MOVED}.csv", *opened)
        bank.type("mend", "keep-link", FIRST, "--changed", "--reason", "a spelling")
    if (bank.code / "flows/operations/erasure.py").exists():
        forgotten = bank.run_of(SECOND, "20240304")
        bank.type("person", "erase", forgotten, "--row", 1, "--reason", "request 1")


def has_receivers(code: Path) -> bool:
    """Return whether a version delivers to several receivers."""
    return (code / "flows/operations/receivers.py").exists()


def make(archive: Path, code: Path) -> None:
    """Write the archive."""
    with TemporaryDirectory() as made:
        bank = Bank(Path(made), code)
        (bank.store / FIRST / "extracts").mkdir(parents=True)
        (bank.store / SECOND / "extracts").mkdir(parents=True)
        with TemporaryDirectory() as old, tarfile.open(HERE / "nights.tar.xz") as nights:
            nights.extraction_filter = getattr(tarfile, "data_filter", None)
            nights.extractall(old)
            for name in SHARED:
                shutil.copy(Path(old) / name, bank.folder)
            for extract in (Path(old) / "store" / SECOND / "extracts").iterdir():
                shutil.copy2(extract, bank.store / SECOND / "extracts")
        is_acknowledging = (code / "flows/operations/acknowledgement.py").exists()
        toml = TOML + TOLD * is_acknowledging + DELIVERING * has_receivers(code)
        (bank.folder / f"{FIRST}.toml").write_text(toml)
        write(bank)
        for probe in bank.store.glob("*/probe"):
            shutil.rmtree(probe)  # it names this folder
        with tarfile.open(archive, "w:xz", preset=9) as out:
            for path in sorted(bank.folder.iterdir()):
                out.add(path, path.name)


if __name__ == "__main__":
    make(
        Path(sys.argv[1]).absolute(),
        Path(sys.argv[2] if len(sys.argv) > 2 else HERE.parents[1]).absolute(),
    )
