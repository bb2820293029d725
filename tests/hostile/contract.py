"""What a door is: a way for hostile lines into a fresh store, and back out of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from turnstate.schemas.operation import MAIN

READ: Final = "read"
"""Turns can be read back."""

STATE: Final = "state"
"""What was sent is admitted and folded; the state can be read."""

LETTERS: Final = "letters"
"""What was refused is kept as dead letters, with its bytes."""

REOPEN: Final = "reopen"
"""The store can be let go and opened again."""

SEAL: Final = "seal"
"""Frames can be sealed into segments."""

CONTEXT: Final = "context"
"""Messages for a model can be read."""

ERASE: Final = "erase"
"""What was said can be erased from every file."""

OBJECTS: Final = "objects"
"""Slots, tags and stamps are JSON objects: with names, in any depth."""


class Refusal(NamedTuple):
    """How a record was refused."""

    code: str
    field: str | None
    raw: bytes | None = None


@dataclass
class Sent:
    """What became of the records of one call of `send`."""

    accepted: int = 0
    duplicates: int = 0
    dropped: int = 0
    refusals: list[Refusal] = field(default_factory=list[Refusal])

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Return accepted, duplicates, dropped, refused."""
        return self.accepted, self.duplicates, self.dropped, len(self.refusals)


class OpenDoor(Protocol):
    """A door into a fresh store."""

    def send(self, lines: Sequence[bytes]) -> Sent:
        """Hand over records in one go, and wait until they are folded."""
        ...

    def turns(
        self, session: str = "s", *, tenant: str = "t", branch: str = MAIN
    ) -> list[dict[str, Any]]:
        """Return the turns of a branch as they are read; [] without a session."""
        ...

    def state(
        self, session: str = "s", *, tenant: str = "t", branch: str = MAIN
    ) -> dict[str, Any]:
        """Return the state of a session."""
        ...

    def letters(self) -> list[Refusal]:
        """Return all dead letters, the oldest first."""
        ...

    def reopen(self) -> None:
        """Let the store go, and open it again."""
        ...

    def seal(self) -> None:
        """Seal all sessions."""
        ...

    def context(self, budget_tokens: int, **options: Any) -> dict[str, Any]:
        """Return the messages of session `s` for a model."""
        ...

    def erase(self, tenant: str, **which: Any) -> dict[str, Any]:
        """Erase a user or a session; return the report."""
        ...

    def files(self) -> list[Path]:
        """Return every file that the store has."""
        ...

    def close(self) -> None:
        """Let the store go for good."""
        ...


@dataclass(frozen=True)
class Door:
    """A way in: how to open it, what it can do, and why it cannot do the rest."""

    name: str
    opened: Callable[[Path], OpenDoor]
    abilities: frozenset[str]
    lacks: dict[str, str]
