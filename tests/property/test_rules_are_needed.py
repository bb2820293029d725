"""Each rule of the incremental fold is needed: without it a law fails, and soon."""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import msgspec
import pytest

from support.strategies import GRAPH, seeded_world
from turnstate.schemas.clocks import Dot, DotSet
from turnstate.schemas.crdt import slot_map, tag_set
from turnstate.schemas.dialogue import fold, turn_graph
from turnstate.schemas.dialogue.fold import Fold
from turnstate.schemas.dialogue.fold_set import fold_set
from turnstate.schemas.dialogue.head import Branch, NodeState
from turnstate.schemas.dialogue.state import DialogueState
from turnstate.schemas.operation import Op

SEEDS_MAX = 150
"""A rule whose loss shows in none of so many worlds is hardly tested."""

Patch = pytest.MonkeyPatch


def a_law_fails(seed: int) -> bool:
    """Say whether folding one by one, in some order, misses the definition."""
    ops = seeded_world(seed).ops
    order = list(ops)
    Random(seed).shuffle(order)
    state = DialogueState.empty(GRAPH)
    try:
        for at in range(0, len(order), 3):
            state = state.apply(order[at : at + 3])
    except Exception:  # noqa: BLE001 - what breaks has not converged either
        return True
    return state.folded() != fold_set(ops, GRAPH)


def without_covering_by_seen(patch: Patch) -> None:
    """Heads would be abandoned by their children only."""

    def blind(seen: DotSet, more: object) -> DotSet:
        return seen

    patch.setattr(turn_graph, "seen_joined", blind)


def without_covering_by_parents(patch: Patch) -> None:
    """Heads would be abandoned only by turns that say to have seen them."""
    advanced = turn_graph.advanced

    def orphaned(
        branch: Branch | None, op: Op, parents: tuple[Dot, ...], states: Any
    ) -> Branch:
        return advanced(branch, op, (), states)

    patch.setattr(fold, "advanced", orphaned)


def without_siblings(patch: Patch) -> None:
    """Of concurrent writes only the greatest would be left."""
    join = slot_map.join

    def last_writer(*sides: Any) -> slot_map.SlotMap:
        return {name: entries[:1] for name, entries in join(*sides).items()}

    patch.setattr(slot_map, "join", last_writer)


def without_causal_context(patch: Patch) -> None:
    """A join would bring back what one side had replaced."""

    def union(
        first: slot_map.SlotMap, _: object, second: slot_map.SlotMap, __: object
    ) -> slot_map.SlotMap:
        return {
            name: tuple(sorted({*first.get(name, ()), *second.get(name, ())}))[::-1]
            for name in first.keys() | second.keys()
        }

    patch.setattr(slot_map, "join", union)


def without_additions_that_win(patch: Patch) -> None:
    """A tag would stand only where every head has it."""

    def both(
        first: tag_set.TagSet, _: object, second: tag_set.TagSet, __: object
    ) -> tag_set.TagSet:
        return {tag: first[tag] for tag in first.keys() & second.keys()}

    patch.setattr(tag_set, "join", both)


def without_redaction_after_domination(patch: Patch) -> None:
    """A redacted write would give back what it had replaced."""
    state_after = turn_graph.state_after

    def unwritten(
        op: Op, base: NodeState | None, *rest: Any, **named: Any
    ) -> NodeState:
        state = state_after(op, base, *rest, **named)
        redacted = named.get("redacted", rest[-1] if rest else False)
        if not redacted or base is None:
            return state
        return msgspec.structs.replace(state, slots=base.slots, tags=base.tags)

    patch.setattr(fold, "state_after", unwritten)


def without_names_in_stubs(patch: Patch) -> None:
    """A stub would give back what its operation had replaced."""

    def kept(slots: slot_map.SlotMap, hashes: Iterable[bytes]) -> slot_map.SlotMap:
        return slots

    patch.setattr(slot_map, "forget_names", kept)


def without_waking_the_parked(patch: Patch) -> None:
    """What came before its parent would wait for ever."""

    def asleep(self: Fold, *come: object) -> None:
        return None

    patch.setattr(Fold, "_wake", asleep)


def without_grouping_by_content(patch: Patch) -> None:
    """Copies of one turn would be counted each."""
    name = Fold._name

    def counted(self: Fold, op: Op, *rest: Any) -> bool:
        name(self, op, *rest)
        return op.body.op is None

    patch.setattr(Fold, "_name", counted)


def without_redacting_copies(patch: Patch) -> None:
    """A redaction would hide only the one that it names."""

    def alone(self: Fold, target: Dot) -> None:
        self.redacted = self.redacted.added(*target)
        self.states = {
            dot: turn_graph.without_dots(state, self.redacted)
            for dot, state in self.states.items()
        }

    patch.setattr(Fold, "_redact", alone)


def without_refolding(patch: Patch) -> None:
    """A smaller turn that takes an id over would change nothing."""

    def unmarked(self: Fold, turn_id: str) -> None:
        return None

    patch.setattr(Fold, "_mark_referenced", unmarked)


def without_effective_order(patch: Patch) -> None:
    """A child with a small Lamport time would be listed before its parent."""
    state_after = turn_graph.state_after

    def stamped(op: Op, *rest: Any, **named: Any) -> NodeState:
        return msgspec.structs.replace(
            state_after(op, *rest, **named), effective=op.lamport
        )

    patch.setattr(fold, "state_after", stamped)


RULES: list[Callable[[Patch], None]] = [
    without_covering_by_seen,
    without_covering_by_parents,
    without_siblings,
    without_causal_context,
    without_additions_that_win,
    without_redaction_after_domination,
    without_names_in_stubs,
    without_waking_the_parked,
    without_grouping_by_content,
    without_redacting_copies,
    without_refolding,
    without_effective_order,
]


def test_with_every_rule_no_law_fails() -> None:
    assert [seed for seed in range(SEEDS_MAX) if a_law_fails(seed)] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_without_a_rule_a_law_fails(
    rule: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    rule(monkeypatch)
    failing = next((seed for seed in range(SEEDS_MAX) if a_law_fails(seed)), None)
    assert failing is not None
    print(f"{rule.__name__}: first seen in world {failing}")
