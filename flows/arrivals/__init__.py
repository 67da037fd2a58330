"""Arrivals: `python -m flows.arrivals` starts a run as soon as its file is there.

Put here how the process hears of files, what it waits for, and how it starts runs. It decides
nothing about a file: it starts the deployment that a schedule starts too, so an event that comes
twice, late, out of order or for nothing costs a run that finds nothing to do. What a run makes of
its files is no business of this folder.
"""
