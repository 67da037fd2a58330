"""Which Pythons and versions of Prefect a release is tried with."""

from tests.release.versions import FREE, NEWEST, Pair, constraints, oldest_prefect, pairs


def test_the_newest_prefect_meets_each_python_and_the_oldest_the_outer_ones() -> None:
    assert [
        Pair("3.11", NEWEST),
        Pair("3.12", NEWEST),
        Pair("3.13", NEWEST),
        Pair("3.11", "3.8.8"),
        Pair("3.13", "3.8.8"),
    ] == list(pairs(["3.11", "3.12", "3.13"], oldest_prefect()))


def test_what_the_newest_prefect_bounds_itself_is_free_and_the_rest_is_as_tested_together() -> None:
    newest, oldest = constraints(NEWEST).splitlines(), constraints("3.8.8").splitlines()

    assert [] == [line for line in newest if line.startswith(tuple(f"{name}==" for name in FREE))]
    assert {"prefect==3.8.8"} == {*oldest} - {*newest}
