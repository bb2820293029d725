"""Build turns by hand, of values that no type checker would let through, too."""

from typing import Any

import pytest
from msgspec import UNSET

from turnstate.schemas.draft import Draft, draft_from_turn
from turnstate.schemas.errors import InvalidInputError
from turnstate.schemas.operation import MAIN, Op
from turnstate.schemas.turn import Slots, Stamp, Tags, Turn


def turn(**fields: Any) -> Turn:
    """Return a turn with the fields that it needs, and those that are given."""
    built: dict[str, Any] = {"tenant": "t", "session": "s", "role": "user"} | fields
    return Turn(**built)


def slots(*parts: Any) -> Slots:
    """Return slots of parts of any type."""
    return Slots(*parts)


def tags(*parts: Any) -> Tags:
    """Return tags of parts of any type."""
    return Tags(*parts)


def stamp_of(*parts: Any) -> Stamp:
    """Return a stamp of parts of any type."""
    return Stamp(*parts)


def draft(**fields: Any) -> Draft:
    """Return the draft of a turn with these fields."""
    return draft_from_turn(turn(**fields))


def refused(**fields: Any) -> InvalidInputError:
    """Return how a turn with these fields is refused."""
    with pytest.raises(InvalidInputError) as caught:
        draft(**fields)
    assert caught.value.hint
    return caught.value


def stamped(given: Draft) -> Op:
    """Return the operation that a stamped draft is."""
    assert given.stamp is not None
    assert given.parents is not UNSET
    return Op.stamped(
        given.body,
        given.body_bytes,
        dot=given.stamp.dot,
        lamport=given.stamp.lamport,
        seen=given.stamp.seen,
        incarnation=given.stamp.incarnation,
        parents=given.parents,
        branch=given.branch or MAIN,
        turn_id=given.turn_id,
        time=given.time,
        content_hash=given.content_hash,
    )
