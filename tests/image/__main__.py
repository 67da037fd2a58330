"""`make image`: build the image without a daemon, run it as compose does, take a run from drop to
links; root.

What holds is a line with its second; the exit code is 1 where something does not, and 2 where tools
are missing.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.image.build import missing
from tests.image.walk import walk


def main() -> int:
    """Print the steps; return the exit code."""
    if lacking := missing():
        print(lacking, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    begin = time.monotonic()
    with TemporaryDirectory(prefix="cardlink-image-", ignore_cleanup_errors=True) as folder:
        try:
            for line in walk(Path(folder)):
                print(f"{time.monotonic() - begin:5.0f} s  {line}", flush=True)
        except (AssertionError, OSError) as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            return 130
    print("the image is as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
