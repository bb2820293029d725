"""What a folder keeps is whole or not there, and one holder has it at a time."""

import stat
from pathlib import Path

import pytest

from turnstate.infra.services.failures import ServiceError
from turnstate.infra.services.folder import Folder, Record, write_whole
from turnstate.infra.services.process import Process

TORN = ["", "{", "[]", "null", '{"ports": {}}', '{"ports": [1], "process": null}']


def test_a_record_is_read_as_it_was_kept(tmp_path: Path) -> None:
    folder = Folder("redis", tmp_path / "new")
    record = Record(Process(17, "boot:4"), {"redis": 6379})

    folder.keep(record)

    assert folder.record() == record


@pytest.mark.parametrize("text", TORN)
def test_a_torn_record_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "record.json").write_text(text)

    assert Folder("redis", tmp_path).record() == Record()


def test_one_command_at_a_time_is_at_work_in_a_folder(tmp_path: Path) -> None:
    folder, same = Folder("redis", tmp_path), Folder("redis", tmp_path)

    with (
        folder.locked(within_s=0),
        pytest.raises(ServiceError, match="another command"),
        same.locked(within_s=0.1),
    ):
        pass
    with same.locked(within_s=0):
        pass


def test_a_secret_is_for_its_owner(tmp_path: Path) -> None:
    write_whole(tmp_path / "keys", "secret", mode=0o600)

    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["keys"]


def test_the_last_words_are_the_last_lines(tmp_path: Path) -> None:
    folder = Folder("redis", tmp_path)
    assert folder.last_words() == ""

    folder.log.write_text("".join(f"line {at}\n" for at in range(2_000)) + "\n\n")

    assert folder.last_words() == "line 1997 | line 1998 | line 1999"
