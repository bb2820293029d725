"""What a door is: a way for hostile lines into a fresh store, and back out of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

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

KILL: Final = "kill"
"""The process behind it can be killed while it folds: `Killable`."""

OUTLIVE: Final = "outlive"
"""A tier above forgets a session after a while: `Outliving`."""

HELD_ELSEWHERE: Final = {
    KILL: "owners of embedded stores are killed in tests/crash/test_kill.py",
    OUTLIVE: "there is no tier in which a session has a time to live",
}
"""What hardly any door can do."""


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


@runtime_checkable
class Killable(OpenDoor, Protocol):
    """A door with `KILL`."""

    def killed_amid(self, lines: Sequence[bytes]) -> int:
        """Hand over turns, and kill who folds them; say how many were not folded.

        Returns once it is back, without its disk, and all of them are folded.
        """
        ...


@runtime_checkable
class Outliving(OpenDoor, Protocol):
    """A door with `OUTLIVE`: a state that it gives comes from the tier above."""

    def outlive(self, session: str = "s") -> dict[str, Any]:
        """Wait until the tier above has forgotten it; return what is said then."""
        ...

    def faults(self) -> int:
        """Count keys without a time to live, heads without body, and the like."""
        ...


@dataclass(frozen=True)
class Door:
    """A way in.

    Attributes:
        name: What it is called in the table.
        opened: Opens it, on a folder of its own and on its services.
        abilities: What it can do.
        lacks: Why it cannot do the rest.
        services: The fixtures that it needs; skipped where they cannot be.
        rows: The rows that it gets; None = all that it is able to.
    """

    name: str
    opened: Callable[..., OpenDoor]
    abilities: frozenset[str]
    lacks: dict[str, str]
    services: tuple[str, ...] = ()
    rows: frozenset[int] | None = None
