"""The shape of what a session shows, whichever way it was folded."""

from typing import Protocol, TypedDict

from turnstate.schemas.clocks import Dot

Entry = tuple[int, str, int, bytes]
"""A slot value with the order of its write: lamport, replica, counter, value."""

Call = tuple[str, str, Dot]
"""An open tool call: its id, the function's name, the turn that made it."""


class Graph(Protocol):
    """Say which action leads where; `DialogueGraph` is one."""

    @property
    def start(self) -> str:
        """Return the phase before any action."""
        ...

    def transition(self, phase: str, action: str, /) -> str | None:
        """Return the phase after an action, or None where it is illegal."""
        ...


class FoldedBranch(TypedDict):
    """What one branch shows.

    Attributes:
        heads: The shown one first, the others in falling listing order.
        slots: name → live values, the shown one first.
        tags: Names, sorted.
        phase: Of the shown head.
        phase_error: {"action", "turn", "phase"} of its last action if illegal.
        open: Tool calls of the shown head that wait for a result.
        recent: The last turns, oldest first.
        turns: All turns, parents first; copies of one turn once.
    """

    heads: list[Dot]
    slots: dict[str, list[Entry]]
    tags: list[str]
    phase: str
    phase_error: dict[str, str] | None
    open: list[Call]
    recent: list[Dot]
    turns: list[Dot]


class Folded(TypedDict):
    """What a session shows; equal for equal sets, whatever way they came.

    Attributes:
        version: How many dots are folded.
        clock: replica → inclusive bounds of its counters.
        sum: S of design §4, 32 bytes big-endian.
        lamport: The maximum folded.
        turn_count: Turns, copies once, continuing parts not.
        usage: name → [sum of what was added, sum of what was taken].
        parked: What waits for a parent or target.
        conflicts: Operations whose id another content answers to.
        redacted: Dots whose text is hidden.
        branches: What each branch shows.
        ended: branch → [lamport, replica, counter, session that goes on].
        texts: The edited text of each turn that has one.
    """

    version: int
    clock: dict[str, tuple[int, ...]]
    sum: bytes
    lamport: int
    turn_count: int
    usage: dict[str, list[int]]
    parked: list[Dot]
    conflicts: list[tuple[str, Dot]]
    redacted: list[Dot]
    branches: dict[str, FoldedBranch]
    ended: dict[str, list[object]]
    texts: dict[Dot, str | bytes | None]
