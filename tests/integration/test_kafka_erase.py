"""A user of a cluster is erased by one command: no byte is left where one can reach."""

import json
from collections.abc import Callable, Generator
from typing import Any

import pytest

from support.erased_cluster import EVE, Scene, said, scene_on
from support.told import turn
from turnstate.infra.services.redis import start_redis
from turnstate.schemas.errors import NotFoundError, UnavailableError
from turnstate.schemas.ids import SessionName
from turnstate.streams.kafka.cluster_reader import ClusterReader
from turnstate.streams.kafka.dead_letters import ClusterLetters
from turnstate.streams.kafka.erase_owners import ErasingOwners
from turnstate.streams.kafka.sync_producer import SyncTurnProducer


@pytest.fixture(name="scene", scope="module")
def fixture_scene(
    kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Scene]:
    """Three sessions of Eve's (cold, sealed, hot), and her voice in Bob's."""
    redis = start_redis(tmp_path_factory.mktemp("redis"))
    folder = tmp_path_factory.mktemp("erase")
    try:
        with scene_on(kafka, redis.url, folder) as scene:
            scene.start("one")
            yield scene
    finally:
        redis.stop()


def fill(scene: Scene) -> None:
    """Have everybody talk, and some sessions cool."""
    cold = [said(scene, at, "eve-cold") for at in range(10)]
    cold += [said(scene, at, "eve-sealed") for at in range(10, 12)]
    cold += [turn(at, "bob-cold", user="bob") for at in range(4)]
    cold += [turn(100, "bob-room", user="bob")]
    cold += [said(scene, at, "bob-room") for at in range(12, 18)]
    cold += [turn(100, "bob-hall", user="bob")]
    cold += [said(scene, at, "bob-hall") for at in range(18, 20)]
    scene.publish(cold)
    scene.cool()
    warm = [said(scene, at, "eve-sealed") for at in range(20, 30)]
    warm += [said(scene, at, "bob-hall") for at in range(30, 33)]
    warm += [turn(101, "bob-hall", user="bob"), turn(1, "bob-warm", user="bob")]
    warm += [said(scene, at, "eve-hot") for at in range(33, 39)]
    scene.publish(warm)
    for session in ("eve-sealed", "bob-hall"):
        scene.crash_after_a_seal(session, 30)
    scene.back_up()
    # The second of one id is refused: a dead letter.
    scene.publish([said(scene, 39, "eve-hot", turn_id="eve-hot-33")])


def key_of(record: bytes) -> bytes:
    """Return the session key that a turn names."""
    told = json.loads(record)
    return SessionName(told["tenant"], told["session"]).key()


def test_embedded_there_is_no_topic_to_trim(told: Callable[..., Any]) -> None:
    code, document = told("erase", "t", "--session", "s", "--trim-log")
    assert (code, document["error"]["field"]) == (2, "trim_log")


def test_a_user_is_gone_from_every_byte(scene: Scene) -> None:
    fill(scene)
    before = scene.found()
    assert set().union(*before.values()) >= {*scene.said[:39], EVE}
    assert all(len(words) > 5 for words in before.values()), before
    assert len(scene.holds(scene.compacted())) > 15
    others = scene.digests("bob")
    plan = scene.erase(user=EVE, dry_run=True)
    assert (plan["sessions"], plan["rewritten"]) == (3, 2)
    assert plan["found_after"] > 39
    assert scene.digests("bob") == others

    report = scene.command("erase", "t", "--user", EVE)

    assert {place: words for place, words in scene.found().items() if words} == {}
    assert (report["sessions"], report["rewritten"], report["found_after"]) == (3, 2, 0)
    assert (report["turns"], report["unreached"]) == (plan["turns"], 0)
    assert report["scanned"]["backups"] == 2
    told = "\n".join(report["not_covered"])
    for kept in ("turns, for ever", "deltas: frames, until about 20", "letters (1)"):
        assert kept in told
    assert scene.holds(scene.compacted()) == []
    now = scene.digests("bob")
    assert {name for name in others if now[name] != others[name]} == {
        "bob-hall",
        "bob-room",
    }
    assert scene.digests("eve") == {}
    with ClusterReader(scene.settings) as reader:
        assert reader.verify()["bad"] == []
        with pytest.raises(NotFoundError):
            reader.state("t", "eve-hot")
        assert len(reader.turns("t", "bob-hall")["turns"]) >= 2
    # Nothing that was refused of hers can be sent again.
    assert ClusterLetters(scene.settings).dead_letters() == {"dead_letters": []}
    again = scene.erase(user=EVE)
    assert (again["sessions"], again["rewritten"], again["turns"]) == (0, 0, 0)
    assert scene.digests("bob") == now


def test_a_new_worker_has_nothing_of_it_either(scene: Scene) -> None:
    """It reads the changelog, which Kafka has not compacted, and purges its files."""
    scene.worker("one").stop()
    topic = scene.cluster.topics.changelog
    assert len(scene.holds(scene.values(topic))) > 30
    scene.start("two", TURNSTATE_BACKUPS="")
    assert scene.until_gone() == {}
    assert scene.digests("eve") == {}
    with ClusterReader(scene.settings) as reader:
        assert reader.verify()["bad"] == []


def test_what_a_crash_left_is_finished_by_the_next_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a worker gives up what it keeps of a partition that is another's now."""
    scene.another_user()
    scene.publish(said(scene, at, "mal-1") for at in range(20))
    scene.publish([turn(200, "bob-pub", user="bob")])
    scene.publish(said(scene, at, "bob-pub") for at in range(20, 40))
    scene.start("one")
    kept = scene.cluster.folder / "data" / "two"
    assert len(list(kept.glob("[01]/store"))) == 2

    def crash(_: object, plan: object) -> None:
        raise KeyboardInterrupt(str(plan))

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(ErasingOwners, "rewrite", crash)
        scene.erase(user=scene.user)
    assert scene.digests("mal") == {}
    assert scene.found()["stores"]

    report = scene.erase(user=scene.user)

    assert (report["sessions"], report["rewritten"], report["found_after"]) == (0, 1, 0)
    assert (report["scanned"]["redis"], report["unreached"]) == (2, 0)
    assert len(list(kept.glob("[01]/store"))) == 1
    assert scene.until_gone() == {}
    assert scene.holds(scene.compacted()) == []


def test_topics_are_trimmed_where_that_is_asked_for(scene: Scene) -> None:
    """What others have that is refused stays; who takes over lacks nothing."""
    scene.another_user()
    topics = scene.cluster.topics
    bobs = turn(9, "bob-warm", user="bob", role=7)
    scene.publish(said(scene, at, "mal-2") for at in range(40))
    with SyncTurnProducer(scene.settings) as producer:
        refused = said(scene, 0, "mal-2", content="other words")
        for record in (bobs, refused):
            producer.publish_raw(record, key_of(record)).result(20)
    scene.publish([turn(8, "bob-warm", user="bob")])
    others = scene.digests("bob")

    report = scene.erase(session="mal-2", trim_log=True)

    assert report["sessions"] == 1
    assert set(report["trimmed"]) >= {topics.turns, topics.deltas}
    for topic in (topics.turns, topics.deltas, topics.dead_letters):
        assert scene.holds(scene.values(topic)) == [], topic
    (letter,) = ClusterLetters(scene.settings).dead_letters()["dead_letters"]
    assert letter["field"] == "role"
    scene.publish([said(scene, 0, "mal-2", content="a new life")])
    assert set(scene.digests("mal-2")) == {"mal-2"}
    scene.worker("two").stop()
    scene.settled()
    assert scene.digests("bob") == others
    assert scene.digests("mal-1") == {}


def test_who_cannot_be_reached_is_named(scene: Scene) -> None:
    scene.worker("one").stop()
    scene.until_nobody_runs()
    with pytest.raises(UnavailableError):
        scene.erase(session="mal-2")
    report = scene.command("erase", "t", "--user", scene.user, exit_code=6)
    assert report["unreached"] == 2
    assert [each[:11] for each in report["not_covered"][:2]] == [
        "partition 0",
        "partition 1",
    ]
