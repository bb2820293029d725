"""How rows are keyed in the warm store: one column family a table."""

from typing import Final

HEADS: Final = "heads"
"""session key → row of the head; of a cold session, of its pointer."""

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

MOVES: Final = "moves"
"""id of a move → what is planned of it; gone once it is done."""

KEYS: Final = "keys"
"""id of a data key → the key, wrapped, or that it was destroyed; empty in a store
that is not encrypted, and never in a copy of the store's files."""

TABLES: Final = (HEADS, FRAMES, SEGMENTS, INDEX, LOG, DEAD, META, MOVES, KEYS)

ENCRYPTED_TABLES: Final = frozenset({HEADS, FRAMES, SEGMENTS, DEAD})
"""The tables whose rows are encrypted one by one where the store is encrypted; the
log encrypts its records itself, `INDEX` holds hashes only."""

VERSION_KEY: Final = b"store_version"
"""Row of `META`: the format of the tables."""

STORE_VERSION: Final = 1
"""The format of a store in which no session ever was cold."""

STORE_VERSION_COLD: Final = 2
"""The format since a session was cold: who does not know pointers is refused."""

STATE_TABLES: Final = (HEADS, FRAMES, SEGMENTS, INDEX)
"""The tables that count as state; the log is reported beside them."""


LIFE_BYTES: Final = 7
"""Of the incarnation in the keys of rows."""

VERSION_BYTES: Final = 5
"""Of the version in the keys of rows."""


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
    return prefix + version.to_bytes(VERSION_BYTES, "big")


def id_key(prefix: bytes, id_hash: bytes) -> bytes:
    """Return the key of a turn id's entry."""
    return prefix + b"i" + id_hash


def aside_key(prefix: bytes, version: int) -> bytes:
    """Return the key that remembers an edit or redaction."""
    return prefix + b"e" + version.to_bytes(VERSION_BYTES, "big")


def after_prefix(prefix: bytes) -> bytes:
    """Return the least key above all that start with a prefix."""
    number = int.from_bytes(prefix, "big") + 1
    return number.to_bytes(len(prefix), "big")
