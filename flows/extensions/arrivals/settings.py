"""The table `[arrivals]`: how often the process looks for files that arrive."""

from schemas.settings import Settings, setting


class Arrivals(Settings):
    """Runs start when a file arrives; with this table, schedules are a net with an hour's mesh.

    The process `python -m flows.extensions.arrivals` runs beside the worker, and lists the issuer's
    `extracts` and `results` every few seconds.
    """

    every_seconds: int = setting(
        5,
        "seconds between two looks; a file that two looks find the same starts its run",
        ge=1,
        le=60,
    )


TABLES = {"arrivals": (Arrivals | None, None)}
