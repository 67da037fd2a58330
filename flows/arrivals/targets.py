"""What starts for which file: by issuer and folder, and how long the file is left alone before."""

from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from flows.arrivals.events import ObjectEvent
from schemas.issuer import Issuer

# the flow that takes what is dropped into a folder of an issuer; its deployment is `FLOW-ISSUER`
FLOWS: Final = {"extracts": "nightly", "results": "ingest"}
QUIET: Final = 2.0  # seconds without another file after which a run starts
LONGEST: Final = 10.0  # seconds after which it starts all the same
MARGIN: Final = 5.0  # seconds beyond the age that an extract must have


class Target(NamedTuple):
    """A deployment: the flow, and whose files it takes."""

    issuer: str
    flow: str

    @property
    def deployment(self) -> str:
        """Its name on the Prefect server."""
        return f"{self.flow}/{self.flow}-{self.issuer}"


class Watched(NamedTuple):
    """An issuer whose files are heard of: where they are, and seconds that its extracts must be
    left alone.

    `place` is a bucket, or the folder of a directory store; `prefix` comes before the issuer's
    folders there.
    """

    issuer: str
    place: str
    prefix: str
    queue: str | None = None
    min_age: float = 0.0

    def target(self, event: ObjectEvent) -> Target | None:
        """Return what takes the object of an event; None where it is no file that somebody dropped
        for us.
        """
        if event.place != self.place or not event.key.startswith(self.prefix):
            return None
        folder, _, name = event.key.removeprefix(self.prefix).partition("/")
        is_file = bool(name) and not name.endswith("/")
        is_unfinished = name.rpartition("/")[2].startswith(".")
        flow = FLOWS.get(folder)
        return Target(self.issuer, flow) if flow and is_file and not is_unfinished else None


def watched(issuer: Issuer, root: str) -> Watched | None:
    """Return where an issuer's files are heard of, None where its runs start by schedule alone.

    `root` is `s3://bucket/prefix`, or a directory.
    """
    if issuer.arrivals is None:
        return None
    min_age = issuer.source.min_age_minutes * 60.0
    queue = issuer.arrivals.queue
    if queue is None:
        return Watched(issuer.issuer, root, f"{issuer.issuer}/", None, min_age)
    parts = urlsplit(root)
    prefix = "/".join(filter(None, [parts.path.strip("/"), issuer.issuer])) + "/"
    return Watched(issuer.issuer, parts.netloc, prefix, queue, min_age)


def quiet_seconds(target: Target, issuers: Iterable[Watched]) -> float:
    """Return how long no other file may come before a target starts."""
    ages = [known.min_age for known in issuers if known.issuer == target.issuer]
    age = max(ages, default=0.0) if target.flow == FLOWS["extracts"] else 0.0
    return age + MARGIN if age else QUIET
