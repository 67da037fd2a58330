"""Sealers are kept for the next night of the same key, lent to one night at a time, and gone with the process."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from flows.adapters.gpg_sealer import IDLE, GpgSealer, Sealers, SealerSpec
from flows.runs.sealing import Sealer
from tests import keys
from tests.adapters.sealers import CHUNKS, TODAY

WANTED = SealerSpec((keys.sound().public,), (keys.sound().fingerprint,), False, "zip", TODAY)


def ended(sealer: Sealer) -> bool:
    """Tell whether a sealer's home is gone."""
    assert isinstance(sealer, GpgSealer)
    return not sealer._ring.home.exists()


def test_the_next_night_of_the_same_key_gets_the_same_sealer_and_it_seals() -> None:
    sealers = Sealers()
    with sealers.borrow(WANTED) as first:
        pass

    with sealers.borrow(WANTED) as second:
        troubles = [one.trouble for one in second.seal(CHUNKS)]

    assert first is second
    assert [""] * len(CHUNKS) == troubles
    sealers.close()
    assert ended(first)


def test_two_nights_at_once_have_a_sealer_each_and_one_is_kept() -> None:
    sealers = Sealers()

    with sealers.borrow(WANTED) as one, sealers.borrow(WANTED) as other:
        assert one is not other

    assert [False, True] == sorted(map(ended, (one, other)))
    sealers.close()


def test_another_day_judges_the_key_anew() -> None:
    sealers = Sealers()
    with sealers.borrow(WANTED) as today:
        pass

    with sealers.borrow(WANTED._replace(today=TODAY + timedelta(days=1))) as tomorrow:
        assert today is not tomorrow

    sealers.close()


def test_a_night_that_ends_in_an_error_leaves_no_sealer_behind() -> None:
    sealers = Sealers()

    with pytest.raises(RuntimeError), sealers.borrow(WANTED) as sealer:
        raise RuntimeError

    assert ended(sealer)


def test_only_a_few_are_kept() -> None:
    sealers, lent = Sealers(), []
    for day in range(IDLE + 1):
        with sealers.borrow(WANTED._replace(today=TODAY + timedelta(days=day))) as sealer:
            lent.append(sealer)

    assert [True] + [False] * IDLE == [ended(one) for one in lent]
    sealers.close()


def test_a_forked_child_leaves_its_parents_sealers_alone() -> None:
    sealers = Sealers()
    with sealers.borrow(WANTED) as sealer:
        pass

    child = os.fork()
    if not child:
        sealers.close()
        os._exit(0)
    os.waitpid(child, 0)

    assert not ended(sealer)
    sealers.close()
