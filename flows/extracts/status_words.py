"""Words of status, block, deletion and death, in English, French, Spanish, Portuguese and German.

A value of an extract is shown to a person only where it is a code of one or two characters, or
made of words of this file; any other as its shape.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

# What a value means that has one of these words; of several the last of SEND, LEAVE_OUT, DELETE.
_SEND: Final = """
    active activated actif active activo activa ativo ativa aktiv aktive normal open opened ouvert
    ouverte abierto abierta aberto aberta offen ok valid valide valido valida gueltig good current
    courant vigente enabled live new nuevo nueva novo nova neu nouveau nouvelle add added change
    changed update updated insert unblocked
"""
_LEAVE_OUT: Final = """
    pending issued inactive inactif inactivo inactiva inativo inativa inaktiv dormant suspended
    suspendu suspendue suspendido suspendida suspenso suspensa hold onhold restricted restreint
    attente pendiente pendente ausstehend temporary temporaire temporal temporario delinquent
    overlimit notactivated embossed ordered produced disabled
    blocked block blocking bloque bloquee blocage opposition bloqueado bloqueada bloqueo bloqueio
    gesperrt gesperrte gesperrter sperre sperrung blockiert bloccato bloccata blocco geblokkeerd
    zablokowana zablokowany frozen freeze gele gelee congelado congelada eingefroren retenu retenue
    retenido retenida retido retida sospeso sospesa angehalten
"""
_DELETE: Final = """
    closed close cloture cloturee ferme fermee cerrado cerrada fechado fechada encerrado encerrada
    geschlossen cancelled canceled cancel annule annulee cancelado cancelada storniert gekuendigt
    gekundigt kuendigung resilie resiliee deleted delete del supprime supprimee eliminado eliminada
    excluido excluida geloescht geloscht baja lost perdu perdue perdido perdida extraviado
    extraviada verloren stolen vole volee robado robada roubado roubada gestohlen fraud fraude
    fraudulent betrug deceased dead death decede decedee deces fallecido fallecida muerto difunto
    falecido falecida obito morto verstorben tod gestorben destroyed detruit detruite destruido
    destruida damaged endommage terminated chargedoff chargeoff writtenoff revoked counterfeit
    expired replaced
    remplacee reemplazada substituido ersetzt purged void voided hotlisted compromised bankrupt
"""
# Words beside them, which say nothing alone.
_BESIDE: Final = """
    card account customer cardholder holder by the of and or not no on in carte compte client
    cliente tarjeta cuenta cartao conta karte konto kunde permanently temporarily par por de la le
    o a do da yes oui si sim ja non nao nein true false none unknown status bank request
"""
MEANINGS: Final = {
    **dict.fromkeys(_SEND.split(), "send"),
    **dict.fromkeys(_LEAVE_OUT.split(), "leave_out"),
    **dict.fromkeys(_DELETE.split(), "delete"),
}
_KNOWN: Final = {*MEANINGS, *_BESIDE.split()}
_NEGATIONS: Final = {"not", "no", "non", "nao", "nein", "nicht", "pas"}
_PREVAILING: Final = ("delete", "leave_out", "send")

# Beginnings of words of a header that speaks of it; the shorter ones have to be the whole word.
_STEMS: Final = """
    status statut statu estatus situac situat zustand
    block bloc bloq blok gesperr sperr hotl freez frozen fraud betrug oppos
    delet suppr elimin borrad exclu loesch losch geloesch gelosch cancel annul storn kuend kund
    gekuend gekund resil clos clot cerrad cierr fechad fecham encerr schlies geschl ferm
    deceas decesd death dece decs fallec falec defunc obito muert morto verstorb todes
    lost stolen perd extravi roub roba verlor gestohl
    action activ actif aktiv ativ inact maint lifecy suspend dormant termin restrict revok
"""
_WHOLE: Final = """
    sts stat stt etat estado state blk hold del dlt clsd cls dod tod dead baja vol vole op opr oper
    operation fech change activity act actn mvt mouvement movimiento movimento aenderung life reason
    void
"""
_STEM: Final = re.compile("|".join(_STEMS.split()))
_WHOLE_WORDS: Final = frozenset(_WHOLE.split())
_AMBIGUOUS: Final = frozenset({"state", "estado", "stt"})  # of an address, too
_ADDRESS: Final = re.compile("addr|adr|dir|endereco|anschrift|mail|resid|billing|province|region")


def plain_words(text: str) -> list[str]:
    """Return the words of a text: without accents, in lower case, camelCase taken apart."""
    folded = text.replace("ß", "ss").replace("ä", "ae").replace("ö", "oe").replace("ü", "ue")
    plain = unicodedata.normalize("NFKD", folded).encode("ascii", "ignore").decode()
    return [word.lower() for word in re.findall("[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+", plain)]


def speaks_of_status(header: str) -> bool:
    """Return whether a header speaks of status, block, deletion or death."""
    words = plain_words(header)
    if not _AMBIGUOUS.isdisjoint(words):
        is_place = len(words) == 1 or any(_ADDRESS.search(word) for word in words)
        if not is_place:
            return True
    whole = _WHOLE_WORDS - _AMBIGUOUS
    return any(word in whole or _STEM.search(word) for word in words)


def is_block(header: str) -> bool:
    """Return whether a header speaks of what holds a card up, so that "yes" means that it is."""
    return _has_word(header, _BLOCKS, {"blk", "hold"})


def is_end(header: str) -> bool:
    """Return whether a header speaks of what ends a card, so that "yes" means that it ended."""
    return _has_word(header, _ENDS, {"del", "dlt", "fech"})


def is_negated(header: str) -> bool:
    """Return whether a header says the opposite of one of its words: NOT_BLOCKED, UNBLOCKED."""
    words = plain_words(header)
    return not _NEGATIONS.isdisjoint(words) or any(_UNDONE.match(word) for word in words)


def _has_word(header: str, beginnings: re.Pattern[str], whole: set[str]) -> bool:
    return any(beginnings.search(word) or word in whole for word in plain_words(header))


_UNDONE: Final = re.compile("unblo|unfr|unsus|desblo|debloq|entsperr|entblock|sblocc|reactiv")
_BLOCKS: Final = re.compile("block|bloc|bloq|blok|sperr|hotl|freez|frozen|oppos")
_ENDS: Final = re.compile(
    "fraud|betrug|delet|suppr|elimin|borrad|exclu|loesch|losch|cancel|annul|storn|clos|clot|cerrad|cierr|fecha[dm]|encerr|schlies|geschl|deceas|"
    "decesd|death|dece|fallec|falec|defunc|obito|muert|morto|verstorb|todes|lost|stolen|perd|"
    "extravi|roub|roba|verlor|gestohl|termin|void"
)


def meaning(value: str) -> str:
    """Return what a value means by its words: `send`, `leave_out`, `delete`, "" where unknown."""
    words = plain_words(value)
    if not words or any(word not in _KNOWN for word in words):
        return ""
    meanings = {MEANINGS[word] for word in words if word in MEANINGS}
    if meanings == {"send"} and not _NEGATIONS.isdisjoint(words):
        return "leave_out"
    return next((known for known in _PREVAILING if known in meanings), "")


def speak_of_status(values: Iterable[str]) -> bool:
    """Return whether any value is a word of status."""
    return any(meaning(value) for value in values if len(value) > 2)


def may_be_shown(value: str) -> bool:
    """Return whether a value is a code of at most two characters, or made of known words alone.

    One in letters that we have no words of may be a name.
    """
    words = plain_words(value)
    if not all(plain_words(letter) for letter in value if letter.isalnum()):
        return False
    if len(value) <= 2:
        return value.isprintable()
    return bool(words) and all(word in _KNOWN for word in words)


def label(value: str) -> str:
    """Return how a value is shown: itself, or its shape: A for a letter, 9 for a digit."""
    if not value:
        return "empty"
    if may_be_shown(value):
        return value
    return f"{shape(value)} (not shown)"


def shape(text: str) -> str:
    """Return the shape of a text, cut where it is long: A for a letter, 9 for a digit."""
    masked = re.sub(r"[^\W\d_]", "A", re.sub("[0-9]", "9", text))
    masked = re.sub(r"[^A9 ./:-]", "?", masked)
    return f"{masked[:12]}..." if len(masked) > 12 else masked
