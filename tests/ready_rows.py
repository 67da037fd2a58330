"""Rows with changes that extracts are full of, and what refines them in the portal's own columns."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from datetime import date
from hashlib import sha256

from hypothesis import strategies as st

from flows.core.extract.mapping import plan_mapping
from flows.core.rows.refine import EVERY_ROW, Choice, Refiner
from schemas import portal
from schemas.issuer import Issuer
from schemas.manifest import SourceIdentity
from schemas.portal import columns
from schemas.rules import Rules

AS_OF = date(2026, 11, 20)
SOURCE = SourceIdentity(key="bank/extracts/a.csv", version="1", size=1, sha256="0" * 64, newlines=10)
HASH = b64encode(sha256(b"123").digest()).decode()
TEXTS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Z", "Cc", "Cf", "Mn"]), max_size=6)
ODD = st.sampled_from(
    ["NULL", "test", "0000", "xXx", "---", "N/A", "é", "e\u0301", "12½", " a", "a ", "a\xa0", "\u200ba", "a\nb", "a,b",
     ",", '"', '""', 'Lee "Lucky" Long', ",TEST,", "Apt 4, Floor 2", "O'Neil", "ſ", "\xad", "x\x85", "İ", "ﬁ", "1"]
)  # fmt: skip
CELLS: dict[str, st.SearchStrategy[str | None]] = {
    portal.CUID: st.sampled_from([None, "c-2", "1234567890123", "4242 4242-4242_4242", "a1/22.33", "ü", "TEST", "a,b"]),
    portal.PAN: st.sampled_from(
        ["4242424242424242", "4242424242424241", "4242 4242 4242 4242", "4242424242424242 ", "0000000000000000", "42"]
    ),
    portal.YEAR: st.sampled_from(["29", "2029", "26", "99", "00", "2", " 29"]),
    portal.MONTH: st.sampled_from(["11", "1", "12", "13", "00", "01", "011"]),
    portal.CVV: st.sampled_from([None, "123", "007", "1234", "12", "12a", " 123", ""]),
    portal.CVV_HASH: st.sampled_from([None, HASH, HASH.lower(), HASH[:-1], sha256(b"123").hexdigest(), "NULL"]),
    portal.SUBNATIONAL: st.sampled_from(["MA", "ma", "Massachusetts", "NL", "QC", "ZZ", "TX", None]),
    portal.COUNTRY: st.sampled_from(["US", "usa", "United States", "CA", "Canada", " us", "DE", None]),
    portal.POSTAL_CODE: st.sampled_from(
        ["02108", "02108-1234", "2108", "H2X 1Y4", "h2x1y4", "A1A 1A1", "D1A 1A1", "00000", "75001\n", None]
    ),
    portal.EMAIL: st.sampled_from([None, "a@example.com", "a@b", "é@example.com", "a@example.com ", "a@-b.com"]),
    portal.PHONE: st.sampled_from([None, "617-555-0100", "+1 (617) 555-0100", "12", "555-0100 x2", "NULL"]),
    portal.IS_PRIMARY: st.sampled_from(["TRUE", "true", "Y", "0", "maybe", None]),
}
CHANGES = st.dictionaries(st.sampled_from(columns()), st.none(), max_size=3).flatmap(
    lambda chosen: st.fixed_dictionaries({name: CELLS.get(name, st.none()) | ODD | TEXTS for name in chosen})
)


def refiner_of(order: Sequence[str], rules: Rules, choice: Choice = EVERY_ROW, **more: object) -> Refiner:
    """Return what refines the blocks of an extract in the portal's own columns."""
    issuer = Issuer.model_validate(
        {
            "issuer": "bank",
            "root": ".",
            "portal": {"allowed_hosts": ["x.example"], "fingerprints": ["A" * 40]},
            "rules": rules.model_dump(),
            "repairs": {"refuse_excel": False, "zip_zeros": False, "cvv_zeros": False, "expiration_order": False},
            **more,
        }
    )
    return Refiner(issuer, plan_mapping(columns(), {}, "a.csv"), AS_OF, SOURCE, choice, order)
