"""From rows to a committed run: validate, hash, chunk, seal, publish, and the manifest last.

The route of a row is in `rows.py`, what commits a run in `commit.py`, the way there in `submit.py`.
Put here what a row passes on its way to a chunk line, and what commits a run. Keep out how an
extract is read (`extracts`) and which rows go out again (`resend`).
"""
