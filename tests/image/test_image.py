"""The image as it is shipped: built, confined, and taking a run from drop to links, as `make image` prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.image.build import missing
from tests.image.walk import walk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]  # it builds three images


@pytest.mark.skipif(bool(missing()), reason=f"the image is not built here: {missing()}")
def test_the_image_takes_a_run_from_drop_to_links(tmp_path: Path) -> None:
    lines = list(walk(tmp_path))

    steps = [line.partition(":")[0] for line in lines if not line.startswith("ui:")]  # where there is a browser
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
