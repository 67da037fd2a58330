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
import pytest
import yaml

from schemas.expressions import PUBLISHED
from tests.builders import quick

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


@pytest.mark.parametrize(
    "formatter",
    quick(1, [{"PREFECT_LOGGING_HANDLERS_CONSOLE_FORMATTER": "json", "COLUMNS": "40"}, {}]),
    ids=["json", "text"],
)
def test_a_process_of_prefect_that_uses_it_redacts(
    tmp_path: Path, formatter: dict[str, str]
) -> None:
    environment = {
        "PREFECT_LOGGING_SETTINGS_PATH": str(OURS),
        "PREFECT_HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }

    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        env=environment | formatter,
        capture_output=True,
        text=True,
    )

    lines = (done.stdout + done.stderr).splitlines()
    assert (0, 4) == (done.returncode, "".join(lines).count("cell [masked]"))
    assert PUBLISHED[0] not in "".join(lines)
    if formatter:
        assert {"cell [masked]"} == {json.loads(line)["msg"] for line in lines}
