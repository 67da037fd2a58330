"""Countries, states and provinces, and their postal codes (interface.md 2.6: US and Canada)."""

# the eight spellings the portal accepts
COUNTRIES = ("usa", "USA", "us", "US", "canada", "Canada", "ca", "CA")
# the two we send
US = "US"
CANADA = "CA"

# Spellings are in upper case, with spaces for dots.
COUNTRY_SPELLINGS = {
    US: (
        "US",
        "USA",
        "U S",
        "U S A",
        "840",
        "UNITED STATES",
        "UNITED STATES OF AMERICA",
        "AMERICA",
        "THE UNITED STATES",
        "THE UNITED STATES OF AMERICA",
        "ESTADOS UNIDOS",
        "ÉTATS-UNIS",
        "ETATS-UNIS",
    ),
    CANADA: (
        "CA",
        "CAN",
        "CANADA",
        "124",
    ),
}

# Code, name, and the three-digit ZIP prefixes (USPS L002): "100-149" is a range.
STATES = {
    "AL": ("Alabama", "350-352 354-369"),
    "AK": ("Alaska", "995-999"),
    "AZ": ("Arizona", "850-853 855-857 859-860 863-865"),
    "AR": ("Arkansas", "716-729"),
    "CA": ("California", "900-908 910-928 930-961"),
    "CO": ("Colorado", "800-816"),
    "CT": ("Connecticut", "060-069"),
    "DE": ("Delaware", "197-199"),
    "DC": ("District of Columbia", "200 202-205 569"),
    "FL": ("Florida", "320-339 341-342 344 346-347 349"),
    "GA": ("Georgia", "300-319 398-399"),
    "HI": ("Hawaii", "967-968"),
    "ID": ("Idaho", "832-838"),
    "IL": ("Illinois", "600-620 622-629"),
    "IN": ("Indiana", "460-479"),
    "IA": ("Iowa", "500-516 520-528"),
    "KS": ("Kansas", "660-662 664-679"),
    "KY": ("Kentucky", "400-418 420-427"),
    "LA": ("Louisiana", "700-701 703-708 710-714"),
    "ME": ("Maine", "039-049"),
    "MD": ("Maryland", "205-212 214-219"),
    "MA": ("Massachusetts", "010-027 055"),
    "MI": ("Michigan", "480-499"),
    "MN": ("Minnesota", "550-551 553-567"),
    "MS": ("Mississippi", "386-397"),
    "MO": ("Missouri", "630-631 633-641 644-658 726"),
    "MT": ("Montana", "590-599"),
    "NE": ("Nebraska", "680-681 683-693"),
    "NV": ("Nevada", "889-891 893-895 897-898"),
    "NH": ("New Hampshire", "030-038"),
    "NJ": ("New Jersey", "070-089"),
    "NM": ("New Mexico", "870-871 873-884"),
    "NY": ("New York", "005 063 100-149"),
    "NC": ("North Carolina", "270-289"),
    "ND": ("North Dakota", "580-588"),
    "OH": ("Ohio", "430-459"),
    "OK": ("Oklahoma", "730-731 734-741 743-749"),
    "OR": ("Oregon", "970-979"),
    "PA": ("Pennsylvania", "150-196"),
    "RI": ("Rhode Island", "028-029"),
    "SC": ("South Carolina", "290-299"),
    "SD": ("South Dakota", "570-577"),
    "TN": ("Tennessee", "370-385"),
    "TX": ("Texas", "733 739 750-770 772-799 885"),
    "UT": ("Utah", "840-847"),
    "VT": ("Vermont", "050-054 056-059"),
    "VA": ("Virginia", "201 205 220-246"),
    "WA": ("Washington", "980-986 988-994"),
    "WV": ("West Virginia", "247-268"),
    "WI": ("Wisconsin", "530-532 534-535 537-549"),
    "WY": ("Wyoming", "820-831 834"),
    "PR": ("Puerto Rico", "006-007 009"),
    "VI": ("Virgin Islands", "008"),
    "GU": ("Guam", "969"),
    "AS": ("American Samoa", "967"),
    "MP": ("Northern Mariana Islands", "969"),
    "PW": ("Palau", "969"),
    "FM": ("Federated States of Micronesia", "969"),
    "MH": ("Marshall Islands", "969"),
    "AA": ("Armed Forces Americas", "340"),
    "AE": ("Armed Forces Europe", "090-099"),
    "AP": ("Armed Forces Pacific", "962-966"),
}

# Code, name, and the first letters of its postal codes.
PROVINCES = {
    "AB": ("Alberta", "T"),
    "BC": ("British Columbia", "V"),
    "MB": ("Manitoba", "R"),
    "NB": ("New Brunswick", "E"),
    "NL": ("Newfoundland and Labrador", "A"),
    "NS": ("Nova Scotia", "B"),
    "NT": ("Northwest Territories", "X"),
    "NU": ("Nunavut", "X"),
    "ON": ("Ontario", "KLMNP"),
    "PE": ("Prince Edward Island", "C"),
    "QC": ("Quebec", "GHJ"),
    "SK": ("Saskatchewan", "S"),
    "YT": ("Yukon", "Y"),
}

# Territories that the partner takes as states of the US: their codes as countries, by ISO 3166.
TERRITORIES = {
    "AS": ("ASM", "016"),
    "FM": ("FSM", "583"),
    "GU": ("GUM", "316"),
    "MH": ("MHL", "584"),
    "MP": ("MNP", "580"),
    "PR": ("PRI", "630"),
    "PW": ("PLW", "585"),
    "VI": ("VIR", "850"),
}
# Besides code and name.
OTHER_SPELLINGS = {
    US: {
        "WASHINGTON DC": "DC",
        "WASHINGTON D C": "DC",
        "US VIRGIN ISLANDS": "VI",
        "U S VIRGIN ISLANDS": "VI",
        "VIRGIN ISLANDS (U S )": "VI",
        "MICRONESIA": "FM",
        "COMMONWEALTH OF PUERTO RICO": "PR",
        "CALIF": "CA",
        "CONN": "CT",
        "FLA": "FL",
        "ILL": "IL",
        "MASS": "MA",
        "MICH": "MI",
        "MINN": "MN",
        "PENN": "PA",
        "PENNA": "PA",
        "TENN": "TN",
        "TEX": "TX",
        "WASH": "WA",
        "WISC": "WI",
        "ARIZ": "AZ",
        "COLO": "CO",
        "W VA": "WV",
    },
    CANADA: {
        "QUÉBEC": "QC",
        "PQ": "QC",
        "QUE": "QC",
        "ONT": "ON",
        "ALTA": "AB",
        "SASK": "SK",
        "MAN": "MB",
        "NEWFOUNDLAND": "NL",
        "NF": "NL",
        "LABRADOR": "NL",
        "PEI": "PE",
        "P E I": "PE",
        "YUKON TERRITORY": "YT",
        "YK": "YT",
        "NWT": "NT",
        "N W T": "NT",
        "NOUVEAU-BRUNSWICK": "NB",
        "COLOMBIE-BRITANNIQUE": "BC",
        "NOUVELLE-ÉCOSSE": "NS",
        "ÎLE-DU-PRINCE-ÉDOUARD": "PE",
        "TERRE-NEUVE-ET-LABRADOR": "NL",
    },
}


def country_spellings() -> dict[str, str]:
    """Return the country we send for each usual spelling, in upper case."""
    countries: dict[str, str] = {}
    for country, spellings in COUNTRY_SPELLINGS.items():
        countries |= dict.fromkeys(spellings, country)
    for code, others in TERRITORIES.items():
        countries |= dict.fromkeys((code, *others, STATES[code][0].upper()), US)
    others_of_states = OTHER_SPELLINGS[US].items()
    return countries | {name: US for name, code in others_of_states if code in TERRITORIES}


def subnational_spellings(country: str) -> dict[str, str]:
    """Return the two-letter code for each spelling of a state or province of `country`.

    Spellings are in upper case, with spaces for dots.
    """
    codes: dict[str, str] = {}
    places = STATES if country == US else PROVINCES
    for code, (name, _) in places.items():
        codes |= {name.upper(): code, code: code, " ".join(code): code}
    return codes | OTHER_SPELLINGS[country]


def postal_places() -> frozenset[str]:
    """Return every valid `021MA` (first three digits of the ZIP, state) and `KON` (first letter,
    province).
    """
    places: set[str] = set()
    for state, (_, ranges) in STATES.items():
        for prefixes in ranges.split():
            first, _, last = prefixes.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            places.update(f"{number:03d}{state}" for number in numbers)
    for province, (_, letters) in PROVINCES.items():
        places.update(letter + province for letter in letters)
    return frozenset(places)
