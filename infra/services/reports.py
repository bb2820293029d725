"""What is told of a service: what it does, where it is, what went wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from turnstate.infra.services.failures import ServiceError

SERVICES: Final = ("kafka", "redis", "s3")


@dataclass(frozen=True, slots=True)
class Report:
    """One service at one moment.

    Attributes:
        service: One of SERVICES.
        state: `running`, `silent` (runs, does not answer), `crashed`,
            `stopped`, or `failed` where it was to be started and is not.
        pid: Its process, where one of ours runs.
        log: The file with its words, or the command that shows them.
        connection: What a client is given, by name; empty before the first
            start.
        error: Why it failed.
    """

    service: str
    state: str
    pid: int | None = None
    log: str = ""
    connection: Mapping[str, str] = field(default_factory=dict[str, str])
    error: ServiceError | None = None
