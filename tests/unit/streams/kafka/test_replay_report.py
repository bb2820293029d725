"""A comparison lets a live state go on, and nothing else."""

from collections.abc import Iterable
from typing import Any

import pytest

from turnstate.replay.engine import FoldedSession
from turnstate.schemas.errors import NotFoundError
from turnstate.schemas.ids import SessionName
from turnstate.streams.kafka.partitioning import partition_of
from turnstate.streams.kafka.replay_range import Span
from turnstate.streams.kafka.replay_report import Comparison, TopicReport

NAME = SessionName("t", "s")
KEY = NAME.key()
PARTITIONS = 4
HERE = partition_of(KEY, PARTITIONS)
DIGESTS = {version: bytes([version]) * 32 for version in range(1, 4)}


class Versions:
    """One session at any version up to its newest; `other` has another digest."""

    def __init__(self, newest: int, other: int | None = None) -> None:
        self.newest = newest
        self.other = other

    def digest(self, version: int) -> str:
        return ("ff" * 32) if version == self.other else DIGESTS[version].hex()

    def sessions(self) -> Iterable[dict[str, Any]]:
        if self.newest:
            told = {"version": self.newest, "digest": self.digest(self.newest)}
            yield {"tenant": "t", "session": "s", **told}

    def state(
        self, tenant: str, session: str, *, version: int | None = None
    ) -> dict[str, Any]:
        at = version or self.newest
        if not 1 <= at <= self.newest:
            raise NotFoundError("there is no such version", field="version")
        slots = {"room": "else"} if at == self.other else {}
        return {
            "version": at,
            "slots": slots,
            "tier": "hot",
            "digest": self.digest(at),
        }


def report(mine: int, live: Versions, ahead: frozenset[int], **how: Any) -> TopicReport:
    found = TopicReport(topic="turns", spans={0: Span(0, 0, 9)})
    sessions = {KEY: FoldedSession(DIGESTS[mine], 1, mine)} if mine else {}
    Comparison(
        Versions(mine), live, partitions=PARTITIONS, ahead=ahead, **how
    ).into(found, sessions)
    return found


AHEAD = frozenset({HERE})
ELSEWHERE = frozenset(range(PARTITIONS)) - AHEAD


@pytest.mark.parametrize(
    ("mine", "live", "ahead", "field"),
    [
        (2, Versions(2), ELSEWHERE, None),
        (2, Versions(3), AHEAD, None),
        (2, Versions(3), ELSEWHERE, "version"),
        (2, Versions(3, other=2), AHEAD, "slots.room"),
        (2, Versions(2, other=2), AHEAD, "slots.room"),
        (3, Versions(2), AHEAD, "version"),
    ],
)
def test_a_session_is_equal_or_says_where_it_is_not(
    mine: int, live: Versions, ahead: frozenset[int], field: str | None
) -> None:
    found = report(mine, live, ahead)

    assert found.equal == (field is None)
    assert [row.field for row in found.different] == ([] if field is None else [field])
    assert not found.missing
    assert found.sessions == 1


def test_a_session_that_one_side_lacks_is_missing() -> None:
    assert [row.side for row in report(2, Versions(0), AHEAD).missing] == ["against"]
    assert [row.side for row in report(0, Versions(2), ELSEWHERE).missing] == ["replay"]
    assert report(0, Versions(2), AHEAD).holds, "it may have begun after the range"


def test_sessions_that_a_range_has_not_touched_are_left_out() -> None:
    for mine, live in ((2, Versions(3)), (2, Versions(0)), (0, Versions(2))):
        found = report(mine, live, ELSEWHERE, touched=frozenset())
        assert found.holds
        assert found.sessions == 0


def test_the_text_names_the_range_and_what_was_refused() -> None:
    text = TopicReport(
        topic="eu.turns",
        spans={0: Span(0, 2, 9), 1: Span(0, 0, 1_000)},
        refused={"pack": 1, "wrong_key": 2},
        recorded={"operations": 7, "file": "a.tsrec"},
        group="next",
    ).as_text()

    assert "topic eu.turns, 2 partitions" in text
    assert "partition 1: offsets 0 to 1,000" in text
    assert "refused 3 (pack 1, wrong_key 2)" in text
    assert "recorded 7 operations in a.tsrec" in text
    assert "folded by group next" in text
