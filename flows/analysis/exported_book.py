"""The book of a day as analysts read it (`schemas.analysis.ExportedBook`).

It names rows instead of cardholders, so nothing of it has to be removed where a row goes.
"""

from datetime import date

import polars as pl

from flows.analysis.exported_rows import as_parquet
from flows.book.book import Book, read_book
from flows.book.head import generation, head_key
from flows.book.kept_stages import stages_key
from flows.runs.frames import shaped
from flows.runs.identity import digest
from flows.runs.keys import given_up, hive, kept_links
from flows.runs.store import Store, read_if_stored
from schemas.analysis import ExportedBook


def write_book(store: Store, issuer: str, today: date) -> int:
    """Write where each card stands today; return how many there are."""
    cards = exported_book(read_book(store, issuer), today)
    store.replace(book_key(issuer, today), [as_parquet(cards)])
    return cards.height


def book_key(issuer: str, day: date) -> str:
    """Return the key of the book of a day."""
    return f"{hive(issuer, 'book', day)}book.parquet"


def exported_book(book: Book, today: date) -> pl.DataFrame:
    """Return where each issue of each card stands on a day, in the order of their first rows."""
    cards = book.cards(today)
    first = book.folded.attempt("first", "run", "row")
    named = cards.with_columns(
        card_run=first["run"], card_row=first["row"], is_current="current", first_seen="first"
    )
    return shaped(named, ExportedBook.dtypes()).sort("card_run", "card_row", maintain_order=True)


def book_basis(store: Store, issuer: str) -> str:
    """Return a digest of what the book is read from; it differs where the book may differ."""
    kept = [
        read_if_stored(store, head_key(issuer, generation(store, issuer))),
        read_if_stored(store, stages_key(issuer)),
    ]
    decisions = [
        sum(1 for _ in store.keys(prefix)) for prefix in (given_up(issuer), kept_links(issuer))
    ]
    content = b"\n".join(digest(each or b"").encode() for each in kept)
    return digest(content + str(decisions).encode())
