"""How an S3 server is reached, and the door to it that boto3 opens."""

import re
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from turnstate.schemas.errors import InvalidInputError, UnavailableError
from turnstate.storage.cold.object_names import checked_name

if TYPE_CHECKING:
    from turnstate.storage.cold.s3 import S3Objects

PART_BYTES_MIN: Final = 5 << 20
"""S3 takes no smaller parts, but for the last one."""

PART_BYTES_MAX: Final = 5 << 30
"""S3 takes no larger parts, nor larger objects in one request."""

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """Where a bucket is, who asks, and the limits of asking.

    Attributes:
        endpoint: The server, `http://…` or `https://…`; empty for AWS itself.
        bucket: The bucket.
        prefix: What the names of all objects begin with in the bucket, without
            the `/` that follows it; empty for none.
        region: The region that requests are signed for.
        access_key: The name of the key; empty: as boto3 finds it (variables,
            files, the role of the machine).
        secret_key: Its secret.
        connections_max: Requests under way at once; more threads wait.
        timeout_ms: How long to wait for a connection, and for the next bytes.
        attempts_max: How often a request is sent in all, with growing pauses.
        multipart_bytes: Objects above it are sent in parts of at most it.

    Raises:
        InvalidInputError: a value makes no sense; `field` names it.

    Example:
        >>> settings = S3Settings(bucket="cold", access_key="a", secret_key="hidden")
        >>> "hidden" in repr(settings)
        False
    """

    endpoint: str = ""
    bucket: str
    prefix: str = ""
    region: str = "us-east-1"
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    connections_max: int = 16
    timeout_ms: int = 10_000
    attempts_max: int = 5
    multipart_bytes: int = 16 << 20

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.endpoint and not _is_address(self.endpoint):
            raise InvalidInputError(
                f"the S3 endpoint {self.endpoint!r} is no address",
                field="endpoint",
                hint="write http://HOST:PORT or https://HOST",
            )
        if not _BUCKET.fullmatch(self.bucket):
            raise InvalidInputError(
                f"the bucket name {self.bucket!r} is none",
                field="bucket",
                hint="3 to 63 of a-z, 0-9, - and .",
            )
        if self.prefix:
            try:
                checked_name(self.prefix)
            except InvalidInputError as error:
                raise InvalidInputError(error.message, field="prefix") from None
        if bool(self.access_key) != bool(self.secret_key):
            missing = "secret_key" if self.access_key else "access_key"
            raise InvalidInputError(
                f"{missing} of S3 is not set, the other half of the key is",
                field=missing,
                hint="set both, or none to let boto3 find them",
            )
        for name in ("connections_max", "timeout_ms", "attempts_max"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"{name} of S3 is below 1", field=name)
        if not PART_BYTES_MIN <= self.multipart_bytes <= PART_BYTES_MAX:
            raise InvalidInputError(
                f"multipart_bytes of S3 is {self.multipart_bytes}",
                field="multipart_bytes",
                hint="S3 takes parts of 5 MiB to 5 GiB",
            )


def open_s3(settings: S3Settings) -> "S3Objects":
    """Return the objects of a bucket; no request is made yet.

    Raises:
        UnavailableError: boto3 is not installed, or cannot be set up.
    """
    if find_spec("boto3") is None:
        raise UnavailableError(
            "boto3 is not installed", field="s3", hint="pip install 'turnstate[s3]'"
        )
    from turnstate.storage.cold.s3 import S3Objects

    # To pyright, which knows this file by two names, these are two classes.
    return S3Objects(cast("Any", settings))


def _is_address(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        _ = parts.port
    except ValueError:
        return False
    return (
        parts.scheme in {"http", "https"}
        and bool(parts.hostname)
        and parts.path in {"", "/"}
        and not (parts.query or parts.fragment or parts.username)
    )
