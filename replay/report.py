"""Say what a replay found: the counts, what differs, and how fast it went."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from turnstate.schemas.ids import SessionName

ROWS_MAX: Final = 20
"""Sessions that the text shows of each kind; the JSON has them all."""

Side = Literal["replay", "against"]


class DifferentSession(NamedTuple):
    """A session whose digest differs, and the first field that does."""

    name: SessionName
    field: str


class MissingSession(NamedTuple):
    """A session that one side lacks; `side` says which."""

    name: SessionName
    side: Side


@dataclass
class ReplayReport:
    """Gather what a replay finds, session by session.

    Attributes:
        turns: Operations folded.
        sessions: Sessions folded, those that differ included.
        equal: Sessions whose digests are equal.
        different: Sessions whose digests differ.
        missing: Sessions that only one side has.
        seconds: How long folding took; given by the caller, who has the clock.

    Example:
        >>> report = ReplayReport(turns=4, seconds=2.0)
        >>> report.add(SessionName("t", "a"), None)
        >>> report.add(SessionName("t", "b"), "branches.main.phase")
        >>> report.holds, report.as_json()["equal"], report.as_json()["turns_per_s"]
        (False, 1, 2.0)
    """

    turns: int = 0
    sessions: int = 0
    equal: int = 0
    different: list[DifferentSession] = field(default_factory=list[DifferentSession])
    missing: list[MissingSession] = field(default_factory=list[MissingSession])
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        """Say whether no difference was found."""
        return not self.different and not self.missing

    @property
    def turns_per_s(self) -> float:
        """Return the rate; 0 where no time was measured."""
        return round(self.turns / self.seconds, 1) if self.seconds > 0 else 0.0

    def add(self, name: SessionName, field_path: str | None) -> None:
        """Count a session that was compared; the path is None where it is equal."""
        self.sessions += 1
        if field_path is None:
            self.equal += 1
        else:
            self.different.append(DifferentSession(name, field_path))

    def add_missing(self, name: SessionName, side: Side) -> None:
        """Note a session that `side` lacks.

        Where the other side of the comparison lacks it, it was folded.
        """
        self.sessions += side == "against"
        self.missing.append(MissingSession(name, side))

    def as_json(self) -> dict[str, Any]:
        """Return the report in the shape of design §13, sessions in order."""
        return {
            "turns": self.turns,
            "sessions": self.sessions,
            "equal": self.equal,
            "different": [
                {"tenant": row.name.tenant, "session": row.name.session}
                | {"field": row.field}
                for row in sorted(self.different)
            ],
            "missing": [
                {"tenant": row.name.tenant, "session": row.name.session}
                | {"side": row.side}
                for row in sorted(self.missing)
            ],
            "turns_per_s": self.turns_per_s,
        }

    def as_text(self) -> str:
        """Return the report for a reader: the counts, then what is wrong."""
        lines = [
            f"replayed {self.turns:,} turns of {self.sessions:,} sessions",
            f"speed {self.turns_per_s:,.0f} turns/s",
            f"equal {self.equal:,}",
            f"different {len(self.different):,}",
            f"missing {len(self.missing):,}",
        ]
        lines += _rows(
            f"different: {_named(row.name)} in {row.field}"
            for row in sorted(self.different)
        )
        lines += _rows(
            f"missing in {row.side}: {_named(row.name)}" for row in sorted(self.missing)
        )
        return "\n".join(lines)


def _named(name: SessionName) -> str:
    # Quoted, since either part may hold a slash, a space or a line's end.
    return f"{name.tenant!r} / {name.session!r}"


def _rows(rows: Iterable[str]) -> list[str]:
    shown = list(rows)
    left_out = len(shown) - ROWS_MAX
    if left_out > 0:
        shown = [*shown[:ROWS_MAX], f"… and {left_out:,} more"]
    return shown
