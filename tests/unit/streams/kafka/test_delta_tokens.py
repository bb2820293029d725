"""Tokens of the feed name a place, and nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstate.schemas.errors import InvalidInputError
from turnstate.streams.embedded.events import Place
from turnstate.streams.kafka.delta_tokens import (
    Reached,
    log_token,
    read_log_token,
    read_session_token,
    session_token,
)

LOG = bytes(range(16))

counts = st.integers(0, 1 << 40)


@given(st.lists(st.builds(Reached, counts, st.integers(0, 9_999)), min_size=1))
def test_a_token_of_all_comes_back(reached: list[Reached]) -> None:
    vector = dict(enumerate(reached))
    assert vector == read_log_token(log_token(vector, LOG), LOG, len(vector))


@given(counts, counts, counts)
def test_a_token_of_a_session_comes_back(
    incarnation: int, version: int, offset: int
) -> None:
    token = session_token(Place(incarnation, version), LOG, offset)
    assert (Place(incarnation, version), offset) == read_session_token(token, LOG)


def test_a_session_is_resumed_by_version_where_the_topic_is_another() -> None:
    token = session_token(Place(1, 7), LOG, 12)
    assert read_session_token(token, bytes(16)) == (Place(1, 7), None)
    assert read_session_token("1-7", LOG) == (Place(1, 7), None)
    assert read_session_token("0", LOG) == (Place(0, 0), None)


def test_the_beginning_of_all_is_every_beginning() -> None:
    assert read_log_token("0", LOG, 2) == {0: Reached(0), 1: Reached(0)}


@pytest.mark.parametrize(
    "token",
    ["", "1", "x", "00010203@", "00010203@0", "00010203@2:1", "00010203@0:1,", "1-7"],
)
def test_what_is_no_token_of_all_is_named(token: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_log_token(token, LOG, 2)
    assert caught.value.field == "token"


def test_a_token_of_another_topic_is_refused() -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_log_token(log_token({0: Reached(1)}, LOG), bytes(16), 1)
    assert caught.value.code == "other_log"


@pytest.mark.parametrize("token", ["", "1-", "1-7@", "1-7@zz:1", "-1-7"])
def test_what_is_no_token_of_a_session_is_named(token: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_session_token(token, LOG)
    assert caught.value.field == "token"
