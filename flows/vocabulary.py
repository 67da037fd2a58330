"""The words that are kept of a text that somebody else wrote: function words, and the trade's.

They are few on purpose: a word that is not here may be a name, an address, or a code. Words that
may also be part of a name or an address (OF_NAMES) are kept only where they cannot be one. Add a
word where many partners use it; a text of one partner belongs into `[errors]` of the TOML.
"""

import re
from functools import lru_cache
from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# words for digits: in texts few of them are known, in names of files all are
DIGIT_WORDS: Final = _words("""
    cinco cinque cuatro cztery deux dois dos duas dwie dziewięć een eight ein eine ett five four
    jeden negen nine nueve one osiem quatre quatro quattro sechs sette seven sieben siedem siete
    six sju sześć third three trois três två twee two um uma un una une uno zero zeven zwei
    восемь две девять один четыре шесть
""")
# digits beside one of the words above
ALSO_DIGITS: Final = _words("""
    do en et first no null ok second set to too
""")
# words that are also surnames, first names, parts of names or of addresses
OF_NAMES: Final = _words("""
    a al bank bill case city close da day de del der des do don du el en field ha holder ja key
    la lang le long max may min page place post rue rule short si sin site son su un von will y
""")
# of these, what joins the parts of a name
PARTICLES: Final = _words("""
    a al da de del der des do du el en la le un von y
""")
# what is named here belongs to a person
PERSONAL: Final = _words("""
    address addresses adresse cardholder city ciudad dirección endereço holder nachname name
    names nickname nom nombre nome ort prénom straße street titulaire titular ville vorname
""")
_ENGLISH = _words("""
    a able aborted about above accept accepted access according account ach acquirer action
    active address addresses after again against all allowed alphanumeric already also amex aml
    an and another any api app appear application are argument as ascii at attempt attempts auth
    authentication authorization available avs back bad bank base64 be because been before below
    between bic bill billable billing bin blank blocked body boolean both browse browser by
    bytes ca cache call calling can canada cancelled cannot cap card cardholder cardholders
    cards case change changed char character characters chars check checksum child chunk city
    client close closed code codes column columns company complete completed config conflict
    connect connection constraint contact contain contains content cors could country crc create
    created creating creation csv cuid currency current currently customer cvc cvv data database
    date day days db deadlock decline declined default delete denied detail details did digit
    digits discover dns does doesn don done due duplicate duplicated each econnrefused
    econnreset eight either email empty enabled encoded end ended ends enotfound enough enter
    entered entity entry eof err error errors etc etimedout eu even exceed exceeded exceeds
    exception exist exists expected expiration expirationyear expire expired expires expiry
    external fail failed failing fails failure failures false fault fi field fields file filled
    final first fixed for forbidden form format found from full gateway gender general generate
    get given gmt greater group guid handler hard has hash have header here hex holder host hour
    hours how html http https iban id identifier if ignored in incident incomplete incorrect
    incorrectly index input instance instead insufficient integer integrity internal into
    invalid is iso issue issued issuer it item its job jobs json key kyc last later latin least
    length less letter letters like limit line lines link links list load local locked login
    long longer lookup lost luhn made mail maintenance malformed mandatory many mastercard match
    matches matching max maximum may me merchant message method milliseconds min minimum minute
    minutes mismatch missing modulus month more most ms must mx n/a name names nan network never
    new next nickname no not nothing now null number numbers numeric object obtain occurred of
    off on once one only open operation optional or order other our out outdated outside over
    page pan parameter parse part partner password past path pattern payload pci pending per
    percent permission permitted pgp phone place placement please plz policy position post
    postal prefix present primary process processed processing profile progress properties
    property provide provided province psp query queue queued range rate reach reached read
    reading reason received recognised recognized record records ref refer reference refused
    region reject rejected rejection rejects remote req request requests require required
    requires reset resource response restricted result retry returned review row rows rule run
    same save schema scheme sdk second seconds secure security see seen send sent server service
    session set shipped shipping short should sign signature signed site size soft some
    something special sql ssl start started starts state status step still stopped street string
    sub submit submitted subnational success suite supplied support supported system take tcp
    temporarily temporary termination test than that the then there these they this three
    throttled time timed timeout times timestamp title tls to today token too total trace
    transaction true try two type typeerror uk unable unauthorized unavailable undefined
    unexpected unique unknown unprocessable unreachable unreadable unrecognised unrecognized
    unsuccessful unsupported until update upload uppercase upstream url us usa use used user
    username utc utf utf8 uuid valid validate validation value values verification verified
    verify version via violates violation visa was we were when where which while will window
    with within without would wrong xml year years yes you your zip
""")
_GERMAN = _words("""
    abgelaufen abgelehnt adresse aktualisiert alle anfrage angegeben angelegt anzahl auf aus
    ausgabe ausgefüllt bei benötigt bereits bis bitte buchstaben dabei darf das dass datei daten
    datum dem den der des die diese dieser dieses doppelt durch ein eine einem einer eingabe
    eingegeben eintrag enthalten enthält entspricht erforderlich erlaubt erneut ersten erwartet
    es existiert fehlen fehlende fehlender fehler fehlercode fehlerhaft fehlgeschlagen fehlt
    feld felder für gefunden geprüft gesperrt gültig gültiges haben hat hausnummer höchstens im
    innerhalb interner ist ja jahr kann karte karten kartennummer kein keine keinen konnte konto
    kunde kundennummer land lang leer länge mehr mindestens minuten mit monat muss müssen nach
    nachname netzwerk nicht noch nochmals nummer nur oder ohne ort pflichtfeld postleitzahl
    prüfen prüfsumme prüfung prüfziffer schon sein sekunden sind später stadt stellen straße
    straßenname tage temporär unbekannt unbekannte unbekannter unbekanntes und ungültig
    ungültige ungültiger ungültiges unterstützt unvollständig verarbeitet verbindung verfügbar
    versuchen vom von vor vorhanden vorname vorübergehend warten weniger wenn werden wert wird
    wurde wurden zahl zeichen zeile zeilen zeit zeitüberschreitung ziffern zu zulässig zulässige
    zum zur zwischen übereinstimmt überschreitet überschritten
""")
_ROMANCE = _words("""
    adres al année antes apellido attendu attendus au aucun aucune autorisé autorisée avec año
    cada campo campos caracteres caractère caractères carta carte cartão ce cette champ chiffres
    cidade ciudad codice com compte con conexión conforme connexion contiene contient correcta
    correcto correspond court créer código d dans datos de debe deben del demande demasiado
    desconocida desconocido después deux deve dirección directement disponible doit doivent
    donnée données doublon du duplicado déjà délai dépassé dépassée e el ella en encontrado
    endereço entre erreur errore essere est esta estado estar este está et excede excedido
    existant existe expirada expirado expiré expirée fallo falta fecha fichier formato fourni
    fournie ha han hasta het il impossible inattendu inattendue inconnu inconnue indisponible
    inesperado interne invalide invalides inválida inválido j jours kaart l la largo las le les
    ligne lignes limite longitud longueur lors los límite línea mais mancante manquant manquante
    mayor menor mes moins mois más máximo mínimo n ne niet nom nombre non nouveau numero numéro
    não número o obbligatorio obligatoire obligatoria obligatorio obrigatória obrigatório obtenu
    ongeldig ontbreekt ou par para pas pays país pendant permis peut plus por pour pris prise
    prénom qu que qui rechazada rechazado red refusé refusée reintente requerida requerido
    requis requise requête respuesta rue réessayez région réponse réseau s sa sans scaduta
    secondes segundos ser serveur servicio servidor si sin sobre solicitud son sont soportada
    soportado su superado supporté sur são tarjeta teléfono tem temporairement temporalmente
    temps tiempo tiene titulaire titular todos trop trouvé trouvée téléphone un una une utilisé
    vacía vacío valeur valide valido valor veld vencida verplicht vide ville votre vous válida
    válido vérifier y ya è é échec échoué élevé être único
""")
WORDS: Final = _ENGLISH | _GERMAN | _ROMANCE
_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@lru_cache(4096)
def is_known(text: str) -> bool:
    """Return whether letters are a known word, or several written as one (`postalCode`)."""
    if text.islower() or text.isupper() or text.istitle():
        return text.lower() in WORDS
    humps = _HUMPS.findall(text)
    is_whole = "".join(humps) == text
    return is_whole and all(len(hump) > 1 and hump.lower() in WORDS for hump in humps)


def may_be_name(text: str) -> bool:
    """Return whether a known word may be a part of a name or an address."""
    return text.lower() in OF_NAMES
