"""What the tiering policy knows of one session; whoever runs it gathers them."""

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from turnstate.storage.access import NO_ACCESSES, Accesses
from turnstate.storage.session_row import SessionRow

TierName = Literal["hot", "warm", "cold"]
"""Tiers as answers name them, from the fastest to the cheapest."""

TIERS: Final[tuple[TierName, ...]] = ("hot", "warm", "cold")
"""All of them, from the top down."""


class SessionFacts(Struct, frozen=True, gc=False, kw_only=True):
    """One session, as the policy sees it: a value, gathered without its text.

    Times are epoch milliseconds.

    Attributes:
        key: The session key.
        incarnation: Which life of the session.
        version: The version of its newest head.
        tier: The fastest tier that holds it. What is hot is warm as well: hot
            is never the only copy, but for `warm_version`.
        arrived_ms: When its last operation arrived, by the log; not what the
            turn says of its own time.
        accesses: When it was used, arrivals and reads; scans and replays left
            out.
        bytes_by_tier: What it takes in each tier that has it.
        warm_version: The version that warm is known to hold durably where hot
            may be ahead of it (write-behind); None = the same as `version`.
        ttl_ms: How long after its last operation it lives; None = what the
            table says.
        expired: Its TTL has run out and it was taken from view; bytes may be
            left.
        pinned_until_ms: It stays where it is until then.
        leased_until_ms: Somebody reads it until then.
        moved_at_ms: When it came to its tier by a move; 0 = never moved.
        sealed: All of its operations lie in segments.
        ended: Its dialogue was ended.
        tombstone: It was erased, and nothing was said since.
    """

    key: bytes
    incarnation: int
    version: int
    tier: TierName
    arrived_ms: int
    accesses: Accesses = NO_ACCESSES
    bytes_by_tier: Mapping[str, int] = {}
    warm_version: int | None = None
    ttl_ms: int | None = None
    expired: bool = False
    pinned_until_ms: int = 0
    leased_until_ms: int = 0
    moved_at_ms: int = 0
    sealed: bool = True
    ended: bool = False
    tombstone: bool = False

    def idle_ms(self, now_ms: int) -> int:
        """Return how long ago its last operation arrived; never below 0."""
        return max(0, now_ms - self.arrived_ms)

    def used_ms(self) -> int:
        """Return when it was used last, by an arrival or a read."""
        return max(self.arrived_ms, self.accesses.last_ms)

    def bytes_in(self, tier: TierName) -> int:
        """Return what it takes in a tier."""
        return self.bytes_by_tier.get(tier, 0)

    def is_ahead_of_warm(self) -> bool:
        """Say whether hot holds a version that warm is not known to hold."""
        return self.warm_version is not None and self.warm_version < self.version


def facts_of_row(
    key: bytes, row: SessionRow, accesses: Accesses, leased_until_ms: int = 0
) -> SessionFacts:
    """Return what the policy is told of a session that a store lists.

    Args:
        key: The session key.
        row: What lists say of it.
        accesses: When it was used.
        leased_until_ms: Somebody reads it until then.
    """
    return SessionFacts(
        key=key,
        incarnation=row.incarnation,
        version=row.version,
        tier=row.tier,
        arrived_ms=row.arrived_ms,
        accesses=accesses,
        bytes_by_tier={row.tier: row.text_bytes},
        leased_until_ms=leased_until_ms,
        moved_at_ms=row.moved_ms,
        # What is not sealed yet is sealed when its move is planned.
        sealed=True,
        tombstone=row.is_tombstone,
    )
