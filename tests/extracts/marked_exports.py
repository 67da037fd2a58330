"""Exports of core systems and processors in which some cards are closed, lost, deleted or dead."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from schemas.portal import CUID, CVV, PAN
from tests.extracts.exports import ADDRESS, BASE, NAMES, Columns, Export, index, people, text, truth

PORTUGUESE: Columns = {
    "Número Cliente": CUID,
    "Número Cartão": PAN,
    "EXP_DATE": BASE["EXP_DATE"],
    "CVV": CVV,
    **NAMES,
    **ADDRESS,
}


class Marked(NamedTuple):
    """An export, and the numbers of the cards that must not be sent."""

    export: Export
    ended: frozenset[str]


class Mark(NamedTuple):
    """The columns that mark a card: by header, the value of a card in use, and those of others."""

    used: str
    ended: str  # with blanks between; `_` is empty


# By processor or core system, in the words of its layout.
MARKS: dict[str, dict[str, Mark]] = {
    "action": {"ACTION": Mark("A", "D")},
    "maintenance": {"MAINT_CD": Mark("C", "D X")},
    "block code": {"BLK-CD": Mark("_", "L S F")},
    "numeric block code": {"BLOCK_CODE": Mark("00", "41 43 46 83")},
    "flag of deletion": {"DEL_FLAG": Mark("N", "Y")},
    "deceased": {"DECEASED_IND": Mark("_", "Y")},
    "closing date": {"CLOSED_DT": Mark("_", "20240131 20251215")},
    "hot list": {"HOTLIST_FLG": Mark("0", "1")},
    "life cycle": {"LIFECYCLE": Mark("ACTIVE", "CLOSED LOST")},
    "card state": {"CARD_STATE": Mark("A", "C S")},
    "French": {"ETAT_CARTE": Mark("ACTIF", "CLOTURE PERDU VOLE")},
    "Spanish": {"Estatus": Mark("ACTIVA", "CANCELADA ROBADA")},
    "Spanish leaving": {"FECHA_BAJA": Mark("_", "31/01/2024 15/12/2025")},
    "Portuguese": {"SITUACAO_CARTAO": Mark("ATIVO", "CANCELADO BLOQUEADO")},
    "Portuguese death": {"DT_OBITO": Mark("_", "2024-01-31 2025-12-15")},
    "German": {"Sperrkennzeichen": Mark("N", "J")},
    "German status": {"Kartenstatus": Mark("aktiv", "gesperrt verloren")},
    "card and account": {"CARD_STAT": Mark("N", "L"), "ACCT_STAT": Mark("N", "C")},
    "external status": {"EXT_STATUS": Mark("_", "B C E F I L U Z")},
    "internal status": {"INT-STATUS-CD": Mark("N", "D O X")},
    "active or not": {"ACTIVE_IND": Mark("Y", "N")},
    "charge-off": {"CO_STATUS": Mark("0", "1 2")},
    "reissue code": {"PLASTIC_CD": Mark("1", "8 9")},
    "glued": {"CARDSTATUS": Mark("Active", "Lost Stolen Deceased")},
    "words under no word": {"REMARK": Mark("OK", "STOLEN FRAUD")},
    "letters under no word": {"XK7": Mark("A", "Z")},
    "death in words": {"dateOfDeath": Mark("_", "2024-01-31")},
    "operation": {"OPER": Mark("I", "E")},
    "fraud": {"FRAUD_SW": Mark("N", "Y")},
    "suspended": {"SUSP_STATUS": Mark("NONE", "SUSPENDED TERMINATED")},
    "void": {"VOID_YN": Mark("N", "Y")},
    "opposition": {"MISE_EN_OPPOSITION": Mark("N", "O")},
}


def marked(name: str) -> Marked:
    """Return an export by name: every fifth card has ended, by one of the columns that mark it."""
    rows = people(60)
    marks = MARKS[name]
    ended = [row for row in rows if index(row) % 5 == 4]

    def cell(header: str, mark: Mark, row: dict[str, str]) -> str:
        values = mark.ended.split()
        turn = index(row) // 5
        is_ended = index(row) % 5 == 4 and [*marks][turn % len(marks)] == header
        value = values[turn // len(marks) % len(values)] if is_ended else mark.used
        return value.replace("_", "")

    columns = {header: partial(cell, header, mark) for header, mark in marks.items()}
    base = PORTUGUESE if name == "Portuguese" else {**BASE, **NAMES, **ADDRESS}
    content = text(rows, {**base, **columns})
    return Marked(Export(content, truth(rows, CUID, CVV)), frozenset(row[PAN] for row in ended))
