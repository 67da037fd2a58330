"""What a process says to machines: spans by OTLP, and log lines as JSON, both redacted."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from flows import json_logs, tracing
from flows.reports.ingestion import ingest
from flows.tracing import flush_traces, stage, start_tracing
from tests.night import submitted

ROOT = Path(__file__).parent.parent
CARD = "4242424242424242"


@contextmanager
def collector(status: int = 200) -> Iterator[tuple[str, list[Any]]]:
    """Yield the address of an OTLP collector on loopback, and the spans that it has received."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    received: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = ExportTraceServiceRequest.FromString(body)
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    received.extend(scope.spans)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def untraced() -> Iterator[None]:
    """Leave the process as it was: without traces."""
    yield
    for started in tracing._STARTED:
        if started is not None:
            started.provider.shutdown()
    tracing._STARTED.clear()


def facts_of(span: Any) -> dict[str, Any]:
    kinds = ("string_value", "int_value", "bool_value", "double_value")
    return {
        fact.key: next(getattr(fact.value, kind) for kind in kinds if fact.value.HasField(kind))
        for fact in span.attributes
    }


@pytest.mark.usefixtures("untraced")
def test_a_collector_gets_the_stages_of_an_ingest_below_what_was_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, _, manifest = submitted(tmp_path)
    bench.answer()
    with collector() as (address, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        start_tracing("1")

        with stage("cardlink ingest", issuer="bank"):
            ingest(bench.context)
        flush_traces()

    spans = {span.name: span for span in received}
    root = spans.pop("cardlink ingest")
    assert {"match results", "report"} == spans.keys()
    assert {root.span_id} == {span.parent_span_id for span in spans.values()}
    assert {root.trace_id} == {span.trace_id for span in spans.values()}
    assert {"cardlink.run": manifest.run} == facts_of(spans["report"])
    assert all(span.end_time_unix_nano > span.start_time_unix_nano for span in received)


@pytest.mark.usefixtures("untraced")
def test_a_span_says_which_error_ended_it_and_never_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with collector() as (address, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        start_tracing("1")

        with pytest.raises(ValueError, match=CARD), stage("plan", extract=f"x-{CARD}.csv"):
            raise ValueError(CARD)
        flush_traces()

    [span] = received
    assert ("ValueError", 2) == (span.status.message, span.status.code)
    assert CARD.encode() not in span.SerializeToString()


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("status", [400, 0])
def test_a_collector_that_refuses_or_is_away_is_one_line_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    with collector(status or 200) as (address, _):
        there = address if status else "http://127.0.0.1:1"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", there)
        monkeypatch.setattr(tracing, "FLUSH", 0.2)
        start_tracing("1")

        for name in ("plan", "commit"):
            with stage(name):
                pass
            flush_traces()

    warnings = [line.message for line in caplog.records if line.levelno >= logging.WARNING]
    assert ["Traces were not accepted by the collector; the work goes on without."] == warnings


def test_where_traces_are_off_nothing_of_them_is_imported() -> None:
    script = """
import sys
from flows import tracing, wiring
wiring.begin_process()
with wiring.one_command(), tracing.stage("plan"):
    pass
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert "[]" == done.stdout.strip()


def test_each_log_line_is_a_json_object_without_card_data(monkeypatch: pytest.MonkeyPatch) -> None:
    out = StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    json_logs.log_as_json()
    handler = logging.getLogger().handlers[-1]
    try:
        json_logs.log_line(f"error: {CARD} in\nline 2")
        try:
            raise ValueError(CARD)
        except ValueError:
            json_logs.LOG.exception("it broke: %s", CARD)
    finally:
        logging.getLogger().removeHandler(handler)
        json_logs.LOG.setLevel(logging.NOTSET)

    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert ["info", "info", "error"] == [line["level"] for line in lines]
    assert {"time", "level", "logger", "message"} <= lines[0].keys()
    assert "ValueError" in lines[2]["exception"]
    assert CARD not in out.getvalue()
