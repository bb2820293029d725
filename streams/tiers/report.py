"""What a tier job says of its run: counts for machines, reasons for people."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from turnstate.schemas.ids import SessionName
from turnstate.storage.moves.journal import Plan
from turnstate.streams.documents import Document

SHOWN_MAX: Final = 100
"""Moves that a report names one by one; it counts all."""


@dataclass(slots=True)
class Report:
    """What a run did.

    Attributes:
        moved: path (`warm>cold`) → how many sessions went.
        bytes: That were copied.
        skipped: why → how many wait for the next run.
        reasons: why → how many were moved for it.
        moves: The first moves, one by one.
        swept: Moves that a dead job had left, and were done or given up.
        archived: Sessions of which a summary was archived before they went.
        seconds: How long it took.
        fenced: Whether another job took over in the middle.
        dry_run: Whether nothing was moved.
    """

    moved: Counter[str] = field(default_factory=Counter[str])
    bytes: int = 0
    skipped: Counter[str] = field(default_factory=Counter[str])
    reasons: Counter[str] = field(default_factory=Counter[str])
    moves: list[Document] = field(default_factory=list[Document])
    swept: int = 0
    archived: int = 0
    seconds: float = 0.0
    fenced: bool = False
    dry_run: bool = False

    def note(self, plan: Plan, size: int) -> None:
        """Count a move that was made, or would be."""
        self.moved[plan.path] += 1
        self.bytes += size
        self.reasons[plan.why] += 1
        if len(self.moves) < SHOWN_MAX:
            name = SessionName.from_key(plan.key)
            self.moves.append(
                {
                    "tenant": name.tenant,
                    "session": name.session,
                    "version": plan.version,
                    "path": plan.path,
                    "bytes": size,
                    "why": plan.why,
                }
            )

    def document(self) -> Document:
        """Return it in the shape of design §13."""
        return {
            "moved": dict(self.moved),
            "bytes": self.bytes,
            "skipped": sum(self.skipped.values()),
            "skipped_why": dict(self.skipped),
            "moved_why": dict(self.reasons),
            "moves": self.moves,
            "swept": self.swept,
            "archived": self.archived,
            "seconds": round(self.seconds, 3),
            "fenced": self.fenced,
            "dry_run": self.dry_run,
        }
