"""Histories of use: bursts count once, memory is bounded, bytes come back."""

import pytest

from turnstate.schemas.errors import CorruptDataError
from turnstate.storage.access import (
    BURST_FACTOR,
    CORRELATED_MS,
    INFINITE_MS,
    NO_ACCESSES,
    Accesses,
    AccessHistory,
    backward_distance_ms,
    decode_accesses,
    encode_accesses,
    touched,
    uses_within,
)

MINUTE_MS = 60_000


def test_the_distance_is_that_of_the_third_last_use() -> None:
    history = AccessHistory(10)
    for minute in (1, 4, 9, 11):
        history.touch(b"k", minute * MINUTE_MS)

    assert history.distance_ms(b"k", 20 * MINUTE_MS) == 16 * MINUTE_MS
    assert history.get(b"k").times_ms == (
        11 * MINUTE_MS,
        9 * MINUTE_MS,
        4 * MINUTE_MS,
    )


def test_fewer_uses_than_k_are_infinitely_far() -> None:
    history = AccessHistory(10)
    history.touch(b"k", 0)
    history.touch(b"k", MINUTE_MS)

    assert history.distance_ms(b"k", 2 * MINUTE_MS) == INFINITE_MS
    assert history.distance_ms(b"never", 2 * MINUTE_MS) == INFINITE_MS


def test_a_burst_counts_once() -> None:
    """Ten uses within seconds of one another are one."""
    seen = NO_ACCESSES
    for second in range(10):
        seen = touched(seen, second * 1_000)

    assert seen == Accesses((0,), 9_000)


def test_the_time_that_a_burst_took_does_not_make_older_uses_older() -> None:
    seen = touched(NO_ACCESSES, 0)
    seen = touched(touched(seen, 100_000), 104_000)
    seen = touched(seen, 200_000)

    assert seen.times_ms == (200_000, 104_000, 4_000)


def test_use_without_a_pause_counts_again_after_a_minute() -> None:
    """What is used most of all is not one burst for ever."""
    seen = NO_ACCESSES
    for second in range(1_000):
        seen = touched(seen, second * 1_000)

    assert len(seen.times_ms) == 3
    limit_ms = 4 * BURST_FACTOR * CORRELATED_MS
    assert backward_distance_ms(seen, 1_000_000) < limit_ms


def test_a_clock_that_steps_back_changes_nothing() -> None:
    seen = touched(NO_ACCESSES, 1_000_000)

    assert touched(seen, 5) == seen


def test_scans_leave_no_trace() -> None:
    history = AccessHistory(10)
    for minute in range(5):
        history.touch(b"k", minute * MINUTE_MS, counts=False)

    assert len(history) == 0
    assert history.get(b"k") == NO_ACCESSES


def test_memory_is_bounded_by_what_was_used_last() -> None:
    history = AccessHistory(2)
    history.touch(b"a", 1)
    history.touch(b"b", 2)
    history.touch(b"a", 3 + MINUTE_MS)
    history.touch(b"c", 4 + MINUTE_MS)

    assert len(history) == 2
    assert history.get(b"b") == NO_ACCESSES
    assert len(history.get(b"a").times_ms) == 2


def test_a_history_that_is_taken_is_gone() -> None:
    history = AccessHistory(2)
    history.touch(b"a", 1)

    assert history.take(b"a") == Accesses((1,), 1)
    assert history.take(b"a") == NO_ACCESSES


def test_uses_within_a_window_leave_out_its_far_end() -> None:
    seen = Accesses((90, 50, 20), 95)

    assert [uses_within(seen, 100, window) for window in (10, 11, 50, 51, 81)] == [
        0,
        1,
        1,
        2,
        3,
    ]


@pytest.mark.parametrize(
    "seen",
    [
        NO_ACCESSES,
        Accesses((7,), 9),
        Accesses((1_700_000_300_000, 1_700_000_200_000, 0), 1_700_000_301_000),
    ],
)
def test_bytes_come_back(seen: Accesses) -> None:
    data = encode_accesses(seen)

    assert decode_accesses(data) == seen
    assert len(data) <= 28


@pytest.mark.parametrize(
    "data", [b"", b"\x90", b"\x92\x05\xff", b"\xa3abc", b"\xff" * 9, b"\x91\xc3"]
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        decode_accesses(data)
