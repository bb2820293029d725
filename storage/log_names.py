"""Under which name a log stamped from which offset on: restores change it."""

from typing import Final, NamedTuple

import msgspec

from turnstate.schemas.errors import CorruptDataError
from turnstate.schemas.ids import checked_id

LOG_NAMES_KEY: Final = b"log_names"
"""The row of the table META that holds them; there is none before a restore."""

SUFFIX_SIGN: Final = "~"
"""Between the name that is set and what a restore adds to it."""


class LogNames(NamedTuple):
    """The names under which a log stamped, in order.

    A store that was restored from an old backup must not use a dot again that
    it had given to a turn since: from the restore on it stamps under another
    name. What lies in its log before that is folded again under the old one.

    Attributes:
        names: (first offset, name) in the order in which they were given; the
            first offset is 0. Of several at one offset the last one holds: the
            others were never used, and say which stores this one comes from.

    Example:
        >>> names = LogNames.always("log").renamed(7, "log~1f")
        >>> names.at(6), names.at(7), names.current
        ('log', 'log~1f', 'log~1f')
    """

    names: tuple[tuple[int, str], ...]

    @classmethod
    def always(cls, name: str) -> "LogNames":
        """Return the names of a log that never had but one."""
        return cls(((0, name),))

    @classmethod
    def of(cls, given: "str | LogNames") -> "LogNames":
        """Return names, made of a single one where that is given."""
        return given if isinstance(given, LogNames) else cls.always(given)

    @property
    def current(self) -> str:
        """Return the name under which the log stamps now."""
        return self.names[-1][1]

    def at(self, offset: int) -> str:
        """Return the name under which the record at an offset was stamped."""
        found = self.names[0][1]
        for first, name in self.names:
            if first > offset:
                break
            found = name
        return found

    def renamed(self, offset: int, name: str) -> "LogNames":
        """Return the names where from `offset` on another one holds."""
        kept = tuple(pair for pair in self.names if pair[0] <= offset)
        return LogNames((*kept, (offset, name)))


_Row = tuple[tuple[int, str], ...]

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Row).decode


def encode_log_names(names: LogNames) -> bytes:
    """Return the row of the table META."""
    return _encode(names.names)


def decode_log_names(row: bytes | None, name: str) -> LogNames:
    """Return the names that a store was given.

    Args:
        row: The row of the table META, None where there is none.
        name: The name that is set: the only one where there is no row.

    Raises:
        CorruptDataError: the row cannot be read.

    Example:
        >>> names = LogNames.always("log").renamed(7, "log~1f")
        >>> decode_log_names(encode_log_names(names), "log") == names
        True
    """
    if row is None:
        return LogNames.always(name)
    try:
        pairs = _decode(row)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDataError(f"the names of the log: {error}") from error
    offsets = [first for first, _ in pairs]
    if not pairs or offsets[0] != 0 or offsets != sorted(offsets):
        raise CorruptDataError("the names of the log are not in order")
    return LogNames(pairs)


def restored_name(name: str, suffix: str) -> str:
    """Return the name under which a restored store goes on.

    Args:
        name: The name that is set.
        suffix: What no other restore has, as twelve random hexadecimal digits.

    Raises:
        InvalidInputError: together they are too long.

    Example:
        >>> restored_name("eu", "1f00aa")
        'eu~1f00aa'
    """
    return checked_id(f"{name}{SUFFIX_SIGN}{suffix}", "log_name")
