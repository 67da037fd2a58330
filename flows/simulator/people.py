"""Who lives in a sample: names as they come, and places whose state and postal code agree.

Everything can be written in cp1252, the encoding of many an issuer's mainframe.
"""

from __future__ import annotations

FIRST_NAMES = (
    "Mary", "James", "José", "Anne-Marie", "Zoë", "D'Arcy", "Renée", "Björn", "Mary Jo", "J. R.", "Ömer",
    "Li", "Aoife", "Søren", "Chloë", "Noah", "Olivia", "Liam", "Emma", "Xuan", "Björk",
    "François", "Ann", "Ty",
)  # fmt: skip
LAST_NAMES = (
    "Smith", "O'Brien", "Núñez", "van der Berg", "Smith-Jones", "McDonald", "St. John", "Müller", "Lévesque",
    "Ng", "D'Angelo", "de la Cruz", "Johnson, Jr.", "Tremblay", "Begay", "Kekauluohi",
    "Nguyen", "Garcia", "Åkesson", "True", "Gagné", "Roy", "Bouchard", "O",
    "Wolfeschlegelsteinhausenberger", 'Lee "Lucky" Long', "Iñárritu",
)  # fmt: skip
STREETS = (
    "Main St", "Elm Street", "5th Ave NW", "Rue St-Denis", "Côte-Vertu Blvd", "Martin Luther King Jr. Dr",
    "County Road 12½", "W 42nd St", "Ocean Pkwy", "Old Mill Ln", "Broadway", "Chemin du Roy",
)  # fmt: skip
UNITS = ("Apt 4", "# 12", "Suite 300, Floor 3", "Unit B-2")
PLACES = (  # city, state or province, postal code, telephone area
    ("Boston", "MA", "02108", "617"),
    ("Providence", "RI", "02903", "401"),
    ("Hartford", "CT", "06103", "860"),
    ("Newark", "NJ", "07102", "973"),
    ("New York", "NY", "10001", "212"),
    ("Philadelphia", "PA", "19103", "215"),
    ("Washington", "DC", "20001", "202"),
    ("Atlanta", "GA", "30303", "404"),
    ("Miami", "FL", "33130", "305"),
    ("Cleveland", "OH", "44113", "216"),
    ("Coeur d'Alene", "ID", "83814", "208"),
    ("Minneapolis", "MN", "55401", "612"),
    ("Chicago", "IL", "60601", "312"),
    ("St. Louis", "MO", "63101", "314"),
    ("New Orleans", "LA", "70112", "504"),
    ("Austin", "TX", "78701", "512"),
    ("Denver", "CO", "80202", "303"),
    ("Phoenix", "AZ", "85003", "602"),
    ("Los Angeles", "CA", "90012", "213"),
    ("Portland", "OR", "97201", "503"),
    ("Seattle", "WA", "98101", "206"),
    ("Anchorage", "AK", "99501", "907"),
    ("Honolulu", "HI", "96813", "808"),
    ("St. John's", "NL", "A1C 1A1", "709"),
    ("Charlottetown", "PE", "C1A 1A1", "902"),
    ("Halifax", "NS", "B3H 1A1", "902"),
    ("Fredericton", "NB", "E3B 1A1", "506"),
    ("Montréal", "QC", "H2X 1Y4", "514"),
    ("Trois-Rivières", "QC", "G9A 1A1", "819"),
    ("Toronto", "ON", "M5V 2T6", "416"),
    ("Winnipeg", "MB", "R3C 1A1", "204"),
    ("Regina", "SK", "S4P 1A1", "306"),
    ("Calgary", "AB", "T2P 1A1", "403"),
    ("Vancouver", "BC", "V6B 1A1", "604"),
    ("Whitehorse", "YT", "Y1A 1A1", "867"),
    ("Yellowknife", "NT", "X1A 1A1", "867"),
)
