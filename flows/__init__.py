"""How a batch gets from the issuer's extract to a card link for every cardholder.

Read in the data's order: `nightly`, `extracts`, `submissions`, `results`, `reports`. Nothing is
re-exported here.

`__version__` is the one place of the version: the wheel, `cardlink --version`, runs and reports
have it from here, and CHANGELOG.md begins with it.
"""

__version__ = "0.2.0"
