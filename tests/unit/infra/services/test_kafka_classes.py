"""An archive of classes makes Kafka faster, or is done without."""

from pathlib import Path

import pytest

from turnstate.infra.services import kafka_classes
from turnstate.infra.services.failures import ServiceError
from turnstate.infra.services.programs import Java


@pytest.fixture(name="java")
def fixture_java(tmp_path: Path) -> Java:
    """A Java that starts with anything."""
    (tmp_path / "home" / "lib").mkdir(parents=True)
    (tmp_path / "home" / "lib" / "modules").write_bytes(b"modules")
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return Java(program, tmp_path / "home", "17")


@pytest.fixture(name="jar")
def fixture_jar(tmp_path: Path) -> Path:
    library = tmp_path / "cache" / "lib"
    library.mkdir(parents=True)
    (library / "kafka.jar").write_bytes(b"classes")
    return library / "kafka.jar"


def writes(folder: Path, archive: Path) -> bool:
    del folder
    archive.write_bytes(b"archive")
    return True


def fails(folder: Path, archive: Path) -> bool:
    del archive
    raise ServiceError("kafka", f"not in {folder}")


def is_torn(folder: Path, archive: Path) -> bool:
    return not writes(folder, archive)


def never(folder: Path, archive: Path) -> bool:
    raise AssertionError(folder, archive)


def test_it_is_made_once(java: Java, jar: Path) -> None:
    made = kafka_classes.flags(java, [jar], train=writes)

    assert any(flag.startswith("-XX:SharedArchiveFile=") for flag in made)
    assert kafka_classes.flags(java, [jar], train=never) == made
    assert not list(jar.parents[1].glob(".train-*"))


@pytest.mark.parametrize("train", [fails, is_torn])
def test_where_it_cannot_be_made_it_is_not_tried_again(
    java: Java, jar: Path, train: kafka_classes.Train
) -> None:
    assert kafka_classes.flags(java, [jar], train=train) == []
    assert kafka_classes.flags(java, [jar], train=never) == []


def test_one_that_java_refuses_is_not_used(java: Java, jar: Path) -> None:
    java.program.write_text("#!/bin/sh\nexit 1\n")

    assert kafka_classes.flags(java, [jar], train=writes) == []


def test_another_java_or_other_jars_have_another_archive(java: Java, jar: Path) -> None:
    made = kafka_classes.flags(java, [jar], train=writes)
    jar.write_bytes(b"other classes")
    others = kafka_classes.flags(java, [jar], train=writes)
    newer = kafka_classes.flags(java._replace(version="25"), [jar], train=writes)

    assert len({tuple(each) for each in (made, others, newer)}) == 3
