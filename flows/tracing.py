"""Spans of the stages of a command, sent by OTLP over HTTP where CARDLINK_TRACES=otlp asks for it.

Where it is off nothing is imported, and a stage costs a function call. Where the spans go is said
by the standard variables (`OTEL_EXPORTER_OTLP_ENDPOINT` and others). A collector that is away costs
a command at most FLUSH and is one line of the log: no command depends on it. Spans have names,
ids, counts and the class of an error, never its text.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from flows.redaction import redact

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

LOG = logging.getLogger("cardlink")
FLUSH = 5  # seconds that the end of a command waits for the collector
EXTRA = "pip install 'cardlink[traces]'"
Note = Callable[..., None]


class _Tracing(NamedTuple):
    tracer: "Tracer"
    provider: "TracerProvider"


_STARTED: list[_Tracing | None] = []  # None: the packages are not there


def start_tracing(version: str) -> None:
    """Send spans from now on; once in a process."""
    if _STARTED:
        return
    try:
        _STARTED.append(_tracing(version))
    except ImportError:
        _STARTED.append(None)
        LOG.warning("CARDLINK_TRACES: no traces are sent, since a package is missing: %s", EXTRA)


def can_trace() -> bool:
    """Return whether the packages are there that send spans."""
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter  # noqa: F401
    except ImportError:
        return False
    return True


def flush_traces() -> None:
    """Send what was not sent yet, at the end of a command."""
    for tracing in _STARTED:
        if tracing is not None:
            tracing.provider.force_flush(1000 * FLUSH)


def current_ids() -> dict[str, str]:
    """Return the ids of trace and span at work, as log lines name them; none where it is off."""
    if not any(_STARTED):
        return {}
    from opentelemetry.trace import get_current_span

    span = get_current_span().get_span_context()
    if not span.is_valid:
        return {}
    return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}


@contextmanager
def stage(name: str, **facts: object) -> Iterator[Note]:
    """Time a stage: a span, and a log line at its end.

    `facts` are ids and counts; the function that is yielded adds those that are known later.
    """
    known = dict(facts)
    began = time.monotonic()
    tracing = _STARTED[0] if _STARTED else None
    try:
        if tracing is None:
            yield known.update
        else:
            yield from _traced(tracing, name, known)
    except BaseException as error:
        LOG.info("%s ended after %.3f s: %s", name, time.monotonic() - began, type(error).__name__)
        raise
    LOG.info("%s took %.3f s", name, time.monotonic() - began)


def _traced(tracing: _Tracing, name: str, known: dict[str, object]) -> Iterator[Note]:
    from opentelemetry.trace import Status, StatusCode

    with tracing.tracer.start_as_current_span(
        name, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield known.update
        except BaseException as error:
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise
        finally:
            for fact, value in known.items():
                span.set_attribute(f"cardlink.{fact}", _attribute(value))


def _attribute(value: object) -> Any:
    """Return a fact as a span may have it."""
    return value if isinstance(value, bool | int | float) else redact(str(value))


def _tracing(version: str) -> _Tracing:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import (
        BatchSpanProcessor,
        SpanExporter,
        SpanExportResult,
    )

    class Exporter(SpanExporter):
        """Sends spans, and says once where they are not accepted."""

        def __init__(self) -> None:
            self._otlp = OTLPSpanExporter(timeout=FLUSH)
            self._is_told = False

        def export(self, spans: Any) -> SpanExportResult:
            result = self._otlp.export(spans)
            if result is not SpanExportResult.SUCCESS and not self._is_told:
                self._is_told = True
                LOG.warning("Traces were not accepted by the collector; the work goes on without.")
            return result

    # its own lines quote addresses and responses
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
    resource = Resource.create({"service.name": "cardlink", "service.version": version})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Exporter()))
    # not the process's own: Prefect would send its spans, which have parameters, through it
    return _Tracing(provider.get_tracer("cardlink", version), provider)
