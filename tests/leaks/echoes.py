"""Result files as a careless or hostile partner writes them: card numbers and CVVs in every text
and every place.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator, Sequence
from io import StringIO

from flows.extensions.simulator.error_shapes import SHAPES
from flows.extensions.simulator.validation import Fault
from schemas.portal import PAN
from tests.leaks.place import CARDS, CVVS, hashed, rows

HEAD = ("cuid", "last_4", "url", "expiration_date", "error")
WAYS = (
    "{card}",
    "{spaced}",
    "{dashed}",
    "card_number={card}&cvv={cvv}",
    "The card {spaced} with CVV {cvv} is invalid",
    "hash {hash} of {card}",
    "{dotted} / {card}.0",
    "{scientific}",
    "PAN{card}X",
    "{wide}",
    "{escaped}",
    "{escaped_short} {escaped_url} {entities}",
    "2027-01-20 {card}",
    "1799999999999{card}",
    "{hexed}",
    "{linked}",
    "{underlined}",
)


def echo(way: str, card: str, cvv: str) -> str:
    """Return a text that says a card and its CVV in one way."""
    groups = [card[at : at + 4] for at in range(0, 16, 4)]
    return way.format(
        card=card,
        cvv=cvv,
        hash=hashed(cvv),
        spaced=" ".join(groups),
        dashed="-".join(groups),
        dotted=".".join(groups),
        underlined="_".join(groups),
        linked="%20".join(groups),
        scientific=f"{float(card)!r} {card[0]}.{card[1:]}e+15 {card[0]},{card[1:15]}E15",
        wide="".join(chr(0xFF10 + int(digit)) for digit in card),
        escaped="".join(f"\\u003{digit}" for digit in card),
        escaped_short="".join(f"\\x3{digit}" for digit in card),
        escaped_url="".join(f"%3{digit}" for digit in card),
        entities="".join(f"&#{ord(digit)};" for digit in card),
        hexed=card.encode().hex(),
    )


def echoing_results() -> Iterator[tuple[str, bytes]]:
    """Yield name and content of result files for the rows of `place.rows()`."""
    cuids = rows()["cardholder.cuid"].to_list()
    sent = list(zip(cuids, CARDS, CVVS, strict=True))
    for way_at, way in enumerate(WAYS):
        for shape in SHAPES:
            yield f"way{way_at}-{shape}.csv", _errors(way, shape, sent[way_at % 20 :: 7])
    cuid, card, cvv = sent[0]
    link = "https://links.example.com/l/"
    yield (
        "links.csv",
        result_csv(
            [(cuid, card, f"{link}{card}", card, ""), (card, card[-4:], link, "2027-01-20", "")]
        ),
    )
    yield (
        "elsewhere.csv",
        result_csv([(cuid, card[-4:], f"https://evil.example/{card}", "2027-01-20", "")]),
    )
    yield (
        "script.csv",
        result_csv(
            [(cuid, card[-4:], f"javascript:alert({card})", f"={card}+1", f"=HYPERLINK({card})")]
        ),
    )
    yield f"{card}.csv", result_csv([(cuid, card[-4:], link, "2027-01-20", "")])
    yield f"result 4-4-4-4 {echo('{dashed}', card, cvv)}.csv", b"no result"
    yield "unknown.csv", f"{card},{cvv}\n{hashed(cvv)},{card}\n".encode()
    yield (
        "cut.csv.gz",
        gzip.compress(result_csv([("x", "", "", "", echo("{card}", card, cvv))] * 50))[:-9],
    )
    yield "bomb.csv.gz", gzip.compress(bytes(80 << 20))
    yield (
        "columns.csv",
        f"cuid,last_4,url,expiration_date,error,{PAN}\n{cuid},{card[-4:]},,,no,{card}\n".encode(),
    )
    yield "wide.csv", f"cuid,error\n{cuid},no,{card},{card}\n".encode()
    yield (
        "sealed.csv.pgp",
        b"-----BEGIN PGP MESSAGE-----\n\n" + card.encode() + b"\n-----END PGP MESSAGE-----\n",
    )
    yield "utf16.csv", result_csv([("", "", "", "", f"{cuid} {card}")]).decode().encode("utf-16")


def _errors(way: str, shape: str, sent: list[tuple[str, str, str]]) -> bytes:
    table = []
    for cuid, card, cvv in sent:
        text = echo(way, card, cvv)
        faults = [Fault("service_card", "pan", "invalid", text), Fault(text, text, text, "no")]
        table.append(("", "", "", "", SHAPES[shape](cuid, faults)))
        table.append(
            (
                "",
                "",
                "",
                "",
                json.dumps({"cuid": cuid, "errors": {text: {"_errors": [{"message": text}]}}}),
            )
        )
        table.append(
            (
                "",
                "",
                "",
                "",
                json.dumps({"cuid": text, "value": int(card), "errors": [int(card), text]}),
            )
        )
        table.append((cuid, card[-4:], "", text, text))
    return result_csv(table)


def result_csv(table: Sequence[tuple[str, ...]]) -> bytes:
    """Return rows as the portal's result file."""
    out = StringIO()
    csv.writer(out, lineterminator="\n").writerows([HEAD, *table])
    return out.getvalue().encode()
