"""From rows to a committed run: normalise, repair, validate, hash, chunk, seal, publish, and the
manifest last.

Put here what a row passes on its way to a chunk line, and what commits a run. Keep out how an
extract is read (`extracts`) and which rows go out again (`resend`).
"""
