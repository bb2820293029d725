"""Messages between the owner of a store and other processes: bytes and errors."""

import socket
import time
from contextlib import suppress
from struct import Struct
from typing import Any, Final

import msgspec

from turnstate.agents.session.step import Answer
from turnstate.schemas import errors
from turnstate.schemas.admission import Verdict
from turnstate.schemas.errors import CorruptDataError, TurnstateError, UnavailableError

PROTOCOL: Final = 1
"""What the two sides speak; another number is refused in the hello."""

MESSAGE_BYTES_MAX: Final = 1 << 30
"""A length above it is no message: whoever sent it speaks something else."""

HELLO: Final = "hello"
ITEM: Final = "item"
END: Final = "end"
ERROR: Final = "error"
CLOSING: Final = "closing"
"""The owner takes no more requests: what it has not answered, it has not read."""

_LENGTH: Final = Struct("<I")
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[Any, Any, Any]).decode

_CLASSES: Final[dict[str, type[TurnstateError]]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, TurnstateError)
}


class ConnectionLost(Exception):
    """The other side is gone: between two messages or within one."""


def packed(message: object) -> bytes:
    """Return a message as it goes over the wire: its length, then MessagePack.

    Raises:
        UnavailableError: it is larger than any reader takes.
    """
    body = _encode(message)
    if len(body) > MESSAGE_BYTES_MAX:
        raise UnavailableError(
            f"an answer of {len(body)} bytes is more than the socket carries",
            hint="ask for less at once: a smaller page",
            code="too_large",
        )
    return _LENGTH.pack(len(body)) + body


def send_at_once(connection: socket.socket) -> None:
    """Have TCP not wait for company: each side waits for the other's message."""
    if connection.family != socket.AF_UNIX:
        # One that is closed already refuses; whoever reads it next will see.
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def send(connection: socket.socket, data: bytes) -> None:
    """Send packed messages.

    Raises:
        ConnectionLost: the other side is gone.
    """
    try:
        connection.sendall(data)
    except OSError as error:
        raise ConnectionLost(str(error)) from error


class Inbox:
    """Read messages off a connection.

    Args:
        connection: A connected stream socket.
        bytes_max: A message that says it is longer ends the connection.
        silence_s: How long to wait for a message to begin; without a limit the
            socket's own timeout holds.
        message_s: How long a message that began may take to come whole.
    """

    def __init__(
        self,
        connection: socket.socket,
        *,
        bytes_max: int = MESSAGE_BYTES_MAX,
        silence_s: float | None = None,
        message_s: float | None = None,
    ) -> None:
        self._connection = connection
        self._data = bytearray()
        self._bytes_max = bytes_max
        self._silence_s = silence_s
        self._message_s = message_s
        self._whole_by: float | None = None

    def next(self) -> list[Any]:
        """Return the next message, waiting for it.

        Raises:
            ConnectionLost: the other side is gone or speaks something else.
            TimeoutError: the socket has a timeout; ask again, nothing is lost.
        """
        data = self._data
        while True:
            size = _LENGTH.size
            if len(data) >= size:
                (length,) = _LENGTH.unpack_from(data)
                if length > self._bytes_max:
                    raise ConnectionLost(f"a message says that it has {length} bytes")
                size += length
                if len(data) >= size:
                    break
            self._read(size - len(data))
        try:
            message = _decode(memoryview(data)[_LENGTH.size : size])
        except (msgspec.MsgspecError, ValueError) as error:
            raise ConnectionLost(f"a message cannot be read: {error}") from error
        del data[:size]
        self._whole_by = None
        return list(message)

    def _read(self, size: int) -> None:
        self._limit()
        try:
            more = self._connection.recv(min(max(65536, size), 1 << 20))
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        if not more:
            raise ConnectionLost("the other side has closed")
        self._data += more

    def _limit(self) -> None:
        """Set how long the next bytes may take, where there are limits."""
        if self._message_s is None:
            return
        now = time.monotonic()
        if not self._data:
            self._connection.settimeout(self._silence_s)
            return
        if self._whole_by is None:
            self._whole_by = now + self._message_s
        if now >= self._whole_by:
            raise ConnectionLost("a message has not come whole in time")
        self._connection.settimeout(self._whole_by - now)


def is_closed(connection: socket.socket) -> bool:
    """Say whether the other side has closed, without waiting or reading."""
    # A socket with a timeout would wait for it, whatever the flags say.
    timeout_s = connection.gettimeout()
    try:
        connection.setblocking(False)
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.settimeout(timeout_s)


def error_parts(error: BaseException) -> list[str | None]:
    """Return an error as it travels: class, code, message, field, hint.

    Example:
        >>> error = error_of(error_parts(errors.NotFoundError("gone", field="session")))
        >>> type(error).__name__, error.message, error.field, error.code
        ('NotFoundError', 'gone', 'session', 'not_found')
    """
    if isinstance(error, TurnstateError):
        return [
            type(error).__name__,
            error.code,
            error.message,
            error.field,
            error.hint,
        ]
    return [
        UnavailableError.__name__,
        "owner_failed",
        f"the owner of the store failed: {error!r}",
        None,
        "its log says where; ask again, or restart it",
    ]


def error_of(parts: list[Any]) -> TurnstateError:
    """Return the error that was sent; a class unknown here reads as corrupt data."""
    name, code, message, field, hint = parts
    kind = _CLASSES.get(name, CorruptDataError)
    if kind is TurnstateError:
        kind = CorruptDataError
    return kind(message, field=field, hint=hint, code=code)


def answer_parts(answer: Answer) -> list[Any]:
    """Return an answer as it travels.

    Example:
        >>> answer_of(answer_parts(Answer(Verdict.ACCEPTED, 3, "t-1"))).version
        3
    """
    return [
        answer.verdict.value,
        answer.version,
        answer.turn,
        None if answer.error is None else error_parts(answer.error),
        answer.ended,
    ]


def answer_of(parts: list[Any]) -> Answer:
    """Invert `answer_parts`."""
    verdict, version, turn, error, ended = parts
    return Answer(
        Verdict(verdict),
        version,
        turn,
        None if error is None else error_of(error),
        ended,
    )
