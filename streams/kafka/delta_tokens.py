"""Tokens of the feed: how far a subscriber of `deltas` has come."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from turnstate.schemas.errors import InvalidInputError
from turnstate.streams.embedded.events import START, Place, session_place

_LOG_LETTERS: Final = 8
_SESSION: Final = re.compile(r"(\d+-\d+)@([0-9a-f]{8}):(\d{1,18})", re.ASCII)
_ALL: Final = re.compile(r"([0-9a-f]{8})@([0-9:.,]+)", re.ASCII)
_ENTRY: Final = re.compile(r"(\d{1,9}):(\d{1,18})(?:\.(\d{1,9}))?", re.ASCII)


class Reached(NamedTuple):
    """How far a partition was read.

    Attributes:
        offset: The record to go on with.
        done: Operations of its frame that were told already.
    """

    offset: int
    done: int = 0


def session_token(place: Place, log: bytes, offset: int) -> str:
    """Return the token after an event of one session.

    It names the record that held it: what is read again is known by version.

    Example:
        >>> session_token(Place(1, 7), bytes(16), 12)
        '1-7@00000000:12'
    """
    return f"{place.token()}@{log.hex()[:_LOG_LETTERS]}:{offset}"


def read_session_token(token: str, log: bytes) -> tuple[Place, int | None]:
    """Return the place that a token names, and the record to begin at.

    A token of the embedded feed (`1-7`) is read too, from the beginning of what
    is kept, as is one of another topic `deltas`: versions are the session's.

    Raises:
        InvalidInputError: it is none.

    Example:
        >>> read_session_token("1-7@00000000:12", bytes(16))
        (Place(incarnation=1, version=7), 12)
        >>> read_session_token("1-7", bytes(16))
        (Place(incarnation=1, version=7), None)
    """
    match = _SESSION.fullmatch(token)
    if match is None:
        return session_place(token), None
    ours = match[2] == log.hex()[:_LOG_LETTERS]
    return session_place(match[1]), int(match[3]) if ours else None


def log_token(reached: Mapping[int, Reached], log: bytes) -> str:
    """Return the token after an event of the whole feed.

    Example:
        >>> log_token({0: Reached(4), 1: Reached(9, 2)}, bytes(16))
        '00000000@0:4,1:9.2'
    """
    told = [
        f"{partition}:{at.offset}" + (f".{at.done}" if at.done else "")
        for partition, at in sorted(reached.items())
    ]
    return f"{log.hex()[:_LOG_LETTERS]}@{','.join(told)}"


def read_log_token(token: str, log: bytes, partitions: int) -> dict[int, Reached]:
    """Invert `log_token`; partitions that it does not name begin at 0.

    Raises:
        InvalidInputError: it is none, or one of another topic (`other_log`).

    Example:
        >>> read_log_token("00000000@0:4,1:9.2", bytes(16), 2)
        {0: Reached(offset=4, done=0), 1: Reached(offset=9, done=2)}
    """
    reached = {partition: Reached(0) for partition in range(partitions)}
    if token == START:
        return reached
    match = _ALL.fullmatch(token)
    if match is None:
        raise _no_token(token)
    for text in match[2].split(","):
        entry = _ENTRY.fullmatch(text)
        if entry is None or int(entry[1]) >= partitions:
            raise _no_token(token)
        reached[int(entry[1])] = Reached(int(entry[2]), int(entry[3] or 0))
    if match[1] != log.hex()[:_LOG_LETTERS]:
        raise InvalidInputError(
            "the token is of another topic",
            field="token",
            hint="the topic was made anew since: begin at 0",
            code="other_log",
        )
    return reached


def _no_token(token: str) -> InvalidInputError:
    return InvalidInputError(
        f"{token!r} is no token of this feed",
        field="token",
        hint="send the token of its last event, or 0 for the beginning",
    )
