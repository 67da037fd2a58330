"""Each extension's folder is deleted, and all of them at once: what stays takes an extract from its
drop to a balanced report.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from io import BytesIO, StringIO
from pathlib import Path

import pytest

from flows import extensions
from flows.adapters.gpg_opener import GpgOpener
from flows.extensions.simulator.extract import write_sample
from tests import keys

ROOT = Path(__file__).parents[2]
NAMES = [extension.__name__.rpartition(".")[2] for extension in extensions.extensions()]
TOML = """\
issuer = "bank"
root = "store"
test = true

[portal]
fingerprints = ["{fingerprint}"]
key_file = "portal.asc"
allowed_hosts = ["links.example.com"]
"""


def copied_without(names: list[str], place: Path) -> Path:
    """Copy the product without the folders of these extensions; return where it is."""
    for package in ("flows", "schemas"):
        shutil.copytree(
            ROOT / package, place / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for package in ("deploy", "sample_data"):
        (place / package).symlink_to(ROOT / package)
    (place / "CHANGELOG.md").symlink_to(ROOT / "CHANGELOG.md")
    for name in names:
        shutil.rmtree(place / "flows" / "extensions" / name)
    return place


def cardlink(place: Path, folder: Path, *line: str) -> dict[str, object]:
    """Run a command of that copy; return what it says as JSON."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "flows.cli", "--config", str(folder), *line, "--json"],
        env={**os.environ, "PYTHONPATH": str(place), "CARDLINK_ACTOR": "tester"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:] or done.stdout[-2000:]
    return dict(json.loads(done.stdout))


def answer(folder: Path) -> int:
    """Answer each chunk as the portal does, with a link for every row; return how many rows."""
    store = folder / "store" / "bank"
    rows = 0
    with GpgOpener([keys.sound().secret]) as opener:
        for chunk in sorted(store.glob("runs/*/chunks/*.pgp")):
            sent = [*csv.DictReader(StringIO(opener.open(chunk.read_bytes(), 1 << 24).decode()))]
            answered = StringIO()
            out = csv.writer(answered)
            out.writerow(["cuid", "last_4", "url", "expiration_date", "error"])
            for row in sent:
                card = row["service_card.pan"]
                link = f"https://links.example.com/l/{os.urandom(16).hex()}"
                out.writerow([row["cardholder.cuid"], card[-4:], link, "2027-01-31", ""])
            name = chunk.name.removesuffix(".pgp")
            (store / "results").mkdir(exist_ok=True)
            (store / "results" / name).write_text(answered.getvalue())
            rows += len(sent)
    return rows


ONE_BY_ONE = [pytest.param([name], id=name, marks=pytest.mark.slow) for name in NAMES]


@pytest.mark.parametrize("gone", [*ONE_BY_ONE, pytest.param(NAMES, id="all")])
def test_the_kernel_takes_an_extract_to_its_balance_without(
    gone: list[str], tmp_path: Path
) -> None:
    place = copied_without(gone, tmp_path / "product")
    folder = tmp_path / "issuers"
    (folder / "store" / "bank" / "extracts").mkdir(parents=True)
    (folder / "bank.toml").write_text(TOML.format(fingerprint=keys.sound().fingerprint))
    (folder / "portal.asc").write_bytes(keys.sound().public)
    extract = BytesIO()
    write_sample(extract, 20, bad=0.0, seed=1, as_of=datetime.now(UTC).date())
    (folder / "store" / "bank" / "extracts" / "cards.csv").write_bytes(extract.getvalue())

    submitted = cardlink(place, folder, "submit", "bank")
    answered = answer(folder)
    ingested = cardlink(place, folder, "ingest", "bank")
    waiting = cardlink(place, folder, "worklist", "bank")

    assert answered == 20, submitted
    assert "balanced" in json.dumps(ingested), (ingested, waiting)


@pytest.mark.parametrize(
    ("setting", "refusal"),
    [
        ('format = "xlsx"', 'source.format: takes "csv", "fixed"'),
        ('copybook = "cards.cpy"', "source.copybook: unknown key"),
    ],
)
def test_a_format_whose_extension_is_gone_is_refused_in_one_sentence(
    tmp_path: Path, setting: str, refusal: str
) -> None:
    place = copied_without(["formats"], tmp_path / "product")
    toml = TOML.format(fingerprint=keys.sound().fingerprint)
    (tmp_path / "bank.toml").write_text(f"{toml}\n[source]\n{setting}\n")
    (tmp_path / "portal.asc").write_bytes(keys.sound().public)

    done = subprocess.run(
        [sys.executable, "-P", "-m", "flows.cli", "--config", str(tmp_path), "submit", "bank"],
        env={**os.environ, "PYTHONPATH": str(place), "CARDLINK_ACTOR": "tester"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0
    assert refusal in said, said
