"""Keep objects in a bucket of an S3 server, each created once, by conditional puts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError

from turnstate.schemas.errors import (
    ChecksumError,
    InvalidInputError,
    NotFoundError,
    TurnstateError,
    UnavailableError,
)
from turnstate.storage.cold.object_names import checked_name, is_name
from turnstate.storage.cold.objects import ObjectInfo
from turnstate.storage.cold.s3_failures import (
    Failure,
    code_of,
    has_status,
    is_missing,
    may_have_arrived,
    no_s3,
    translated,
)
from turnstate.storage.cold.s3_put import abort, put
from turnstate.storage.cold.s3_requests import S3Requests, pause
from turnstate.storage.cold.s3_settings import S3Settings
from turnstate.storage.frames.native import crc32c

PAGE: Final = 1_000
"""Most objects that S3 lists or deletes in one request."""

STALE_MS: Final = 24 * 3_600_000
"""An upload in parts that was begun so long ago belongs to nobody."""

_CALL: Final = "turnstate-call"
"""Metadata: which call of `create` made an object."""

_CRC: Final = "turnstate-crc32c"
"""Metadata: CRC32C of all bytes; servers differ in what they say of parts."""

_CLASHES: Final = frozenset({"ObjectParentIsFile", "ExistingObjectIsDirectory"})
"""Codes of servers that keep objects as files."""


class S3Objects:
    """An `ObjectStore` in a bucket, below a prefix.

    Methods block and may be called from many threads; no more requests than
    `connections_max` are under way at once. Each has time limits and a few
    attempts. What is sent carries a CRC32C that the server checks; an object
    that is read whole is checked against the one it was made with.

    Creating is a put with `If-None-Match: *`, for large objects the same on
    completing an upload in parts. Each call marks its object, so that a call
    whose answer was lost, and which is then told "there already", knows its
    own from another's, whatever the bytes.

    Args:
        settings: Where the bucket is; no request is made yet.

    Raises:
        UnavailableError: boto3 cannot be set up with these settings.
    """

    def __init__(self, settings: S3Settings) -> None:
        self.settings = settings
        self._root = f"{settings.prefix}/" if settings.prefix else ""
        self._requests = S3Requests(settings)

    def create(self, name: str, data: bytes) -> bool:
        """Create an object durably; False where the name is taken.

        Raises:
            InvalidInputError: no store could hold the name, or this server has
                an object in the place of one of its folders.
            UnavailableError: S3 is out of reach or refuses; the object may
                still have arrived, whole.
        """
        key = self._key(name)
        metadata = {_CALL: uuid4().hex, _CRC: f"{crc32c(data):08x}"}
        attempt = 1
        while True:
            try:
                put(self._requests, key, data, metadata)
                return True
            except (ClientError, BotoCoreError) as error:
                made = self._made(key, metadata[_CALL], error)
                if made is not None:
                    return made
                if attempt >= self.settings.attempts_max:
                    raise self._undecided(key, error) from error
            pause(attempt)
            attempt += 1

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return an object's bytes, or a range of them, in one request.

        Raises:
            NotFoundError: there is no such object.
            ChecksumError: it was read whole, and is not what was created.
            UnavailableError: S3 is out of reach or refuses.
        """
        assert start >= 0
        assert length is None or length >= 0
        if start == 0 and length is None:
            return self._whole(name)
        if length == 0:
            # S3 has no range of no bytes; one tells whether there is an object.
            self._range(name, f"bytes={start}-{start}", lambda whole: whole)
            return b""
        end = None if length is None else start + length
        last = "" if end is None else str(end - 1)
        return self._range(name, f"bytes={start}-{last}", lambda all_: all_[start:end])

    def read_end(self, name: str, length: int) -> bytes:
        """Return the last bytes of an object, all of it where it is shorter.

        Raises:
            NotFoundError: there is no such object.
            UnavailableError: S3 is out of reach or refuses.
        """
        assert length >= 0
        if length == 0:
            return self.read(name, 0, 0)
        return self._range(name, f"bytes=-{length}", lambda all_: all_[-length:])

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """Yield objects whose names start with a prefix, in name order.

        A page of up to 1 000 costs a request, made as the caller goes on.
        Keys that no object of ours can have are passed over.

        Raises:
            UnavailableError: S3 is out of reach or refuses.
        """
        place = {"StartAfter": self._root + after} if after else {}
        while True:
            page = self._requests.ask(
                "list_objects_v2", Prefix=self._root + prefix, MaxKeys=PAGE, **place
            )
            if "IsTruncated" not in page:
                raise no_s3(self.settings, "gives a list without an end")
            for found in page.get("Contents", ()):
                name = str(found["Key"]).removeprefix(self._root)
                if is_name(name):
                    made_ms = round(found["LastModified"].timestamp() * 1_000)
                    yield ObjectInfo(name, int(found["Size"]), made_ms)
            if not page["IsTruncated"]:
                return
            place = {"ContinuationToken": page["NextContinuationToken"]}

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects; those that are not there count as removed.

        Raises:
            InvalidInputError: no store could hold a name.
            UnavailableError: S3 is out of reach or refuses; some may be gone.
        """
        keys = [self._key(name) for name in names]
        for begin in range(0, len(keys), PAGE):
            listed = [{"Key": key} for key in keys[begin : begin + PAGE]]
            done = self._requests.ask("delete_objects", Delete={"Objects": listed})
            if not ("Deleted" in done or "Errors" in done):
                raise no_s3(self.settings, "does not say what it deleted")
            errors = [e for e in done.get("Errors", ()) if e.get("Code") != "NoSuchKey"]
            if errors:
                first = errors[0]
                raise UnavailableError(
                    f"S3 did not delete {len(errors)} of {len(listed)} objects:"
                    f" {first.get('Code')}: {first.get('Message')}",
                    hint="check what the key of S3 may do in the bucket",
                )

    def ensure_bucket(self) -> None:
        """Make the bucket where it is not there.

        Raises:
            UnavailableError: it cannot be made, or belongs to somebody else.
        """
        region = self.settings.region
        # us-east-1 is the one that S3 wants unsaid.
        named = {"CreateBucketConfiguration": {"LocationConstraint": region}}
        try:
            self._requests.send("head_bucket")
        except (ClientError, BotoCoreError) as error:
            if not has_status(error, HTTPStatus.NOT_FOUND):
                raise translated(error, self.settings) from error
        else:
            return
        try:
            self._requests.send(
                "create_bucket", **(named if region != "us-east-1" else {})
            )
        except (ClientError, BotoCoreError) as error:
            raced = isinstance(error, ClientError) and "OwnedByYou" in code_of(error)
            if not raced:
                raise translated(error, self.settings) from error

    def sweep(self, now_ms: int, *, min_age_ms: int = STALE_MS) -> int:
        """Abort uploads in parts whose writer was killed; say how many.

        Their parts stand in no list, and are billed.

        Args:
            now_ms: The time; the server's clock dates uploads.
            min_age_ms: How long ago one was begun, at least.

        Raises:
            UnavailableError: S3 is out of reach or refuses.
        """
        swept = 0
        place: dict[str, Any] = {}
        while True:
            page = self._requests.ask(
                "list_multipart_uploads", Prefix=self._root, **place
            )
            for upload in page.get("Uploads", ()):
                begun_ms = round(upload["Initiated"].timestamp() * 1_000)
                if now_ms - begun_ms >= min_age_ms:
                    abort(self._requests, str(upload["Key"]), str(upload["UploadId"]))
                    swept += 1
            if not page.get("IsTruncated"):
                return swept
            place = {
                "KeyMarker": page["NextKeyMarker"],
                "UploadIdMarker": page["NextUploadIdMarker"],
            }

    def requests(self) -> dict[str, int]:
        """Return how many requests went out, every attempt, by S3's operation."""
        return self._requests.counts()

    def close(self) -> None:
        """Let the connections go."""
        self._requests.close()

    def _key(self, name: str) -> str:
        return self._root + checked_name(name)

    # -- create -----------------------------------------------------------

    def _made(self, key: str, call: str, error: Failure) -> bool | None:
        """Say whether a call that failed made the object; None to try again.

        Raises:
            InvalidInputError: a part of the name is an object.
            UnavailableError: it did not, or nobody can tell.
        """
        if isinstance(error, ClientError) and code_of(error) in _CLASHES:
            raise _clash(key) from error
        # Taken (412), a race under way (409), or an upload that an earlier
        # attempt completed (404): who made the object decides.
        settles = has_status(error, HTTPStatus.PRECONDITION_FAILED) or has_status(
            error, HTTPStatus.CONFLICT
        )
        if isinstance(error, ClientError) and code_of(error) == "NoSuchUpload":
            settles = True
        if not settles and not may_have_arrived(error):
            raise translated(error, self.settings) from error
        try:
            found = self._requests.send("head_object", Key=key)
        except (ClientError, BotoCoreError) as failed:
            if settles and is_missing(failed):
                return None
            raise translated(error, self.settings) from error
        if not found.get("ETag"):
            raise no_s3(self.settings, "has an object without an ETag")
        return bool(found["Metadata"].get(_CALL) == call)

    def _undecided(self, key: str, error: Failure) -> TurnstateError:
        """Return why an object that nobody has could not be made, time after time."""
        # Where folders are kept, one of them takes a name without being an object.
        if has_status(error, HTTPStatus.PRECONDITION_FAILED):
            return _clash(key)
        return translated(error, self.settings)

    # -- read -------------------------------------------------------------

    def _whole(self, name: str) -> bytes:
        answer, data = self._got(name)
        expected = answer["Metadata"].get(_CRC)
        if expected is not None and expected != f"{crc32c(data):08x}":
            raise ChecksumError(
                f"the object {name!r} is not what was created: CRC32C"
                f" {crc32c(data):08x}, not {expected}",
                field="name",
            )
        return data

    def _range(self, name: str, span: str, cut: Callable[[bytes], bytes]) -> bytes:
        """Return a range; `cut` takes it out of the whole that some servers give."""
        try:
            answer, data = self._got(name, Range=span)
        except _BehindEndError:
            return b""
        return data if answer.get("ContentRange") else cut(data)

    def _got(self, name: str, **parameters: str) -> tuple[Mapping[str, Any], bytes]:
        try:
            return self._requests.get(self._key(name), **parameters)
        except (ClientError, BotoCoreError) as error:
            if is_missing(error):
                raise NotFoundError(
                    f"there is no object {name!r}", field="name"
                ) from error
            if has_status(error, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE):
                raise _BehindEndError from error
            raise translated(error, self.settings) from error


class _BehindEndError(Exception):
    """A range begins where the object has ended."""


def _clash(key: str) -> InvalidInputError:
    return InvalidInputError(
        f"{key!r} would be an object and a folder of others, which this server has not",
        field="name",
    )
