"""Arrivals: `python -m flows.extensions.arrivals` starts a run as soon as its file is there.

Put here when a dropped file is ready for a run, and how runs are started. It decides nothing about
a file: it starts the deployment that a schedule starts too, so to start it twice, or for nothing,
costs a run that finds nothing to do. What a run makes of its files is no business of this folder.
"""

HOOKS = dict.fromkeys(("condition", "gauges", "schedules"), "hooks")
