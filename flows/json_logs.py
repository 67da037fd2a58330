"""Log lines as JSON, where CARDLINK_LOGS=json asks for it: one object a line on stderr.

Redacted as every log is. What a command says on stderr is logged, too, so that each line of it is
an object. Prefect's processes log as JSON by Prefect's own variable
(`PREFECT_LOGGING_HANDLERS_CONSOLE_FORMATTER=json`), through the handlers of `deploy/logging.yaml`.
"""

import json
import logging
import sys
from datetime import UTC, datetime

from flows.redaction import Redaction
from flows.tracing import current_ids

LOG = logging.getLogger("cardlink")


class JsonLine(logging.Formatter):
    """A log record as one JSON object: time (UTC), level, logger, message, ids of the trace."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; the record was redacted by its handler."""
        moment = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **current_ids(),
        }
        if record.exc_text:
            line["exception"] = record.exc_text
        return json.dumps(line, ensure_ascii=False)


class JsonLines(logging.StreamHandler):  # type: ignore[type-arg]  # of whatever stderr is
    """Writes JSON lines to stderr, redacted."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(JsonLine())
        self.addFilter(Redaction())


def log_as_json() -> None:
    """Write log lines as JSON from now on; once in a process."""
    if not are_json():
        logging.getLogger().addHandler(JsonLines())
        LOG.setLevel(logging.INFO)


def are_json() -> bool:
    """Return whether log lines are JSON."""
    return any(isinstance(handler, JsonLines) for handler in logging.getLogger().handlers)


def log_line(text: str, *, is_error: bool = False) -> None:
    """Log what a command says on stderr, line by line."""
    level = logging.ERROR if is_error else logging.INFO
    for line in filter(str.strip, text.splitlines()):
        LOG.log(level, "%s", line.strip())
