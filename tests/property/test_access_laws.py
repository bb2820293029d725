"""Laws of histories of use, and of the order in which the memory tier lets go."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate.replay.bench.hit_rate import (
    LOADS,
    Load,
    PlainLru,
    TierLruK,
    rate,
    size_of,
)
from turnstate.storage.access import (
    Accesses,
    decode_accesses,
    encode_accesses,
    touched,
)

START_MS: Final = 1_700_000_000_000
times: st.SearchStrategy[int] = st.integers(0, 1_000_000_000)


@given(st.lists(st.tuples(st.booleans(), times), max_size=30))
def test_a_history_comes_back_from_its_bytes(steps: list[tuple[bool, int]]) -> None:
    """Times never rise towards the past, whatever the clock did."""
    seen = Accesses()
    for back, at in steps:
        seen = touched(seen, START_MS - at if back else START_MS + at)
        assert list(seen.times_ms) == sorted(seen.times_ms, reverse=True)
        assert seen.times_ms[0] <= seen.last_ms
        assert decode_accesses(encode_accesses(seen)) == seen


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_lru_k_is_not_below_plain_lru(load: Load, seed: int) -> None:
    """By the same uses, over the real tier; a scan does not wash it out.

    Where what is popular changes every few seconds, three uses are learnt too
    late: there it may lose a little.
    """
    count, sessions_count = 20_000, 1_000
    budget = int(sessions_count * 0.15 * size_of(b"\0\1t1000"))
    plain = rate(PlainLru(budget), load, sessions_count, count, seed)
    ours = rate(TierLruK(budget), load, sessions_count, count, seed)

    assert ours >= plain + (-0.03 if load.drifts else 0.03)
    if load.scans:
        alone = load._replace(scans=False)
        quiet = rate(TierLruK(budget), alone, sessions_count, count, seed)
        assert ours >= quiet - 0.10
