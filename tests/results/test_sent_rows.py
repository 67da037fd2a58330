"""What result files speak of is found before attribution."""

from flows.results.attribution import read_claims
from flows.results.sent_rows import candidate_ids
from tests.results.outcomes import error, link, refusal, result


def test_what_rows_claim_and_what_words_of_nameless_errors_may_be_is_mentioned() -> None:
    claims = read_claims([result([link(1), refusal(2), error("no card for c-3, sorry")])])

    assert {"c-1", "c-2", "c-3"} <= set(candidate_ids(claims))
