"""The log filter: cards and CVV hashes masked wherever a record may hold them, digests and ids left
to read.
"""

from __future__ import annotations

import base64
import logging
import sys
from datetime import datetime
from hashlib import sha256
from io import StringIO

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flows.card_numbers import passes_luhn
from flows.redaction import Redaction, redact, shown
from flows.runs.store import StoreBusyError
from schemas.expressions import PUBLISHED

HASH = sha256(b"007").digest()


def logged(*arguments: object, **options: object) -> str:
    out = StringIO()
    handler = logging.StreamHandler(out)
    handler.addFilter(Redaction())
    logger = logging.Logger("a library's")
    logger.addHandler(handler)
    logger.warning(*arguments, **options)  # type: ignore[arg-type]  # passed on as they come
    return out.getvalue()


@pytest.mark.parametrize("card", PUBLISHED)
@pytest.mark.parametrize("form", ["{}", "pan{}", "pan={};", "'{}'", "x\n{}\ny", "[{},{}]"])
def test_a_card_number_is_masked(card: str, form: str) -> None:
    spaced = " ".join(card[at : at + 4] for at in range(0, 16, 4))

    texts = [redact(form.format(text, text)) for text in (card, spaced, spaced.replace(" ", "-"))]

    assert all("[masked]" in text and card[-4:] not in text for text in texts)


@pytest.mark.parametrize(
    "text",
    [
        base64.b64encode(HASH).decode(),
        base64.b64encode(HASH).decode().rstrip("="),
        base64.urlsafe_b64encode(HASH).decode(),
        HASH.hex(),
        HASH.hex().upper(),
    ],
)
def test_a_cvv_hash_is_masked_however_it_is_written(text: str) -> None:
    assert "cvv_hash=[masked], sent" == redact(f"cvv_hash={text}, sent")


@pytest.mark.parametrize(
    "text",
    [
        sha256(b"an extract").hexdigest(),
        base64.b64encode(sha256(b"an extract").digest()).decode(),
        "first-bank-20261120-3f9c21aa-00001.csv.pgp",
        "first-bank-20261120-77098123-00001.csv.pgp",
        "first-bank-20261120-77098f5e-00001.csv.pgp",
        "2026-11-20 12:31:04.123 rows 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 of 1,000,000",
        "0ABCDEF0 5D1F 4C3B 9A7E 0123456789AB",
    ],
)
def test_digests_names_and_row_numbers_are_left_to_read(text: str) -> None:
    assert text == redact(text)


@given(st.text("0123456789 -ab\n", max_size=60))
def test_redacting_twice_is_redacting_once(text: str) -> None:
    assert redact(text) == redact(redact(text))


@given(
    st.datetimes(datetime(2000, 1, 1), datetime(2099, 12, 31)),
    st.sampled_from(["%Y%m%d%H%M%S", "%Y%m%d%H%M%S%f"]),
)
def test_the_moment_in_a_files_name_is_never_taken_for_a_card(moment: datetime, form: str) -> None:
    name = f"cards_{moment.strftime(form)}.csv {int(moment.timestamp() * 1000) % 10**12 + 10**12}"

    assert name == redact(name)


@given(
    st.integers(13, 19).flatmap(lambda size: st.text("0123456789", min_size=size, max_size=size))
)
def test_a_run_of_13_to_19_digits_is_masked_exactly_where_it_passes_luhn(digits: str) -> None:
    assume(digits[:1] != "1" and digits[:2] != "20")  # moments begin so
    assert ("[masked]" if passes_luhn(digits) else digits) == redact(digits)


def test_arguments_exceptions_and_stacks_of_a_record_are_redacted() -> None:
    card = PUBLISHED[0]
    try:
        raise ValueError(f"cell {card}")
    except ValueError as error:
        text = logged("row of %s: %r", [card], {"pan": card}, exc_info=error, stack_info=True)

    assert card not in text
    assert "ValueError: cell [masked]" in text


def test_a_record_whose_arguments_do_not_fit_is_logged_without_them() -> None:
    assert "rows %d of\n" == logged("rows %d of", PUBLISHED[0])


@pytest.mark.parametrize(
    ("message", "passes"),
    [("Task run failed; it is tried again", True), ("Engine execution exited with x", False)],
)
def test_an_error_of_ours_is_logged_without_its_trace_and_not_once_more_by_prefect(
    message: str, passes: bool
) -> None:
    try:
        raise StoreBusyError(place="cards", code="503")
    except StoreBusyError:
        record = logging.LogRecord("x", logging.ERROR, __file__, 1, message, (), sys.exc_info())

    shown = Redaction().filter(record)

    assert passes == shown
    assert "Traceback" not in logging.Formatter().format(record) or not passes


def test_what_a_terminal_shows_has_no_controls_and_no_marks_of_direction() -> None:
    assert r"a\u001b[2Jb\u202ec" == shown("a\x1b[2Jb\u202ec")
