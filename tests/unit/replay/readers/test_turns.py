"""Lines of turns are passed on as they are."""

import pytest

from turnstate.replay.readers.turns import turn_line
from turnstate.schemas.errors import InvalidInputError


def test_an_object_is_passed_on() -> None:
    assert turn_line(3, b'{"a": 1 }') == (b'{"a": 1 }',)


def test_anything_else_is_refused() -> None:
    with pytest.raises(InvalidInputError) as caught:
        turn_line(3, b"[]")

    assert caught.value.code == "not_json"
