"""Ask an S3 server in its own protocol (signature version 4), without a client."""

import hashlib
import hmac
import http.client
from datetime import UTC, datetime
from typing import Final, NamedTuple

from turnstate.infra.services.ports import HOST

REGION: Final = "us-east-1"

_NOTHING: Final = hashlib.sha256(b"").hexdigest()
_SIGNED: Final = "host;x-amz-content-sha256;x-amz-date"


class Keys(NamedTuple):
    """Who asks: the name of a key and its secret."""

    access_key: str
    secret_key: str


def ask(
    method: str, path: str, *, port: int, keys: Keys, timeout_s: float = 5.0
) -> int | None:
    """Send a request without a body; return its status, None where nobody answers.

    Args:
        method: GET, HEAD, PUT or DELETE.
        path: A bucket, or a bucket and a key, that need no escapes.
        port: Where the server listens on loopback.
        keys: Who asks.
        timeout_s: How long to wait for each part of the answer.
    """
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout_s)
    try:
        headers = signed_headers(
            method, path, host=f"{HOST}:{port}", keys=keys, now=datetime.now(UTC)
        )
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return None
    else:
        return answer.status
    finally:
        connection.close()


def signed_headers(
    method: str, path: str, *, host: str, keys: Keys, now: datetime
) -> dict[str, str]:
    """Return the headers that prove who asks."""
    time = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{time[:8]}/{REGION}/s3/aws4_request"
    headers = {"host": host, "x-amz-content-sha256": _NOTHING, "x-amz-date": time}
    listed = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"{method}\n{path}\n\n{listed}\n{_SIGNED}\n{_NOTHING}"
    digest = hashlib.sha256(request.encode()).hexdigest()
    signing_key = f"AWS4{keys.secret_key}".encode()
    for part in scope.split("/"):
        signing_key = hmac.digest(signing_key, part.encode(), "sha256")
    told = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}"
    signature = hmac.digest(signing_key, told.encode(), "sha256").hex()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={keys.access_key}/{scope}, "
        f"SignedHeaders={_SIGNED}, Signature={signature}"
    )
    return headers
