"""The names of a session's keys in Redis: one hash tag, no two sessions alike."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from typing import Final, NamedTuple

HEAD: Final = "h"
"""Last letter of the key of a head."""

BODY: Final = "f"
"""Last letter of the key of the frames."""

TOMBSTONE: Final = "t"
"""Last letter of the key that says which lives are over."""


class SessionKeys(NamedTuple):
    """The keys of one session, all in one slot of a Cluster.

    Attributes:
        head: A string: who wrote, which version, until when, the row of the head.
        body: A list: the last frames, oldest first.
        tombstone: A string, only after an erase: the first life that may be
            written again.
    """

    head: bytes
    body: bytes
    tombstone: bytes


class NamedKey(NamedTuple):
    """What the name of a key says.

    Attributes:
        session: The session key.
        part: `HEAD`, `BODY` or `TOMBSTONE`.
    """

    session: bytes
    part: str


def keys_of(prefix: str, session: bytes) -> SessionKeys:
    r"""Return the keys of a session.

    The session key is written in base64 for URLs. Raw, a `}` in an id would
    end the hash tag and an empty tag would be none, so that head and body may
    lie in two slots; and `*` or `[` would mean something to SCAN.

    Args:
        prefix: What all keys of one store begin with (`RedisSettings.prefix`).
        session: The session key, which holds the length of the tenant's name.

    Example:
        >>> keys_of("ts", b"\x00\x01t{}").head
        b'ts:{AAF0e30}:h'
    """
    stem = b"%b:{%b}:" % (prefix.encode(), _written(session))
    return SessionKeys(stem + b"h", stem + b"f", stem + b"t")


def named_by(prefix: str, name: bytes) -> NamedKey | None:
    r"""Return what a key in Redis is about; None where it is none of ours.

    Example:
        >>> named_by("ts", b"ts:{AAF0e30}:f")
        NamedKey(session=b'\x00\x01t{}', part='f')
        >>> named_by("ts", b"ts:{AAF0e30}:x") is None
        True
    """
    begin = prefix.encode() + b":{"
    tag, end, part = name[len(begin) :].partition(b"}:")
    if not name.startswith(begin) or not end or part not in {b"h", b"f", b"t"}:
        return None
    try:
        session = urlsafe_b64decode(tag + b"=" * (-len(tag) % 4))
    except NotBase64:
        return None
    return NamedKey(session, part.decode()) if _written(session) == tag else None


def scan_pattern(prefix: str, part: str = "*", session_prefix: bytes = b"") -> bytes:
    r"""Return the pattern by which SCAN finds the keys of a store.

    Three bytes are four letters, so what is asked for is rounded down to that:
    the caller still compares.

    Args:
        prefix: As for `keys_of`.
        part: `HEAD`, `BODY`, `TOMBSTONE`, or `*` for all.
        session_prefix: What the session keys begin with.

    Example:
        >>> scan_pattern("ts", "h", b"\x00\x01tx")
        b'ts:{AAF0*}:h'
    """
    whole = session_prefix[: len(session_prefix) // 3 * 3]
    return b"%b:{%b*}:%b" % (prefix.encode(), _written(whole), part.encode())


def _written(session: bytes) -> bytes:
    return urlsafe_b64encode(session).rstrip(b"=")
