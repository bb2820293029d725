"""The incremental fold: one operation at a time into a head, whatever the order."""

from collections.abc import Collection, Mapping
from typing import Final

from turnstate.schemas.clocks import Dot, DotSet
from turnstate.schemas.crdt import counter
from turnstate.schemas.dialogue.head import Branch, Head, NodeState, Twin, joined
from turnstate.schemas.dialogue.parked import NODE_KINDS, references_of, without_text
from turnstate.schemas.dialogue.phases import DialogueGraph
from turnstate.schemas.dialogue.turn_graph import advanced, state_after, without_dots
from turnstate.schemas.dialogue.turn_index import IdEntry, RefoldNeeded, StateNeeded
from turnstate.schemas.operation import (
    Op,
    Reference,
    SeenVector,
    seen_vector,
    target_of,
)

S_MODULUS: Final = 1 << 256


class Fold:
    """Fold operations into a head held for writing; `head()` gives the value.

    It does no I/O. What it needs beyond the head comes as arguments: `ids`
    answers for every turn id that the operations name (absent = unknown),
    `states` for turns that are no live head any more.

    Args:
        head: Where to start; not changed.
        graph: The dialogue graph.
        ids: turn id → entry of the turn index.
        states: State at turns that explicit parents name.

    Raises:
        StateNeeded: from `add`; give the state and start again.
        RefoldNeeded: from `add`; fold every operation of the session anew.
    """

    def __init__(
        self,
        head: Head,
        graph: DialogueGraph,
        ids: Mapping[str, IdEntry],
        states: Mapping[Dot, NodeState] | None = None,
    ) -> None:
        self.graph = graph
        self.incarnation = head.incarnation
        self.version = head.version
        self.clock = head.clock
        self._clock_is_mine = False
        self.lamport = head.lamport
        self.total = int.from_bytes(head.total, "big")
        self.turn_count = head.turn_count
        self.usage = head.usage
        self.branches: dict[str, Branch] = head.branches.copy()
        self.states: dict[Dot, NodeState] = {}
        for state in head.nodes:
            self.states[state.dot] = state
        self.parked: dict[Dot, tuple[int, Op]] = {}
        self.waiting: dict[Reference, list[Dot]] = {}
        self.twins = head.twins
        self.ended = head.ended
        self.redacted = head.redacted
        self.asides = head.asides
        self.moves = head.moves
        self.ids = ids
        self.ids_changed: dict[str, IdEntry] = {}
        self.ids_used: dict[str, IdEntry] = {}
        self.states_given = states or {}
        self.bases: dict[Dot, NodeState] = {}
        for version, record in head.parked:
            self._park(Op.decode(record), version)

    def learn(
        self, ids: Mapping[str, IdEntry], states: Mapping[Dot, NodeState]
    ) -> None:
        """Take in what the next frame carries; later facts stand."""
        if ids:
            self.ids = {**self.ids, **ids}
        if states:
            self.states_given = {**self.states_given, **states}

    def head(self) -> Head:
        """Return the folded state as a value."""
        self._clock_is_mine = False
        if len(self.branches) == 1:
            (branch,) = self.branches.values()
            live: Collection[Dot] = branch.heads
        else:
            live = {dot for each in self.branches.values() for dot in each.heads}
        nodes = tuple(
            [self.states[dot] for dot in (sorted(live) if len(live) > 1 else live)]
        )
        parked = [(v, op.record) for _, (v, op) in sorted(self.parked.items())]
        return Head(
            self.incarnation,
            self.version,
            self.clock,
            self.lamport,
            (self.total % S_MODULUS).to_bytes(32, "big"),
            self.turn_count,
            self.usage,
            self.branches.copy(),
            nodes,
            tuple(parked),
            self.twins,
            self.ended,
            self.redacted,
            self.asides,
            self.moves,
        )

    def entry(self, turn_id: str) -> IdEntry | None:
        """Return what answers to an id by now."""
        found = self.ids_changed.get(turn_id)
        return self.ids.get(turn_id) if found is None else found

    def branch_heads(self, branch: str) -> tuple[Dot, ...]:
        """Return the live heads of a branch, the shown one first."""
        found = self.branches.get(branch)
        return found.heads if found else ()

    def branch_state(self, branch: str) -> NodeState | None:
        """Return the join of a branch's heads, None where it has no turn."""
        heads = self.branch_heads(branch)
        return joined([self.states[dot] for dot in heads]) if heads else None

    def is_attached(self, dot: Dot) -> bool:
        """Say whether the dot is a node on some branch."""
        return dot in self.clock and dot not in self.parked and dot not in self.asides

    def attached_dots(self) -> DotSet:
        """Return what was folded and is not parked: an owner's `seen`."""
        if not self.parked:
            return self.clock
        return self.clock.minus(DotSet.of(self.parked))

    def seen(self) -> SeenVector:
        """Return what an owner writes as `seen` when it stamps now."""
        spans = self.clock.spans
        if len(spans) == 1 and not self.parked:
            for replica, bounds in spans.items():
                if len(bounds) == 2 and bounds[0] == 1:
                    return {replica: bounds[1]}
        return seen_vector(self.attached_dots())

    def add(self, op: Op, version: int | None = None) -> bool:
        """Fold one operation; say whether it was new.

        Amortised O(1) in the length of the session.

        Args:
            op: The operation.
            version: Where its text lies, if it was folded before under
                another order; else the version that it leads to.
        """
        dot = op.dot
        if not self._clock_is_mine:
            self.clock, self._clock_is_mine = self.clock.copy(), True
        if not self.clock.add(*dot):
            return False
        assert op.incarnation == self.incarnation, "incarnations never mix"
        self.version += 1
        self.lamport = max(self.lamport, op.lamport)
        self.total += int.from_bytes(op.operation_hash, "big")
        kind = op.body.op
        branch = self.branches.get(op.branch)
        if (
            kind is None
            and branch is not None
            and branch.heads == op.parents
            and len(op.parents) == 1
            and not self.waiting
            and (
                op.turn_id is None
                or (op.turn_id not in self.ids and op.turn_id not in self.ids_changed)
            )
        ):
            self._extend(op, branch, version or self.version)
            return True
        if kind is not None:
            self._note_kind(op, kind)
        if op.turn_id is not None:
            counted = self._name(op, version or self.version)
        else:
            counted = kind is None
        if counted:
            if op.body.continues is None:
                self.turn_count += 1
            if op.body.usage:
                self.usage = counter.count(self.usage, op.body.usage)
        if kind == "end":
            self._end(op)
        else:
            self._try(op, version or self.version)
        if self.waiting:
            self._wake([dot] if op.turn_id is None else [dot, op.turn_id])
        return True

    def _extend(self, op: Op, branch: Branch, version: int) -> None:
        """Fold the usual case: a turn with a new id follows the only head."""
        body, dot = op.body, op.dot
        if op.turn_id is not None:
            self.ids_changed[op.turn_id] = IdEntry(
                op.content_hash, dot[0], dot[1], op.lamport, version
            )
        if body.continues is None:
            self.turn_count += 1
        if body.usage:
            self.usage = counter.count(self.usage, body.usage)
        base = self.states[branch.heads[0]]
        self.states[dot] = state_after(op, base, self.graph, version, False)
        self.branches[op.branch] = advanced(branch, op, branch.heads, self.states)

    def _note_kind(self, op: Op, kind: str) -> None:
        if kind in NODE_KINDS:
            self.moves = self.moves.added(*op.dot)
        else:
            self.asides = self.asides.added(*op.dot)

    def _name(self, op: Op, version: int) -> bool:
        """Enter the operation under its id; say whether it counts as a turn."""
        turn_id = op.turn_id
        assert turn_id is not None
        before = self._consulted(turn_id)
        mine = IdEntry(
            op.content_hash, op.dot.replica, op.dot.counter, op.lamport, version
        )
        is_turn = op.body.op is None
        if before is None:
            self.ids_changed[turn_id] = mine
            return is_turn
        twins = self.twins.get(turn_id) or (
            Twin(before.lamport, before.replica, before.counter, before.content_hash),
        )
        known = any(twin.content_hash == op.content_hash for twin in twins)
        twin = Twin(op.lamport, op.dot.replica, op.dot.counter, op.content_hash)
        self.twins = self.twins | {
            turn_id: tuple(sorted((*twins, twin), key=lambda each: each.order))
        }
        if mine.order < before.order:
            if before.referenced:
                raise RefoldNeeded
            self.ids_changed[turn_id] = mine
        if any(
            other.content_hash == op.content_hash
            and self.redacted.has(other.replica, other.counter)
            for other in twins
        ):
            self.redacted = self.redacted.added(*op.dot)
        return is_turn and not known

    def _try(self, op: Op, version: int) -> None:
        """Attach an operation, or park it where something is missing."""
        if op.body.op in NODE_KINDS:
            parents = self._resolved(op)
            if parents is None:
                self._park(without_text(op), version)
            else:
                self._attach(op, parents, version)
        elif op.body.target is not None:
            target = self._target(op)
            if target is None:
                self._park(without_text(op), version)
            elif op.body.op == "redact":
                self._redact(target)

    def _resolved(self, op: Op) -> tuple[Dot, ...] | None:
        """Return the parents, None where one has not come or is not attached."""
        references = op.parents
        dots: list[Dot] = []
        for reference in references:
            dot = self._dot_of(reference)
            if dot is None or dot == op.dot or not self.is_attached(dot):
                return None
            if dot not in dots:
                dots.append(dot)
        for reference in references:
            if type(reference) is str:
                self._mark_referenced(reference)
        return tuple(dots)

    def _dot_of(self, reference: Reference) -> Dot | None:
        if isinstance(reference, Dot):
            return reference
        found = self._consulted(reference)
        return found.dot if found else None

    def _consulted(self, turn_id: str) -> IdEntry | None:
        """Look an id up, and remember what the turn index said of it."""
        found = self.ids_changed.get(turn_id)
        if found is None:
            found = self.ids.get(turn_id)
            if found is not None:
                self.ids_used.setdefault(turn_id, found)
        return found

    def _mark_referenced(self, turn_id: str) -> None:
        entry = self.entry(turn_id)
        if entry is not None and not entry.referenced:
            self.ids_changed[turn_id] = IdEntry(
                entry.content_hash,
                entry.replica,
                entry.counter,
                entry.lamport,
                entry.version,
                referenced=True,
            )

    def _target(self, op: Op) -> Dot | None:
        """Return the turn that an edit or a redaction names, if it has come."""
        reference = target_of(op)
        dot = self._dot_of(reference)
        if (
            dot is None
            or dot not in self.clock
            or dot in self.asides
            or dot in self.moves
        ):
            return None
        if type(reference) is str:
            self._mark_referenced(reference)
        return dot

    def _attach(self, op: Op, parents: tuple[Dot, ...], version: int) -> None:
        base = None
        if parents:
            states = [self._state(parent) for parent in parents]
            base = joined(states) if len(states) > 1 else states[0]
            for parent in parents:
                if not self._is_live(parent):
                    self.bases.setdefault(parent, self.states[parent])
        state = state_after(op, base, self.graph, version, op.dot in self.redacted)
        self.states[op.dot] = state
        self.branches[op.branch] = advanced(
            self.branches.get(op.branch), op, parents, self.states
        )

    def _is_live(self, dot: Dot) -> bool:
        return any(dot in branch.heads for branch in self.branches.values())

    def _state(self, dot: Dot) -> NodeState:
        found = self.states.get(dot)
        if found is not None:
            return found
        given = self.states_given.get(dot)
        if given is None:
            raise StateNeeded(dot)
        if self.redacted.spans:
            given = without_dots(given, self.redacted)
        self.states[dot] = given
        return given

    def _redact(self, target: Dot) -> None:
        dots = {target}
        for twins in self.twins.values():
            found = [twin for twin in twins if (twin.replica, twin.counter) == target]
            if found:
                dots |= {
                    Dot(twin.replica, twin.counter)
                    for twin in twins
                    if twin.content_hash == found[0].content_hash
                }
        self.redacted = self.redacted.union(DotSet.of(dots))
        self.states = {
            dot: without_dots(state, self.redacted)
            for dot, state in self.states.items()
        }

    def _end(self, op: Op) -> None:
        to = op.body.to if isinstance(op.body.to, str) else None
        before = self.ended.get(op.branch)
        if before is None or op.order > before[:3]:
            self.ended = self.ended | {op.branch: (*op.order, to)}

    def _park(self, op: Op, version: int) -> None:
        self.parked[op.dot] = (version, op)
        for reference in references_of(op):
            self.waiting.setdefault(reference, []).append(op.dot)

    def _wake(self, come: list[Reference]) -> None:
        """Try again whatever waits for these, and what waits for that in turn."""
        while come:
            for dot in self.waiting.pop(come.pop(), ()):
                found = self.parked.pop(dot, None)
                if found is None:
                    continue
                version, op = found
                self._try(op, version)
                if dot not in self.parked:
                    come.append(dot)
                    if op.turn_id is not None:
                        come.append(op.turn_id)
