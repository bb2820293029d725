"""The launcher's Redis Cluster: three masters, taken up again after a crash."""

from collections.abc import Generator
from pathlib import Path

import pytest

from support.redis_nodes import until
from support.shared_services import started
from turnstate.infra.services.redis_cluster import (
    MASTERS,
    SLOTS,
    RedisCluster,
    ask,
    start_redis_cluster,
)


@pytest.fixture(name="cluster")
def fixture_cluster(tmp_path: Path) -> Generator[RedisCluster]:
    cluster = started(start_redis_cluster, tmp_path / "a folder, 北京")
    yield cluster
    cluster.stop()


def info(cluster: RedisCluster, node: int) -> dict[str, str]:
    lines = ask(cluster.nodes[node].port("redis"), "CLUSTER", "INFO").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def test_three_masters_share_all_slots(cluster: RedisCluster) -> None:
    pids = [node.pid for node in cluster.nodes]
    url = cluster.url

    start_redis_cluster(cluster.path)

    assert [node.pid for node in cluster.nodes] == pids, "it ran already"
    assert cluster.state == "running"
    assert cluster.connection == {"url": url}
    assert url.count(":") == MASTERS + 1
    for at in range(MASTERS):
        told = info(cluster, at)
        assert (told["cluster_size"], told["cluster_slots_ok"]) == ("3", str(SLOTS))
    said = {ask(node.port("redis"), "SET", "name", "x")[:6] for node in cluster.nodes}
    assert said == {"+OK", "-MOVED"}


def test_a_killed_node_is_missed_and_comes_back(cluster: RedisCluster) -> None:
    url = cluster.url
    cluster.nodes[2].kill()

    assert cluster.state == "crashed"
    until(lambda: info(cluster, 0)["cluster_state"] == "fail")
    cluster.start()

    assert (cluster.state, cluster.url) == ("running", url)


def test_one_that_was_ended_is_taken_up_with_its_slots(cluster: RedisCluster) -> None:
    url = cluster.url

    assert cluster.stop()
    assert cluster.state == "stopped"
    cluster.start()

    assert (cluster.state, cluster.url) == ("running", url)


def test_a_question_to_nobody_has_no_answer(cluster: RedisCluster) -> None:
    port = cluster.nodes[0].port("redis")
    assert ask(port, "PING") == "+PONG"
    assert ask(port, "NONSENSE").startswith("-ERR")
    cluster.nodes[0].kill()

    assert ask(port, "PING") == ""
