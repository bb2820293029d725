"""The master key in a file: made once, private, and told from every other one."""

import os
import stat
from pathlib import Path

import pytest

from turnstate.schemas.errors import ConflictError, UnavailableError
from turnstate.storage.encryption.key_file import (
    LocalKeyFile,
    make_key_file,
    wrapper_of,
)

KEY = bytes(range(32))


def test_a_new_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = make_key_file(tmp_path / "deep" / "key")
    finally:
        os.umask(before)
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    assert made.is_private
    made.path.chmod(0o640)
    assert not made.is_private


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    make_key_file(tmp_path / "key")
    before = (tmp_path / "key").read_bytes()
    with pytest.raises(ConflictError) as refused:
        make_key_file(tmp_path / "key")
    assert refused.value.exit_code == 4
    assert (tmp_path / "key").read_bytes() == before


def test_a_file_read_again_is_the_same_key(tmp_path: Path) -> None:
    made = make_key_file(tmp_path / "key")
    again = wrapper_of(f"keyfile:{tmp_path / 'key'}")
    assert again is not None
    assert again.name == made.name
    assert again.unwrap(made.wrap(KEY)) == KEY
    assert made.wrap(KEY) != made.wrap(KEY)


def test_another_file_is_another_key(tmp_path: Path) -> None:
    one, other = make_key_file(tmp_path / "one"), make_key_file(tmp_path / "other")
    assert one.name != other.name
    with pytest.raises(UnavailableError) as refused:
        other.unwrap(one.wrap(KEY))
    assert (refused.value.field, refused.value.exit_code) == ("encryption", 6)
    with pytest.raises(UnavailableError):
        one.unwrap(b"short")


def test_the_name_does_not_tell_the_key(tmp_path: Path) -> None:
    made = make_key_file(tmp_path / "key")
    secret = made.path.read_text().split()[1]
    assert secret not in made.name
    assert secret not in repr(made)


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"turnstate-master-key-1",
        b"turnstate-master-key-1 c2hvcnQ=\n",
        b"turnstate-master-key-1 " + b"\xff" * 44,
        b"turnstate-master-key-2 " + b"A" * 43 + b"=\n",
        b"\0" * 100_000,
    ],
)
def test_what_is_no_key_file_is_named_with_the_setting(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UnavailableError) as refused:
        LocalKeyFile(path)
    assert (refused.value.field, refused.value.code) == ("encryption", "no_key")
    assert str(path) in str(refused.value)


def test_no_setting_is_no_encryption_and_an_unknown_scheme_is_named() -> None:
    assert wrapper_of("") is None
    with pytest.raises(UnavailableError, match=r"awskms.*turnstate\.key_wrappers"):
        wrapper_of("awskms:arn")
