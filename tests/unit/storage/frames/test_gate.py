"""The entropy gate: dialogue is written as a delta, packed bytes in full."""

import base64
from random import Random

import pytest

from turnstate.storage.frames.gate import byte_entropy, is_delta, novelty

CHANCE = Random(7)
PACKED = CHANCE.randbytes(5_000)
TEXT = ("I would like to book a table for two people, please. " * 40).encode()
CHINESE = ("你好麻烦帮我推荐一个评分在4分以上的酒店谢谢" * 40).encode()


def test_entropy_runs_from_nothing_to_chance() -> None:
    assert byte_entropy(b"") == byte_entropy(b"a") == byte_entropy(b"a" * 9_999) == 0.0
    assert 0.4 < byte_entropy(TEXT) < 0.87
    assert 0.4 < byte_entropy(CHINESE) < 0.87
    assert byte_entropy(base64.b64encode(PACKED)) < 0.87
    assert byte_entropy(PACKED) > 0.87


@pytest.mark.parametrize("length", [127, 128, 129, 255, 256, 257, 513, 100_000])
def test_entropy_is_one_number_at_any_length(length: int) -> None:
    assert 0.85 < byte_entropy(CHANCE.randbytes(length)) <= 1.0


def test_what_is_equal_is_no_news() -> None:
    assert novelty(TEXT, TEXT) == 0.0
    assert novelty(b"", TEXT) == 0.0
    assert novelty(PACKED + b"new" + PACKED, PACKED + b"old one" + PACKED) < 0.01
    assert novelty(PACKED, b"") > 0.8


def test_dialogue_is_a_delta_and_chance_is_not() -> None:
    assert is_delta(TEXT, b"before")
    assert is_delta(CHINESE, b"before")
    assert not is_delta(PACKED, b"before")


def test_a_state_that_hardly_changed_is_a_delta_whatever_its_bytes() -> None:
    assert is_delta(PACKED[:-9] + b"something", PACKED)


def test_little_is_a_delta_wherever_there_is_something_before() -> None:
    assert is_delta(PACKED[:100], b"before")
    assert not is_delta(PACKED[:100], b"")
    assert not is_delta(TEXT, b"")
