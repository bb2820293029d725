"""Settings of S3 that make no sense are refused by name, and secrets stay hidden."""

from typing import Any

import pytest

from turnstate.schemas.errors import InvalidInputError, UnavailableError
from turnstate.storage.cold import s3_settings
from turnstate.storage.cold.s3_settings import S3Settings, open_s3

GOOD: dict[str, Any] = {
    "endpoint": "http://127.0.0.1:9000",
    "bucket": "turnstate",
    "access_key": "somebody",
    "secret_key": "between us",
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("endpoint", "127.0.0.1:9000"),
        ("endpoint", "ftp://host"),
        ("endpoint", "http://"),
        ("endpoint", "http://host:port"),
        ("endpoint", "http://host/folder"),
        ("endpoint", "http://user:secret@host"),
        ("bucket", ""),
        ("bucket", "ab"),
        ("bucket", "Upper"),
        ("bucket", "a/b"),
        ("bucket", "x" * 64),
        ("prefix", "/"),
        ("prefix", "a/../b"),
        ("prefix", "a/"),
        ("access_key", ""),
        ("secret_key", ""),
        ("connections_max", 0),
        ("timeout_ms", 0),
        ("attempts_max", 0),
        ("multipart_bytes", (5 << 20) - 1),
        ("multipart_bytes", (5 << 30) + 1),
    ],
)
def test_what_cannot_be_meant_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidInputError) as raised:
        S3Settings(**{**GOOD, field: value})

    assert raised.value.field == field
    assert "between us" not in str(raised.value)


def test_secrets_do_not_show() -> None:
    settings = S3Settings(**GOOD)

    assert "between us" not in f"{settings!r} {settings}"
    assert settings.secret_key == "between us"


def test_without_boto_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(name: str) -> None:
        assert name == "boto3"

    monkeypatch.setattr(s3_settings, "find_spec", nothing)

    with pytest.raises(UnavailableError) as raised:
        open_s3(S3Settings(**GOOD))
    assert raised.value.hint == "pip install 'turnstate[s3]'"


def test_a_bucket_is_opened_without_a_request() -> None:
    objects = open_s3(S3Settings(**GOOD))

    assert objects.requests() == {}
    objects.close()
