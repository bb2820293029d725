"""Send one object to S3 unless its name is taken, at once or in parts."""

from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from turnstate.schemas.errors import UnavailableError
from turnstate.storage.cold.s3_failures import has_status, no_s3, translated
from turnstate.storage.cold.s3_requests import Answer, S3Requests
from turnstate.storage.frames.native import crc32c


def put(
    requests: S3Requests, key: str, data: bytes, metadata: Mapping[str, str]
) -> None:
    """Create an object; failures come as boto's, with their meaning still in them.

    Args:
        requests: Where to.
        key: The whole key.
        data: The bytes; above `multipart_bytes` of the settings they go in parts.
        metadata: What S3 keeps beside them.

    Raises:
        ClientError: S3 refused it; 412 where the name is taken.
        BotoCoreError: it got no answer.
        UnavailableError: what answers is no S3 server, or connections lack.
    """
    if len(data) > requests.settings.multipart_bytes:
        answer = _put_parts(requests, key, data, metadata)
    else:
        answer = requests.send(
            "put_object",
            Key=key,
            Body=data,
            Metadata=metadata,
            ChecksumCRC32C=_checksum(data),
            IfNoneMatch="*",
        )
    if not answer.get("ETag"):
        raise no_s3(requests.settings, "takes an object and names no ETag")


def abort(requests: S3Requests, key: str, upload: str) -> None:
    """End an upload in parts and free them; one that has ended may be gone.

    Raises:
        UnavailableError: S3 is out of reach or refuses.
    """
    try:
        requests.send("abort_multipart_upload", Key=key, UploadId=upload)
    except (ClientError, BotoCoreError) as error:
        if not has_status(error, HTTPStatus.NOT_FOUND):
            raise translated(error, requests.settings) from error


def _put_parts(
    requests: S3Requests, key: str, data: bytes, metadata: Mapping[str, str]
) -> Answer:
    begun = requests.send(
        "create_multipart_upload",
        Key=key,
        Metadata=metadata,
        ChecksumAlgorithm="CRC32C",
    )
    upload = begun.get("UploadId")
    if not upload:
        return {}
    size = requests.settings.multipart_bytes
    try:
        parts = [
            _put_part(requests, key, upload, number, data[begin : begin + size])
            for number, begin in enumerate(range(0, len(data), size), start=1)
        ]
        return requests.send(
            "complete_multipart_upload",
            Key=key,
            UploadId=upload,
            MultipartUpload={"Parts": parts},
            IfNoneMatch="*",
        )
    except BaseException:
        # What is aborted cannot be completed behind our back either.
        with suppress(UnavailableError):
            abort(requests, key, upload)
        raise


def _put_part(
    requests: S3Requests, key: str, upload: str, number: int, part: bytes
) -> Mapping[str, Any]:
    checksum = _checksum(part)
    sent = requests.send(
        "upload_part",
        Key=key,
        UploadId=upload,
        PartNumber=number,
        Body=part,
        ChecksumCRC32C=checksum,
    )
    return {"PartNumber": number, "ETag": sent["ETag"], "ChecksumCRC32C": checksum}


def _checksum(data: bytes) -> str:
    """Return a CRC32C as S3's headers hold it."""
    return b64encode(crc32c(data).to_bytes(4, "big")).decode()
