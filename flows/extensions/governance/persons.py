"""When two names are one person: the one rule by which names are compared."""

import re
import unicodedata

# Cyrillic, Greek and Armenian letters, and dotless i, that look like a Latin one
_LOOK_ALIKES = str.maketrans(
    "аеорсухіјѕԁһкмтвнԛԝӏɡοανρτκιυχϲϳօսոցһıƖ",
    "aeopcyxijsdhkmtbhqwlgoavptkiuxcjouhqhil",
)


def normalised(name: str) -> str:
    """Return what of a name tells persons apart: its letters and digits, in one form and case.

    Letters of other scripts that look like Latin ones are those.

    >>> normalised("Al.Ice") == normalised("alice") == normalised("аlісе")
    True
    """
    plain = unicodedata.normalize("NFKC", name).casefold()
    return re.sub(r"[\W_]+", "", plain).translate(_LOOK_ALIKES)
