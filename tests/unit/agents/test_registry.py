"""The registry of agents, and what a worker binds of it."""

from pathlib import Path
from typing import Any, get_args

import pytest

from turnstate.agents.registry import AGENTS, Stream

faust = pytest.importorskip("faust", reason="the cluster extra is not installed")


def test_a_worker_binds_every_agent_to_the_topic_that_it_reads(tmp_path: Path) -> None:
    from turnstate.schemas.dialogue.phases import default_graph
    from turnstate.streams.clock import SystemClock
    from turnstate.streams.kafka.app import create_app
    from turnstate.streams.kafka.cluster_settings import ClusterSettings
    from turnstate.streams.kafka.metrics import WorkerMetrics
    from turnstate.streams.kafka.topics import Topics

    settings = ClusterSettings(prefix="p.")
    app: Any = create_app(
        settings,
        data=tmp_path,
        instance="w",
        log_id=bytes(16),
        changelog_id=bytes(16),
        log_name="log",
        seal_after_s=1,
        graph=default_graph(),
        clock=SystemClock(),
        metrics=WorkerMetrics(),
        told=lambda progress: None,
    )
    bound = {agent.name: str(agent.channel) for agent in app.agents.values()}
    wanted = {name: Topics("p.").named(each.reads) for name, each in AGENTS.items()}
    assert bound == wanted
    assert app.chunked_topics == frozenset(wanted.values())


def test_every_stream_has_a_topic_of_its_own() -> None:
    from turnstate.streams.kafka.topics import Topics

    names = {Topics().named(stream) for stream in get_args(Stream)}
    assert len(names) == len(get_args(Stream))
