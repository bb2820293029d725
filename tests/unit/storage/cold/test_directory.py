"""A folder holds objects whole, durable, and apart from what is no object."""

import errno
import os
import resource
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from support import creating
from support.creating import body_of
from turnstate.schemas.errors import InvalidInputError, UnavailableError
from turnstate.storage.cold.directory import STALE_MS, DirectoryObjects

RACERS: Final = 4
RACES: Final = 60
BYTES_MAX: Final = 200_000
KILLS: Final = 6
SMALL_DISK: Final = 1 << 20


@pytest.fixture(name="objects")
def fixture_objects(tmp_path: Path) -> DirectoryObjects:
    return DirectoryObjects(tmp_path / "objects")


def files(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
    )


def started(folder: Path, writer: str, count: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [
            *(sys.executable, creating.__file__, str(folder), writer),
            *(str(count), str(BYTES_MAX)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def let_go(process: "subprocess.Popen[bytes]") -> None:
    """Wait until a writer is ready, then let it write."""
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"ready\n"
    process.stdin.close()


def test_names_are_folders_and_files(objects: DirectoryObjects) -> None:
    objects.create("packs/0001-A.pack", b"x")
    objects.create("é 1", b"y")

    assert files(objects.path) == ["%C3%A9%201", "packs/0001-A.pack"]


def test_a_name_is_an_object_or_a_folder(objects: DirectoryObjects) -> None:
    objects.create("a", b"x")
    objects.create("folder/b", b"y")

    for name in ("a/b", "a/b/c", "folder"):
        with pytest.raises(InvalidInputError) as raised:
            objects.create(name, b"z")
        assert raised.value.field == "name"
    objects.delete(["a/b", "folder"])
    assert [info.name for info in objects.list()] == ["a", "folder/b"]


def test_what_is_no_object_is_not_listed(objects: DirectoryObjects) -> None:
    objects.create("a", b"x")
    (objects.path / ".DS_Store").write_bytes(b"x")
    (objects.path / "not escaped").write_bytes(b"x")
    (objects.path / "%zz").write_bytes(b"x")
    (objects.path / "%ff").write_bytes(b"x")
    (objects.path / "%2e%2E").write_bytes(b"x")
    (objects.path / "empty").mkdir()
    (objects.path / "link").symlink_to(objects.path / "a")

    assert [info.name for info in objects.list()] == ["a"]


def test_no_name_leaves_the_folder(objects: DirectoryObjects, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")

    for name in ("../secret", "a/../../secret", str(tmp_path / "secret")):
        with pytest.raises(InvalidInputError):
            objects.read(name)
        with pytest.raises(InvalidInputError):
            objects.delete([name])
    assert list(objects.list("../")) == []
    assert (tmp_path / "secret").read_bytes() == b"secret"


def test_of_several_processes_that_create_one_name_one_wins(
    objects: DirectoryObjects,
) -> None:
    racers = [started(objects.path, "racer", RACES) for _ in range(RACERS)]
    for racer in racers:
        let_go(racer)
    won: list[str] = []
    for racer in racers:
        assert racer.stdout is not None
        with racer.stdout:
            won += racer.stdout.read().decode().split()
        assert racer.wait() == 0

    assert sorted(won) == [f"shared/{number:05d}" for number in range(RACES)]
    for name in won:
        assert objects.read(name) == body_of(name, BYTES_MAX)
    assert files(objects.path / ".writing") == []


def test_a_killed_writer_leaves_every_object_whole_or_absent(tmp_path: Path) -> None:
    folder = tmp_path / "objects"
    acknowledged: list[str] = []
    for number in range(KILLS):
        writer = started(folder, f"writer{number}", 10_000)
        let_go(writer)
        time.sleep(0.02 * number)
        writer.kill()
        assert writer.stdout is not None
        with writer.stdout:
            acknowledged += writer.stdout.read().decode().split()
        writer.wait()

    objects = DirectoryObjects(folder)
    listed = [info.name for info in objects.list()]
    assert acknowledged
    assert set(acknowledged) <= set(listed)
    assert len(listed) - len(acknowledged) <= KILLS
    for name in listed:
        assert objects.read(name) == body_of(name, BYTES_MAX)
    objects.sweep(time.time_ns() // 1_000_000 + STALE_MS)
    assert files(folder / ".writing") == []


def test_torn_files_are_invisible_and_go_when_they_are_old(
    objects: DirectoryObjects,
) -> None:
    now_ms = 1_700_000_000_000
    for name, age_ms in (("old", STALE_MS), ("young", STALE_MS - 1)):
        path = objects.path / ".writing" / name
        path.write_bytes(b"half")
        os.utime(path, ns=(0, (now_ms - age_ms) * 1_000_000))

    assert list(objects.list()) == []
    assert objects.sweep(now_ms) == 1
    assert files(objects.path) == [".writing/young"]
    DirectoryObjects(objects.path)
    assert files(objects.path) == []


@contextmanager
def file_limit(size: int) -> Generator[None]:
    """Let no file of this process grow above a size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def small_disk(folder: Path) -> Generator[None]:
    """Put a folder on a small disk; without the right to, limit its files."""
    folder.mkdir()
    mounted = os.geteuid() == 0 and (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "none", str(folder)],
            check=False,
            capture_output=True,
        ).returncode
        == 0
    )
    try:
        if mounted:
            yield
        else:
            with file_limit(SMALL_DISK):
                yield
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_told_and_leaves_nothing_half(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    with small_disk(folder):
        objects = DirectoryObjects(folder)
        assert objects.create("packs/fits", bytes(300_000))
        with pytest.raises(UnavailableError, match="disk") as raised:
            objects.create("packs/does not", bytes(2 * SMALL_DISK))

        assert "make room" in str(raised.value.hint)
        assert [info.name for info in objects.list()] == ["packs/fits"]
        assert files(folder) == ["packs/fits"]
        assert objects.create("packs/fits too", bytes(300_000))


def test_a_file_limit_is_told_alike(objects: DirectoryObjects) -> None:
    with (
        file_limit(100_000),
        pytest.raises(UnavailableError, match="too large") as raised,
    ):
        objects.create("a", bytes(200_000))

    assert "make room" in str(raised.value.hint)
    assert files(objects.path) == []


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EROFS, "read and write"),
        (errno.EDQUOT, "make room"),
        (errno.EIO, "look at the disk"),
    ],
)
def test_the_system_s_refusals_come_with_a_hint(
    objects: DirectoryObjects, monkeypatch: pytest.MonkeyPatch, number: int, says: str
) -> None:
    def refuse(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(UnavailableError) as raised:
        objects.create("a", b"x")

    assert says in str(raised.value.hint)
    assert os.strerror(number) in raised.value.message


def test_a_file_system_without_links_is_named(
    objects: DirectoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(UnavailableError) as raised:
        objects.create("a", b"x")

    assert "hard links" in raised.value.message
    assert files(objects.path) == []


def test_a_folder_that_was_removed_is_named(objects: DirectoryObjects) -> None:
    objects.create("packs/a", b"x")
    objects.path.rename(objects.path.with_name("elsewhere"))

    with pytest.raises(UnavailableError) as raised:
        objects.create("packs/b", b"x")
    assert "was removed" in str(raised.value.hint)


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "objects").write_bytes(b"a file")

    with pytest.raises(UnavailableError, match="objects"):
        DirectoryObjects(tmp_path / "objects")


def test_what_was_acknowledged_is_on_the_disk_first(
    objects: DirectoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file before its name, its name and new folders before the answer."""
    happened: list[str] = []
    fsync, link, unlink = os.fsync, os.link, Path.unlink

    def synced(file: int) -> None:
        path = Path(f"/proc/self/fd/{file}").readlink()
        inside = path.relative_to(objects.path).as_posix()
        happened.append("sync " + ("bytes" if ".writing/" in inside else inside))
        fsync(file)

    def linked(source: Path, target: Path) -> None:
        happened.append("link")
        link(source, target)

    def unlinked(self: Path, missing_ok: bool = False) -> None:
        happened.append("unlink " + ("temporary" if ".writing" in str(self) else ""))
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    monkeypatch.setattr(Path, "unlink", unlinked)

    objects.create("packs/new/a", b"x")
    assert happened == [
        *("sync .", "sync packs", "sync bytes", "link", "unlink temporary"),
        "sync packs/new",
    ]
    happened.clear()
    objects.create("packs/new/a", b"y")
    assert happened == ["sync packs/new"]
    happened.clear()
    objects.delete(["packs/new/a"])
    assert happened == ["unlink ", "sync packs/new"]
