"""The head of a session: everything but its text, small whatever its length."""

from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct

from turnstate.schemas.clocks import Dot, DotSet
from turnstate.schemas.crdt import slot_map, tag_set
from turnstate.schemas.crdt.counter import Counters
from turnstate.schemas.limits import RECENT_TURNS

OpenCall = tuple[str, str, str, int]
"""An unanswered tool call: (call id, function name, replica, counter)."""

RecentTurn = tuple[int, str, int, int]
"""A shown turn: (effective Lamport, replica, counter, version it came with)."""


class NodeState(Struct, array_like=True, frozen=True, gc=False):
    """What holds after one turn: a pure function of its past.

    Attributes:
        dot: The turn.
        effective: Its effective Lamport time: above that of every parent.
        context: The dots of its past and its own.
        slots: Live slot writes.
        tags: Live tags.
        phase: The node of the dialogue graph.
        phase_error: (action, turn, phase) of the last action if it was illegal.
        open_calls: Tool calls that wait for a result.
        recent: The last turns of its past, oldest first.
    """

    dot: Dot
    effective: int
    context: DotSet
    slots: slot_map.SlotMap
    tags: tag_set.TagSet
    phase: str
    phase_error: tuple[str, str, str] | None
    open_calls: tuple[OpenCall, ...]
    recent: tuple[RecentTurn, ...]

    @property
    def listing_order(self) -> tuple[int, str, int]:
        """Return its place in the listing: parents first, ties by the stamp."""
        return (self.effective, self.dot.replica, self.dot.counter)


class Branch(Struct, array_like=True, frozen=True, gc=False):
    """A branch: its live heads, the shown one first, and what its turns saw."""

    heads: tuple[Dot, ...]
    seen: DotSet


class Twin(Struct, array_like=True, frozen=True, gc=False):
    """One of several operations that bear one turn id."""

    lamport: int
    replica: str
    counter: int
    content_hash: bytes

    @property
    def order(self) -> tuple[int, str, int]:
        """Return its place in the total order."""
        return (self.lamport, self.replica, self.counter)


class Head(Struct, array_like=True, frozen=True, gc=False):
    """The state of a session without its text; a value, never changed.

    Attributes:
        incarnation: Which life of the session, from 1.
        version: How many dots are folded.
        clock: Those dots.
        lamport: The maximum folded.
        total: S of design §4, 32 bytes big-endian.
        turn_count: Turns, duplicates once, continuing parts not.
        usage: Usage counters.
        branches: name → branch.
        nodes: State at each live head.
        parked: (version it came with, record without text) of what waits for a
            parent or target, by dot.
        twins: turn id → the operations that share it, where there are several.
        ended: branch → (lamport, replica, counter, session that goes on).
        redacted: Dots whose text is hidden.
        asides: Dots that are no turn of the dialogue (edit, redact, end).
        moves: Dots of rollbacks and forks.
    """

    incarnation: int = 1
    version: int = 0
    clock: DotSet = msgspec.field(default_factory=DotSet)
    lamport: int = 0
    total: bytes = bytes(32)
    turn_count: int = 0
    usage: Counters = {}
    branches: dict[str, Branch] = {}
    nodes: tuple[NodeState, ...] = ()
    parked: tuple[tuple[int, bytes], ...] = ()
    twins: dict[str, tuple[Twin, ...]] = {}
    ended: dict[str, tuple[int, str, int, str | None]] = {}
    redacted: DotSet = msgspec.field(default_factory=DotSet)
    asides: DotSet = msgspec.field(default_factory=DotSet)
    moves: DotSet = msgspec.field(default_factory=DotSet)

    def node(self, dot: Dot) -> NodeState:
        """Return the state at a live head.

        Raises:
            KeyError: the dot is no live head.
        """
        for state in self.nodes:
            if state.dot == dot:
                return state
        raise KeyError(dot)

    def branch_state(self, branch: str) -> NodeState | None:
        """Return the join of a branch's heads, None where it has no turn."""
        found = self.branches.get(branch)
        if found is None or not found.heads:
            return None
        return joined([self.node(dot) for dot in found.heads])

    def conflicts(self) -> list[tuple[str, Dot]]:
        """Return (turn id, dot) of turns whose id another turn answers to."""
        found: list[tuple[str, Dot]] = []
        for turn_id, twins in self.twins.items():
            content = min(twins, key=lambda twin: twin.order).content_hash
            found += (
                (turn_id, Dot(twin.replica, twin.counter))
                for twin in twins
                if twin.content_hash != content
            )
        return sorted(found)


_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
_decoder: Final = msgspec.msgpack.Decoder(Head)
_node_encoder: Final = msgspec.msgpack.Encoder()
_node_decoder: Final = msgspec.msgpack.Decoder(NodeState)

EMPTY_HEAD: Final = Head()


def encode_head(head: Head) -> bytes:
    """Return the bytes of a head; equal heads have equal bytes."""
    return _encoder.encode(head)


def decode_head(data: bytes) -> Head:
    """Invert `encode_head`.

    Raises:
        msgspec.DecodeError: the bytes are no head.
    """
    return _decoder.decode(data)


def encode_node(state: NodeState) -> bytes:
    """Return the bytes of the state at one turn."""
    return _node_encoder.encode(state)


def decode_node(data: bytes) -> NodeState:
    """Invert `encode_node`."""
    return _node_decoder.decode(data)


def joined(states: list[NodeState]) -> NodeState:
    """Return the state in which all the given ones are known, the first leading.

    Slots, tags, contexts and recent turns are joined; phase and open calls go
    on from the first.
    """
    first = states[0]
    if len(states) == 1:
        return first
    slots, tags, context = first.slots, first.tags, first.context
    recent: set[RecentTurn] = set(first.recent)
    effective = first.effective
    for other in states[1:]:
        slots = slot_map.join(slots, context, other.slots, other.context)
        tags = tag_set.join(tags, context, other.tags, other.context)
        context = context.union(other.context)
        recent.update(other.recent)
        effective = max(effective, other.effective)
    return NodeState(
        first.dot,
        effective,
        context,
        slots,
        tags,
        first.phase,
        first.phase_error,
        first.open_calls,
        tuple(sorted(recent)[-RECENT_TURNS:]),
    )


def digest(head: Head) -> bytes:
    """Return BLAKE2b-256 over the canonical head part and S (design §4).

    Independent of order of arrival, owner, tier, frames and segment cuts:
    versions, which follow an owner's order, are left out.
    """
    canonical = (
        head.incarnation,
        head.clock.sorted_spans(),
        head.lamport,
        head.turn_count,
        head.usage,
        {
            name: (branch.heads, branch.seen.sorted_spans())
            for name, branch in head.branches.items()
        },
        sorted(
            (
                state.dot,
                state.effective,
                state.slots,
                state.tags,
                state.phase,
                state.phase_error,
                state.open_calls,
                [turn[:3] for turn in state.recent],
            )
            for state in head.nodes
        ),
        {
            name: sorted(twins, key=lambda twin: twin.order)
            for name, twins in head.twins.items()
        },
        head.ended,
        head.redacted.sorted_spans(),
    )
    return blake2b(_encoder.encode(canonical) + head.total, digest_size=32).digest()
