"""Cluster settings: file, environment and ranges, each error with its field."""

from pathlib import Path
from typing import Any

import pytest

from turnstate.schemas.errors import InvalidInputError
from turnstate.streams.kafka.cluster_settings import FILE_NAME, ClusterSettings

WRITTEN_BY_UP = """
[kafka]
bootstrap = "127.0.0.1:1234"
[redis]
url = "redis://127.0.0.1:2"
[s3]
endpoint = "http://127.0.0.1:3"
access_key = "key"
secret_key = "hush"
bucket = "cold-tier"
"""


def test_a_folder_without_the_file_has_the_defaults(tmp_path: Path) -> None:
    assert ClusterSettings() == ClusterSettings.load(tmp_path, {})


def test_what_cluster_up_writes_is_read(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(WRITTEN_BY_UP)
    settings = ClusterSettings.load(tmp_path, {})
    assert settings == ClusterSettings(
        bootstrap="127.0.0.1:1234",
        redis="redis://127.0.0.1:2",
        s3="http://127.0.0.1:3",
        s3_bucket="cold-tier",
        s3_access_key="key",
        s3_secret_key="hush",
    )
    assert "hush" not in repr(settings)
    assert "hush" not in str(settings.rows())


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('[kafka]\nbootstrap = "a:1"\npartitions = 4\n')
    settings = ClusterSettings.load(
        tmp_path, {"TURNSTATE_KAFKA": "b:2,c:3", "TURNSTATE_GROUP": "eu"}
    )
    assert (
        settings.brokers(),
        settings.group,
        settings.partitions,
    ) == (["b:2", "c:3"], "eu", 4)
    sources = {row["name"]: row["source"] for row in settings.rows()}
    assert (sources["bootstrap"], sources["partitions"], sources["prefix"]) == (
        "TURNSTATE_KAFKA",
        FILE_NAME,
        "default",
    )


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"partitions": 0}, "partitions"),
        ({"partitions": True}, "partitions"),
        ({"partitions": "8"}, "partitions"),
        ({"group": ""}, "group"),
        ({"group": "a/b"}, "group"),
        ({"prefix": "eu "}, "prefix"),
        ({"bootstrap": ""}, "bootstrap"),
        ({"bootstrap": "host"}, "bootstrap"),
        ({"bootstrap": "a:1,,b:2"}, "bootstrap"),
        ({"bootstrap": "http://a:1/"}, "bootstrap"),
        ({"session_timeout_ms": 1}, "session_timeout_ms"),
        ({"query_port": 65_536}, "query_port"),
        ({"security_protocol": "TLS"}, "security_protocol"),
        ({"sasl_mechanism": "GSSAPI"}, "sasl_mechanism"),
    ],
)
def test_a_value_out_of_range_is_named(values: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        ClusterSettings(**values)
    assert caught.value.field == field
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[kafka", FILE_NAME),
        ("[kafka]\nbootstraps = 1\n", "kafka.bootstraps"),
        ("[redis]\nbootstrap = 'a:1'\n", "redis.bootstrap"),
        ("bootstrap = 'a:1'\n", "bootstrap"),
        ("[kafka]\npartitions = 'eight'\n", "partitions"),
        ("[kafka]\npartitions = 1.5\n", "partitions"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path: Path, text: str, field: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(InvalidInputError) as caught:
        ClusterSettings.load(tmp_path, {})
    assert caught.value.field == field


def test_a_variable_that_is_no_number_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        ClusterSettings.load(tmp_path, {"TURNSTATE_LINGER_MS": "soon"})
    assert caught.value.field == "linger_ms"


def test_passwords_come_from_the_variables_that_are_named() -> None:
    settings = ClusterSettings(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username_env="KAFKA_USER",
        sasl_password_env="KAFKA_WORD",
    )
    options = settings.client_options({"KAFKA_USER": "ann", "KAFKA_WORD": "x"})
    assert options.pop("ssl_context") is not None
    assert options == {
        "bootstrap_servers": ["127.0.0.1:9092"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ann",
        "sasl_plain_password": "x",
    }
    with pytest.raises(InvalidInputError) as caught:
        settings.client_options({"KAFKA_USER": "ann"})
    assert caught.value.field == "sasl_password_env"


def test_certificates_that_are_not_there_are_named() -> None:
    settings = ClusterSettings(security_protocol="SSL", tls_ca_file="/nowhere.pem")
    with pytest.raises(InvalidInputError) as caught:
        settings.client_options({})
    assert caught.value.field == "tls_ca_file"
