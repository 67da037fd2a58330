"""When two names are one person: the one rule by which names are compared."""

import re
import unicodedata


def normalised(name: str) -> str:
    """Return what of a name tells persons apart: its letters and digits, in one form and case.

    >>> normalised("Al.Ice") == normalised("alice")
    True
    """
    plain = unicodedata.normalize("NFKC", name).casefold()
    return re.sub(r"[\W_]+", "", plain)
