"""A `DotSet` is a set of dots: each operation against Python's own sets."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from turnstate.schemas.clocks import (
    Dot,
    DotSet,
)
from turnstate.schemas.operation import seen_dots, seen_vector

DOTS = st.builds(Dot, st.sampled_from("abc"), st.integers(1, 14))
SETS = st.frozensets(DOTS, max_size=24)
VECTORS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 5))


def held(dots: frozenset[Dot]) -> DotSet:
    return DotSet.of(dots)


def canonical(dots: DotSet) -> bool:
    """Say whether the bounds rise, with a hole between any two intervals."""
    return all(
        spans
        and len(spans) % 2 == 0
        and all(low <= high for low, high in zip(spans[::2], spans[1::2], strict=True))
        and all(
            high + 1 < low for high, low in zip(spans[1::2], spans[2::2], strict=False)
        )
        for spans in dots.spans.values()
    )


@given(SETS, st.randoms(use_true_random=False))
def test_any_order_of_adding_gives_one_form(
    dots: frozenset[Dot], chance: Random
) -> None:
    order = list(dots)
    chance.shuffle(order)
    result = DotSet()
    for dot in order:
        assert result.add(*dot)
        assert not result.add(*dot)
    assert result == held(dots)
    assert canonical(result)
    assert list(result) == sorted(dots)
    assert len(result) == len(dots)


@given(SETS, DOTS)
def test_membership_and_added(dots: frozenset[Dot], dot: Dot) -> None:
    assert (dot in held(dots)) == (dot in dots)
    before = held(dots)
    assert set(before.added(*dot)) == dots | {dot}
    assert before == held(dots), "`added` leaves the set as it was"


@given(SETS, SETS)
def test_union_and_minus_are_those_of_sets(
    first: frozenset[Dot], second: frozenset[Dot]
) -> None:
    one, other = held(first), held(second)
    assert one.union(other) == held(first | second)
    assert one.minus(other) == held(first - second)
    assert one.covers(other) == (second <= first)
    assert canonical(one.union(other))
    assert canonical(one.minus(other))
    assert (one, other) == (held(first), held(second)), "neither input changes"


@given(SETS, SETS, SETS)
def test_union_is_a_join(
    first: frozenset[Dot], second: frozenset[Dot], third: frozenset[Dot]
) -> None:
    one, two, three = held(first), held(second), held(third)
    assert one.union(two) == two.union(one)
    assert one.union(two).union(three) == one.union(two.union(three))
    assert one.union(one) == one


@given(SETS, SETS)
def test_difference_joined_to_the_rest_restores(
    first: frozenset[Dot], second: frozenset[Dot]
) -> None:
    one, other = held(first), held(second)
    assert other.union(one.minus(other)) == one.union(other)


@given(SETS)
def test_counts_and_holes(dots: frozenset[Dot]) -> None:
    result = held(dots)
    highest = {r: max(c for s, c in dots if s == r) for r in {r for r, _ in dots}}
    missing = {
        Dot(replica, counter)
        for replica, high in highest.items()
        for counter in range(1, high)
    } - dots
    holes = [
        Dot(replica, counter)
        for replica, low, high in result.holes()
        for counter in range(low, high + 1)
    ]
    assert holes == sorted(missing)
    starts = [d for d in dots if Dot(d.replica, d.counter - 1) not in dots]
    assert result.beyond_gaps() == sum(counter > 1 for _, counter in starts)
    assert result.contiguous() == {
        replica: min(c for c in range(1, 16) if Dot(replica, c + 1) not in dots)
        for replica in highest
        if Dot(replica, 1) in dots
    }


@given(SETS)
def test_the_short_form_reads_back(dots: frozenset[Dot]) -> None:
    assert seen_dots(seen_vector(held(dots))) == held(dots)


@given(SETS, DOTS)
def test_a_copy_is_apart(dots: frozenset[Dot], dot: Dot) -> None:
    result = held(dots)
    result.copy().add(*dot)
    assert result == held(dots)


@given(SETS, SETS)
def test_equal_sets_have_equal_hashes(
    first: frozenset[Dot], second: frozenset[Dot]
) -> None:
    one, other = held(first), held(second)
    assert (one == other) == (first == second)
    if one == other:
        assert hash(one) == hash(other)
