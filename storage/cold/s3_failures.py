"""Say what S3 and boto3 report in our words, each with one hint for an operator."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, TypeAlias, cast

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    IncompleteReadError,
    NoCredentialsError,
    ReadTimeoutError,
    ResponseStreamingError,
)
from botocore.exceptions import ConnectionError as NoWayError

from turnstate.schemas.errors import TurnstateError, UnavailableError
from turnstate.storage.cold.s3_settings import S3Settings

Failure: TypeAlias = ClientError | BotoCoreError
"""All that boto raises for a request that did not go well."""

TORN: Final = (IncompleteReadError, ReadTimeoutError, ResponseStreamingError)
"""What ends the body of an answer early; boto retries only up to its head."""

_ENDPOINT: Final = "check endpoint of S3: this is not what an S3 server says"
_KEYS: Final = "check access_key and secret_key of S3"
_ROOM: Final = "make room on the S3 server, or raise the quota of the bucket"

_HINTS: Final[Mapping[str, str]] = {
    "AccessDenied": f"{_KEYS}, and what the key may do in the bucket",
    "AuthorizationHeaderMalformed": "check region of S3",
    "ExpiredToken": "renew the credentials of S3",
    "IllegalLocationConstraintException": "check region of S3",
    "InsufficientStorage": _ROOM,
    "InvalidAccessKeyId": _KEYS,
    "NotImplemented": "this S3 server lacks what is needed: use another one",
    "PermanentRedirect": "check endpoint and region of S3",
    "QuotaExceeded": _ROOM,
    "RequestTimeTooSkewed": "set the clock of this machine",
    "SignatureDoesNotMatch": _KEYS,
    "SlowDown": "the S3 server is overloaded: try again later",
    "XAdminUserNotFound": _KEYS,
    "XMinioStorageFull": _ROOM,
}


def status_of(error: ClientError) -> int:
    """Return the HTTP status of an answer, 0 where there was none."""
    return int(_said(error, "ResponseMetadata").get("HTTPStatusCode", 0))


def code_of(error: ClientError) -> str:
    """Return S3's name of the error; for HEAD, which has none, its status."""
    return str(_said(error, "Error").get("Code", ""))


def has_status(error: Exception, status: HTTPStatus) -> bool:
    """Say whether S3 answered with a status."""
    return isinstance(error, ClientError) and status_of(error) == status


def is_missing(error: Exception) -> bool:
    """Say whether an answer means that the object, not the bucket, is not there."""
    return (
        isinstance(error, ClientError)
        and status_of(error) == HTTPStatus.NOT_FOUND
        and code_of(error) in {"404", "NoSuchKey", "NotFound"}
    )


def may_have_arrived(error: Exception) -> bool:
    """Say whether a request may have been carried out although it failed."""
    if isinstance(error, ClientError):
        return status_of(error) >= HTTPStatus.INTERNAL_SERVER_ERROR
    return not isinstance(
        error, EndpointConnectionError | ConnectTimeoutError | NoCredentialsError
    )


def translated(error: Exception, settings: S3Settings) -> TurnstateError:
    """Return the error that a caller sees, with what to look at.

    Args:
        error: What boto3 raised.
        settings: Where it asked.
    """
    if isinstance(error, ClientError):
        return _refused(error, settings)
    where = settings.endpoint or "AWS"
    if isinstance(error, NoCredentialsError):
        return UnavailableError("S3 needs a key, and none was found", hint=_KEYS)
    if isinstance(error, ConnectTimeoutError | NoWayError) and not isinstance(
        error, ReadTimeoutError
    ):
        return UnavailableError(
            f"nobody answers at the S3 endpoint {where}: {error}",
            hint="check endpoint of S3, and that the server runs",
        )
    if isinstance(error, BotoCoreError):
        return UnavailableError(
            f"the S3 server {where} did not answer to the end: {error}",
            hint="look at its log; timeout_ms of S3 is how long we wait",
        )
    return UnavailableError(f"S3 at {where}: {error}", hint="check endpoint of S3")


def no_s3(settings: S3Settings, why: str) -> UnavailableError:
    """Return the error about a server that answers, but not as S3 does.

    Args:
        settings: Where it was asked.
        why: What it did, after "the server X".
    """
    where = settings.endpoint or "AWS"
    return UnavailableError(f"the server {where} {why}", hint=_ENDPOINT)


def _refused(error: ClientError, settings: S3Settings) -> TurnstateError:
    where = f"the bucket {settings.bucket} at {settings.endpoint or 'AWS'}"
    status, code = status_of(error), code_of(error)
    words = str(_said(error, "Error").get("Message", ""))[:200]
    if code == "NoSuchBucket":
        return UnavailableError(
            f"there is no bucket {settings.bucket} at {settings.endpoint or 'AWS'}",
            hint="make it, or check bucket of S3",
        )
    hint = _HINTS.get(code)
    if hint is None and status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        hint = _KEYS
    if hint is None and status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        full = status == HTTPStatus.INSUFFICIENT_STORAGE
        hint = _ROOM if full else "look at the log of the server; check endpoint of S3"
    return UnavailableError(
        f"{where} answers {status} {code}: {words}",
        hint=hint or _ENDPOINT,
    )


def _said(error: ClientError, part: str) -> Mapping[str, Any]:
    """Return a part of an answer; boto has no types for it."""
    found: Mapping[str, Any] = cast("Any", error).response.get(part, {})
    return found
