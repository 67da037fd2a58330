"""The table `[arrivals]`: where the process hears of files that arrive."""

from typing import Annotated

from pydantic import StringConstraints

from schemas.settings import Settings, setting

QueueUrl = Annotated[
    str,
    StringConstraints(pattern=r"^https?://[^/\s@?#]+/[0-9]{12}/[A-Za-z0-9_-]{1,80}(\.fifo)?$"),
]


class Arrivals(Settings):
    """Runs start when a file arrives; with this table, schedules are a net with an hour's mesh.

    The process `python -m flows.arrivals` runs beside the worker. A directory is watched itself.
    """

    queue: QueueUrl | None = setting(
        None,
        "for a `root` on S3: URL of the SQS queue that the bucket's events come to, from S3, "
        "EventBridge or SNS; several issuers may share one",
    )
