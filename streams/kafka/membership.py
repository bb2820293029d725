"""Know for how long the group certainly counts this worker as a member."""

import time
from collections.abc import Callable
from typing import Any


class MembershipLease:
    """Say whether what this worker owns can be nobody else's yet.

    The broker gives a silent worker's partitions away after the session
    time-out. A worker that was stopped for that long and wakes up does not know
    it before its next heartbeat; until then it must not answer as the owner.

    Args:
        session_s: The session time-out.
        now: A clock that never goes back.

    Example:
        >>> at = [0.0]
        >>> lease = MembershipLease(10.0, lambda: at[0])
        >>> lease.holds
        False
        >>> lease.renew(5.0)
        >>> at[0] = 14.0
        >>> lease.holds
        True
        >>> at[0] = 15.0
        >>> lease.holds
        False
    """

    def __init__(
        self, session_s: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._session_s = session_s
        self._now = now
        self._until = float("-inf")

    @property
    def holds(self) -> bool:
        """Say whether the time-out cannot have passed."""
        return self._now() < self._until

    def confirmed_since(self, moment: float) -> bool:
        """Say whether a heartbeat that was sent after a moment was answered."""
        return self._until - self._session_s > moment

    def renew(self, sent_at: float) -> None:
        """Note a heartbeat that the broker has answered; it was sent at that time."""
        self._until = sent_at + self._session_s

    def end(self) -> None:
        """Note that the group does not count this worker as a member."""
        self._until = float("-inf")

    def watch(self, coordinator: Any) -> None:
        """Hear of every heartbeat of aiokafka's group coordinator."""
        beat = coordinator._do_heartbeat

        async def heard() -> bool:
            sent_at = self._now()
            is_member: bool = await beat()
            # While the group is divided anew a member may be left out.
            if is_member and not coordinator._rejoin_needed_fut.done():
                self.renew(sent_at)
            elif coordinator.generation < 0:
                self.end()
            return is_member

        coordinator._do_heartbeat = heard
