"""What every file looks like: pandera models, pydantic documents and constants.

Put here: columns, types, rules, reason codes, the keys of the documents we write, the issuer's
TOML. Keep out: reading, writing, deciding.
"""
