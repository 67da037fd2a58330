"""The page server: reports for whoever has the token, and nothing else of the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from flows.commands.context import Context
from flows.commands.programme import programme
from flows.pages import ReportsAddressError, page_server
from tests import keys
from tests.again import night
from tests.servers import free_port

TOKEN = "a-token-of-the-tests"
TOML = """
issuer = "bank"
root = "store"
[portal]
fingerprints = ["{fingerprint}"]
allowed_hosts = ["links.example.com"]
"""


class Served(NamedTuple):
    """A store with a night whose results came, and where its reports are served."""

    folder: Path
    base: str
    run: str

    def get(self, path: str) -> tuple[int, str, bytes]:
        """Return status, type and content of what is served."""
        try:
            with urlopen(f"{self.base}/{path}", timeout=60) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read()
        except HTTPError as error:
            with error:
                return error.code, error.headers["Content-Type"], error.read()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("pages")
    _, run = night(folder)
    (folder / "bank.toml").write_text(TOML.format(fingerprint=keys.sound().fingerprint))
    base = f"http://127.0.0.1:{free_port()}"
    with page_server(folder, f"{base}/{TOKEN}") as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield Served(folder, base, run)
        server.shutdown()


def test_the_report_opens_with_its_token_as_a_page(served: Served) -> None:
    status, kind, content = served.get(f"{TOKEN}/bank/runs/{served.run}/report/report.html")

    assert (200, "text/html; charset=utf-8") == (status, kind)
    assert (
        served.folder / f"store/bank/runs/{served.run}/report/report.html"
    ).read_bytes() == content


def test_the_page_of_all_issuers_is_served_and_that_of_one(served: Served) -> None:
    for issuer in ("", "bank"):
        programme(Context(served.folder), issuer)

    for page in ("programme/report.html", "bank/programme/report.html"):
        status, _, content = served.get(f"{TOKEN}/{page}")

        assert (200, (served.folder / "store" / page).read_bytes()) == (status, content)


@pytest.mark.parametrize("name", ["errors.csv", "chunks.csv", "summary.json", "report.xlsx"])
def test_the_other_files_of_a_report_are_served(served: Served, name: str) -> None:
    status, _, content = served.get(f"{TOKEN}/bank/runs/{served.run}/report/{name}")

    assert 200 == status
    assert content


@pytest.mark.parametrize(
    "path",
    [
        "bank/runs/{run}/report/report.html",
        "another-token-altogether/bank/runs/{run}/report/report.html",
        "{token}",
        "{token}/",
        "{token}/bank/runs/{run}/report/",
        "{token}/bank/runs/{run}/report/links.csv",
        "{token}/bank/runs/{run}/report/links-00001.csv",
        "{token}/bank/runs/{run}/report/%6cinks.csv",
        "{token}/bank/runs/{run}/report/rows/part-00001.parquet",
        "{token}/bank/runs/{run}/chunks/{run}-00001.csv.pgp",
        "{token}/bank/runs/{run}/ledger/part-00001.parquet",
        "{token}/bank/runs/{run}/manifest.json",
        "{token}/bank/extracts/bank-20261120.csv",
        "{token}/bank/runs/{run}/report/../manifest.json",
        "{token}/bank/runs/{run}/report/..%2fmanifest.json",
        "{token}/bank/runs/{run}/report/%2e%2e/manifest.json",
        "{token}/../bank.toml",
        "{token}/..%2f..%2f..%2fetc%2fpasswd",
        "{token}//etc/passwd",
        "{token}/bank/reconciliation/",
        "{token}/nobody/reconciliation/report.html",
        "{token}/nobody/programme/report.html",
        "{token}/programme/runs/{run}/report/report.html",
        "{token}/bank/runs/{run}/report/report.html%00.csv",
        "{token}/bank/runs/{run}/report/summary.json%0a",
    ],
)
def test_nothing_else_of_the_store_or_the_machine_is_served(served: Served, path: str) -> None:
    status, kind, content = served.get(path.format(token=TOKEN, run=served.run))

    assert (404, "text/plain") == (status, kind)
    assert content.startswith(b"Not here.")


def test_a_link_below_the_store_is_not_followed(served: Served) -> None:
    report = served.folder / f"store/bank/runs/{served.run}/report"
    (report / "other.html").symlink_to(served.folder / "bank.toml")

    status, _, _ = served.get(f"{TOKEN}/bank/runs/{served.run}/report/other.html")

    assert 404 == status


@pytest.mark.parametrize(
    "address",
    [
        "",
        "http://127.0.0.1:4201",
        "http://127.0.0.1:4201/short",
        "http://127.0.0.1/a-token-of-the-tests",
    ],
)
def test_it_does_not_start_without_a_port_and_a_long_token(tmp_path: Path, address: str) -> None:
    with pytest.raises(ReportsAddressError):
        page_server(tmp_path, address)
