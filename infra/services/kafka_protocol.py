"""Ask a Kafka broker who it is, in its own protocol, without a client library."""

import socket
import struct
from dataclasses import dataclass
from typing import Final

from turnstate.infra.services.ports import HOST

_METADATA: Final = 3
_VERSION: Final = 4
"""Of the metadata request: the newest without variable-length fields that
brokers from 1.0 on still answer."""

_CORRELATION: Final = 1
_CLIENT: Final = b"turnstate-cluster"
_ANSWER_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a broker says of its cluster.

    Attributes:
        cluster: The id under which its storage was formatted.
        brokers: Host and port of each live broker.
    """

    cluster: str
    brokers: frozenset[tuple[str, int]]


def metadata(port: int, *, timeout_s: float = 2.0) -> Metadata | None:
    """Return a broker's answer; None where nobody answers so.

    A KRaft broker opens its port only when the controller has let it in, and
    names itself in the answer only while it is.
    """
    try:
        with socket.create_connection((HOST, port), timeout_s) as connection:
            connection.sendall(_request())
            with connection.makefile("rb") as answer:
                (size,) = struct.unpack(">i", answer.read(4))
                if not 4 <= size <= _ANSWER_BYTES_MAX:
                    return None
                return read_metadata(answer.read(size))
    except (OSError, struct.error, UnicodeDecodeError):
        return None


def _request() -> bytes:
    header = struct.pack(">hhih", _METADATA, _VERSION, _CORRELATION, len(_CLIENT))
    # No topics, and none to be made.
    body = header + _CLIENT + struct.pack(">i?", 0, False)
    return struct.pack(">i", len(body)) + body


def read_metadata(body: bytes) -> Metadata:
    """Return what an answer without its length says.

    Raises:
        struct.error: it is shorter than it says.
        UnicodeDecodeError: a name is no text.
    """
    # Correlation id and the time that a throttled client waits, then brokers.
    (count,) = struct.unpack_from(">i", body, 8)
    at = 12
    brokers: set[tuple[str, int]] = set()
    for _ in range(count):
        host, at = _text(body, at + 4)
        (port,) = struct.unpack_from(">i", body, at)
        _, at = _text(body, at + 4)
        brokers.add((host, port))
    cluster, _ = _text(body, at)
    return Metadata(cluster, frozenset(brokers))


def _text(body: bytes, at: int) -> tuple[str, int]:
    """Return a text with its length before it (-1 = null), and where it ends."""
    (size,) = struct.unpack_from(">h", body, at)
    end = at + 2 + max(size, 0)
    if end > len(body):
        raise struct.error("the answer is cut off")
    return body[at + 2 : end].decode("utf-8"), end
