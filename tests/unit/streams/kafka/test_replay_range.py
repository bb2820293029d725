"""Addresses and ranges of a replay: what they mean, and what cannot be meant."""

import pytest

from turnstate.schemas.errors import InvalidInputError, UnavailableError
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.replay_range import (
    Range,
    RangeWords,
    Span,
    source_of,
    spans_of,
)

SETTINGS = ClusterSettings(bootstrap="own:1", group="g", prefix="eu.")
BEGINS = {0: 0, 1: 0}
ENDS = {0: 10, 1: 20}


def spans(
    wanted: Range, *, whole: bool = False, **times: int | None
) -> dict[int, Span]:
    """Return the spans; `from_0=3` says where the first time begins in partition 0."""
    found: dict[str, dict[int, int | None]] = {"from": {}, "to": {}}
    for name, offset in times.items():
        which, _, number = name.partition("_")
        found[which][int(number)] = offset
    return spans_of(
        wanted,
        BEGINS,
        ENDS,
        from_times=found["from"],
        to_times=found["to"],
        whole=whole,
    )


@pytest.mark.parametrize(
    ("address", "bootstrap", "topic", "prefix"),
    [
        ("kafka:", "own:1", "eu.turns", "eu."),
        ("kafka:/us.turns", "own:1", "us.turns", "us."),
        ("kafka://a:1", "a:1", "eu.turns", "eu."),
        ("kafka://a:1/", "a:1", "eu.turns", "eu."),
        ("kafka://a:1,b:2/turns", "a:1,b:2", "turns", ""),
        ("kafka://[::1]:9092/turns", "[::1]:9092", "turns", ""),
        ("kafka://a:1/other", "a:1", "other", "eu."),
    ],
)
def test_an_address_names_brokers_and_a_topic(
    address: str, bootstrap: str, topic: str, prefix: str
) -> None:
    source = source_of(address, SETTINGS, RangeWords())

    assert (source.settings.bootstrap, source.topic) == (bootstrap, topic)
    assert source.settings.prefix == prefix
    assert source.settings.group == "g"
    assert source.words == RangeWords()


def test_parameters_stand_for_options() -> None:
    address = "kafka:?from=2024-05-01T12:00:00+02:00&to-offset=0:5,1:6"

    words = source_of(address, SETTINGS, RangeWords()).words

    assert words.from_time == "2024-05-01T12:00:00+02:00"
    assert words.parsed() == Range({}, {0: 5, 1: 6}, 1_714_557_600_000, None)


@pytest.mark.parametrize(
    "address",
    [
        "kafka://a/turns",
        "kafka://a:b/turns",
        "kafka://user:word@a:1/turns",
        "kafka://a:1/tur ns",
        "kafka://a:1/a/b",
        "kafka://a:1/turns#end",
        "kafka:?since=1",
        "kafka:?to=1&to=2",
        "kafka:?from=1",
        "kafka://[::1/turns",
        "kafkaesque",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        source_of(address, SETTINGS, RangeWords(from_time="5"))
    assert caught.value.field


def test_only_a_topic_of_turns_tells_the_names_of_its_cluster() -> None:
    source = source_of("kafka://a:1/other", SETTINGS, RangeWords())

    with pytest.raises(InvalidInputError) as caught:
        source.of_cluster("group")
    assert caught.value.field == "group"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1714557600000", 1_714_557_600_000),
        ("1970-01-01T00:00:00.25Z", 250),
        ("1970-01-01 01:00:00+01:00", 0),
    ],
)
def test_a_time_is_iso_or_milliseconds(text: str, expected: int) -> None:
    assert RangeWords(from_time=text).parsed().from_ms == expected


@pytest.mark.parametrize(
    "words",
    [
        RangeWords(from_time="2024-05-01T12:00:00"),
        RangeWords(from_time="-1"),
        RangeWords(from_time="1" * 17),
        RangeWords(from_time="\u0661"),
        RangeWords(from_time=""),
        RangeWords(to_time="1969-12-31T00:00:00Z"),
        RangeWords(to_time="2024-02-30T00:00:00Z"),
        RangeWords(from_time="6", to_time="5"),
        RangeWords(from_time="6", from_offset="0:1"),
        RangeWords(to_time="6", to_offset="0:1"),
        RangeWords(from_offset=""),
        RangeWords(from_offset="5"),
        RangeWords(from_offset="0:1,"),
        RangeWords(from_offset="0:1,0:2"),
        RangeWords(from_offset="0:-1"),
        RangeWords(to_offset="0:1:2"),
    ],
)
def test_what_is_no_range_is_refused(words: RangeWords) -> None:
    with pytest.raises(InvalidInputError) as caught:
        words.parsed()
    assert caught.value.field


def test_a_range_is_everything_unless_it_says_less() -> None:
    assert spans(Range()) == {0: Span(0, 0, 10), 1: Span(0, 0, 20)}
    assert spans(Range({1: 5}, {0: 7})) == {0: Span(0, 0, 7), 1: Span(5, 5, 20)}
    assert spans(Range({1: 20})) == {0: Span(0, 0, 10), 1: Span(20, 20, 20)}


def test_states_as_in_the_log_are_made_on_all_before_the_range() -> None:
    assert spans(Range({1: 5}), whole=True) == {0: Span(0, 0, 10), 1: Span(0, 5, 20)}


def test_times_are_offsets_and_after_all_is_the_end() -> None:
    wanted = Range(from_ms=1, to_ms=2)

    found = spans(wanted, from_0=4, from_1=None, to_0=8, to_1=None)

    assert found == {0: Span(4, 4, 8), 1: Span(20, 20, 20)}


@pytest.mark.parametrize(
    "wanted",
    [
        Range({2: 0}),
        Range({}, {2: 0}),
        Range({0: 11}),
        Range({}, {0: 11}),
        Range({0: 5}, {0: 4}),
    ],
)
def test_offsets_that_are_not_there_are_refused(wanted: Range) -> None:
    with pytest.raises(InvalidInputError) as caught:
        spans(wanted)
    assert caught.value.field in {"from-offset", "to-offset"}


@pytest.mark.parametrize(
    ("wanted", "whole"),
    [
        (Range(), False),
        (Range({0: 2}), False),
        (Range({0: 5}), True),
        (Range(from_ms=9), False),
    ],
)
def test_turns_that_were_deleted_are_named(wanted: Range, *, whole: bool) -> None:
    with pytest.raises(UnavailableError) as caught:
        spans_of(
            wanted,
            {0: 3},
            {0: 10},
            from_times={0: 3},
            to_times={},
            whole=whole,
        )
    assert caught.value.code == "turns_deleted"
    assert "partition 0 below 3" in caught.value.message


def test_a_range_above_what_was_deleted_is_whole() -> None:
    for wanted, times in ((Range({0: 3}), {}), (Range(from_ms=9), {0: 4})):
        found = spans_of(
            wanted, {0: 3}, {0: 10}, from_times=times, to_times={}, whole=False
        )
        assert found[0].end == 10
