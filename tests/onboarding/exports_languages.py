"""Exports with Spanish, Portuguese, German and French headers, and in the encodings of their banks."""

from __future__ import annotations

from schemas.portal import (
    ADDRESS1,
    ADDRESS2,
    CITY,
    COUNTRY,
    CUID,
    CVV,
    EMAIL,
    FIRST_NAME,
    LAST_NAME,
    PAN,
    PHONE,
    POSTAL_CODE,
    SUBNATIONAL,
)
from tests.extracts.exports import constant, people
from tests.onboarding.exports_processors import delimited
from tests.onboarding.layouts import Aside, Columns, Export, Mark, beside, expiry, export, name


def languages() -> dict[str, Export]:
    """Return them by name."""
    return {**spanish(), **portuguese(), **german(), **french()}


def spanish() -> dict[str, Export]:
    state: Columns = {
        "Número de cliente": CUID,
        "Número de tarjeta": PAN,
        "Vencimiento": expiry("{MM}/{YY}", "MM/YY"),
        "CVV": CVV,
        "Nombres": FIRST_NAME,
        "Apellidos": LAST_NAME,
        "Dirección": ADDRESS1,
        "Depto": ADDRESS2,
        "Ciudad": CITY,
        "Estado": SUBNATIONAL,
        "Código postal": POSTAL_CODE,
        "Correo electrónico": EMAIL,
        "Estatus": Mark("ACTIVA", ("CANCELADA", "ROBADA"), ("SUSPENDIDA",)),
    }
    leaving: Columns = {
        "ID_CLIENTE": CUID,
        "NUM_TARJETA": PAN,
        "FEC_CADUCIDAD": expiry("{MM}{YYYY}", "MMYYYY"),
        "CVV2": CVV,
        "NOMBRE": FIRST_NAME,
        "APELLIDO_PATERNO": LAST_NAME,
        "CALLE": ADDRESS1,
        "CIUDAD": CITY,
        "ENTIDAD": SUBNATIONAL,
        "COD_POSTAL": POSTAL_CODE,
        "FECHA_BAJA": Mark("", ("31/01/2024", "15/12/2025"), date="DD/MM/YYYY"),
        "TIPO_PLASTICO": Aside(("CHIP", "BANDA")),
    }
    blocked: Columns = {
        "CLIENTE": CUID,
        "TARJETA": PAN,
        "FECHA_VTO": expiry("{YY}{MM}", "YYMM"),
        "CVV": CVV,
        "NOMBRE_COMPLETO": name("{last}, {first}", "LAST, FIRST"),
        "DOMICILIO": ADDRESS1,
        "LOCALIDAD": CITY,
        "PROVINCIA": SUBNATIONAL,
        "CP": POSTAL_CODE,
        "MOTIVO_BLOQUEO": Mark("", ("01", "02", "41", "43")),
        "TITULAR_FALLECIDO": Mark("N", ("S",)),
    }
    accents = people(60, plain=False)
    return {
        "Spanish states": export(state, delimited(";", encoding="cp1252"), rows=accents),
        "Spanish leaving": export(leaving, delimited("|")),
        "Spanish blocks and deaths": export(blocked, delimited("\t")),
    }


def portuguese() -> dict[str, Export]:
    state: Columns = {
        "Código do cliente": CUID,
        "Número do cartão": PAN,
        "Validade": expiry("{MM}/{YYYY}", "MM/YYYY"),
        "CVV": CVV,
        "Nome": FIRST_NAME,
        "Sobrenome": LAST_NAME,
        "Logradouro": ADDRESS1,
        "Complemento": ADDRESS2,
        "Cidade": CITY,
        "UF": SUBNATIONAL,
        "CEP": POSTAL_CODE,
        "Situação do cartão": Mark("ATIVO", ("CANCELADO", "BLOQUEADO")),
    }
    death: Columns = {
        "CD_CLIENTE": CUID,
        "NR_CARTAO": PAN,
        "DT_VALIDADE": expiry("{YYYY}{MM}", "YYYYMM"),
        "CD_SEGURANCA": CVV,
        "NM_TITULAR": name("{first} {last}", "FIRST LAST"),
        "ENDERECO": ADDRESS1,
        "CIDADE": CITY,
        "SG_UF": SUBNATIONAL,
        "NR_CEP": POSTAL_CODE,
        "NR_CELULAR": PHONE,
        "DT_OBITO": Mark("", ("2024-01-31", "2025-12-15"), date="YYYY-MM-DD"),
        "CD_SIT_CONTA": Mark("1", ("3", "4"), ("2",)),
    }
    return {
        "Portuguese states": export(state, delimited(";", encoding="cp1252")),
        "Portuguese deaths": export(death, delimited(";", newline="\r\n")),
    }


def german() -> dict[str, Export]:
    status: Columns = {
        "Kundennummer": CUID,
        "Kartennummer": PAN,
        "Gültig bis": expiry("{MM}/{YY}", "MM/YY"),
        "Prüfziffer": CVV,
        "Vorname": FIRST_NAME,
        "Nachname": LAST_NAME,
        "Straße": ADDRESS1,
        "Adresszusatz": ADDRESS2,
        "Ort": CITY,
        "Bundesstaat": SUBNATIONAL,
        "PLZ": POSTAL_CODE,
        "Land": COUNTRY,
        "Kartenstatus": Mark("aktiv", ("gesperrt", "verloren"), ("ausstehend",)),
    }
    blocked: Columns = {
        "KDNR": CUID,
        "KARTENNR": PAN,
        "ABLAUFDATUM": expiry("{DD}.{MM}.{YYYY}", "DD.MM.YYYY"),
        "KPN": CVV,
        "NAME": name("{last}, {first}", "LAST, FIRST"),
        "STRASSE": ADDRESS1,
        "ORT": CITY,
        "STAAT": SUBNATIONAL,
        "PLZ": POSTAL_CODE,
        "SPERRKZ": Mark("N", ("J",)),
        "STERBEDATUM": Mark("", ("31.01.2024", "15.12.2025"), date="DD.MM.YYYY"),
    }
    return {
        "German status": export(status, delimited(";", encoding="cp1252")),
        "German blocks and deaths": export(blocked, delimited("|")),
    }


def french() -> dict[str, Export]:
    canada = people(60, canada=True)
    state: Columns = {
        "No client": CUID,
        "No carte": PAN,
        "Date d'échéance": expiry("{MM}/{YYYY}", "MM/YYYY"),
        "CVV": CVV,
        "Prénom": FIRST_NAME,
        "Nom de famille": LAST_NAME,
        "Adresse": ADDRESS1,
        "App": ADDRESS2,
        "Ville": CITY,
        "Province": SUBNATIONAL,
        "Code postal": POSTAL_CODE,
        "Pays": COUNTRY,
        "État de la carte": Mark("ACTIF", ("CLOTURE", "PERDU", "VOLE"), ("SUSPENDU",)),
    }
    opposed: Columns = {
        "REF_CLIENT": CUID,
        "NUMERO_CARTE": PAN,
        "DATE_EXP": expiry("{YYYY}-{MM}", "YYYY-MM"),
        "CRYPTOGRAMME": CVV,
        "PRENOM": FIRST_NAME,
        "NOM": LAST_NAME,
        "RUE": ADDRESS1,
        "VILLE": CITY,
        "PROV": SUBNATIONAL,
        "CODE_POSTAL": POSTAL_CODE,
        "MISE_EN_OPPOSITION": Mark("N", ("O",)),
        "DATE_DECES": Mark("", ("2024-01-31", "2025-12-15"), date="YYYY-MM-DD"),
        "LANGUE": Aside(("F", "A")),
        "SUCCURSALE": beside(constant("00123")),
    }
    return {
        "French states": export(state, delimited(";", encoding="cp1252"), rows=canada),
        "French oppositions and deaths": export(opposed, delimited(";"), rows=canada),
    }
