"""Prefect's own logs: its configuration with our filter on every handler, in every process that
uses it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import prefect.logging
import yaml

from schemas.expressions import PUBLISHED

ROOT = Path(__file__).parents[2]
OURS = ROOT / "deploy" / "logging.yaml"
CHILD = f"""
from prefect.logging.configuration import setup_logging
setup_logging(incremental=False)
import logging
for name in ("prefect", "prefect.flow_runs", "uvicorn", "elsewhere"):
    logging.getLogger(name).error("cell %s", "{PUBLISHED[0]}", extra={{"send_to_api": False}})
"""


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(path.read_text())
    return content


def test_it_is_prefects_configuration_with_the_filter_on_every_handler() -> None:
    theirs = read(Path(prefect.logging.__file__).parent / "logging.yml")

    ours = read(OURS)

    assert {"redaction": {"()": "flows.redaction.Redaction"}} == ours.pop("filters")
    assert all(handler.pop("filters") == ["redaction"] for handler in ours["handlers"].values())
    assert theirs == ours


def test_a_process_of_prefect_that_uses_it_redacts(tmp_path: Path) -> None:
    environment = {
        "PREFECT_LOGGING_SETTINGS_PATH": str(OURS),
        "PREFECT_HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }

    as_text = subprocess.run(
        [sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True
    )
    as_json = subprocess.run(
        [sys.executable, "-c", CHILD],
        env=environment | {"PREFECT_LOGGING_HANDLERS_CONSOLE_FORMATTER": "json", "COLUMNS": "40"},
        capture_output=True,
        text=True,
    )

    for done in (as_text, as_json):
        assert (0, 4) == (done.returncode, (done.stdout + done.stderr).count("cell [masked]"))
        assert PUBLISHED[0] not in done.stdout + done.stderr
    lines = [json.loads(line) for line in (as_json.stdout + as_json.stderr).splitlines()]
    assert {"cell [masked]"} == {line["msg"] for line in lines}
