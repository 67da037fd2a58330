"""The page server: reports for whoever has the token, and nothing else of the store."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from http.client import HTTPConnection, IncompleteRead
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from flows.commands.context import Context
from flows.commands.programme import programme
from flows.extensions.alerts.metrics import write_metrics
from flows.pages import connections, site
from flows.pages.__main__ import HEADERS, REQUEST_LINES, PagesPortError, listener, main
from flows.pages.address import PORT, ReportsAddressError, reports_address
from flows.runs.store import Entry, StoreBusyError
from flows.wiring import clear_token_problems, wire
from tests import keys
from tests.again import night
from tests.memory import DROPPED
from tests.pages import TOKEN, served_pages

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

    @property
    def report(self) -> str:
        return f"{TOKEN}/bank/runs/{self.run}/report/report.html"

    def get(self, path: str) -> tuple[int, str, bytes]:
        """Return status, type and content of what is served."""
        status, headers, content = respond(self.base, path)
        return status, headers["content-type"], content


def respond(
    base: str, path: str, method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and content of a response, for a path that is sent as it is."""
    connection = HTTPConnection(urlsplit(base).netloc, timeout=60)
    try:
        connection.request(method, f"/{path}", headers=headers or {})
        response = connection.getresponse()
        fields = {name.lower(): value for name, value in response.getheaders()}
        return response.status, fields, response.read()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("pages")
    _, run = night(folder)
    (folder / "bank.toml").write_text(TOML.format(fingerprint=keys.sound().fingerprint))
    with served_pages(folder) as base:
        yield Served(folder, base, run)


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
        "{token}/bank/extracts/bank-20261120.csv",
        "{token}/bank/runs/{run}/report/../ledger/part-00001.parquet",
        "{token}/bank/runs/{run}/report/..%2fledger/part-00001.parquet",
        "{token}/bank/runs/{run}/report/%2e%2e/ledger/part-00001.parquet",
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
        "http://127.0.0.1:port/a-token-of-the-tests",
        "https:///a-token-of-the-tests",
        "https://jo@reports.example.com/a-token-of-the-tests",
        "https://reports.example.com/a-token-of-the-tests?page=1",
        "https://reports.example.com/a b/a-token-of-the-tests",
        "ftp://reports.example.com:21/a-token-of-the-tests",
    ],
)
def test_it_does_not_start_without_an_address_and_a_long_token(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["pages"])
    monkeypatch.setenv("CARDLINK_REPORTS_URL", address)

    code = main()

    with pytest.raises(ReportsAddressError):
        reports_address(address)
    assert ReportsAddressError.exit_code == code
    assert "Set it like http://127.0.0.1:4201/TOKEN" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "listens_on"),
    [
        (f"http://127.0.0.1:4202/{TOKEN}", ("127.0.0.1", 4202)),
        (f"https://reports.example.com/{TOKEN}", ("127.0.0.1", PORT)),
        (f"https://reports.example.com:8443/cards/links/{TOKEN}/", ("127.0.0.1", PORT)),
    ],
)
def test_it_listens_at_its_address_or_behind_a_proxy_on_loopback(
    address: str, listens_on: tuple[str, int]
) -> None:
    assert listens_on == reports_address(address).listens_on


@pytest.mark.parametrize(
    ("base", "warnings"),
    [("http://127.0.0.1:4201", 0), ("https://10.0.0.7", 0), ("http://10.0.0.7:4201", 1)],
)
def test_a_token_that_goes_through_a_network_in_clear_is_warned_of(
    base: str, warnings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARDLINK_REPORTS_URL", f"{base}/{TOKEN}")

    problems = list(clear_token_problems())

    assert warnings == len(problems)
    assert not any(TOKEN in problem for problem in problems)


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with listener("127.0.0.1", 0) as bound, pytest.raises(PagesPortError, match="in use"):
        listener(*bound.getsockname())


@pytest.mark.parametrize("before", ["", "cards/"], ids=["stripped by the proxy", "kept by it"])
def test_behind_a_proxy_that_ends_tls_pages_open_below_its_path(
    served: Served, before: str
) -> None:
    url = f"https://reports.example.com/cards/{TOKEN}"
    with served_pages(served.folder, url) as base:
        host = {"Host": "reports.example.com", "X-Forwarded-Proto": "https"}

        status, _, content = respond(base, f"{before}{served.report}", headers=host)
        health = respond(base, f"{before}healthz")
        arrivals = respond(base, f"{before}healthz/arrivals")

    assert 200 == status
    assert b"<html" in content
    assert (200, b"ok\n", 200) == (health[0], health[2], arrivals[0])


@pytest.mark.parametrize("by", ["path", "header"])
def test_metrics_of_every_issuer_are_scraped_by_whoever_has_the_token(
    served: Served, by: str
) -> None:
    write_metrics(wire(served.folder, "bank"))
    path = f"{TOKEN}/metrics" if by == "path" else "metrics"
    headers = {"Authorization": f"Bearer {TOKEN}"} if by == "header" else {}

    status, fields, content = respond(served.base, path, headers=headers)

    assert (200, True) == (status, fields["content-type"].startswith("text/plain; version="))
    assert b'cardlink_committed_runs_total{issuer="bank"} 1.0\n' in content


def test_a_scraper_that_speaks_openmetrics_gets_it(served: Served) -> None:
    write_metrics(wire(served.folder, "bank"))
    headers = {"Accept": "application/openmetrics-text; version=1.0.0"}

    _, fields, content = respond(served.base, f"{TOKEN}/metrics", headers=headers)

    assert fields["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert content.endswith(b"# EOF\n")


@pytest.mark.parametrize("sent", ["", "Bearer", "Bearer another-token-altogether", TOKEN])
def test_metrics_without_the_token_are_not_there(served: Served, sent: str) -> None:
    status, _, _ = respond(served.base, "metrics", headers={"Authorization": sent})

    assert 404 == status


@pytest.mark.parametrize("host", ["attacker.example.com", "127.0.0.1.example.com", ""])
def test_another_host_is_refused_and_health_has_none(served: Served, host: str) -> None:
    refused, _, _ = respond(served.base, served.report, headers={"Host": host})
    health, _, _ = respond(served.base, "healthz", headers={"Host": host})

    assert (400, 200) == (refused, health)


def test_head_says_what_get_would_without_the_content(served: Served) -> None:
    _, full, content = respond(served.base, served.report)

    status, headers, body = respond(served.base, served.report, "HEAD")

    assert (200, b"") == (status, body)
    assert str(len(content)) == headers["content-length"] == full["content-length"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_it_is_only_read(served: Served, method: str) -> None:
    status, _, _ = respond(served.base, served.report, method)

    assert 405 == status


@pytest.mark.parametrize("path", ["{report}", "nothing", "healthz"])
def test_every_response_has_the_headers_of_safety(served: Served, path: str) -> None:
    _, headers, _ = respond(served.base, path.format(report=served.report))

    expected = {name.lower(): value for name, value in HEADERS.items()}
    assert expected == {name: headers[name] for name in expected}


def test_a_store_that_does_not_respond_is_not_called_missing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> bytes:
        raise StoreBusyError(place="report.html", code="SlowDown")

    monkeypatch.setattr(site, "open_store", busy)

    status, _, content = served.get(served.report)

    assert 503 == status
    assert b"Try again in a minute" in content


@contextmanager
def held_open(base: str, count: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """Hold connections open that never end their request."""
    address = urlsplit(base)
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_connection((address.hostname, address.port), 60))
            for _ in range(count)
        ]
        for connection in sockets:
            connection.sendall(sent)
        yield sockets


def is_ended(connection: socket.socket) -> bool:
    """Return whether the server ended a connection, which it does within the time of the test."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_headers_without_end_are_refused(served: Served) -> None:
    line = b"X: " + b"x" * REQUEST_LINES

    with held_open(served.base, 1, b"GET /healthz HTTP/1.1\r\n" + line) as [connection]:
        answer = connection.recv(4096)

    assert answer.startswith(b"HTTP/1.1 400")


def test_four_hundred_idle_connections_keep_no_browser_out_and_start_no_thread(
    served: Served,
) -> None:
    before = threading.active_count()
    with held_open(served.base, 400) as sockets:
        status, _, _ = served.get(served.report)
        started = threading.active_count() - before

        assert 200 == status
        assert started <= site.READERS
        # the oldest made room
        assert all(is_ended(connection) for connection in sockets[: 400 - connections.MOST])


def test_of_too_many_connections_without_a_request_the_oldest_makes_room(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST", 2)
    monkeypatch.setattr(connections, "SILENT", 60.0)

    with held_open(served.base, 3) as [oldest, *others]:
        assert is_ended(oldest)
        for connection in others:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: 127"])
def test_whoever_does_not_send_a_request_is_hung_up_on(
    served: Served, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SILENT", 0.2)

    with held_open(served.base, 1, sent) as [connection]:
        assert is_ended(connection)


class Pieced(BytesIO):
    """A page of a store that is away after some pieces."""

    def __init__(self, pieces: int, *, is_whole: bool) -> None:
        super().__init__(b"x" * site.PIECE * pieces)
        self.entry = Entry("report.html", site.PIECE * 4, DROPPED, "1")
        self.is_whole = is_whole
        self.sizes: list[int] = []
        self.ended = threading.Event()

    def close(self) -> None:
        super().close()
        self.ended.set()

    def read(self, size: int | None = -1, /) -> bytes:
        self.sizes.append(size or -1)
        piece = super().read(size)
        if not piece and not self.is_whole:
            raise StoreBusyError(place="report.html", code="SlowDown")
        return piece


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_page_is_sent_in_pieces_and_never_passes_for_whole_where_one_fails(
    served: Served,
    is_whole: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    page = Pieced(4 if is_whole else 2, is_whole=is_whole)
    monkeypatch.setattr(site, "open_store", lambda *_: SimpleNamespace(open=lambda _: page))

    ended = nullcontext() if is_whole else pytest.raises(IncompleteRead)
    with ended:
        served.get(served.report)

    assert {site.PIECE} == set(page.sizes)
    assert page.ended.wait(60)
    lines = [] if is_whole else [str(StoreBusyError(place="report.html", code="SlowDown"))]
    assert lines == [record.getMessage() for record in caplog.records]
    assert "Traceback" not in caplog.text


def test_a_browser_that_breaks_http_leaves_no_trace_in_the_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    begun = b"POST /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    with held_open(served.base, 1, begun + b"zzz\r\n") as [connection]:
        assert connection.recv(20).startswith(b"HTTP/1.1 4")
        while not is_ended(connection):
            pass

    assert "" == caplog.text


def test_no_connection_lasts_longer_than_it_may_whatever_it_does(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LONGEST", 0.5)
    request = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

    with held_open(served.base, 1, request) as [connection]:
        answer = connection.recv(4096)
        while not is_ended(connection):
            pass

    assert answer.startswith(b"HTTP/1.1 200")
