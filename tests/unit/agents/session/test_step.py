"""An erase may name the life and the version that it is meant for."""

from typing import Any

import msgspec
import pytest

from turnstate.agents.ports import Record
from turnstate.agents.session.rebuild import refolder
from turnstate.agents.session.step import Answer
from turnstate.schemas.admission import Verdict
from turnstate.schemas.dialogue.phases import default_graph
from turnstate.schemas.ids import SessionName
from turnstate.schemas.position import Position
from turnstate.storage.repair import OneSession
from turnstate.streams.clock import VirtualClock

KEY = SessionName("t", "s").key()


class Lives:
    """One session, and what is said in it."""

    def __init__(self) -> None:
        self.session = OneSession(KEY)
        self.agent = refolder(self.session, default_graph(), "log", VirtualClock(1))
        self.offset = 0

    def say(self, **fields: Any) -> Answer:
        """Fold one turn, or operation."""
        self.offset += 1
        raw = msgspec.json.encode(
            {"tenant": "t", "session": "s", "role": "user", **fields}
        )
        record = Record(raw, Position(b"log", 0, self.offset))
        folded = self.agent.fold([record])
        self.session.commit(folded.changes)
        return folded.answers[0]

    def stands(self) -> tuple[int, int]:
        """Return life and version."""
        assert self.session.stored is not None
        head = self.session.stored.head
        return head.incarnation, head.version


@pytest.mark.parametrize("version", [None, 2])
def test_an_erase_of_where_it_stands_ends_the_life(version: int | None) -> None:
    lives = Lives()
    lives.say(content="one")
    lives.say(content="two")
    answer = lives.say(op="erase", incarnation=1, if_version=version)
    assert answer.verdict is Verdict.ACCEPTED
    assert lives.stands() == (2, 0)


def test_a_session_that_went_on_is_not_erased() -> None:
    lives = Lives()
    lives.say(content="one")
    lives.say(content="two")
    answer = lives.say(op="erase", incarnation=1, if_version=1)
    assert answer.error is not None
    assert answer.error.code == "version_conflict"
    assert lives.stands() == (1, 2)


def test_an_erase_that_comes_again_does_not_end_the_next_life() -> None:
    lives = Lives()
    lives.say(content="one")
    erase = {"op": "erase", "incarnation": 1, "if_version": 1}
    assert lives.say(**erase).verdict is Verdict.ACCEPTED
    lives.say(content="again")
    assert lives.say(**erase).verdict is Verdict.DUPLICATE
    assert lives.stands() == (2, 1)
