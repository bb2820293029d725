"""The file says where services are, and keeps what a person wrote into it."""

import stat
import tomllib
from pathlib import Path

import pytest

from turnstate.schemas.errors import ConflictError, InvalidInputError
from turnstate.streams.cli.cluster_file import (
    FILE_NAME,
    MARK,
    check_ours,
    toml,
    write_connections,
)

KAFKA = {"kafka": {"bootstrap": "127.0.0.1:9092"}}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    strange = {"a b": {"key.with.dots": 'quote " slash \\ 北京 \x7f\n', "n": 3}}

    assert tomllib.loads(toml(strange)) == strange


def test_other_sections_and_keys_stay(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_text(
        f'{MARK}[kafka]\nbootstrap = "127.0.0.1:1"\npartitions = 4 # few\n'
        "[worker]\nhot_bytes = 1\n"
    )
    check_ours(tmp_path)

    write_connections(tmp_path, KAFKA)

    assert tomllib.loads(path.read_text()) == {
        "kafka": {"bootstrap": "127.0.0.1:9092", "partitions": 4},
        "worker": {"hot_bytes": 1},
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_says_so_already_keeps_its_comments(tmp_path: Path) -> None:
    text = f'{MARK}[kafka]\nbootstrap = "127.0.0.1:9092" # mine\n'
    (tmp_path / FILE_NAME).write_text(text)

    write_connections(tmp_path, KAFKA)

    assert (tmp_path / FILE_NAME).read_text() == text


def test_a_file_for_another_cluster_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('[kafka]\nbootstrap = "far.example:9092"\n')

    with pytest.raises(ConflictError, match="was not written"):
        check_ours(tmp_path)


def test_settings_without_addresses_are_taken_over(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("[worker]\nhot_bytes = 1\n")
    check_ours(tmp_path)

    write_connections(tmp_path, KAFKA)

    assert (tmp_path / FILE_NAME).read_text().startswith(MARK)


@pytest.mark.parametrize("text", [b"[kafka", b"\xff\xfe", f"{MARK}[".encode()])
def test_a_torn_file_is_named(tmp_path: Path, text: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(text)

    with pytest.raises(InvalidInputError, match=r"cluster\.toml"):
        check_ours(tmp_path)
        write_connections(tmp_path, KAFKA)
