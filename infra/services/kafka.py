"""Run one Apache Kafka node (KRaft) on loopback, without Docker."""

import base64
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import ClassVar, Final

from turnstate.infra.services import kafka_classes, kafka_jars, programs
from turnstate.infra.services.failures import ServiceError
from turnstate.infra.services.kafka_protocol import metadata
from turnstate.infra.services.ports import HOST
from turnstate.infra.services.ran import ran
from turnstate.infra.services.server import Command, Server

_FORMAT_S: Final = 60.0

_STEADY: Final = ("-Xms512m", "-Xmx1g")
_FAST: Final = ("-Xms256m", "-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Less work before the first answer, less speed after a minute."""


class KafkaServer(Server):
    """One node that is broker and controller; its data survives every end.

    Args:
        path: Its folder.
        fast: Start and recover in seconds, for tests; else settings and
            compiler that suit work.
        archive: Where it writes the classes it has loaded, at an orderly end;
            if not given, it reads them from the archive in the cache.
    """

    name: ClassVar[str] = "kafka"
    port_names: ClassVar[tuple[str, ...]] = ("broker", "controller")

    def __init__(
        self, path: Path, *, fast: bool = False, archive: Path | None = None
    ) -> None:
        super().__init__(path)
        self.fast = fast
        self._archive = archive

    @property
    def bootstrap(self) -> str:
        """What a client is given: host and port."""
        return f"{HOST}:{self.port('broker')}"

    @property
    def connection(self) -> dict[str, str]:
        """The broker to ask first."""
        return {"bootstrap": self.bootstrap}

    def answers(self, ports: Mapping[str, int]) -> bool:
        """Say whether this cluster's broker answers, and counts itself as live."""
        answer = metadata(ports["broker"])
        return (
            answer is not None
            and (HOST, ports["broker"]) in answer.brokers
            and answer.cluster == self._cluster()
        )

    def command(self, ports: Mapping[str, int]) -> Command:
        """Write the properties, format the storage once, and return the command.

        Raises:
            MissingProgramError: Java is not here, or Maven before the first
                start.
            ServiceError: Kafka cannot be fetched, or the storage formatted.
        """
        java = programs.java()
        jars = kafka_jars.kafka_jars(java)
        settings = self._write_settings("server.properties", ports, "data/log")
        if not (self._storage / "meta.properties").exists():
            self._format(java, jars, ports)
        flags = _FAST if self.fast else _STEADY
        if self._archive is None:
            class_flags = kafka_classes.flags(java, jars, train=_train)
        else:
            class_flags = kafka_classes.writing_flags(self._archive)
        return Command(
            [
                *kafka_classes.java_command(java, jars),
                *class_flags,
                *flags,
                # A crash of the JVM is told where its log is.
                "-XX:ErrorFile=jvm-crash-%p.log",
                "kafka.Kafka",
                settings,
            ],
            java.environment(),
        )

    @property
    def _storage(self) -> Path:
        return self.folder.data / "log"

    def _cluster(self) -> str | None:
        """Return the id that the storage was formatted with."""
        try:
            text = (self._storage / "meta.properties").read_text(encoding="utf-8")
        except OSError:
            return None
        pairs = (line.partition("=") for line in text.splitlines())
        return next((value for name, _, value in pairs if name == "cluster.id"), None)

    def _write_settings(
        self, name: str, ports: Mapping[str, int], storage: str
    ) -> str:
        """Write a file of settings, and return its name in the folder."""
        text = (kafka_jars.FILES / "server.properties").read_text(encoding="utf-8")
        if self.fast:
            text += (kafka_jars.FILES / "fast.properties").read_text(encoding="utf-8")
        filled = Template(text).substitute(
            host=HOST,
            broker_port=ports["broker"],
            controller_port=ports["controller"],
            log_folder=storage,
        )
        (self.folder.path / name).write_text(filled, encoding="ascii")
        return name

    def _format(
        self, java: programs.Java, jars: list[Path], ports: Mapping[str, int]
    ) -> None:
        """Format beside, then rename: a format that was cut off starts again."""
        beside = self.folder.data / "log.new"
        shutil.rmtree(beside, ignore_errors=True)
        settings = self._write_settings("format.properties", ports, "data/log.new")
        tool = [*kafka_classes.java_command(java, jars), *_FAST]
        tool += ["kafka.tools.StorageTool", "format"]
        try:
            done = ran(
                [*tool, "-t", new_cluster_id(), "-c", settings],
                within_s=_FORMAT_S,
                folder=self.folder.path,
                environment=java.environment(),
            )
        except OSError as error:
            raise self._failed(f"cannot format: {error}") from error
        if done.returncode:
            raise ServiceError(
                "kafka", f"its storage cannot be formatted: {done.stderr.strip()}"
            )
        beside.rename(self._storage)


def _train(folder: Path, archive: Path) -> bool:
    node = KafkaServer(folder, fast=True, archive=archive)
    try:
        node.start()
    finally:
        in_order = node.stop()
    return in_order


def start_kafka(folder: Path, *, fast: bool = True) -> KafkaServer:
    """Start a broker in a folder, unless it runs there; return when it answers.

    Example:
        ```
        kafka = start_kafka(tmp_path / "kafka")
        connect(kafka.bootstrap)
        kafka.kill()  # as a crash does
        kafka.restart()  # the same port, the same data
        kafka.stop()
        ```

    Raises:
        MissingProgramError: with the command that brings what is missing.
        ServiceError: it does not start; its log is named.
    """
    server = KafkaServer(folder, fast=fast)
    server.start()
    return server


def new_cluster_id() -> str:
    """Return 22 characters of URL-safe base64, the first not "-".

    With a dash in front, Kafka's own tool would take it for an option.
    """
    while True:
        made = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        if not made.startswith("-"):
            return made
