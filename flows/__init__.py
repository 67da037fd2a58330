"""How a batch gets from the issuer's extract to a card link for every cardholder.

Read in the data's order: `nightly`, `extracts`, `submissions`, `results`, `reports`. Nothing is
re-exported here.

`__version__` is the one place of the release: CHANGELOG.md begins with it, and the number of a
wheel (`build_number.py`), which `cardlink --version`, commits and reports name.
"""

__version__ = "0.2.0"
