"""Every agent with its input and its outputs, as both ways to run bind them."""

from typing import Final, Literal, NamedTuple

Stream = Literal["turns", "deltas", "changelog", "entities", "dead_letters"]
"""A stream of the design, §7; a door gives it its name in a cluster."""


class AgentEntry(NamedTuple):
    """One agent.

    Attributes:
        name: What it is called in logs, metrics and consumer groups.
        reads: The stream whose records it is given, partition by partition.
        emits: The streams that it may write; it writes no other.
        serial_by: Records that share this are handled one at a time, in order.
    """

    name: str
    reads: Stream
    emits: tuple[Stream, ...]
    serial_by: str


SESSION: Final = AgentEntry(
    "session",
    "turns",
    ("deltas", "entities", "dead_letters", "changelog"),
    "session key",
)
"""Folds turns into the state of their session (`agents/session`), and tells every
ten versions what it has become (`agents/tiering/entities`)."""

AGENTS: Final[dict[str, AgentEntry]] = {entry.name: entry for entry in (SESSION,)}
"""All of them, by name.

Example:
    >>> AGENTS["session"].reads
    'turns'
"""
