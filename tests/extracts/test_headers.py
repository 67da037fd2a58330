"""Headers in five languages, as banks' systems write them, are those of the portal's columns."""

import tomllib
from collections.abc import Mapping
from datetime import date
from io import BytesIO

import pytest

from flows.extensions.init.column_signs import EXPIRY, NAME
from flows.extensions.init.draft import Draft, first_draft
from flows.extracts.status_words import speaks_of_status
from schemas import portal

CELLS = {
    portal.CUID: ("K100", "K101", "K102"),
    portal.PAN: ("4242424242424242", "4000056655665556", "4111111111111111"),
    EXPIRY: ("1127", "0128", "0329"),
    portal.CVV: ("123", "456", "789"),
    NAME: ("Ana Smith", "Jose Jones", "Mary Weber"),
    portal.NAME_ON_CARD: ("ANA SMITH", "JOSE JONES", "MARY WEBER"),
    portal.FIRST_NAME: ("Ana", "Jose", "Mary"),
    portal.LAST_NAME: ("Smith", "Jones", "Weber"),
    portal.ADDRESS1: ("1 Main Street", "2 Main Street", "3 Main Street"),
    portal.ADDRESS2: ("Apt 1", "", "4B"),
    portal.CITY: ("Boston", "Salem", "Lowell"),
    portal.SUBNATIONAL: ("MA", "MA", "NY"),
    portal.POSTAL_CODE: ("02108", "02109", "10001"),
    portal.COUNTRY: ("US", "US", "US"),
    portal.PHONE: ("6175550101", "6175550102", "6175550103"),
    portal.EMAIL: ("a@example.com", "b@example.com", "c@example.com"),
}
ORDER = (*(name for name in CELLS if name not in (NAME, portal.NAME_ON_CARD)),)
HEADERS = {
    "English": "Customer ID;Credit Card Number;Exp Date;CVV2;First Name;Last Name;Address 1;Address 2;"
    "City;State;ZIP;Country;Phone;Email",
    "French": "Numéro de client;Numéro de carte;Date d'expiration;Cryptogramme;Prénom;Nom;Adresse;"
    "App;Ville;Province;Code postal;Pays;Téléphone;Courriel",
    "Spanish": "Nº de cliente;Número de tarjeta;Fecha de vencimiento;Código de seguridad;Nombre;"
    "Apellidos;Dirección;Apartamento;Ciudad;Estado;Código postal;País;Teléfono;Correo electrónico",
    "Mexican": "No. Socio;TARJETA;VENC;Código de verificación;Nombres;APELLIDO;Calle y número;"
    "Número interior;Municipio;Entidad;C.P.;PAIS;Tel. móvil;CORREO",
    "Spanish in capitals": "ID_CLIENTE;NUM_TARJETA;FEC_VENC;CVV;PRIMER_NOMBRE;PRIMER_APELLIDO;"
    "DOMICILIO;PISO;LOCALIDAD;PROVINCIA;CP;PAIS;CELULAR;MAIL",
    "Portuguese": "Código do cliente;Número do cartão;Data de validade;Código de segurança;Nome;"
    "Sobrenome;Endereço;Complemento;Cidade;UF;CEP;País;Telefone;Endereço eletrônico",
    "Portuguese names": "Nº do cliente;Número do cartão;Validade;Código de segurança;Primeiro nome;"
    "Último nome;Logradouro;Complemento;Município;Estado;Código postal;País;Celular;E-mail",
    "German": "Kundennummer;Kartennummer;Gültig bis;Prüfziffer;Vorname;Nachname;"
    "Straße und Hausnummer;Adresszusatz;Ort;Bundesstaat;PLZ;Land;Telefonnummer;E-Mail-Adresse",
    "German in short": "Kd-Nr;KARTEN_NR;ABLAUFDATUM;Sicherheitscode;Vorname;Name;STRASSE;Wohnung;"
    "Stadt;Bundesland;POSTLEITZAHL;Staat;Handy;Mail",
}


def draft_of(columns: Mapping[str, tuple[str, ...]]) -> Draft:
    """Return what is guessed of an extract with these columns, by header."""
    lines = [";".join(columns), *map(";".join, zip(*columns.values(), strict=True))]
    text = "".join(f"{line}\n" for line in lines)
    return first_draft(BytesIO(text.encode()), "export.csv", date(2026, 7, 1))


@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS)
def test_every_column_is_found_by_its_header_in_five_languages(headers: str) -> None:
    by_target = dict(zip(ORDER, headers.split(";"), strict=True))

    draft = draft_of({header: CELLS[target] for target, header in by_target.items()})

    mapped = tomllib.loads(draft.toml)["columns"]
    expiry = mapped.pop(portal.YEAR)
    assert ([], expiry) == (draft.doubts, mapped.pop(portal.MONTH))
    assert {"constant": "TRUE"} == mapped.pop(portal.IS_PRIMARY)
    assert by_target.pop(EXPIRY) == expiry["from"]
    assert by_target == mapped


@pytest.mark.parametrize(
    ("whole", "printed"),
    [
        ("Nombre completo", "Nombre impreso"),
        ("Nome completo", "NOME_IMPRESSO"),
        ("Titular", "Nombre grabado"),
        ("Nom et prénom", "Nom embossé"),
        ("Vor- und Nachname", "Prägename"),
    ],
)
def test_whole_names_and_those_on_the_card_are_told_apart(whole: str, printed: str) -> None:
    targets = (portal.PAN, EXPIRY, NAME, portal.NAME_ON_CARD, portal.POSTAL_CODE)
    names = ("card", "exp", whole, printed, "zip")
    headers = dict(zip(targets, names, strict=True))

    draft = draft_of({header: CELLS[target] for target, header in headers.items()})

    mapped = {guess.key: guess.value for guess in draft.guesses}
    assert f'from = "{whole}"' in mapped[portal.LAST_NAME]
    assert f'"{printed}"' == mapped[portal.NAME_ON_CARD]


@pytest.mark.parametrize("headers", [("Rua", "Número"), ("Straße", "Nr."), ("Rue", "Numéro")])
def test_a_column_named_number_is_the_house_number_with_a_question(
    headers: tuple[str, str],
) -> None:
    street, number = headers
    cells = {"card": CELLS[portal.PAN], "exp": CELLS[EXPIRY], "zip": CELLS[portal.POSTAL_CODE]}

    draft = draft_of(cells | {street: ("Main Street",) * 3, number: ("1", "22", "333")})

    [doubt] = [doubt for doubt in draft.doubts if doubt.key == portal.ADDRESS1]
    assert f"Is {number} the house number?" == doubt.question
    assert f'{{ join = ["{number}", "{street}"] }}' == doubt.value


@pytest.mark.parametrize(
    ("values", "is_doubted"), [(("4B", "", "12"), False), (("mobile", "", "web"), True)]
)
def test_an_apartment_without_numbers_has_a_question(
    values: tuple[str, ...], *, is_doubted: bool
) -> None:
    cells = {"card": CELLS[portal.PAN], "exp": CELLS[EXPIRY], "Adresse": CELLS[portal.ADDRESS1]}

    draft = draft_of(cells | {"App": values})

    assert is_doubted == (portal.ADDRESS2 in [doubt.key for doubt in draft.doubts])
    assert '"App"' == {guess.key: guess.value for guess in draft.guesses}[portal.ADDRESS2]


@pytest.mark.parametrize(
    ("codes", "is_padded"),
    [
        (("2108", "02109", "10001"), True),
        (("K1A 0B1", "K1A 0B2", "1234"), False),
    ],
)
def test_zeros_are_padded_only_where_most_codes_look_like_zips(
    codes: tuple[str, ...], *, is_padded: bool
) -> None:
    draft = draft_of({"card": CELLS[portal.PAN], "exp": CELLS[EXPIRY], "postal code": codes})

    value = {guess.key: guess.value for guess in draft.guesses}[portal.POSTAL_CODE]
    assert is_padded == ("pad = 5" in value)


@pytest.mark.parametrize(
    ("header", "speaks"),
    [("Fecha de alta", False), ("Data de fechamento", True), ("Fechado", True)],
)
def test_a_spanish_date_is_no_word_of_closing(header: str, *, speaks: bool) -> None:
    assert speaks == speaks_of_status(header)
