"""The second file of an extract (`[source.join]`): which it is, how it is written, and its key."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from schemas.code_pages import EbcdicPage
from schemas.mapping import Header
from schemas.settings import Settings, setting

NAMED_FOR_THE_PAIR = {"pattern", "key", "other_key"}
_AS_ABOVE = "of the second file, as in `[source]`"


class JoinSettings(Settings):
    """A second file each night, such as addresses: its columns are joined to the rows of the
    extract by key, and mapped like its own. A row without one there is refused.
    """

    pattern: str = setting(
        ...,
        "name of the second file; its `*` stands for what that of `[source] pattern` stands for: "
        "cards-20261120.csv has addresses-20261120.csv. Without it the extract waits",
    )
    key: tuple[Header, ...] = setting(
        ..., "columns of the extract that say which row of the second file is its own", min_length=1
    )
    other_key: tuple[Header, ...] = setting(
        (), "their names in the second file, in the same order, where they differ"
    )
    delimiter: Literal[",", ";", "\t", "|"] = setting(",", f"field separator {_AS_ABOVE}")
    encoding: Literal["utf-8", "cp1252", "latin-1", "utf-16"] | EbcdicPage = setting(
        "utf-8", f"character encoding {_AS_ABOVE}"
    )
    quoting: Literal["doubled", "excel", "backslash"] = setting(
        "doubled", f"how a cell with quotes is written, {_AS_ABOVE}"
    )
    header_rows: int = setting(1, f"lines before the data {_AS_ABOVE}", ge=0)
    names: tuple[Header, ...] = setting((), f"column names {_AS_ABOVE}")
    comment: str | None = setting(None, f"beginning of comments {_AS_ABOVE}", min_length=1)
    trailer: str | None = setting(None, f"regular expression of the trailer {_AS_ABOVE}")
    final_newline: bool = setting(True, f"whether its last line has a newline, {_AS_ABOVE}")
    record_format: Literal["F", "FB", "V", "VB"] | None = setting(
        None, f"format of the records {_AS_ABOVE}"
    )
    copybook: str | None = setting(None, f"copybook {_AS_ABOVE}")
    short_records: bool = setting(False, f"whether records may be short, {_AS_ABOVE}")

    @model_validator(mode="after")
    def _has_as_many_keys(self) -> Self:
        if self.other_key and len(self.other_key) != len(self.key):
            raise ValueError("other_key needs as many columns as key, in the same order")
        return self
