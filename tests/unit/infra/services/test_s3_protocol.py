"""Requests are signed as Amazon's own client signs them."""

from datetime import UTC, datetime

from turnstate.infra.services.s3_protocol import Keys, signed_headers

OF_BOTOCORE = "8e61320ee9746857d3d50ffb61f47946eb2d5fc9e56d7428218f4a841c4ad1a0"
"""From its S3SigV4Auth, given the same request, keys and time."""


def test_the_signature_is_that_of_botocore() -> None:
    headers = signed_headers(
        "HEAD",
        "/turnstate",
        host="127.0.0.1:9000",
        keys=Keys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
        now=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )

    assert headers["x-amz-date"] == "20260102T030405Z"
    assert headers["authorization"].endswith(f"Signature={OF_BOTOCORE}")
