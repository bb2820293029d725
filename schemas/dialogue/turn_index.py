"""What the turn index says of an id, and what a fold may lack."""

from msgspec import Struct

from turnstate.schemas.clocks import Dot


class IdEntry(Struct, array_like=True, frozen=True, gc=False):
    """What the turn index knows of a turn id.

    Attributes:
        content_hash: 8 bytes of the one that answers to the id.
        replica: Its dot's replica.
        counter: Its dot's counter.
        lamport: Its Lamport time.
        version: The version it came with, where its text lies.
        referenced: Whether something was attached by this id rather than by
            dot; then another answer to the id changes what was folded.
    """

    content_hash: bytes
    replica: str
    counter: int
    lamport: int
    version: int
    referenced: bool = False

    @property
    def dot(self) -> Dot:
        """Return the dot that answers to the id."""
        return Dot(self.replica, self.counter)

    @property
    def order(self) -> tuple[int, str, int]:
        """Return its place in the total order."""
        return (self.lamport, self.replica, self.counter)


class StateNeeded(Exception):
    """The fold starts from a turn whose state it was not given: fetch it."""

    def __init__(self, dot: Dot) -> None:
        super().__init__(dot)
        self.dot = dot


class RefoldNeeded(Exception):
    """Another operation now answers to an id that was folded by: fold all again."""
