"""The table `[four_eyes]`: which acts need a second person, and who may be one."""

import re
import unicodedata
from typing import Annotated, Any, Self

from pydantic import StringConstraints, model_validator

from schemas.settings import Act, Fingerprint, Settings, setting

PersonName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9.+_-]{0,40}$")]
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


class FourEyes(Settings):
    """Acts that need a second person: the first one's command stores a request, another's carries
    it out.
    """

    acts: tuple[Act, ...] = setting(
        (),
        "`outbox` `release`, `hold` or `cancel`; `gates`: opening one in `submit`; `override`: in "
        "`resubmit` or `link`; `resend`: `resubmit`, or `backfill` with `--send`; `link`; "
        "`dismiss`; `mend abandon`; `close`: `mend close` or `reopen`, `answers`; `lost`: with "
        "that decision; `mend` `give-up`, `keep-link` or `reseal`; `attribute`: `mend attribute`, "
        "`withdraw` or `ingest-again`; `link-form`; `deliver`; `purge`; `erase`: `person erase`; "
        "`audit accept`; `settings`: a change of keys, hosts, limits, `[store]`, `[resend]` or "
        "`[retention]`; "
        "`mapping`: of what becomes of a row. A change of this table needs two persons "
        "as soon as it names an act",
    )
    hours: int = setting(24, "hours after which a request expires", ge=1, le=168)
    persons: dict[PersonName, Fingerprint] = setting(
        {},
        "who may request and agree, with the fingerprints of their own OpenPGP keys, whose public "
        "parts are beside the TOML as `persons/NAME.asc`. Where it is set, nobody else counts, and "
        "only with a signature, which the command line makes (`CARDLINK_PERSON_KEY_FILE`)",
    )

    @model_validator(mode="after")
    def _are_different(self) -> Self:
        names = {normalised(name) for name in self.persons}
        if len(names) < len(self.persons) or len(set(self.persons.values())) < len(self.persons):
            raise ValueError("persons: two of them have one key, or names that are one person")
        if len(self.persons) == 1:
            raise ValueError("persons: two at least, since one cannot agree with itself")
        return self


TABLES = {"four_eyes": (FourEyes, FourEyes())}


def validate(issuer: Any) -> None:
    """Refuse deliveries by a schedule where they need two persons: ValueError."""
    if "deliver" not in issuer.table(FourEyes).acts:
        return
    for name, receiver in dict(issuer).get("deliveries", {}).items():
        if receiver.schedule != "by-hand":
            raise ValueError(
                f"[four_eyes] acts names deliver, so nothing is delivered without two persons: "
                f'[deliveries.{name}] needs schedule = "by-hand"'
            )
