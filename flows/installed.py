"""Which build of cardlink is installed: wheels of one release are told apart by their number."""

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import flows


def installed_build() -> str:
    """Return the number of the wheel that runs; of a checkout, that of its release.

    What is installed beside a checkout is another one, or an older state of it.
    """
    with suppress(PackageNotFoundError):
        wheel = distribution("cardlink")
        if Path(str(wheel.locate_file("flows"))) == Path(flows.__file__).parent:
            return wheel.version
    return flows.__version__
