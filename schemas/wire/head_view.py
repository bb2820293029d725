"""Read a few fields of an encoded head or operation, and step over the rest."""

from typing import Final

import msgspec
from msgspec import Raw, Struct

from turnstate.schemas.clocks import Dot
from turnstate.schemas.operation import MAIN


class _BranchView(Struct, array_like=True, frozen=True, gc=False):
    heads: tuple[Dot, ...]


class _NodeView(Struct, array_like=True, frozen=True, gc=False):
    dot: Dot
    effective: int
    context: Raw
    slots: Raw
    tags: Raw
    phase: str


class HeadView(Struct, array_like=True, frozen=True, gc=False):
    """What lists and doors ask of a head, without its slots, tags and sets.

    Decoded by position like `Head` (schemas/dialogue/head.py). The numbers are
    there at once; what is encoded is looked into when it is asked for, and
    what follows `nodes` never. A test holds the two in step
    (tests/unit/schemas/wire/test_head_view.py).

    Attributes:
        incarnation: Which life of the session.
        version: How many dots are folded.
        clock: Encoded.
        lamport: The maximum folded.
        total: S of design §4, encoded.
        turn_count: Turns, duplicates once.
        usage: Encoded: `usage_totals`.
        branches: Encoded: `heads`.
        nodes: Encoded: `phase`.
    """

    incarnation: int
    version: int
    clock: Raw
    lamport: int
    total: Raw
    turn_count: int
    usage: Raw
    branches: Raw
    nodes: Raw

    def heads(self, branch: str = MAIN) -> tuple[Dot, ...]:
        """Return the live heads of a branch, the shown one first."""
        found = _branches_decoder.decode(self.branches).get(branch)
        return found.heads if found else ()

    def phase(self, branch: str = MAIN) -> str | None:
        """Return the phase that a branch shows, None where it has no turn."""
        shown = self.heads(branch)[:1]
        for node in _nodes_decoder.decode(self.nodes) if shown else ():
            if node.dot == shown[0]:
                return node.phase
        return None

    def usage_totals(self) -> dict[str, tuple[int, int]]:
        """Return the usage counters: (sum of additions, sum of subtractions)."""
        return _usage_decoder.decode(self.usage)


class _StoredView(Struct, array_like=True, frozen=True, gc=False):
    head: HeadView


class OperationView(Struct, array_like=True, frozen=True, gc=False):
    """The stamp and name of an operation record; its body is not looked at.

    Attributes:
        replica: Of its dot.
        counter: Of its dot.
        lamport: Its Lamport time.
        seen: Encoded.
        incarnation: The life of the session.
        parents: Encoded.
        branch: None = main.
        turn_id: Its id, or None.
    """

    replica: str
    counter: int
    lamport: int
    seen: Raw
    incarnation: int
    parents: Raw
    branch: str | None
    turn_id: str | None


_head_decoder: Final = msgspec.msgpack.Decoder(HeadView)
_stored_decoder: Final = msgspec.msgpack.Decoder(_StoredView)
_branches_decoder: Final = msgspec.msgpack.Decoder(dict[str, _BranchView])
_nodes_decoder: Final = msgspec.msgpack.Decoder(tuple[_NodeView, ...])
_usage_decoder: Final = msgspec.msgpack.Decoder(dict[str, tuple[int, int]])
_operation_decoder: Final = msgspec.msgpack.Decoder(OperationView)


def view_head(data: bytes) -> HeadView:
    """Return a view of `encode_head`'s bytes.

    Raises:
        msgspec.DecodeError: the bytes are no head, as far as they are read.
    """
    return _head_decoder.decode(data)


def view_stored_head(data: bytes | memoryview) -> HeadView:
    """Return a view of the head in a stored head's bytes, checksum cut off.

    Raises:
        msgspec.DecodeError: the bytes are none, as far as they are read.
    """
    return _stored_decoder.decode(data).head


def view_operation(record: bytes) -> OperationView:
    """Return a view of an operation record.

    Raises:
        msgspec.DecodeError: the bytes are none, as far as they are read.
    """
    return _operation_decoder.decode(record)
