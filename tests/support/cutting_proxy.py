"""A proxy before an HTTP server that cuts, holds, tears or refuses on demand."""

import threading
import time
from collections import Counter, deque
from enum import StrEnum
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

BUSY_BODY = (
    b'<?xml version="1.0" encoding="UTF-8"?>'
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message>"
    b"</Error>"
)
TIMEOUT_S = 20.0


class Fault(StrEnum):
    """What becomes of one request."""

    CUT = "carried out, then the connection is closed before the answer"
    DROP = "never passed on, and the connection is closed"
    HOLD = "carried out, and the answer comes too late"
    TEAR = "carried out, and half of the answer's body comes"
    FLIP = "carried out, and a bit of the answer's body is wrong"
    BUSY = "answered by 503 SlowDown, never passed on"
    CONFLICT = "answered by 409 ConditionalRequestConflict, never passed on"


class _Planned(NamedTuple):
    method: str
    fault: Fault
    has: str


class CuttingProxy:
    """Pass requests on to a server, but for those that have a fault coming.

    Args:
        target: The server, `http://HOST:PORT`.
        hold_s: How late `Fault.HOLD` answers.
    """

    def __init__(self, target: str, *, hold_s: float = 2.0) -> None:
        parts = urlsplit(target)
        self.host, self.port = parts.hostname or "", parts.port or 80
        self.hold_s = hold_s
        self.seen: Counter[str] = Counter()
        """Requests that came, by method."""
        self._plan: deque[_Planned] = deque()
        self._lock = threading.Lock()
        proxy = self

        class Handler(_Handler):
            passes = proxy

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def plan(self, method: str, fault: Fault, *, times: int = 1, has: str = "") -> None:
        """Let the next requests of a method, with `has` in their path, meet a fault."""
        with self._lock:
            self._plan.extend([_Planned(method, fault, has)] * times)

    def left(self) -> int:
        """Return how many planned faults nobody met."""
        with self._lock:
            return len(self._plan)

    def fault_for(self, method: str, path: str) -> Fault | None:
        """Take the fault that a request meets."""
        with self._lock:
            self.seen[method] += 1
            for planned in self._plan:
                if planned.method == method and planned.has in path:
                    self._plan.remove(planned)
                    return planned.fault
        return None


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client: parse, pass on, answer or not."""

    protocol_version = "HTTP/1.1"
    passes: CuttingProxy

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        fault = self.passes.fault_for(self.command, self.path)
        if fault is Fault.BUSY:
            self._answer(503, {}, BUSY_BODY)
            return
        if fault is Fault.CONFLICT:
            code = b"ConditionalRequestConflict"
            self._answer(409, {}, BUSY_BODY.replace(b"SlowDown", code))
            return
        if fault is Fault.DROP:
            self.close_connection = True
            return
        try:
            answer, said = self._passed_on(body)
        except (OSError, HTTPException):
            self.close_connection = True
            return
        if fault is Fault.CUT:
            self.close_connection = True
            return
        if fault is Fault.HOLD:
            time.sleep(self.passes.hold_s)
        if fault is Fault.FLIP:
            said = said[:-1] + bytes([said[-1] ^ 1])
        self._answer(
            answer.status,
            dict(answer.getheaders()),
            said,
            send=said[: len(said) // 2] if fault is Fault.TEAR else said,
        )

    def _passed_on(self, body: bytes) -> tuple[HTTPResponse, bytes]:
        connection = HTTPConnection(
            self.passes.host, self.passes.port, timeout=TIMEOUT_S
        )
        try:
            # The very same head: it is signed.
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                if name.lower() not in {"expect", "connection"}:
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def _answer(
        self,
        status: int,
        headers: dict[str, str],
        body: bytes,
        *,
        send: bytes | None = None,
    ) -> None:
        try:
            self.send_response_only(status)
            lengths = {"content-length": str(len(body))}
            for name, value in headers.items():
                if name.lower() == "content-length" and self.command == "HEAD":
                    lengths["content-length"] = value
                elif name.lower() not in {
                    "content-length",
                    "transfer-encoding",
                    "connection",
                }:
                    self.send_header(name, value)
            for name, value in lengths.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body if send is None else send)
            self.close_connection = send is not None and send != body
        except OSError:  # the client has gone
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
        """Say nothing."""

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve  # noqa: N815 - their names
