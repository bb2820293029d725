"""Ask every member of a group of workers, those without a partition, too."""

import time
from typing import Any

from turnstate.streams.kafka.cluster_reader import ClusterReader
from turnstate.streams.kafka.routing import Address


class MemberReader(ClusterReader):
    """A reader that also asks workers for what is no partition's.

    Args:
        cluster: Where the brokers are, and the group.
        wait_s: How long a question may take in all.
    """

    def members(self) -> list[Address]:
        """Return where workers answer now.

        Raises:
            UnavailableError: the brokers do not answer.
        """
        return sorted(self.routes().members)

    def ask_at(self, address: Address, method: str, arguments: dict[str, Any]) -> Any:
        """Ask one worker.

        Raises:
            UnavailableError: it does not answer.
            TurnstateError: what the method raises.
        """
        deadline = time.monotonic() + self._wait_s
        return self._worker_links().ask(address, method, arguments, deadline)
