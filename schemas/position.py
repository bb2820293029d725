"""Where an operation lay in a log: what makes a redelivery harmless."""

from msgspec import Struct


class Position(Struct, array_like=True, frozen=True, gc=False):
    """One place of one log, `index` counting inside a packed message.

    Example:
        >>> a = Position(b"log", 0, 7, 0)
        >>> Position(b"log", 0, 6, 3).is_redelivery_after(a)
        True
        >>> Position(b"other", 0, 6, 3).is_redelivery_after(a)
        False
    """

    log: bytes
    partition: int
    offset: int
    index: int = 0

    def is_redelivery_after(self, folded: "Position | None") -> bool:
        """Say whether this was folded once `folded` was; another log is new."""
        return (
            folded is not None
            and self.log == folded.log
            and self.partition == folded.partition
            and (self.offset, self.index) <= (folded.offset, folded.index)
        )

    def token(self) -> str:
        """Return the token of a log position, `log:partition:offset` (design §9)."""
        return f"{self.log.hex()}:{self.partition}:{self.offset}"
