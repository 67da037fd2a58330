"""A real headless Chromium, driven through its DevTools protocol: go, look, click, type, take a
picture.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.leftovers import ended

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
]
QUIET += [
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--hide-scrollbars",
    "--disable-dev-shm-usage",
]
PATIENCE = 300.0  # seconds: a machine with other work is slow, not wrong
LARGEST = 1 << 26  # bytes of a message: a picture of a long page

# The visible element whose own text is this, the last one laid out: dialogs and menus come after
# the page.
FIND = """(text) => [
  ...document.querySelectorAll('button, a, label, span, div, li, p, h1, h2, h3, h4')].filter(
  one => one.offsetParent !== null && one.innerText && one.innerText.trim() === text).pop()"""

# The field that stands with a label: the first one in the smallest box around both.
FIELD = f"""(text) => {{ let box = ({FIND})(text) || ({FIND})(text + ' (Optional)');
  while (box && !box.querySelector('input, textarea, select')) box = box.parentElement;
  return box && box.querySelector('input, textarea, select') }}"""


class Page:
    """One page of the browser."""

    def __init__(self, wire: Connection) -> None:
        self._wire = wire
        self._number = 0

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call one method of the protocol."""
        self._number += 1
        self._wire.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            answer: dict[str, Any] = json.loads(self._wire.recv(PATIENCE))
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                found: dict[str, Any] = answer["result"]
                return found

    def js(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        done = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        return done["result"].get("value")

    def go(self, url: str) -> None:
        """Open an address."""
        self.call("Page.navigate", url=url)

    def wait(self, expression: str, seconds: float = PATIENCE) -> None:
        """Wait until an expression holds in the page."""
        end = time.monotonic() + seconds
        while not self.js(f"Boolean({expression})"):
            assert time.monotonic() < end, (
                f"not in {seconds} s: {expression}\n{self.text()[-2000:]}"
            )
            time.sleep(0.1)

    def see(self, text: str, seconds: float = PATIENCE) -> None:
        """Wait until a text stands on the page."""
        self.wait(f"document.body && document.body.innerText.includes({json.dumps(text)})", seconds)

    def text(self) -> str:
        """Return what a person reads."""
        return str(self.js("document.body ? document.body.innerText : ''"))

    def click(self, text: str) -> None:
        """Click the visible element with this text."""
        self.wait(f"({FIND})({json.dumps(text)})")
        self.js(f"({FIND})({json.dumps(text)}).click()")

    def type_into(self, label: str, text: str) -> None:
        """Fill the field of that label."""
        self.wait(f"({FIELD})({json.dumps(label)})")
        self.js(f"(one => {{ one.focus(); one.select() }})(({FIELD})({json.dumps(label)}))")
        self.call("Input.insertText", text=text)
        time.sleep(0.6)  # the form takes a value up when the typing has paused

    def choose(self, label: str, value: str) -> None:
        """Choose a value in the list of that label."""
        self.wait(f"({FIELD})({json.dumps(label)})")
        chosen = (
            f"(one => {{ one.value = {json.dumps(value)}; "
            "one.dispatchEvent(new Event('change')) })"
        )
        self.js(f"{chosen}(({FIELD})({json.dumps(label)}))")

    def size(self, width: int, height: int) -> None:
        """Set the size of the window."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def picture(self, path: Path) -> None:
        """Write what is seen as a PNG."""
        shot = self.call("Page.captureScreenshot", format="png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Run a browser with a profile of its own until the block ends."""
    assert CHROMIUM is not None
    command = [
        CHROMIUM,
        *QUIET,
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}",
        "about:blank",
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    with ended(process):
        port = _port(folder / "DevToolsActivePort")
        with urlopen(f"http://127.0.0.1:{port}/json", timeout=PATIENCE) as answer:
            address = next(
                one["webSocketDebuggerUrl"]
                for one in json.loads(answer.read())
                if one["type"] == "page"
            )
        with connect(address, max_size=LARGEST) as wire:
            yield Page(wire)


def _port(file: Path, seconds: float = PATIENCE) -> int:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if file.is_file() and (lines := file.read_text().splitlines()):
            return int(lines[0])
        time.sleep(0.1)
    raise RuntimeError("the browser did not start")
