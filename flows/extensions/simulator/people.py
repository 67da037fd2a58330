"""Who lives in a sample: names as they come, and places whose state and postal code agree.

Everything can be written in cp1252, the encoding of many an issuer's mainframe.
"""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """A place: state or province as in an address, the area of its telephone numbers."""

    city: str
    subnational: str
    postal_code: str
    area: str

    @property
    def country(self) -> str:
        """CA or US: only Canadian postal codes have a blank."""
        return "CA" if " " in self.postal_code else "US"


FIRST_NAMES = (
    "Mary", "James", "José", "Anne-Marie", "Zoë", "D'Arcy", "Renée", "Björn", "Mary Jo", "J. R.",
    "Ömer", "Li", "Aoife", "Søren", "Chloë", "Noah", "Olivia", "Liam", "Emma", "Xuan", "Björk",
    "François", "Ann", "Ty",
)  # fmt: skip
LAST_NAMES = (
    "Smith", "O'Brien", "Núñez", "van der Berg", "Smith-Jones", "McDonald", "St. John", "Müller",
    "Lévesque", "Ng", "D'Angelo", "de la Cruz", "Johnson, Jr.", "Tremblay", "Begay", "Kekauluohi",
    "Nguyen", "Garcia", "Åkesson", "True", "Gagné", "Roy", "Bouchard", "O",
    "Wolfeschlegelsteinhausenberger", 'Lee "Lucky" Long', "Iñárritu",
)  # fmt: skip
STREETS = (
    "Main St", "Elm Street", "5th Ave NW", "Rue St-Denis", "Côte-Vertu Blvd",
    "Martin Luther King Jr. Dr", "County Road 12½", "W 42nd St", "Ocean Pkwy", "Old Mill Ln",
    "Broadway", "Chemin du Roy",
)  # fmt: skip
UNITS = ("Apt 4", "# 12", "Suite 300, Floor 3", "Unit B-2")
PLACES = (
    Place("Boston", "MA", "02108", "617"),
    Place("Providence", "RI", "02903", "401"),
    Place("Hartford", "CT", "06103", "860"),
    Place("Newark", "NJ", "07102", "973"),
    Place("New York", "NY", "10001", "212"),
    Place("Philadelphia", "PA", "19103", "215"),
    Place("Washington", "DC", "20001", "202"),
    Place("Atlanta", "GA", "30303", "404"),
    Place("Miami", "FL", "33130", "305"),
    Place("Cleveland", "OH", "44113", "216"),
    Place("Coeur d'Alene", "ID", "83814", "208"),
    Place("Minneapolis", "MN", "55401", "612"),
    Place("Chicago", "IL", "60601", "312"),
    Place("St. Louis", "MO", "63101", "314"),
    Place("New Orleans", "LA", "70112", "504"),
    Place("Austin", "TX", "78701", "512"),
    Place("Denver", "CO", "80202", "303"),
    Place("Phoenix", "AZ", "85003", "602"),
    Place("Los Angeles", "CA", "90012", "213"),
    Place("Portland", "OR", "97201", "503"),
    Place("Seattle", "WA", "98101", "206"),
    Place("Anchorage", "AK", "99501", "907"),
    Place("Honolulu", "HI", "96813", "808"),
    Place("St. John's", "NL", "A1C 1A1", "709"),
    Place("Charlottetown", "PE", "C1A 1A1", "902"),
    Place("Halifax", "NS", "B3H 1A1", "902"),
    Place("Fredericton", "NB", "E3B 1A1", "506"),
    Place("Montréal", "QC", "H2X 1Y4", "514"),
    Place("Trois-Rivières", "QC", "G9A 1A1", "819"),
    Place("Toronto", "ON", "M5V 2T6", "416"),
    Place("Winnipeg", "MB", "R3C 1A1", "204"),
    Place("Regina", "SK", "S4P 1A1", "306"),
    Place("Calgary", "AB", "T2P 1A1", "403"),
    Place("Vancouver", "BC", "V6B 1A1", "604"),
    Place("Whitehorse", "YT", "Y1A 1A1", "867"),
    Place("Yellowknife", "NT", "X1A 1A1", "867"),
)
