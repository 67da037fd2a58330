"""From mapped rows to chunks ready to seal: normalise, repair, check, hash, tell repeats apart, split.

Keep out: reading (`extract`), sealing and publishing (`flows.steps`).
"""
