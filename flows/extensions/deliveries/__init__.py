"""Deliveries: links to whoever sends them, and acknowledgements of extracts to the issuer.

Put here what is handed over to others as files that they confirm. What the kernel knows of it comes
from `hooks.py`.
"""

COMMANDS = ("commands",)
