"""Pick loopback ports that are free, and that stay so while a service restarts."""

import random
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"

_LOWEST: Final = 10_240
_HIGHEST: Final = 22_700
"""SeaweedFS adds 10 000 for gRPC, which must stay below the range that the
system gives to outgoing connections (32768 on Linux)."""

_OUTGOING: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def is_free(port: int) -> bool:
    """Say whether a server could bind a loopback port now.

    Connections of an ended server that linger do not count, as they do not
    for the servers started here.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(count: int, *, beside: int = 0) -> list[int]:
    """Return ports that could be bound a moment ago, no two alike.

    None lies in the range of outgoing connections: there, a client that asks
    again and again for a server that is down may take the server's port, or
    even connect to itself.

    Args:
        count: How many.
        beside: A distance at which a second port must be free too; 0 = none.
    """
    chance = random.SystemRandom()
    found: list[int] = []
    while len(found) < count:
        port = chance.randrange(_LOWEST, _below_outgoing(beside))
        wanted = [port, port + beside] if beside else [port]
        if port not in found and all(is_free(each) for each in wanted):
            found.append(port)
    return found


def _below_outgoing(beside: int) -> int:
    try:
        lowest = int(_OUTGOING.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _HIGHEST
    below = lowest - beside
    return min(below, _HIGHEST) if below > _LOWEST + 1_000 else _HIGHEST


def any_taken(ports: Sequence[int]) -> bool:
    """Say whether at least one of the ports cannot be bound."""
    return not all(map(is_free, ports))
