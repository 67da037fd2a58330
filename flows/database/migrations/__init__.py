"""The migrations of the database, which Alembic runs; a file's name begins with its revision.

Put here how tables become those of `schemas/database.py`. A migration that has been released never
changes.
"""
