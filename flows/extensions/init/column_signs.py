"""What tells a portal column in an extract: words of its header, and the shape of its values."""

import re
from collections.abc import Container, Sequence
from datetime import date
from functools import cache
from typing import Final, NamedTuple

import polars as pl

from flows.extensions.init.guess import Column
from flows.extensions.init.value_forms import Step, date_forms, name_forms, share_of_dates
from flows.extracts.status_words import plain_words
from schemas import expressions, places, portal
from schemas.cell_formats import unescaped
from schemas.portal import REQUIRED
from schemas.reference import toml

# A word of ours, and its spellings in headers.
_SPELLINGS = """
    number no nbr num nr nmbr numb id identifier ident key ref reference nummer numero n nro numer
        identification identificador identifiant kennung kennzahl kennzeichen referencia referenz
        nummern
    date dt dte thru through to until datum fecha fec data ate hasta bis jusqu jusqua
    customer cust cus client clnt member memb mbr party cardholder holder crdhldr chd ch person
        user consumer
        owner cliente clientes kunde kunden kd titular titulaire inhaber karteninhaber mitglied
        mitglieds socio membre adherent miembro portador porteur
    card crd crdt carte tarjeta cartao karte karten credit debit kredit credito debito kreditkarte
        kreditkarten tarj
    customer_number cif cifno cuid custno kundennr matricule matricula
    card_number pan cardno
    old prev previous former prior replaced anterior ancien ancienne antiguo alte antigo
    on the of sur de del d l la le les el los las der die des auf en da do du au
    and y und et
    expiration exp expiry expir expire expires expdt expdate valid validity good xpir vencimiento
        vencimento vcto vto venc caducidad caduca expiracion expiracao validade validez valable
        validite echeance ablauf ablaufdatum verfall verfalls gueltig gultig gueltigkeit gultigkeit
        faellig
    month mo mon mth mm mnth mois mes monat
    year yr yy yyyy annee ano anio jahr aa aaaa
    first_name firstname fname givenname forename prenom fstnm fnm vorname vornamen pila
    first fst frst given vor
    extra additional additionnel additionnelle adicional zusaetzlich zusatzlich
    leading primer primero primeiro
    paternal paterno
    maternal materno
    second segundo segunda deuxieme zweiter
    last_name lastname lname surname familyname lstnm lnm apellido apellidos sobrenome apelido
        nachname familienname zuname
    last lst family famille nach ultimo ultima
    name nm nme names nom nombre nombres nome nomes noms
    full complete completo completa complet vollstaendiger vollstandiger voller
    emboss emb embossed embossing embossname printed impreso impresso gepraegt gepragt praegename
        pragename praegung embosse gravado grabado
    address addr adr addrs adresse direccion endereco anschrift domicilio domicile dir adress
        direcc morada
    line ln lin linea linha ligne zeile
    street str strt rue calle rua strasse logradouro avenida
    house hse building bldg civic haus hausnr hausnummer exterior civique
    unit apt apartment suite ste flat app appartement apto apartamento depto dpto piso complemento
        complement zusatz adresszusatz adrzusatz wohnung etage interior appt bureau
    city cty town municipality locality ville ciudad cidade stadt ort wohnort localidad localidade
        municipio poblacion commune gemeinde localite
    state st stt province prov region subnational estado provincia bundesland bundesstaat uf kanton
        entidad
    zip zp zipcode postalcode postcode postal post pstl postale plz postleitzahl cep cp postleit
        codepostal codigopostal
    country ctry cntry cntr nation pays pais land staat laender lander
    email emailaddress courriel correo electronico eletronico electronique electronica elektronisch
    phone telephone tel mobile cell telno ph phn telefono telefone telefon telef celular movil movel
        handy mobil mobiltelefon rufnummer telefonnummer fone fono portable tlf
    cvv cvc cvn cid csc cryptogramme pruefnummer prufnummer pruefziffer prufziffer
        kartenpruefnummer kartenprufnummer
    hash hashed sha digest empreinte
    primary prim pri main principal principale haupt hauptadresse
    flag ind indicator flg is indicador indicateur
    code cd cde codigo cod kode kenn
    status sts stat
    account acct acc cuenta conta konto compte
    billing bill mailing mail residential residence res legal physical current home
    security sec verification seguridad seguranca sicherheit sicherheits securite verificacion
        verificacao
    value val text txt field fld desc
    nickname productname apodo alias spitzname surnom
"""
# Of these, only whole words count: glued to others they would be found in too many.
_ALONE = """
    d l la le les el los las der die des auf en da do du au y et n uf aa cp ort app dir land
    data ate bis pila nach vor post kd kenn alte mes ano cod
"""
# What a header may say besides.
_NOISE = """
    customer card code date flag value on billing primary account full number name line 1 address
    and
"""


def _words() -> dict[str, list[str]]:
    """Return our words of each spelling."""
    words = {}
    groups = _SPELLINGS.replace("\n        ", " ")
    for group in groups.splitlines():
        spellings = group.split()
        for spelling in spellings:
            words[spelling] = spellings[0].split("_")
    return words


_WORDS = _words()
_GLUED_WORDS = [word for word in _WORDS if len(word) > 1 and word not in _ALONE.split()]
_LONGEST_FIRST = sorted(_GLUED_WORDS, key=len, reverse=True)
_GLUED = re.compile("|".join(_LONGEST_FIRST))
_SURNAME = re.compile("sur[ _-]?name", re.IGNORECASE)  # "sur" alone is French for "on"
_TELLS_NOTHING = frozenset(_NOISE.split())


@cache
def words_of(header: str) -> frozenset[str]:
    """Return what a header says, in our words.

    camelCase, abbreviations and words without a gap are understood.
    """
    words: set[str] = set()
    for part in plain_words(_SURNAME.sub("surname", header)):
        for spelling in _spellings(part):
            words.update(_WORDS.get(spelling, [spelling]))
    return frozenset(words)


def _spellings(token: str) -> list[str]:
    """Return the spellings that a token is glued of; itself where it is not."""
    pieces: list[str] = _GLUED.findall(token)
    if token in _WORDS or "".join(pieces) != token:
        return [token]
    return pieces


def phrase_fit(header: str, phrases: str) -> float:
    """Return how well a header says one of several phrases, which are separated by `|`.

    1 exactly, less with words beside that tell nothing, 0 not at all.
    """
    best = 0.0
    words = words_of(header)
    for phrase in phrases.split("|"):
        needed = frozenset(phrase.split())
        beside = words - needed
        if needed <= words and beside <= _TELLS_NOTHING:
            best = max(best, 1 - 0.1 * len(beside))
    return best


# what one column may hold of two, and a part of one
EXPIRY = "expiry"
NAME = "name"
HOUSE = "house"
_LETTERS = r"[^\d@]*[^\W\d][^\d@]*"
_NAMES = (
    "name|emboss|name on card|customer|name and last|name and first|first and last name|name e last"
)
_LAST_NAMES = (
    "last name|last|paternal last name|leading last name|maternal last name|second last name"
)
_FIRST_LINES = "address|street|street house|address zip|line|address first line"
_SECOND_LINES = (
    "address 2|street 2|unit|street unit|line 2|address line 2|address extra|address second line"
)
# words of a header that names something of a customer and not the customer
_NO_CUIDS = frozenset({"address", "line", "name", "date", "billing"})
# words of a header that may be that of a second line of the address, and values of one
_OF_SECOND_LINES = frozenset({"address", "street", "line", "unit", "extra"})
_UNITS = re.compile(
    r"(?i)(?:(?:apt|apartment|ste|suite|unit|fl|floor|bldg|building|rm|room|lot|app|apto|depto|"
    r"dept|piso|int|interior|wohnung|whg|etage|bureau|c/o|attn|po box)\b|#).*"
)


class Signs(NamedTuple):
    """What tells a column: phrases of its header in our words, and a regex of its values.

    Without a regex another test decides.
    """

    header: str
    values: str = ""


# In the order in which they are guessed: what values show best first, so that it is not taken for
# something else.
SIGNS: Final = {
    portal.PAN: Signs("card number|card|primary account number"),
    EXPIRY: Signs("expiration|expiration month year|expiration month jj"),
    portal.CVV: Signs("cvv|cvv 2|security", r"\d{1,4}"),
    portal.CVV_HASH: Signs("cvv hash|cvv 2 hash|cvv|cvv 2", expressions.HASH_SHAPE),
    portal.EMAIL: Signs("email|e billing|billing|email billing", r"\S+@\S+\.\w+"),
    portal.POSTAL_CODE: Signs(
        "zip|zip 5|c p", r"\d{3,5}|\d{5}-?\d{4}|[A-Za-z]\d[A-Za-z][ -]?\d[A-Za-z]\d"
    ),
    portal.SUBNATIONAL: Signs("state"),
    portal.COUNTRY: Signs("country"),
    portal.CUID: Signs("customer number|customer", r"(?=.*\d)[\w./ -]{1,40}|[\w-]{8,40}"),
    portal.CUSTOMER_KEY: Signs("customer key", ".*"),
    portal.NICKNAME: Signs("nickname", ".*"),
    portal.ADDRESS2: Signs(_SECOND_LINES, ".*"),
    portal.PHONE: Signs("phone", r"[+(]{0,2}\d[\d ().+/-]{5,20}\d( ?x\d+)?"),
    NAME: Signs(_NAMES, _LETTERS),
    portal.ADDRESS1: Signs(_FIRST_LINES, r"(?=.*[^\W\d]).{4,}"),
    portal.CITY: Signs("city", _LETTERS),
    portal.NAME_ON_CARD: Signs("emboss|name on card", _LETTERS),
    portal.IS_PRIMARY: Signs("primary", "(?i)true|false|t|f|y|n|yes|no|1|0"),
    portal.YEAR: Signs("expiration year", r"\d{2}|20\d{2}"),
    portal.MONTH: Signs("expiration month", "0?[1-9]|1[0-2]"),
    portal.FIRST_NAME: Signs("first name|first|leading name", _LETTERS),
    portal.LAST_NAME: Signs(_LAST_NAMES, _LETTERS),
    HOUSE: Signs("house|number street|number", r"\d{1,6}[ -]?\w?(?:/\d)?"),
}
_OPTIONAL_SHOWN = {EXPIRY, portal.CUID, portal.CVV, portal.EMAIL, portal.PHONE}
_ALIKE_WITHOUT_NAME = {portal.COUNTRY, portal.IS_PRIMARY}
# Columns that values alone may show, always with a question.
BLIND = {*REQUIRED, *_OPTIONAL_SHOWN} - _ALIKE_WITHOUT_NAME
# their values are no reason to leave them out
NO_MATTER = (portal.EMAIL, portal.PHONE, portal.NAME_ON_CARD)
_ADDRESS = ("addr", "adr", "dir", "endereco", "anschrift", "hauptadr", "domicil")
_STATES = {
    *places.subnational_spellings(places.US),
    *places.subnational_spellings(places.CANADA),
}


def fit(header: str, target: str) -> float:
    """Return how well a header names a column: 2 is the portal's own name, 0 not at all.

    In between is how well it says one of the column's phrases (`phrase_fit`).
    """
    if header == target:
        return 2.0
    if target == portal.CUID and not _NO_CUIDS.isdisjoint(words_of(header)):
        return 0.0
    return phrase_fit(header, SIGNS[target].header)


def are_headers(names: Sequence[str]) -> bool:
    """Return whether these are headers of an extract: at least three name portal columns."""
    return sum(any(fit(name, target) for target in SIGNS) for name in names) > 2


def is_house_number(header: str) -> bool:
    """Return whether a header that may name a house number names no other number."""
    words = words_of(header)
    return words == {"number"} or not words.isdisjoint({"house", "street"})


def may_be_second_line(column: Column) -> bool:
    """Return whether header or values may be those of an apartment, suite or building."""
    values = column.present
    units = sum(bool(_UNITS.fullmatch(value)) for value in values)
    if units > 0.5 * len(values):
        return True
    is_named_so = not _OF_SECOND_LINES.isdisjoint(words_of(column.heading))
    return is_named_so and _are_texts(values)


def _are_texts(values: Sequence[str]) -> bool:
    """Return whether values are texts of several kinds, as no code or e-mail address is."""
    texts = [value for value in values if re.search(r"[^\W\d]", value) and "@" not in value]
    return len(set(texts)) > 2 and len(texts) > 0.5 * len(values)


def says_only(column: Column, word: str) -> bool:
    """Return whether a header says one word and nothing else."""
    return words_of(column.heading) == {word}


def share(column: Column, target: str, today: date) -> float:
    """Return the share of a column's values that have the shape of a portal column.

    An optional column that no cardholder has yet, under the right header, counts as whole.
    """
    values = column.present
    if values:
        return _matching(values, target, today) / len(values)
    is_optional = target in portal.columns() and target not in REQUIRED
    return float(is_optional and fit(column.heading, target) >= 1)


class Candidate(NamedTuple):
    """A column that may be a portal column."""

    fit: float  # of its header
    share: float  # of its values that have the right shape
    column: Column

    @property
    def rank(self) -> tuple[float, bool, float]:
        """The sort key: the best is first."""
        return -self.fit, not self.column.present, -round(self.share, 1)


def is_of_the_address(header: str) -> bool:
    """Return whether a header with a word for "primary" can speak of nothing but an address."""
    words = plain_words(header)
    return any(word.startswith(_ADDRESS) for word in words) or words in (
        ["primary"],
        ["is", "primary"],
    )


def _matching(values: Sequence[str], target: str, today: date) -> int:
    """Return how many values have the shape of a portal column."""
    if target == portal.PAN:
        return _cards(values)
    if target == EXPIRY:
        return _dates(values, today)
    if target == portal.SUBNATIONAL:
        return _places(values, _STATES)
    if target == portal.COUNTRY:
        return _places(values, places.country_spellings())
    shape = SIGNS[target].values
    return sum(bool(re.fullmatch(shape, unescaped(value), re.DOTALL)) for value in values)


def _cards(values: Sequence[str]) -> int:
    numbers = pl.lit(pl.Series([re.sub("[ -]", "", value) for value in values]))
    is_card = numbers.str.contains("^[2-6][0-9]{15}$") & expressions.luhn_holds(numbers)
    return int(pl.select(is_card).to_series().sum())


def _places(values: Sequence[str], spellings: Container[str]) -> int:
    spelled = [" ".join(value.upper().replace(".", " ").split()) for value in values]
    return sum(place in spellings for place in spelled)


def _dates(values: Sequence[str], today: date) -> int:
    """Return how many values are dates in the likeliest form."""
    step, forms = date_forms(values, today)
    if not forms:
        return 0
    return round(share_of_dates(step.apply(values), forms[0], today) * len(values))


def written_as(column: Column, whole: str, today: date) -> list[str]:
    """Return a column of dates (EXPIRY) or NAME with each format that it may be written in."""
    step = Step()
    if whole == EXPIRY:
        step, forms = date_forms(column.present, today)
        forms = _said_by(column.heading, forms) or forms
    else:
        forms = name_forms(column.present)
    return [f"{{ {column.source}{step.toml}, format = {toml(form)} }}" for form in forms]


def _said_by(header: str, forms: Sequence[str]) -> list[str]:
    """Return the formats whose letters a header has, as in EXP_DDMMYYYY."""
    letters = re.sub("[^A-Z]", "", header.upper())
    return [form for form in forms if re.sub("[^A-Z]", "", form) in letters]
