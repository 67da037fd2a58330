"""`cardlink init`: an issuer's TOML drafted from an extract, with a question where a guess is not
certain.
"""

COMMANDS = ("command",)
