"""What a header says, in our words, whatever the issuer's spelling."""

import re
from functools import cache

from flows.extracts.status_words import plain_words

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
