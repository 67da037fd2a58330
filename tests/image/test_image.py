"""The image as it is shipped: built, confined, and taking a run from drop to links, as `make image`
prints.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.image.build import missing
from tests.image.walk import walk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]  # it builds three images


@pytest.mark.skipif(bool(missing()), reason=f"the image is not built here: {missing()}")
def test_the_image_takes_a_run_from_drop_to_links(tmp_path: Path) -> None:
    # as a shell has it; our commands, in this process before, keep files to themselves
    before = os.umask(0o022)
    try:
        lines = list(walk(tmp_path))
    finally:
        os.umask(before)

    # where there is a browser
    steps = [line.partition(":")[0] for line in lines if not line.startswith("ui:")]
    assert steps == [
        *(
            "base",
            "image",
            "image",
            "beside it",
            "help",
            "content",
            "demo",
            "deploy-files",
            "confined",
            "server",
            "install",
        ),
        *("check", "nightly", "ingest", "links", "pages", "left"),
    ]
