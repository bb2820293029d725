"""The laws of `DialogueState`: it is a join, and it is what `fold_set` defines."""

from functools import partial
from itertools import permutations
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.kinds import KINDS, shares, table
from support.laws import LAW, holds
from support.strategies import GRAPH, Drawn, seeded_world, worlds
from turnstate.schemas.clocks import DotSet
from turnstate.schemas.dialogue.fold_set import fold_set
from turnstate.schemas.dialogue.state import DialogueState
from turnstate.schemas.operation import Op, encode_body

SHARE_MIN = 0.05
"""Below this share of the drawn sets, a law is hardly held against a kind."""

EMPTY = DialogueState.empty(GRAPH)
SEEDS = st.integers(0, 1 << 30)


def state_of(ops: list[Op]) -> DialogueState:
    return EMPTY.apply(ops)


def shuffled(ops: list[Op], chance: Random) -> list[Op]:
    order = list(ops)
    chance.shuffle(order)
    return order


def assert_same(first: DialogueState, second: DialogueState) -> None:
    assert first.folded() == second.folded()
    assert first.digest() == second.digest()


def is_the_definition(ops: list[Op]) -> None:
    assert state_of(ops).folded() == fold_set(ops, GRAPH)


def any_way_is_the_definition(ops: list[Op], seed: int) -> None:
    """Fold one set in one go, one by one, in pieces and from splits."""
    chance, wanted = Random(seed), fold_set(ops, GRAPH)
    at_once = state_of(shuffled(ops, chance))
    one_by_one = EMPTY
    for op in shuffled(ops, chance):
        one_by_one = one_by_one.apply([op])
    in_pieces, left = EMPTY, shuffled(ops, chance)
    while left:
        piece = 1 + chance.randrange(6)
        again = ops[: chance.randrange(3)]
        in_pieces, left = in_pieces.apply(left[:piece] + again), left[piece:]
    halves = [state_of(ops[::2]), state_of(ops[1::2])]
    parts = halves + [state_of([o for o in ops if chance.randrange(2)]) for _ in "ab"]
    chance.shuffle(parts)
    merged = EMPTY
    for part in parts:
        merged = merged.merge(part)
    for state in (at_once, one_by_one, in_pieces, merged):
        assert state.folded() == wanted
        assert state.digest() == at_once.digest()


@LAW
@given(worlds())
def test_the_fold_is_the_definition(drawn: Drawn) -> None:
    for ops in (drawn.ops, *drawn.replicas):
        holds(is_the_definition, ops)


@LAW
@given(worlds(), SEEDS)
def test_any_order_and_any_split_give_one_state(drawn: Drawn, seed: int) -> None:
    holds(partial(any_way_is_the_definition, seed=seed), drawn.ops)


@pytest.mark.parametrize("block", range(4))
def test_any_order_and_any_split_of_seeded_worlds(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        law = partial(any_way_is_the_definition, seed=seed)
        holds(law, seeded_world(seed).ops)


@LAW
@given(worlds(steps_max=12), SEEDS)
def test_every_interleaving_of_five(drawn: Drawn, seed: int) -> None:
    holds(every_interleaving_is_one, shuffled(drawn.ops, Random(seed))[:5])


def every_interleaving_is_one(ops: list[Op]) -> None:
    wanted, digest = fold_set(ops, GRAPH), state_of(ops).digest()
    for order in permutations(ops):
        state = EMPTY
        for op in order:
            state = state.apply([op])
        assert state.folded() == wanted
        assert state.digest() == digest


@LAW
@given(worlds())
def test_merge_is_commutative(drawn: Drawn) -> None:
    first, second, _ = map(state_of, drawn.replicas)
    assert_same(first.merge(second), second.merge(first))


@LAW
@given(worlds())
def test_merge_is_associative(drawn: Drawn) -> None:
    first, second, third = map(state_of, drawn.replicas)
    assert_same(first.merge(second).merge(third), first.merge(second.merge(third)))


@LAW
@given(worlds())
def test_merge_is_idempotent(drawn: Drawn) -> None:
    first, second, _ = map(state_of, drawn.replicas)
    assert_same(first.merge(first), first)
    both = first.merge(second)
    assert_same(both.merge(second), both)
    assert_same(first.merge(EMPTY), first)
    assert_same(EMPTY.merge(first), first)


@LAW
@given(worlds())
def test_merge_leaves_both_sides_as_they_were(drawn: Drawn) -> None:
    first, second, _ = map(state_of, drawn.replicas)
    before = [first.folded(), first.digest(), second.folded(), second.digest()]
    first.merge(second)
    second.apply(drawn.ops)
    assert before == [first.folded(), first.digest(), second.folded(), second.digest()]


@LAW
@given(worlds())
def test_applying_a_delta_is_merging(drawn: Drawn) -> None:
    first, second, _ = map(state_of, drawn.replicas)
    assert_same(first.apply(drawn.replicas[1]), first.merge(second))
    assert_same(first.join(drawn.replicas[1]), first.merge(second))


@LAW
@given(worlds())
def test_a_difference_joined_restores(drawn: Drawn) -> None:
    whole = state_of(drawn.ops)
    for ops in drawn.replicas:
        part = state_of(ops)
        delta = whole.diff(DotSet.of(op.dot for op in ops))
        assert {op.dot for op in delta}.isdisjoint(op.dot for op in ops)
        assert_same(part.join(delta), whole)
    assert whole.diff(DotSet.of(op.dot for op in drawn.ops)) == []
    assert_same(EMPTY.join(whole.diff(DotSet())), whole)


@LAW
@given(worlds(), SEEDS)
def test_a_stub_folds_as_the_operation_did(drawn: Drawn, seed: int) -> None:
    holds(partial(stubs_are_as_good, seed=seed), drawn.ops)


def stubs_are_as_good(ops: list[Op], seed: int) -> None:
    wanted = fold_set(ops, GRAPH)
    hidden = set(wanted["redacted"])
    stubs = [op.stub() if op.dot in hidden else op for op in ops]
    assert fold_set(stubs, GRAPH) == wanted
    state = state_of(shuffled(stubs, Random(seed)))
    assert_same(state, state_of(ops))
    assert_same(state.merge(state_of(ops)), state)


@LAW
@given(worlds())
def test_one_operation_more_is_another_digest(drawn: Drawn) -> None:
    digests = {EMPTY.digest()}
    state = EMPTY
    for op in drawn.ops:
        state = state.apply([op])
        digests.add(state.digest())
    assert len(digests) == len(drawn.ops) + 1


@LAW
@given(worlds())
def test_records_read_back(drawn: Drawn) -> None:
    for op in drawn.ops:
        read = Op.decode(op.record)
        fields = [name for name in Op.__slots__ if not name.startswith("_")]
        for name in (*fields, "content_hash"):
            assert getattr(read, name) == getattr(op, name), name
        stamp: dict[str, Any] = {
            name: getattr(read, name)
            for name in fields
            if name not in ("body", "record")
        }
        stamp["content_hash"] = read.content_hash
        assert (
            Op.stamped(read.body, encode_body(read.body), **stamp).record == op.record
        )
        assert read.operation_hash == op.operation_hash
        assert Op.decode(op.stub().record).operation_hash == op.operation_hash
        assert op.stub().stub() == op.stub()


def test_the_laws_meet_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    """Law tests are worth what they draw: print and bound each kind's share."""
    drawn: list[list[Op]] = []

    @settings(LAW, max_examples=200, derandomize=True)
    @given(worlds())
    def collect(world: Drawn) -> None:
        drawn.append(world.ops)

    collect()
    by_hypothesis = shares(drawn)
    by_seed = shares(seeded_world(seed).ops for seed in range(200))
    with capsys.disabled():
        print(f"\nshare of {len(drawn)} drawn sets\n{table(by_hypothesis)}")
        print(f"share of 200 seeded sets\n{table(by_seed)}")
    for kind in KINDS:
        assert by_hypothesis[kind] >= SHARE_MIN
        assert by_seed[kind] >= SHARE_MIN
