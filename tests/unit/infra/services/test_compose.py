"""The compose file pins its images, and takes what the launcher gives it."""

import re
from pathlib import Path

import pytest

from turnstate.infra.services.compose import COMPOSE_FILE, ComposeCluster
from turnstate.infra.services.failures import MissingProgramError
from turnstate.infra.services.kafka_jars import FILES, KAFKA_VERSION
from turnstate.infra.services.reports import SERVICES

TEXT = COMPOSE_FILE.read_text(encoding="utf-8")



def test_each_image_is_pinned_and_each_port_is_on_loopback() -> None:
    images = re.findall(r"image: (\S+)", TEXT)

    assert len(images) == len(SERVICES)
    assert all(re.fullmatch(r"[a-z/]+:[\w.-]*\d[\w.-]*", image) for image in images)
    assert f"apache/kafka:{KAFKA_VERSION}" in images
    assert TEXT.count('ports: ["127.0.0.1:') == len(SERVICES)
    assert f"<version>{KAFKA_VERSION}</version>" in (FILES / "pom.xml").read_text()


def test_it_asks_only_for_variables_that_are_given() -> None:
    given = {f"TURNSTATE_{name.upper()}_PORT" for name in SERVICES}
    given |= {"TURNSTATE_S3_ACCESS_KEY", "TURNSTATE_S3_SECRET_KEY"}

    assert set(re.findall(r"\$\{(\w+):-", TEXT)) == given


def test_broker_settings_are_those_of_the_properties() -> None:
    said = dict(re.findall(r"(KAFKA_\w+): \"?([^\"\n]+)", TEXT))
    lines = (FILES / "server.properties").read_text().splitlines()
    pairs = dict(line.split("=") for line in lines if "=" in line and line[0] != "#")
    plain = {name: value for name, value in pairs.items() if "$" not in value}
    # The listeners differ: a container has an inside and an outside.
    listening = {"inter.broker.listener.name", "listener.security.protocol.map"}

    for name in plain.keys() - listening:
        assert said[f"KAFKA_{name.upper().replace('.', '_')}"] == plain[name], name


def test_without_a_daemon_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    cluster = ComposeCluster(tmp_path / "cluster")

    with pytest.raises(MissingProgramError, match="Docker does not answer"):
        cluster.up()
    assert not cluster.is_used
    assert {report.state for report in cluster.status()} == {"stopped"}
