"""Faust's assignor, for workers whose address changes while their share stays."""

from typing import Any

from faust.assignor.client_assignment import ClientMetadata
from faust.assignor.partition_assignor import PartitionAssignor


class AddressAssignor(PartitionAssignor):
    """Bear that a worker comes back at another address (`PartitionAssignor`).

    A static member that restarts within the session time-out gets its old
    assignment as the broker kept it, with the address that it had then, and
    Faust asserts that this is the one of now. Readers take the address from
    the member's own metadata, which the broker does replace.
    """

    def on_assignment(self, assignment: Any) -> None:
        """Take over what this worker is assigned."""
        given: Any = ClientMetadata.loads(self._decompress(assignment.user_data))
        if given.url != str(self._url):
            given.url = str(self._url)
            assignment.user_data = self._compress(given.dumps())
        super().on_assignment(assignment)
