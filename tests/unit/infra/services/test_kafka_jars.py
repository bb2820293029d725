"""Kafka is fetched once, and a fetch that was cut off counts for nothing."""

from pathlib import Path

import pytest

from turnstate.infra.services import programs
from turnstate.infra.services.failures import MissingProgramError
from turnstate.infra.services.kafka_jars import are_fetched, cache_folder, kafka_jars

JAVA = programs.Java(Path("java"), Path("home"), "17")

FETCHES = """#!/bin/sh
for word in "$@"; do
    case $word in -DoutputDirectory=*) out=${word#*=} ;; esac
done
mkdir -p "$out"
touch "$out/b.jar"
%s
touch "$out/kafka_2.13-4.4.0.jar"
"""


@pytest.fixture(name="maven")
def fixture_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "mvn"
    monkeypatch.setattr(programs, "maven", lambda: program)
    return program


def write(program: Path, text: str) -> None:
    program.write_text(text)
    program.chmod(0o755)


def test_a_cut_fetch_is_told_and_the_next_one_starts_afresh(
    tmp_path: Path, maven: Path
) -> None:
    cache = tmp_path / "cache"
    (cache / ".fetch-left").mkdir(parents=True)
    write(maven, FETCHES % "echo 'no route to host'; exit 1")

    with pytest.raises(MissingProgramError, match="no route to host"):
        kafka_jars(JAVA, cache)
    assert not are_fetched(cache)

    write(maven, FETCHES % "")
    jars = kafka_jars(JAVA, cache)

    assert [jar.name for jar in jars] == ["b.jar", "kafka_2.13-4.4.0.jar"]
    assert sorted(path.name for path in cache.iterdir()) == ["lib", "lock"]
    maven.unlink()
    assert kafka_jars(JAVA, cache) == jars


def test_a_fetch_without_kafka_in_it_is_none(tmp_path: Path, maven: Path) -> None:
    write(maven, FETCHES % "exit 0")

    with pytest.raises(MissingProgramError, match="could not fetch"):
        kafka_jars(JAVA, tmp_path / "cache")
    assert not are_fetched(tmp_path / "cache")


def test_the_cache_moves_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "elsewhere")

    assert cache_folder() == Path("elsewhere/turnstate/kafka-4.4.0")
