"""Who was erased: cardholders who are forgotten, and for whom nothing is sent again.

What they were known by is kept as keyed digests and nothing else: of each cuid that they had, and,
where we generated the cuid, of what a cardholder is known by then (`cards.py`), without the
expiration, so that a new card of theirs is recognised.

The key is one of the store's own, beside the digests, and not a secret of the workers like that of
the journal. It has to live as long as they do: were it lost, or another worker started without
it, the forgotten would get links again. So it is right that both can only be lost together. What
the digests protect from is that somebody reads who was erased, in the store, an export or a backup.
Whoever reads the key beside them can test a cuid that they know from elsewhere, and nothing more.
"""

import hmac
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

import polars as pl

from flows.runs.adapters import Adapters
from flows.runs.cards import CONTENT_FINGERPRINTS, GENERATED
from flows.runs.decisions import ERASURE, decisions
from flows.runs.identity import digest
from schemas.reasons import ERASED
from schemas.records import Erasure

# what `rows_of` looks at, and the row that it is of
IDENTITY = ["row", "cuid", *CONTENT_FINGERPRINTS]


class People(Protocol):
    """Some cardholders, as far as rows can be told to be theirs."""

    def named_by(self, cuids: pl.Series) -> pl.Series:
        """Return which cuids are theirs."""

    def described_by(self, contents: pl.Series) -> pl.Series:
        """Return which contents (`content_of`) are those of their rows."""


class Place(NamedTuple):
    """A kind of object that names cardholders: what it has of each, why, and until when.

    `erased`: an erasure removes it; else it stays until its own end. `waits`: once others have
    confirmed that they do not use it any more.
    """

    holds: str
    why: str
    until: str
    erased: bool
    waits: bool = False


class Mention(NamedTuple):
    """An object that names some of the cardholders: its place (PLACES), key, and what it has.

    `run`: whose it is, "" for none; `rows`: the rows of the run that are meant.
    """

    place: str
    key: str
    facts: Sequence[Mapping[str, Any]]
    run: str = ""
    rows: tuple[int, ...] = ()


class NamedPeople(NamedTuple):
    """Cardholders by name: their cuids; where we generated these, the contents of their rows."""

    cuids: frozenset[str]
    contents: frozenset[str] = frozenset()

    def named_by(self, cuids: pl.Series) -> pl.Series:
        """Return which cuids are theirs."""
        own = one_spelling(pl.Series(sorted(self.cuids), dtype=pl.String))
        return one_spelling(cuids).is_in(own.implode()).fill_null(value=False)

    def described_by(self, contents: pl.Series) -> pl.Series:
        """Return which contents are those of their rows."""
        return contents.is_in(list(self.contents)).fill_null(value=False)


class ErasedPeople:
    """The cardholders who were erased, by keyed digests."""

    def __init__(self, key: str = "", digests: Iterable[str] = ()) -> None:
        self._key = bytes.fromhex(key)
        self.digests = frozenset(digests)

    def __bool__(self) -> bool:
        """Return whether anybody was erased."""
        return bool(self.digests)

    def digests_of(self, people: NamedPeople) -> tuple[str, ...]:
        """Return the digests of all that cardholders are known by."""
        spellings = one_spelling(pl.Series(sorted(people.cuids), dtype=pl.String))
        cuids = [self._digest(f"cuid {cuid}") for cuid in spellings.unique(maintain_order=True)]
        return (*cuids, *(self._digest(f"content {text}") for text in sorted(people.contents)))

    def marked(self, sha256: str) -> str:
        """Return a digest of what is known of cards that is another after each erasure."""
        if not self.digests:
            return sha256
        return digest(" ".join([sha256, *sorted(self.digests)]).encode())

    def named_by(self, cuids: pl.Series) -> pl.Series:
        """Return which cuids are those of erased cardholders."""
        return self._holds("cuid", one_spelling(cuids))

    def described_by(self, contents: pl.Series) -> pl.Series:
        """Return which contents are those of erased cardholders' rows."""
        return self._holds("content", contents)

    def _holds(self, kind: str, texts: pl.Series) -> pl.Series:
        if not self.digests:
            return pl.repeat(value=False, n=len(texts), dtype=pl.Boolean, eager=True)
        erased = [
            text is not None and self._digest(f"{kind} {text}") in self.digests for text in texts
        ]
        return pl.Series(values=erased, dtype=pl.Boolean)

    def _digest(self, text: str) -> str:
        return hmac.digest(self._key, text.encode(), "sha256").hex()


NOBODY = ErasedPeople()


def one_spelling(cuids: pl.Series) -> pl.Series:
    """Return cuids as they are compared for an erasure: whatever their case, spaces, and form of
    Unicode. Whoever is forgotten as `C3` is not sent as `c3`, which the partner may take for one.
    """
    plain = cuids.str.normalize("NFKC").str.to_lowercase()
    return plain.str.replace_all(r"\s+", " ").str.strip_chars()


def erasures(adapters: Adapters, issuer: str) -> list[Erasure]:
    """Return the records of an issuer's erasures, the oldest first."""
    return decisions(adapters, issuer, ERASURE, Erasure)


def erased_people(adapters: Adapters, issuer: str) -> ErasedPeople:
    """Return who was erased at an issuer, of all records so far."""
    acts = erasures(adapters, issuer)
    return erased_by(acts) if acts else NOBODY


def erased_by(acts: Sequence[Erasure]) -> ErasedPeople:
    """Return who was erased by these records, of which the first has the key."""
    return ErasedPeople(acts[0].key, chain.from_iterable(act.persons for act in acts))


class Erasures(NamedTuple):
    """The erasures of an issuer: how many `acts` there were, and the objects that are `deleted`."""

    acts: int
    deleted: frozenset[str]


def all_erasures(adapters: Adapters, issuer: str) -> Erasures:
    """Return what has been erased, as the records say."""
    acts = erasures(adapters, issuer)
    deleted = frozenset(chain.from_iterable(act.deleted for act in acts))
    return Erasures(sum(1 for act in acts if act.persons), deleted)


def unfinished_erasures(adapters: Adapters, issuer: str) -> list[Erasure]:
    """Return the records of erasures since the last one that is finished."""
    open_acts: list[Erasure] = []
    for act in erasures(adapters, issuer):
        open_acts = [] if act.what == "finished" else [*open_acts, act]
    return open_acts


def is_interrupted(acts: Sequence[Erasure]) -> bool:
    """Return whether the process of the last of these unfinished erasures is not done with it."""
    return bool(acts) and acts[-1].what != "removed"


def erasure_of(adapters: Adapters, issuer: str, cuid: str) -> Erasure | None:
    """Return the record by which a cardholder was erased; None where they were not."""
    erased = erased_people(adapters, issuer)
    if not erased:
        return None
    digests = frozenset(erased.digests_of(NamedPeople(frozenset({cuid}))))
    acts = erasures(adapters, issuer)
    return next((act for act in acts if not digests.isdisjoint(act.persons)), None)


def content_of(rows: pl.DataFrame) -> pl.Series:
    """Return what rows are known by where we generated the cuid; null for those of other cuids.

    `rows` has cuid and CONTENT_FINGERPRINTS.
    """
    is_generated = pl.col("cuid").str.contains(GENERATED)
    content = pl.concat_str(*CONTENT_FINGERPRINTS, separator=" ")
    return rows.select(pl.when(is_generated).then(content).alias("content")).to_series()


def rows_of(people: People, rows: pl.DataFrame) -> pl.Series:
    """Return which rows are of these cardholders; `rows` as for `content_of`."""
    contents = content_of(rows)
    named = people.named_by(rows["cuid"])
    return named if contents.is_null().all() else named | people.described_by(contents)


def is_erased() -> pl.Expr:
    """Return whether a ledger record was of an erased cardholder, and names nobody any more."""
    return pl.col("reasons").list.last().eq_missing(f"|{ERASED}")
