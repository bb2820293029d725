"""Every number that bounds an input, each in one place, with its unit.

All are inclusive: a value equal to the limit is let in.
"""

RECORD_BYTES_MAX = 1 << 20
"""One turn as a canonical record. Larger parts travel by reference."""

JSON_DEPTH_MAX = 64
"""Arrays and objects inside one another, the turn itself being the first."""

ID_BYTES_MIN = 1
ID_BYTES_MAX = 512
"""Tenant, session, turn id, replica, branch and user names, as UTF-8."""

LIVE_BRANCHES_MAX = 64
"""Branches with a head record. Refuses only unstamped turns."""

GAP_INTERVALS_MAX = 65_536
"""Intervals of dots beyond a gap; past that a dead letter `gap_limit`."""

COUNTER_MAX = (1 << 53) - 1
"""Counters, Lamport times, incarnations: exact in every JSON reader."""

SEEN_REPLICAS_MAX = 256
"""Replicas that one `seen` may name."""

PARENTS_MAX = 256
"""Parents of one turn."""

USAGE_ABS_MAX = (1 << 53) - 1
"""Magnitude of one usage value of one turn."""

TIME_MS_ABS_MAX = 253_402_300_799_999
"""Epoch milliseconds of 9999-12-31T23:59:59.999Z, either side of 1970."""

DEAD_LETTER_BYTES_MAX = 16 << 20
"""Original bytes kept whole; above that the first 64 KiB, length and hash."""

DEAD_LETTER_HEAD_BYTES = 64 << 10
"""What is kept of original bytes above `DEAD_LETTER_BYTES_MAX`."""

DICTIONARY_BYTES_MAX = 16 << 10
"""LZ4 dictionary of one frame: the last records since the last seal."""

SEGMENT_TURNS = 64
SEGMENT_BYTES = 64 << 10
"""A segment is sealed when either is reached."""

RECENT_TURNS = 8
"""The last turns that a state shows without reading any segment's index."""

PACK_TURNS_MAX = 4096
"""Turns in one packed message."""

PACK_BYTES_MAX = 1 << 20
"""A packed message; one that holds a single turn may be as long as a record."""

ENCRYPTIONS_A_KEY_MAX = 1 << 32
"""Rows that one data key encrypts; then a session goes on under its next one. So
many random 96-bit nonces hold a twin with a chance of 2^-33 (NIST SP 800-38D)."""
