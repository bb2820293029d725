"""What of a topic is replayed: its address, and a range of offsets or of times."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from turnstate.schemas.errors import InvalidInputError, UnavailableError
from turnstate.schemas.limits import COUNTER_MAX
from turnstate.streams.kafka.cluster_settings import ClusterSettings
from turnstate.streams.kafka.topics import Topics

SCHEME: Final = "kafka:"
"""What an address begins with; a file of such a name is `./kafka:…`."""

_TURNS: Final = Topics().turns

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PLACE: Final = re.compile(r"([0-9]{1,6}):([0-9]{1,18})")
_MILLISECONDS: Final = re.compile(r"[0-9]{1,16}")

# Option → the parameter of an address that stands for it.
_PARAMETERS: Final = {
    "from": "from_time",
    "to": "to_time",
    "from-offset": "from_offset",
    "to-offset": "to_offset",
}


@dataclass(frozen=True, slots=True)
class RangeWords:
    """A range as it was typed; None = not given.

    Attributes:
        from_offset: `P:N,…`, the first offset of each partition named.
        to_offset: `P:N,…`, the offset after the last.
        from_time: Turns that the brokers had at this time or later.
        to_time: Turns that the brokers had before this time.
    """

    from_offset: str | None = None
    to_offset: str | None = None
    from_time: str | None = None
    to_time: str | None = None

    def parsed(self) -> "Range":
        """Return what the words mean.

        Raises:
            InvalidInputError: one cannot be read, or two contradict.
        """
        for offset, time in (
            ("from_offset", "from_time"),
            ("to_offset", "to_time"),
        ):
            if getattr(self, offset) is not None and getattr(self, time) is not None:
                name = offset.split("_", maxsplit=1)[0]
                raise InvalidInputError(
                    f"--{name} and --{name}-offset are both given",
                    field=name,
                    hint="give one of them",
                )
        found = Range(
            from_offsets=_offsets(self.from_offset, "from-offset"),
            to_offsets=_offsets(self.to_offset, "to-offset"),
            from_ms=_time_ms(self.from_time, "from"),
            to_ms=_time_ms(self.to_time, "to"),
        )
        if (
            found.from_ms is not None
            and found.to_ms is not None
            and found.to_ms < found.from_ms
        ):
            raise InvalidInputError(
                f"--to {self.to_time} is before --from {self.from_time}",
                field="to",
                hint="the range goes from the earlier time to the later",
            )
        return found


class Range(NamedTuple):
    """Which records are wanted; by default all that are there.

    Attributes:
        from_offsets: Partition → first offset; others begin at the beginning.
        to_offsets: Partition → offset after the last; others end at the end
            that they have when the replay begins.
        from_ms: Epoch milliseconds of the first that is wanted.
        to_ms: Epoch milliseconds of the first that is wanted no more.
    """

    from_offsets: Mapping[int, int] = {}
    to_offsets: Mapping[int, int] = {}
    from_ms: int | None = None
    to_ms: int | None = None

    @property
    def has_beginning(self) -> bool:
        """Say whether it leaves out turns at the beginning of the log."""
        return bool(self.from_offsets) or self.from_ms is not None


class Span(NamedTuple):
    """The records of one partition that a replay folds.

    Attributes:
        first: The offset at which folding begins.
        start: The first offset of the range; what is folded before is what
            the states of the range are made on.
        end: The offset after the last.
    """

    first: int
    start: int
    end: int


class Source(NamedTuple):
    """Where turns are read.

    Attributes:
        settings: Of the cluster, as the address has it.
        topic: The topic of turns.
        words: The range.
    """

    settings: ClusterSettings
    topic: str
    words: RangeWords

    def of_cluster(self, field: str) -> ClusterSettings:
        """Return the settings, where they name the cluster that has the topic.

        Args:
            field: The option that needs more than the topic.

        Raises:
            InvalidInputError: the topic is called otherwise, so that nobody
                knows the names of its cluster's others.
        """
        if Topics.of(self.settings).turns != self.topic:
            raise InvalidInputError(
                f"the topic {self.topic!r} is no cluster's topic of turns",
                field=field,
                hint=f"its name has to end in {_TURNS}",
            )
        return self.settings


def source_of(address: str, settings: ClusterSettings, words: RangeWords) -> Source:
    """Return what an address names.

    `kafka:` is the topic of turns of the cluster of the settings;
    `kafka://HOST:PORT[,HOST:PORT…]/TOPIC` is any. Both take
    `?from=…&to=…&from-offset=…&to-offset=…` in the place of the options. What
    the settings say of security and of the group holds for any address; what
    stands before `turns` is the prefix of all topics.

    Args:
        address: Begins with `kafka:`.
        settings: Of the cluster.
        words: The range that options gave.

    Raises:
        InvalidInputError: the address cannot be read, or gives again what an
            option gave.

    Example:
        >>> given = source_of(
        ...     "kafka://a:1,b:2/eu.turns?to=5", ClusterSettings(), RangeWords()
        ... )
        >>> given.settings.bootstrap, given.topic, given.words.to_time
        ('a:1,b:2', 'eu.turns', '5')
        >>> source_of("kafka:", ClusterSettings(prefix="eu."), RangeWords()).topic
        'eu.turns'
    """
    try:
        parts = urlsplit(address)
    except ValueError as error:  # brackets of an IPv6 address that do not close
        raise _no_address(address) from error
    topic = unquote(parts.path).removeprefix("/") or Topics.of(settings).turns
    if not address.startswith(SCHEME) or parts.fragment or not _TOPIC.fullmatch(topic):
        raise _no_address(address)
    if topic.endswith(_TURNS):
        settings = replace(settings, prefix=topic.removesuffix(_TURNS))
    if parts.netloc:
        if "@" in parts.netloc:
            raise InvalidInputError(
                "the address holds a user name or a password",
                field="recording",
                hint="name the variables that hold them in cluster.toml",
            )
        settings = replace(settings, bootstrap=parts.netloc)
    given: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        field = _PARAMETERS.get(name)
        if field is None:
            raise InvalidInputError(
                f"the address has {name!r}, which is no parameter",
                field="recording",
                hint=f"one of {', '.join(_PARAMETERS)}",
            )
        if field in given or getattr(words, field) is not None:
            raise InvalidInputError(
                f"{name} is given twice", field=name, hint="give it once"
            )
        # A plus of an offset from UTC was typed, not a space.
        given[field] = value.replace(" ", "+")
    return Source(settings, topic, replace(words, **given))


def spans_of(
    wanted: Range,
    begins: Mapping[int, int],
    ends: Mapping[int, int],
    *,
    from_times: Mapping[int, int | None],
    to_times: Mapping[int, int | None],
    whole: bool,
) -> dict[int, Span]:
    """Return what is folded of each partition.

    Args:
        wanted: The range.
        begins: Partition → the first offset that the log still has.
        ends: Partition → the offset after its last.
        from_times: Partition → the first offset of the range's first time or
            later, None = there is none.
        to_times: Likewise of its last time.
        whole: Whether the states of the range are wanted as they are in the
            log: what lies before the range is then folded, too.

    Raises:
        InvalidInputError: a partition or an offset is not there.
        UnavailableError: turns of the range, or those that its states are made
            on, were deleted from the log (code `turns_deleted`).

    Example:
        >>> spans_of(Range(from_offsets={0: 3}), {0: 0}, {0: 9},
        ...          from_times={}, to_times={}, whole=True)
        {0: Span(first=0, start=3, end=9)}
    """
    _check_known(wanted, ends)
    spans: dict[int, Span] = {}
    gone: dict[int, int] = {}
    for number, end in sorted(ends.items()):
        begin = begins[number]
        start = wanted.from_offsets.get(number, 0)
        if wanted.from_ms is not None:
            found = from_times.get(number)
            start = end if found is None else found
        stop = wanted.to_offsets.get(number, end)
        if wanted.to_ms is not None:
            found = to_times.get(number)
            stop = end if found is None else found
        _check_order(number, start, stop, end)
        # Of a time before all that is kept nobody knows what was there.
        by_time = wanted.from_ms is not None and start <= begin
        first = 0 if whole else start
        if begin > first or (by_time and begin > 0):
            gone[number] = begin
        spans[number] = Span(first, start, max(start, stop))
    if gone:
        raise _deleted(gone)
    return spans


def _check_known(wanted: Range, ends: Mapping[int, int]) -> None:
    for name, offsets in (
        ("from-offset", wanted.from_offsets),
        ("to-offset", wanted.to_offsets),
    ):
        for number in offsets:
            if number not in ends:
                raise InvalidInputError(
                    f"--{name} names partition {number}, which the topic has not",
                    field=name,
                    hint=f"it has 0 to {len(ends) - 1}",
                )


def _check_order(number: int, start: int, stop: int, end: int) -> None:
    for name, offset in (("from-offset", start), ("to-offset", stop)):
        if offset > end:
            raise InvalidInputError(
                f"--{name} {number}:{offset} is above the end of the log, {end}",
                field=name,
                hint="name an offset that is there",
            )
    if stop < start:
        raise InvalidInputError(
            f"the range of partition {number} ends at {stop}, before its beginning"
            f" at {start}",
            field="to-offset",
            hint="name a later end",
        )


def deleted_hint(begins: Mapping[int, int]) -> str:
    """Return what to type so that a replay begins where the log does."""
    places = ",".join(f"{number}:{at}" for number, at in sorted(begins.items()))
    return (
        f"without --against, --from-offset {places} folds what is left; a backup or"
        " an older recording has the rest"
    )


def _deleted(gone: Mapping[int, int]) -> UnavailableError:
    told = ", ".join(f"partition {each} below {at}" for each, at in gone.items())
    return UnavailableError(
        f"turns were deleted from the log: {told}",
        field="from-offset",
        hint=deleted_hint(gone),
        code="turns_deleted",
    )


def _offsets(text: str | None, name: str) -> dict[int, int]:
    """Return the offsets of `P:N,P:N`.

    Example:
        >>> _offsets("0:5, 12:0", "from-offset")
        {0: 5, 12: 0}
    """
    if text is None:
        return {}
    offsets: dict[int, int] = {}
    for place in text.split(","):
        found = _PLACE.fullmatch(place.strip())
        if found is None or int(found[1]) in offsets:
            raise InvalidInputError(
                f"--{name} is {text!r}",
                field=name,
                hint="PARTITION:OFFSET, commas between, each partition once",
            )
        offsets[int(found[1])] = int(found[2])
    return offsets


def _time_ms(text: str | None, name: str) -> int | None:
    """Return epoch milliseconds of a time.

    Example:
        >>> _time_ms("2024-05-01T12:00:00+02:00", "from")
        1714557600000
        >>> _time_ms("1714557600000", "from")
        1714557600000
    """
    if text is None:
        return None
    if _MILLISECONDS.fullmatch(text) and int(text) <= COUNTER_MAX:
        return int(text)
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is not None and time.timestamp() >= 0:
            return round(time.timestamp() * 1000)
    except (ValueError, OverflowError):
        pass  # a day or an hour that there is not
    raise InvalidInputError(
        f"--{name} is {text!r}",
        field=name,
        hint="2024-05-01T12:00:00+02:00, or milliseconds since 1970",
    )


def _no_address(address: str) -> InvalidInputError:
    return InvalidInputError(
        f"{address!r} is no address of a topic",
        field="recording",
        hint="kafka: or kafka://HOST:PORT/TOPIC?from=TIME&to=TIME",
    )
