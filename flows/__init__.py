"""How a batch moves from the issuer's extract to a link for every cardholder.

Read in the data's order: `nightly`, `steps.submit`, then `core`. Nothing is re-exported here.
"""
