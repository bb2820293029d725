"""DialogueState: a delta-state CRDT, the set of a session's operations and its fold."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET

from turnstate.schemas.clocks import Dot, DotSet
from turnstate.schemas.crdt import slot_map
from turnstate.schemas.dialogue.fold import Fold
from turnstate.schemas.dialogue.head import EMPTY_HEAD, Head, NodeState, digest
from turnstate.schemas.dialogue.phases import DialogueGraph, default_graph
from turnstate.schemas.dialogue.turn_index import IdEntry, RefoldNeeded
from turnstate.schemas.operation import Op, Reference, dot_reused, target_of

Folded = dict[str, Any]
"""The state in the shape in which `fold_set` gives it."""


class DialogueState:
    """Hold all operations of one incarnation and the state that they fold into.

    A value: every method returns a new one. `merge` is the join of the
    lattice of operation sets, so it is commutative, associative and
    idempotent; a delta is any set of operations (Almeida, Shoker and Baquero,
    Delta State Replicated Data Types, 2018). It is the reference that the
    stored form is compared with, and what a replica with a clock of its own
    holds; the pipeline folds heads without keeping the text.

    Example:
        >>> state = DialogueState.empty()
        >>> state.merge(state).digest() == state.digest()
        True
    """

    def __init__(
        self,
        graph: DialogueGraph,
        ops: Mapping[Dot, Op],
        head: Head,
        ids: Mapping[str, IdEntry],
        states: Mapping[Dot, NodeState],
    ) -> None:
        self.graph = graph
        self.ops = ops
        self.head = head
        self.ids = ids
        self.states = states

    @classmethod
    def empty(
        cls, graph: DialogueGraph | None = None, incarnation: int = 1
    ) -> "DialogueState":
        """Return the state of a session in which nothing was said."""
        head = EMPTY_HEAD if incarnation == 1 else Head(incarnation=incarnation)
        return cls(graph or default_graph(), {}, head, {}, {})

    def apply(self, ops: Iterable[Op]) -> "DialogueState":
        """Return the state with these operations folded in, in any order.

        Raises:
            ConflictError: a dot is there with other bytes (`dot_reused`); the
                state stays as it was.
        """
        new: dict[Dot, Op] = {}
        for op in ops:
            known = self.ops.get(op.dot) or new.get(op.dot)
            if known is None:
                new[op.dot] = op
            elif known.operation_hash != op.operation_hash:
                raise dot_reused(op.dot)
        if not new:
            return self
        everything = {**self.ops, **new}
        try:
            return self._folded_on(everything, new.values())
        except RefoldNeeded:
            return self._refolded(everything)

    def _folded_on(
        self, everything: Mapping[Dot, Op], new: Iterable[Op]
    ) -> "DialogueState":
        fold = Fold(self.head, self.graph, self.ids, self.states)
        for op in new:
            fold.add(op)
        return DialogueState(
            self.graph,
            everything,
            fold.head(),
            {**self.ids, **fold.ids_changed},
            {**self.states, **fold.states},
        )

    def _refolded(self, everything: Mapping[Dot, Op]) -> "DialogueState":
        """Fold everything anew, in an order in which no id changes its owner."""
        empty = DialogueState.empty(self.graph, self.head.incarnation)
        ordered = sorted(everything.values(), key=lambda op: op.order)
        return empty._folded_on(everything, ordered)

    def merge(self, other: "DialogueState") -> "DialogueState":
        """Return the least state at or after both.

        Raises:
            ConflictError: both hold one dot with different bytes.
        """
        return self.apply(other.ops.values())

    def diff(self, clock: DotSet) -> list[Op]:
        """Return the delta that a replica at `clock` lacks, by the total order."""
        lacking = self.head.clock.minus(clock)
        return sorted((self.ops[dot] for dot in lacking), key=lambda op: op.order)

    join = apply

    def digest(self) -> bytes:
        """Return the 32 bytes that name this state (design §4)."""
        return digest(self.head)

    def heads_at(self, branch: str, clock: Mapping[str, int]) -> tuple[Dot, ...]:
        """Return the heads that a branch had once `clock` was folded."""
        past = DotSet({r: (1, high) for r, high in clock.items() if high > 0})
        ops = [op for dot, op in self.ops.items() if dot in past]
        empty = DialogueState.empty(self.graph, self.head.incarnation)
        found = empty.apply(ops).head.branches.get(branch)
        return found.heads if found else ()

    # -- what readers are shown ------------------------------------------

    def listing(self, branch: str) -> list[Op]:
        """Return the turns of a branch: parents first, ties by the total order.

        Copies of one turn under one id show once.
        """
        state = self.head.branch_state(branch)
        if state is None:
            return []
        shown: list[Op] = []
        groups: dict[tuple[str, bytes], Op] = {}
        nodes = sorted(
            (self.states[dot] for dot in state.context if dot in self.states),
            key=lambda node: node.listing_order,
        )
        for node in nodes:
            op = self.ops[node.dot]
            if op.body.op is not None:
                continue
            shown.append(op)
            if op.turn_id is not None:
                group = (op.turn_id, op.content_hash)
                first = groups.setdefault(group, op)
                if op.order < first.order:
                    groups[group] = op
        return [
            op
            for op in shown
            if op.turn_id is None or groups[op.turn_id, op.content_hash] is op
        ]

    def edits(self) -> dict[Dot, Op]:
        """Return, for every turn with an edited text, the edit that shows."""
        by_group: dict[object, list[Op]] = {}
        for op in self.ops.values():
            if op.kind == "edit" and op.body.target is not None:
                dot = self._dot_of(target_of(op))
                target = self.ops.get(dot) if dot else None
                has_text = op.body.content is not UNSET or op.body.parts is not None
                if target is not None and target.kind == "turn" and has_text:
                    by_group.setdefault(_group(target), []).append(op)
        found: dict[Dot, Op] = {}
        for op in self.ops.values():
            edits = by_group.get(_group(op)) if op.kind == "turn" else None
            if edits and op.dot not in self.head.redacted:
                shown = winning_edit(edits)
                if shown is not None:
                    found[op.dot] = shown
        return found

    def _dot_of(self, reference: Reference) -> Dot | None:
        if isinstance(reference, Dot):
            return reference
        entry = self.ids.get(reference)
        return entry.dot if entry else None

    def folded(self) -> Folded:
        """Return everything that the state says, as plain values."""
        head = self.head
        branches: dict[str, Any] = {}
        for name in head.branches.keys() | head.ended.keys():
            branch = head.branches.get(name)
            state = head.branch_state(name)
            branches[name] = {
                "heads": list(branch.heads) if branch else [],
                "slots": {
                    slot: list(slot_map.shown(entries))
                    for slot, entries in (state.slots if state else {}).items()
                },
                "tags": sorted(state.tags) if state else [],
                "phase": state.phase if state else self.graph.start,
                "phase_error": _phase_error(state),
                "open": [
                    (call[0], call[1], Dot(call[2], call[3]))
                    for call in (state.open_calls if state else ())
                ],
                "recent": [Dot(t[1], t[2]) for t in (state.recent if state else ())],
                "turns": [op.dot for op in self.listing(name)],
            }
        return {
            "version": head.version,
            "clock": head.clock.sorted_spans(),
            "sum": head.total,
            "lamport": head.lamport,
            "turn_count": head.turn_count,
            "usage": head.usage,
            "parked": [Op.decode(record).dot for _, record in head.parked],
            "conflicts": head.conflicts(),
            "redacted": list(head.redacted),
            "branches": branches,
            "ended": {name: list(end) for name, end in head.ended.items()},
            "texts": {
                dot: op.body.content if op.body.parts is None else op.body.parts
                for dot, op in self.edits().items()
            },
        }


def _group(op: Op) -> object:
    return op.dot if op.turn_id is None else (op.turn_id, op.content_hash)


def _phase_error(state: NodeState | None) -> dict[str, str] | None:
    if state is None or state.phase_error is None:
        return None
    action, turn, phase = state.phase_error
    return {"action": action, "turn": turn, "phase": phase}


def winning_edit(edits: list[Op]) -> Op | None:
    """Return the edit that shows: no other has seen it; of those the greatest."""
    live = [
        edit
        for edit in edits
        if not any(edit.dot in other.seen_set() for other in edits if other is not edit)
    ]
    return max(live, key=lambda edit: edit.order) if live else None
