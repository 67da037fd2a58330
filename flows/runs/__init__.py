"""What is stored of a run and read by every other folder: keys, claim, documents, commits,
outcomes, prior state.

Put here what several folders must know of a run or of the store it is in. Keep out what makes a run
(`submissions`), what its results mean (`results`) and anything that touches a disk or a network
(`adapters`).
"""
