"""A file that is settled by its name is attributed as if every row ever sent had been looked through."""

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.core.results.attribution import attribute_all, named_places, read_claims, spoken_of
from flows.core.results.mentioned import mentioned_cuids, settled_by_name
from flows.core.results.results import ResultRows
from flows.core.results.sent import number_sent
from tests.core.outcomes import HOSTS, RUN, Row, error, link, refusal, result, sent_rows

LATER = RUN.replace("20261120", "20261121")
NAME = f"card-links-{RUN}-00001-result.csv"
WHOLE = [link(1), link(2), refusal(3), link(4), link(5)]

answers = st.sampled_from(
    [link(1), link(2), link(3, last_4="9999"), refusal(3), refusal(4), link(5), link(7), error("?")]
)
names = st.sampled_from([NAME, NAME.replace("00001", "00002"), NAME.replace(RUN, LATER)])


def settled(files: list[ResultRows], sent: pl.DataFrame) -> frozenset[int]:
    numbered = number_sent(sent)
    return settled_by_name(read_claims(files), numbered, named_places([one.name for one in files], numbered.places))


def test_a_file_that_answers_its_chunk_whole_is_settled_and_any_other_is_not() -> None:
    short, strange, twice = WHOLE[:4], [*WHOLE[:4], link(6)], [*WHOLE[:4], link(4)]
    wrong, mute = [*WHOLE[:4], link(5, last_4="9999")], [*WHOLE[:4], error("sorry")]
    files = [result(rows, NAME) for rows in (WHOLE, short, strange, twice, wrong, mute)]

    found = settled([*files, result(WHOLE, "download.csv")], sent_rows())

    assert frozenset({0}) == found


@settings(max_examples=60, deadline=None)
@given(st.lists(answers, min_size=4, max_size=6), st.booleans(), names)
def test_what_is_settled_by_its_name_is_attributed_as_among_all_that_was_ever_sent(
    rows: list[Row], whole: bool, name: str
) -> None:
    file = result(WHOLE if whole else rows, name)
    again = sent_rows(run=LATER), sent_rows(run=LATER.replace("1121", "1122"), first=3)
    everything = pl.concat([sent_rows(), *again])
    spoken = pl.concat(everything.filter(run=run, chunk=chunk) for run, chunk in spoken_of(name))

    found = settled([file], spoken)

    alone, among_all = (attribute_all([file], sent, HOSTS)[0] for sent in (spoken, everything))
    same = among_all.outcomes.equals(alone.outcomes) and among_all.named == alone.named
    assert same or not found


def test_what_rows_claim_and_what_words_of_nameless_errors_may_be_is_mentioned() -> None:
    claims = read_claims([result([link(1), refusal(2), error("no card for c-3, sorry")])])

    assert {"c-1", "c-2", "c-3"} <= set(mentioned_cuids(claims))
