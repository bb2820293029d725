"""The names under which a log stamped: looked up by offset, kept across restores."""

import pytest

from turnstate.schemas.errors import CorruptDataError, InvalidInputError
from turnstate.storage.log_names import (
    LogNames,
    decode_log_names,
    encode_log_names,
    restored_name,
)


def test_each_offset_has_the_name_of_its_time() -> None:
    names = LogNames.always("log").renamed(10, "log~a").renamed(20, "log~b")
    found = [names.at(offset) for offset in (0, 9, 10, 19, 20, 1000)]
    assert found == ["log", "log", "log~a", "log~a", "log~b", "log~b"]
    assert names.current == "log~b"


def test_a_store_restored_twice_at_one_offset_has_the_last_name() -> None:
    names = LogNames.always("log").renamed(10, "log~a").renamed(10, "log~b")
    assert [names.at(offset) for offset in (9, 10)] == ["log", "log~b"]
    assert decode_log_names(encode_log_names(names), "other") == names


def test_an_empty_log_that_is_restored_stamps_all_under_the_new_name() -> None:
    names = LogNames.always("log").renamed(0, "log~a")
    assert names.at(0) == names.current == "log~a"


@pytest.mark.parametrize(
    "row",
    [
        b"",
        b"\xc1",
        encode_log_names(LogNames(())),
        encode_log_names(LogNames(((3, "a"),))),
    ],
)
def test_names_that_cannot_be_are_damage(row: bytes) -> None:
    with pytest.raises(CorruptDataError):
        decode_log_names(row, "log")


def test_names_out_of_order_are_damage() -> None:
    row = encode_log_names(LogNames(((0, "a"), (9, "b"), (7, "c"))))
    with pytest.raises(CorruptDataError):
        decode_log_names(row, "log")


def test_a_name_that_grows_too_long_is_refused() -> None:
    with pytest.raises(InvalidInputError) as refused:
        restored_name("x" * 512, "12")
    assert refused.value.field == "log_name"
