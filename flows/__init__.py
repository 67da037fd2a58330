"""How a batch gets from the issuer's extract to a card link for every cardholder.

Read in the data's order: `nightly`, `extracts`, `submissions`, `results`, `reports`. Nothing is
re-exported here.
"""
