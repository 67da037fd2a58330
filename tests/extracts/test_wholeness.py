"""An extract that is not whole is refused: cut anywhere, in any form, or not what its trailer and
sidecar say.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from flows.adapters.gpg import Keyring
from flows.adapters.gpg_sealer import GpgSealer
from flows.adapters.local import LocalStore
from flows.errors import ExtractError
from flows.extracts.delivery import missing
from flows.extracts.errors import MappingError, TrailerError, TruncatedError
from flows.extracts.opening import NoKeyForExtractError
from flows.extracts.reader import Extract
from flows.extracts.sidecar import SidecarError, read_sidecar
from flows.extracts.trailer import HashTotal
from flows.runs.openpgp import is_cut_off
from flows.runs.sealing import Plain
from flows.runs.store import Entry
from flows.submissions.rehearsal import rehearse
from flows.submissions.submit import Request
from schemas.source import SourceSettings
from tests import keys
from tests.builders import portal_rows, quick
from tests.night import DAY, local_bench, portal_csv

CSV = (b"1,Ada\n", b'2,"B ""x""\n,o"\n', b"3,\n")
CRLF = tuple(line.replace(b"\n", b"\r\n") for line in CSV)
FIXED = (b"0001Ada\n", b"0002Bo \n", b"0003Cy \n")
NAMED: dict[str, Any] = {"header_rows": 0, "names": ("id", "name")}
FORMS: dict[str, tuple[tuple[bytes, ...], dict[str, Any]]] = {
    "csv": (CSV, NAMED),
    "csv with CRLF": (CRLF, NAMED),
    "fixed": (FIXED, {"format": "fixed", "width": 7, "header_rows": 0}),
}
TRAILED: dict[str, Any] = {
    "trailer": "^TRL,([0-9]+),([0-9]+)$",
    "hash_total": "pan",
    "hash_total_digits": 4,
}


def passes(data: bytes, settings: SourceSettings) -> bool:
    """Return whether an extract is read to its end without being refused as a whole."""
    try:
        list(Extract(io.BytesIO(data), settings, "a.csv"))
    except ExtractError:
        return False
    return True


@pytest.mark.parametrize("form", FORMS)
def test_an_extract_cut_at_any_byte_passes_only_behind_a_whole_record(form: str) -> None:
    records, settings = FORMS[form]
    data, ends = (
        b"".join(records),
        {sum(map(len, records[:at])) for at in range(1, len(records) + 1)},
    )

    passed = {cut for cut in range(len(data) + 1) if passes(data[:cut], SourceSettings(**settings))}

    assert passed == ends


@pytest.mark.parametrize("form", FORMS)
def test_with_a_trailer_nothing_but_the_whole_extract_passes(form: str) -> None:
    records, settings = FORMS[form]
    data = b"".join(records) + b"TRL,3\n"

    passed = [
        cut
        for cut in range(len(data) + 1)
        if passes(data[:cut], SourceSettings(**settings, trailer="^TRL,([0-9]+)$"))
    ]

    assert passed == [len(data)]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_compressed_nothing_but_the_whole_extract_passes(pack: Callable[[bytes], bytes]) -> None:
    data = pack(b"".join(FORMS["csv"][0]))

    passed = [cut for cut in range(len(data) + 1) if passes(data[:cut], SourceSettings(**NAMED))]

    assert passed == [len(data)]


@pytest.mark.parametrize("armor", [True, False], ids=["armored", "binary"])
def test_a_sealed_message_cut_anywhere_has_no_end(armor: bool) -> None:
    key = keys.sound()
    with GpgSealer(
        [key.public], [key.fingerprint], armor=armor, compression="zip", today=DAY
    ) as sealer:
        message = sealer.seal([Plain("a.csv", os.urandom(900))])[0].data

    whole = [cut for cut in range(40, len(message) + 1) if not is_cut_off(message[:cut])]

    # the rest says nothing
    end = message.rfind(b"-----END PGP") + len(b"-----END PGP ") if armor else len(message)
    assert whole == list(range(end, len(message) + 1))


@pytest.mark.parametrize("armor", quick(1, ["--armor", "--no-armor"]))
def test_a_message_that_gpg_sealed_from_a_pipe_is_read_whole_or_refused_wherever_it_is_cut(
    tmp_path: Path, armor: str
) -> None:
    with Keyring() as ring:  # from a pipe gpg does not know the length: the packet comes in parts
        gpg, key = keys.Gpg(ring.home), keys.sound()
        gpg("--import", given=key.public)
        plain = portal_csv(
            portal_rows(*({"cardholder.cuid": os.urandom(99).hex()} for _ in range(20)))
        )
        sealed = gpg(
            "--encrypt", "--trust-model", "always", "-r", key.fingerprint, armor, given=plain
        )
    message = sealed.encode("latin-1")
    bench = local_bench(tmp_path)

    # what follows the last row of armor
    ends = len(message) - message.rfind(b"=") if armor == "--armor" else 0
    for cut in [
        *range(0, 80, 4),
        *range(80, len(message) - 80, 1597),
        *range(len(message) - 30, len(message) - ends),
    ]:
        with pytest.raises(ExtractError):
            rehearse(bench.context, Request(bench.drop_bytes(message[:cut]), DAY))
    with pytest.raises(NoKeyForExtractError):  # the bench has none; what is whole goes on to gpg
        rehearse(bench.context, Request(bench.drop_bytes(message), DAY))


def test_the_message_says_the_line_what_was_found_and_how_many_rows_were_read() -> None:
    said = []
    for data in (b"1,2\n3,4\n5\n", b'1,2\n3,"4\n', b"1,2\n3,4"):
        with pytest.raises(TruncatedError) as caught:
            list(
                Extract(io.BytesIO(data), SourceSettings(header_rows=0, names=("a", "b")), "a.csv")
            )
        said.append(caught.value.fields["problem"])

    assert "line 3, has 1 instead of 2 fields" in said[0]
    assert "3 rows were read" in said[0]
    assert "line 2, ends inside quotes" in said[1]
    assert "line 2, has no newline" in said[2]
    assert "final_newline = false" in said[2]


def test_a_short_last_record_before_a_trailer_is_one_rejected_row() -> None:
    settings = SourceSettings(header_rows=0, names=("a", "b"), trailer="^TRL,([0-9]+)")

    blocks = list(Extract(io.BytesIO(b"1,2\n3\nTRL,2\n"), settings, "a.csv"))

    assert [1] == [row for block in blocks for row in block.refused["row"] - 1]


def test_a_run_that_proved_its_extract_reads_it_again_whatever_the_settings_ask_now() -> None:
    extract = Extract(io.BytesIO(b"a,b\n1,2\n3"), SourceSettings(), "a.csv", proven=True)

    assert 2 == sum(block.rows.height + block.refused.height for block in extract)


# The hash total


def totalled(*pans: str, total: int, **settings: Any) -> bytes:
    rows = "".join(f"{at},{pan}\n" for at, pan in enumerate(pans))
    return f"id,pan\n{rows}TRL,{len(pans)},{total}\n".encode()


@given(
    st.lists(st.from_regex(r"[0-9]{1,19}", fullmatch=True), min_size=1, max_size=6),
    st.integers(1, 18),
)
def test_the_total_is_the_sum_of_the_numbers_in_its_low_order_digits(
    pans: list[str], digits: int
) -> None:
    settings = SourceSettings.model_validate(TRAILED | {"hash_total_digits": digits})
    total = sum(map(int, pans))

    assert passes(totalled(*pans, total=total), settings)
    assert passes(totalled(*pans, total=total % 10**digits), settings)
    assert not passes(totalled(*pans, total=total + 1), settings)


def test_only_digits_count_and_an_empty_cell_counts_nothing() -> None:
    settings = SourceSettings.model_validate(TRAILED)

    assert passes(
        totalled("4242 4242 4242 4242", "", "4111-1111-1111-1111", total=4242 + 1111), settings
    )


def test_the_total_of_a_million_of_the_largest_numbers_does_not_overflow() -> None:
    total = HashTotal(
        SourceSettings.model_validate(TRAILED | {"hash_total_digits": 18}), ("pan",), "a.csv"
    )
    block = pl.DataFrame({"pan": ["9" * 18]}).select(pl.col("pan").repeat_by(100_000).explode())
    for _ in range(10):
        total.add(block)
    total.take((10**18 - 1) * 1_000_000)

    total.check(1_000_000, 0)
    with pytest.raises(TrailerError):
        total.check(1_000_000, 1)


def test_in_fixed_format_the_total_is_of_a_field_and_is_the_second_group_of_the_trailer() -> None:
    fixed = {"format": "fixed", "width": 7, "header_rows": 0, "trailer": "^TRL,([0-9]+),([0-9]+)"}
    settings = SourceSettings.model_validate(fixed | {"hash_total": (1, 4), "hash_total_digits": 4})

    found = [
        passes(b"".join(FIXED) + trailer, settings)
        for trailer in (b"TRL,3,0006\n", b"TRL,3,0007\n")
    ]

    assert found == [True, False]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (totalled("4242424242424242", total=4243), TrailerError),
        (totalled("4242424242424242", "x,y", total=4242), TrailerError),
        (b"id,pan\n1,4242424242424242\nTRL,1,\n", TrailerError),
        (b"id,card\n1,4242424242424242\nTRL,1,4242\n", MappingError),
    ],
    ids=["differs", "a row cannot be read", "no total", "no column"],
)
def test_a_total_that_does_not_prove_the_rows_refuses_them_and_is_not_shown(
    data: bytes, error: type[ExtractError]
) -> None:
    settings = SourceSettings.model_validate(TRAILED | {"trailer": "^TRL,([0-9]+),([0-9]*)$"})

    with pytest.raises(error) as caught:
        list(Extract(io.BytesIO(data), settings, "a.csv"))

    assert "424" not in f"{caught.value} {caught.value.fields}"


@pytest.mark.parametrize(
    "changes",
    [
        {"hash_total": "pan"},
        {**TRAILED, "trailer": "^TRL,([0-9]+)"},
        {**TRAILED, "hash_total": (1, 4)},
        {**TRAILED, "hash_total_digits": 19},
        {"sequence": "[0-9]+"},
        {"done_marker": "done"},
        {"sidecar": "md5"},
    ],
)
def test_settings_that_cannot_prove_anything_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SourceSettings.model_validate(changes)


# What comes beside


def sidecar_of(folder: Path, kind: str, text: str | bytes) -> Any:
    """Read a sidecar of bank/extracts/a.csv as it was written."""
    store = LocalStore(folder)
    store.replace(
        f"bank/extracts/a.csv.{kind}", [text if isinstance(text, bytes) else text.encode()]
    )
    return read_sidecar(
        store, SourceSettings.model_validate({"sidecar": kind}), "bank/extracts/a.csv"
    )


HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "text",
    [
        f"{HEX}  a.csv\n",
        f"{HEX} *a.csv\n",
        f"{HEX.upper()}  /out/tonight/a.csv\r\n",
        f"{HEX} *C:\\out\\a.csv\r\n",
        f"\ufeff{HEX}\n",
        f"{'f' * 64}  b.csv\n{HEX}  ./a.csv\n",
    ],
)
def test_a_checksum_is_read_as_sha256sum_writes_it(tmp_path: Path, text: str) -> None:
    assert sidecar_of(tmp_path, "sha256", text).facts == {"sha256": HEX}


def test_a_ctl_says_any_of_four_facts(tmp_path: Path) -> None:
    facts = ["count = 12", "bytes=3000", f"sha256={HEX.upper()}", "date=2026-11-20"]
    text = "\r\n".join(["# of tonight", "", *facts, ""])

    found = [sidecar_of(tmp_path, "ctl", one).facts for one in (text, "date=20261120")]

    day = date(2026, 11, 20)
    assert found == [{"count": 12, "bytes": 3000, "sha256": HEX, "date": day}, {"date": day}]


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        ("sha256", "", "one line"),
        ("sha256", f"{HEX}  b.csv\n", "for a.csv"),
        ("sha256", f"{HEX}  a.csv\n{HEX}  a.csv\n", "one line"),
        ("sha256", f"{HEX[1:]}  a.csv\n", "64 hex digits"),
        ("sha256", f"{HEX}  a.csv\nnot a line\n", "one line"),
        ("ctl", "", "none of count, bytes, sha256, date"),
        ("ctl", "# nothing\n", "none of"),
        ("ctl", "count=1\nrows=1\n", "line 2 has the unknown key 'rows'"),
        ("ctl", "4242424242424242=1\n", "unknown key '[masked]'"),
        ("ctl", "count 12\n", "line 1 has the unknown key"),
        ("ctl", "count=4242424242424242\n", "line 1 has no valid count"),
        ("ctl", "count=1\ncount=1\n", "line 2 has a second count"),
        ("ctl", "date=2026-02-31\n", "line 1 has no valid date"),
        ("ctl", b"\xff\xfe", "none of"),
    ],
)
def test_a_sidecar_that_cannot_be_read_is_refused_by_its_line_and_key(
    tmp_path: Path, kind: str, text: str | bytes, problem: str
) -> None:
    with pytest.raises(SidecarError) as caught:
        sidecar_of(tmp_path, kind, text)

    assert f"a.csv.{kind}" in str(caught.value)
    assert problem in str(caught.value)
    assert "4242" not in str(caught.value)


def test_with_a_sidecar_nothing_but_the_whole_extract_passes(tmp_path: Path) -> None:
    data = b"".join(CSV)
    sum_, size = hashlib.sha256(data).hexdigest(), len(data)
    sidecars = [
        sidecar_of(tmp_path, "sha256", f"{sum_}  a.csv\n"),
        sidecar_of(tmp_path, "ctl", f"bytes={size}\n"),
    ]

    for cut in range(size):
        for sidecar in sidecars:
            with pytest.raises(SidecarError):
                sidecar.prove(bytes=cut, sha256=hashlib.sha256(data[:cut]).hexdigest())

    for sidecar in sidecars:
        sidecar.prove(bytes=size, sha256=sum_)


@pytest.mark.parametrize(
    ("changes", "files", "waits"),
    [
        ({}, {"a.csv"}, ""),
        ({"sidecar": "ctl"}, {"a.csv"}, "there is no a.csv.ctl"),
        (
            {"sidecar": "ctl", "done_marker": ".done"},
            {"a.csv"},
            "there is no a.csv.ctl and no a.csv.done",
        ),
        (
            {"sidecar": "ctl", "done_marker": ".done"},
            {"a.csv", "a.csv.ctl"},
            "there is no a.csv.done",
        ),
        ({"sidecar": "ctl", "done_marker": ".done"}, {"a.csv", "a.csv.ctl", "a.csv.done"}, ""),
        ({"min_age_minutes": 10}, {"a.csv"}, ""),
        (
            {"min_age_minutes": 11},
            {"a.csv"},
            "it was modified at 12:00:00 UTC, less than 11 minutes ago",
        ),
    ],
)
def test_an_extract_waits_for_what_comes_beside_it_and_for_its_age(
    changes: dict[str, Any], files: set[str], waits: str
) -> None:
    extract = Entry("a.csv", 1, datetime(2026, 11, 20, 12, tzinfo=UTC), "1")

    found = missing(
        extract,
        files,
        SourceSettings.model_validate(changes),
        datetime(2026, 11, 20, 12, 10, tzinfo=UTC),
    )

    assert found == waits
