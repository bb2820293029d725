"""Compare what a topic folded to with a live state, and say what was found."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from turnstate.replay.divergence import first_difference
from turnstate.replay.engine import FoldedSession
from turnstate.replay.report import ReplayReport
from turnstate.schemas.errors import NotFoundError
from turnstate.schemas.ids import SessionName
from turnstate.streams.documents import Document
from turnstate.streams.kafka.partitioning import partition_of
from turnstate.streams.kafka.replay_range import Span
from turnstate.streams.kafka.replaying import FoldedTopic

_NOT_STATE: Final = frozenset({"tier", "digest", "reflects"})
"""Fields of a state document that tell where it lies, or only that it differs."""


class States(Protocol):
    """Who can tell the states of sessions: stores, or the workers of a cluster."""

    def sessions(self) -> Iterable[Document]:
        """Return a row for each session, with version and digest."""
        ...

    def state(
        self, tenant: str, session: str, *, version: int | None = None
    ) -> Document:
        """Return the state of a session at a version.

        Raises:
            NotFoundError: no such session or version.
        """
        ...


@dataclass
class TopicReport(ReplayReport):
    """A replay's report, with what it read of the topic.

    Attributes:
        topic: Its name.
        spans: Partition → what was folded of it.
        refused: Reason → how many turns were refused.
        cpu_s: Processor time of the fold.

    Example:
        >>> report = TopicReport(topic="turns", spans={0: Span(0, 2, 9)})
        >>> report.as_json()["from"], report.as_json()["to"]
        ({'0': 2}, {'0': 9})
    """

    topic: str = ""
    spans: Mapping[int, Span] = field(default_factory=dict[int, Span])
    refused: Mapping[str, int] = field(default_factory=dict[str, int])
    cpu_s: float = 0.0
    recorded: Document | None = None
    group: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the report in the shape of design §13, and the topic's part."""
        return {
            **super().as_json(),
            "topic": self.topic,
            "partitions": len(self.spans),
            "from": {str(each): span.start for each, span in self.spans.items()},
            "to": {str(each): span.end for each, span in self.spans.items()},
            "refused": dict(self.refused),
            "cpu_us_a_turn": self.cpu_us_a_turn,
            "recorded": self.recorded,
            "group": self.group,
        }

    @property
    def cpu_us_a_turn(self) -> float | None:
        """Return the processor time a turn; None where none was measured."""
        if not self.turns or not self.cpu_s:
            return None
        return round(1e6 * self.cpu_s / self.turns, 1)

    def as_text(self) -> str:
        """Return the report for a reader."""
        reasons = ", ".join(f"{name} {count:,}" for name, count in self.refused.items())
        lines = [
            f"topic {self.topic}, {len(self.spans)} partitions",
            *(
                f"partition {each}: offsets {span.start:,} to {span.end:,}"
                for each, span in self.spans.items()
            ),
            f"refused {sum(self.refused.values()):,}"
            + (f" ({reasons})" if reasons else ""),
        ]
        if self.recorded is not None:
            lines.append(
                f"recorded {self.recorded['operations']:,} operations"
                f" in {self.recorded['file']}"
            )
        if self.group is not None:
            lines.append(f"folded by group {self.group}")
        return "\n".join([super().as_text(), *lines])


def report_of(folded: FoldedTopic, topic: str) -> TopicReport:
    """Return the report of a fold; nothing has been compared."""
    return TopicReport(
        turns=folded.turns,
        seconds=folded.seconds,
        topic=topic,
        spans=folded.plan.spans,
        refused=folded.refused,
        cpu_s=folded.cpu_s,
    )


class Comparison:
    """Compare folded sessions with a live state, session by session.

    The live state may have gone on since the range ended, so a session that
    has more versions there is compared at the version that it has here. That
    is let pass only in partitions whose log goes on behind the range: in any
    other the live state would have turns that the log has not.

    Args:
        mine: Tells the states that were folded.
        live: Tells the live ones.
        partitions: How many the topic has.
        ahead: The partitions whose log goes on behind the range.
        touched: Compare these sessions alone: the range leaves out the others,
            whose turns it has not; None = all.
    """

    def __init__(
        self,
        mine: States,
        live: States,
        *,
        partitions: int,
        ahead: frozenset[int],
        touched: frozenset[bytes] | None = None,
    ) -> None:
        self._mine = mine
        self._live = live
        self._partitions = partitions
        self._ahead = ahead
        self._touched = touched

    def into(
        self, report: ReplayReport, sessions: Mapping[bytes, FoldedSession]
    ) -> None:
        """Add what is equal, different or missing to a report."""
        stored = {
            SessionName(row["tenant"], row["session"]): row
            for row in self._live.sessions()
        }
        for key, session in sessions.items():
            name = SessionName.from_key(key)
            row = stored.pop(name, None)
            if self._touched is not None and key not in self._touched:
                continue
            if row is None:
                report.add_missing(name, "against")
            else:
                report.add(name, self._difference(name, session, row))
        for name in stored:
            if self._touched is None and not self._may_go_on(name):
                report.add_missing(name, "replay")

    def _may_go_on(self, name: SessionName) -> bool:
        return partition_of(name.key(), self._partitions) in self._ahead

    def _difference(
        self, name: SessionName, session: FoldedSession, row: Document
    ) -> str | None:
        """Return the field in which a session differs, None where in none."""
        wanted = session.digest.hex()
        if row["digest"] == wanted:
            return None
        version = None
        if row["version"] > session.operations and self._may_go_on(name):
            version = session.operations
        try:
            theirs = self._live.state(*name, version=version)
            if theirs["digest"] == wanted:
                return None
            ours = self._mine.state(*name)
        except NotFoundError:
            return "version"  # erased in between
        return first_difference(_state(ours), _state(theirs)) or "digest"


def _state(document: Document) -> Document:
    return {name: value for name, value in document.items() if name not in _NOT_STATE}
