"""The relational database in which the state of the issuers is kept: SQLite or PostgreSQL.

Put here how a transaction begins, ends and fails, how frames are written and read in bulk, and how
the schema is brought up to date. Keep the tables out (`schemas/database.py`), and what is recorded
in them: a caller gives the work of one act, and gets its result or one of our errors.
"""
