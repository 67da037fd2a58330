"""The page server in a thread of the tests, on a free port of loopback."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from flows.pages.__main__ import listener, server
from flows.pages.address import reports_address

TOKEN = "a-token-of-the-tests"


@contextmanager
def served_pages(folder: Path, url: str = "") -> Iterator[str]:
    """Serve a folder's reports until the block ends; yield where, without the token.

    A `url` is the address as browsers have it, of a proxy before the server.
    """
    with listener("127.0.0.1", 0) as bound:
        base = f"http://127.0.0.1:{bound.getsockname()[1]}"
        serving = server(folder, reports_address(url or f"{base}/{TOKEN}"))
        thread = Thread(target=serving.run, args=([bound],), daemon=True)
        thread.start()
        try:
            while not serving.started:
                time.sleep(0.01)
            yield base
        finally:
            serving.should_exit = True
            thread.join()
