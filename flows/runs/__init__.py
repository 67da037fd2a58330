"""What is stored of a run and read by every other folder.

Keys, documents, events, outcomes, chunks, commits, claims, attempts. `stored_run.py` reads a run,
`stored_runs.py` the runs of an issuer; `store.py` is the Protocol of what holds them. Put here what
several folders must know of a run or of the store it is in. Keep out what makes a run
(`submissions`), what its results mean (`results`) and anything that touches a disk or a network
(`adapters`).
"""
