"""The socket at which a worker answers queries, and the address it is known by."""

import ipaddress
import socket
from typing import Any, Final

from turnstate.schemas.errors import UnavailableError
from turnstate.streams.embedded.serving import Limits, RequestServer
from turnstate.streams.kafka.queries import QUERIES, SCHEME
from turnstate.streams.kafka.worker_reads import WorkerReads

LIMITS: Final = Limits(
    connections=128,
    request_bytes=4 << 20,
    silence_s=300.0,
    request_s=10.0,
    send_s=30.0,
)
"""The heads of sessions that a job has copied are the longest thing in a request;
whoever asks for more, or says nothing, or does not take the answer, is hung up on."""


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one.

    Raises:
        UnavailableError: the address cannot be had.

    Example:
        >>> with listening("127.0.0.1", 0) as listener:
        ...     url_of(listener).startswith("turnstate://127.0.0.1:")
        True
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(LIMITS.connections)
    except OSError as error:
        listener.close()
        raise UnavailableError(
            f"{host}:{port} cannot be listened at: {error.strerror or error}",
            field="query_host",
            hint="set query_host and query_port to an address of this machine",
            code="address_taken",
        ) from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the address by which others reach a listening socket.

    One that listens everywhere is known by the name of its machine.
    """
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host.partition("%")[0]).is_unspecified:
        host = socket.gethostname()
    return f"{SCHEME}://[{host}]:{port}" if ":" in host else f"{SCHEME}://{host}:{port}"


def query_server(
    listener: socket.socket, reads: WorkerReads, log: bytes
) -> RequestServer:
    """Return a server that answers queries; `start` begins.

    Args:
        listener: A socket that listens; closed with the server.
        reads: Answers.
        log: The topic id of turns. An address may be another worker's by now,
            of another cluster, so the hello has to name the log that is asked
            about.
    """

    def check_hello(arguments: dict[str, Any]) -> None:
        if arguments.get("log") != log:
            raise UnavailableError(
                "this worker folds another log",
                hint="look the address up again",
                code="other_log",
            )

    return RequestServer(
        listener,
        reads,
        QUERIES,
        who="the worker",
        limits=LIMITS,
        check_hello=check_hello,
    )
