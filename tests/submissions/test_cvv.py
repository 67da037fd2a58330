"""The CVV hash: right by vectors and by hand, and an issuer's mistakes named."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from datetime import date
from hashlib import sha256

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.submissions.validate import validate
from schemas.cvv import replace_cvvs
from schemas.issuer import RuleSettings
from schemas.portal import CVV, CVV_HASH
from tests.builders import portal_rows, share_of


def hashed(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


@pytest.mark.parametrize(
    ("cvv", "expected"),
    [
        ("123", "pmWkWSBCL51Bfkhn79xPuKBKHz//H6B+mY6G9/eieuM="),
        ("007", "Yp9M+TN7DQx28wXYYPmIlM+ownlRa0JXR1FMqHEN65c="),
        ("1234", "A6xnQhbz4Vx2HuGl4lXwZ5U2I8iziLRFnhP5eNfIRvQ="),
    ],
)
def test_known_vectors_hold(cvv: str, expected: str) -> None:
    rows = replace_cvvs(portal_rows({CVV: cvv}))

    assert (expected, None) == rows.select(CVV_HASH, CVV).row(0)


@settings(max_examples=share_of(1), deadline=None)
@given(st.lists(st.text("0123456789", min_size=3, max_size=4), min_size=1, max_size=30))
def test_the_table_is_sha256_for_every_cvv(cvvs: list[str]) -> None:
    rows = replace_cvvs(portal_rows(*({CVV: cvv} for cvv in cvvs)))

    assert [hashed(cvv) for cvv in cvvs] == rows[CVV_HASH].to_list()


def test_a_missing_cvv_stays_empty_and_a_given_hash_stays() -> None:
    given_hash = hashed("042")

    rows = replace_cvvs(
        portal_rows(
            {CVV: None}, {CVV: None, CVV_HASH: given_hash}, {CVV: "042", CVV_HASH: given_hash}
        )
    )

    assert [None, given_hash, given_hash] == rows[CVV_HASH].to_list()
    assert 3 == rows[CVV].null_count()


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.none() | st.text(max_size=4), st.none() | st.just(hashed("042"))),
        min_size=1,
        max_size=5,
    )
)
def test_of_cvv_and_hash_at_most_one_leaves_us(cells: list[tuple[str | None, str | None]]) -> None:
    rows = replace_cvvs(
        portal_rows(*({CVV: cvv, CVV_HASH: given_hash} for cvv, given_hash in cells))
    )

    assert rows.filter(rows[CVV].is_not_null() & rows[CVV_HASH].is_not_null()).is_empty()


@pytest.mark.parametrize("cvv", ["12", "12345", "abc", "+12", "1 2", "٠٠٧"])
def test_what_is_no_cvv_is_never_hashed(cvv: str) -> None:
    rows = replace_cvvs(portal_rows({CVV: cvv}))

    assert [None] == rows[CVV_HASH].to_list()


def verdicts_on_hashes(rows: pl.DataFrame) -> pl.DataFrame:
    return (
        validate(rows, date(2026, 11, 20), RuleSettings())
        .filter(column=CVV_HASH)
        .select("row", "column", "code")
    )


DIGEST = sha256(b"918").digest()


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        (hashed("918\n"), "newline"),
        (hashed("918\r\n"), "newline"),
        (sha256(b"918\n").hexdigest(), "newline"),
        (b64encode(sha256("918".encode("utf-16-le")).digest()).decode(), "utf16"),
        (hashed("7"), "lost_zero"),
        (hashed("42"), "lost_zero"),
        ("47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", "empty"),
        (DIGEST.hex(), "hex"),
        (DIGEST.hex().upper(), "hex"),
        (b64encode(DIGEST.hex().encode()).decode(), "base64_of_hex"),
        (urlsafe_b64encode(sha256(b"123").digest()).decode(), "base64url"),
        (b64encode(DIGEST).decode().rstrip("="), "unpadded"),
        (hashed("salt918"), "unknown"),
    ],
)
def test_a_usual_mistake_of_an_issuer_has_its_name(written: str, kind: str) -> None:
    rows = portal_rows({}, {CVV: None, CVV_HASH: written})

    verdicts = verdicts_on_hashes(rows)

    assert [(2, CVV_HASH, f"card.cvv_hash.{kind}")] == verdicts.rows()


def test_a_hash_of_another_cvv_than_the_rows_own_is_a_mismatch() -> None:
    rows = portal_rows({CVV: "123", CVV_HASH: hashed("124")}, {CVV: "123", CVV_HASH: hashed("123")})

    verdicts = verdicts_on_hashes(rows)

    assert [(1, CVV_HASH, "card.cvv_hash.mismatch")] == verdicts.rows()


def test_a_text_of_another_shape_has_the_wrong_format() -> None:
    rows = portal_rows({CVV: None, CVV_HASH: "not a hash"}, {})

    verdicts = verdicts_on_hashes(rows)

    assert [(1, CVV_HASH, "card.cvv_hash.format")] == verdicts.rows()
