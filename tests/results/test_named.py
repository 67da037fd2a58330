"""A file that is settled by its name is attributed as if every row ever sent had been looked
through.
"""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from flows.results.attribution import read_claims
from flows.results.read import ResultRows
from flows.results.sent_rows import named_in, number_sent_rows, searched_elsewhere
from tests.results.outcomes import (
    RUN,
    Row,
    attribute_all,
    error,
    link,
    refusal,
    result,
    sent_rows,
)

LATER = RUN.replace("20261120", "20261121")
NAME = f"card-links-{RUN}-00001-result.csv"
WHOLE = [link(1), link(2), refusal(3), link(4), link(5)]

answers = st.sampled_from(
    [link(1), link(2), link(3, last_4="9999"), refusal(3), refusal(4), link(5), link(7), error("?")]
)
names = st.sampled_from([NAME, NAME.replace("00001", "00002"), NAME.replace(RUN, LATER)])


def settled(files: list[ResultRows], sent: pl.DataFrame) -> frozenset[int]:
    """Return the files, by number, that are looked for nowhere else."""
    elsewhere = searched_elsewhere(
        read_claims(files), number_sent_rows(sent, [one.name for one in files])
    )
    return frozenset(range(len(files))) - frozenset(elsewhere["file"])


def test_a_file_that_answers_its_chunk_whole_is_settled_and_any_other_is_not() -> None:
    short, strange, twice = WHOLE[:4], [*WHOLE[:4], link(6)], [*WHOLE[:4], link(4)]
    wrong, mute = [*WHOLE[:4], link(5, last_4="9999")], [*WHOLE[:4], error("sorry")]
    files = [result(rows, NAME) for rows in (WHOLE, short, strange, twice, wrong, mute)]

    found = settled([*files, result(WHOLE, "download.csv")], sent_rows())

    assert frozenset({0}) == found


@given(st.lists(answers, min_size=4, max_size=6), st.booleans(), names)
def test_what_is_settled_by_its_name_is_attributed_as_among_all_that_was_ever_sent(
    rows: list[Row], whole: bool, name: str
) -> None:
    file = result(WHOLE if whole else rows, name)
    again = sent_rows(run=LATER), sent_rows(run=LATER.replace("1121", "1122"), first=3)
    everything = pl.concat([sent_rows(), *again])
    spoken = pl.concat(everything.filter(run=run, chunk=chunk) for run, chunk in named_in(name))

    found = settled([file], spoken)

    alone, among_all = (attribute_all([file], sent)[0] for sent in (spoken, everything))
    same = among_all.outcomes.equals(alone.outcomes) and among_all.named == alone.named
    assert same or not found


def test_a_cuid_of_two_cards_is_not_placed_by_the_name_alone() -> None:
    twice = sent_rows(1).with_columns(
        cuid=pl.Series(["c-1", "c-1", "c-2", "c-3", "c-4"]), last_4=pl.lit("1111")
    )
    rows = [link(at, last_4="1111") for at in (1, 2, 3, 4)]

    assert not settled([result(rows, NAME)], twice)
    assert not settled([result([*rows, rows[0]], NAME)], twice)
