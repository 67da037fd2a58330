"""Rows of an extract to a committed run: normalise, validate, tell duplicates, hash, chunk, seal, publish, commit.

Everything a row passes on its way to a chunk belongs here; how an extract is read does not, nor what is sent again.
"""
