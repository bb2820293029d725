"""No two sessions share a key of Redis, and all keys of one lie in one slot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from turnstate.schemas.ids import SessionName
from turnstate.storage.hot.redis_keys import keys_of, named_by, scan_pattern

sessions = st.binary(min_size=1, max_size=40)


@given(one=sessions, other=sessions)
def test_keys_tell_the_session_and_no_other(one: bytes, other: bytes) -> None:
    mine, theirs = keys_of("ts", one), keys_of("ts", other)

    assert bool(set(mine) & set(theirs)) == (one == other)
    named = [named_by("ts", name) for name in mine]
    assert [each and (each.session, each.part) for each in named] == [
        (one, "h"),
        (one, "f"),
        (one, "t"),
    ]
    assert len({key_slot(name) for name in mine}) == 1


@pytest.mark.parametrize(
    "session", ["{}", "}", "{a}{b}", "*", "a:b", "[x]", "北京", "é"]
)
def test_ids_that_mean_something_to_redis_mean_nothing_there(session: str) -> None:
    names = keys_of("ts", SessionName("{t}", session).key())

    for name in names:
        assert name.count(b"{") == name.count(b"}") == 1
        assert not set(b"*?[]\\") & set(name)


def test_tenant_and_session_cannot_be_told_otherwise() -> None:
    pairs = [("a:b", "c"), ("a", "b:c"), ("a", ":bc"), ("a:", "bc")]

    keys = {keys_of("ts", SessionName(*pair).key()) for pair in pairs}

    assert len(keys) == len(pairs)


@given(session=sessions, length=st.integers(0, 40))
def test_a_pattern_finds_what_begins_so(session: bytes, length: int) -> None:
    pattern = scan_pattern("ts", "h", session[:length])

    begin, _, end = pattern.partition(b"*")
    name = keys_of("ts", session).head
    assert name.startswith(begin)
    assert name.endswith(end)


@pytest.mark.parametrize(
    "name",
    [
        b"ts:{AAF0cw}:x",
        b"ts:{AAF0cw}",
        b"ts:{A}:h",
        b"ts:{AAF0cx}:h",
        b"ts:{AAF0 cw}:h",
        b"other:{AAF0cw}:h",
        b"ts",
        b"",
    ],
)
def test_a_key_of_somebody_else_is_none_of_ours(name: bytes) -> None:
    assert named_by("ts", name) is None


def test_one_prefix_is_not_the_beginning_of_another() -> None:
    name = keys_of("ts", b"\0\1ts").head

    assert named_by("t", name) is None
    assert named_by("tst", name) is None
