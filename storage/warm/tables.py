"""How rows are keyed in the warm store: one column family a table."""

from typing import Final

HEADS: Final = "heads"
"""session key → row of the head."""

FRAMES: Final = "frames"
"""session life, to-version → frame since the last seal; at the sealed version
itself the state that the first of them starts from (kind head)."""

SEGMENTS: Final = "segments"
"""session life, to-version → sealed segment."""

INDEX: Final = "index"
"""session life, `i`, hash of a turn id → entry; session life, `e`, version →
nothing: an edit or redaction came with that version."""

LOG: Final = "log"
"""offset of the first record → chunk of the embedded log."""

DEAD: Final = "dead"
"""number → dead letter."""

META: Final = "meta"
"""What the store is: its format, the log's identity and end."""

TABLES: Final = (HEADS, FRAMES, SEGMENTS, INDEX, LOG, DEAD, META)

STATE_TABLES: Final = (HEADS, FRAMES, SEGMENTS, INDEX)
"""The tables that count as state; the log is reported beside them."""


LIFE_BYTES: Final = 7
"""Of the incarnation in the keys of rows."""


def life_prefix(key: bytes, incarnation: int) -> bytes:
    """Return what all rows of one life of a session start with.

    The length first: no session's prefix starts another's, whatever bytes
    the names hold.
    """
    return len(key).to_bytes(2, "big") + key + incarnation.to_bytes(LIFE_BYTES, "big")


def session_prefix(key: bytes) -> bytes:
    """Return what all rows of all lives of a session start with."""
    return len(key).to_bytes(2, "big") + key


def version_key(prefix: bytes, version: int) -> bytes:
    """Return the key of the frame or segment that leads to a version."""
    return prefix + version.to_bytes(5, "big")


def id_key(prefix: bytes, id_hash: bytes) -> bytes:
    """Return the key of a turn id's entry."""
    return prefix + b"i" + id_hash


def aside_key(prefix: bytes, version: int) -> bytes:
    """Return the key that remembers an edit or redaction."""
    return prefix + b"e" + version.to_bytes(5, "big")


def after_prefix(prefix: bytes) -> bytes:
    """Return the least key above all that start with a prefix."""
    number = int.from_bytes(prefix, "big") + 1
    return number.to_bytes(len(prefix), "big")
