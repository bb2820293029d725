"""A cluster that encrypts: nothing said stands at rest, and destroyed keys end it."""

import shutil
import time
from collections.abc import Generator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.encrypting import key_setting
from support.erased_cluster import PARTITIONS, Scene, said, scene_on
from support.told import turn
from turnstate.infra.services.redis import start_redis
from turnstate.schemas.errors import NotFoundError
from turnstate.storage.warm.changelog_records import KEY_KIND
from turnstate.streams.embedded.store import EmbeddedStore
from turnstate.streams.kafka.cluster_reader import ClusterReader
from turnstate.streams.kafka.partition_keys import keys_place
from turnstate.streams.settings import Settings

VARIABLE = "TURNSTATE_ENCRYPTION"


@pytest.fixture(name="redis_url", scope="module")
def fixture_redis_url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    redis = start_redis(tmp_path_factory.mktemp("redis"))
    try:
        yield redis.url
    finally:
        redis.stop()


@pytest.fixture(name="scene", scope="module")
def fixture_scene(
    kafka: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Scene]:
    """Eve and Bob talk to workers that encrypt; some sessions are in packs."""
    folder = tmp_path_factory.mktemp("encrypted")
    with scene_on(kafka, redis_url, folder) as scene:
        scene.environment[VARIABLE] = key_setting(folder)
        start(scene)
        tell(scene)
        yield scene


def start(scene: Scene, **environment: str) -> None:
    """Start the worker with its key."""
    key = {VARIABLE: scene.environment[VARIABLE]}
    scene.start("one", **key, **environment)


def first(scene: Scene) -> list[bytes]:
    """Return what is said before some of it cools."""
    return [
        *(said(scene, at, "eve-cold") for at in range(10)),
        *(said(scene, at, "eve-sealed") for at in range(10, 12)),
        *(said(scene, at, "bob-cold", user="bob") for at in range(12, 20)),
    ]


def second(scene: Scene) -> list[bytes]:
    """Return what is said after it."""
    return [
        *(said(scene, at, "eve-sealed") for at in range(20, 30)),
        *(said(scene, at, "eve-hot") for at in range(30, 35)),
        *(said(scene, at, "bob-warm", user="bob") for at in range(35, 40)),
    ]


def tell(scene: Scene) -> None:
    """Have everybody talk, some sessions cool, and the partitions backed up."""
    scene.publish(first(scene))
    scene.cool()
    scene.publish(second(scene))
    scene.back_up()


def in_the_log(scene: Scene) -> list[str]:
    """Return which words stand in any record of the changelog, compacted or not."""
    return scene.holds(scene.values(scene.cluster.topics.changelog))


def embedded(folder: Path, turns: Iterable[bytes]) -> dict[str, str]:
    """Return the digests of sessions that one process folded, in plain."""
    with EmbeddedStore(Settings(data=folder, fsync="never")) as store:
        store.publish(list(turns))
        return {row["session"]: row["digest"] for row in store.sessions()}


def test_in_plain_every_word_is_found(
    kafka: str, redis_url: str, tmp_path: Path
) -> None:
    with scene_on(kafka, redis_url, tmp_path) as scene:
        scene.start("one")
        tell(scene)
        found = scene.found()
        assert set().union(*found.values()) >= set(scene.said)
        assert all(len(words) > 5 for words in found.values()), found
        assert set(in_the_log(scene)) >= set(scene.said)
        assert not Path(keys_place(scene.settings)).exists()
        records = scene.thread.run(
            scene.cluster.records(scene.cluster.topics.changelog)
        )
        assert not [each for each in records if each.key[:1] in (KEY_KIND, b"I")]


def test_no_word_stands_in_any_byte_at_rest(scene: Scene) -> None:
    found = scene.found()
    words = {place: each - {scene.user} for place, each in found.items()}
    assert words == {"stores": set(), "redis": set(), "cold": set(), "backups": set()}
    assert set(in_the_log(scene)) <= {scene.user}
    # What is written by producers, and by workers for subscribers, is plain.
    assert set(scene.holds(scene.values(scene.cluster.topics.turns))) >= set(scene.said)


def test_readers_are_told_the_same_as_in_plain(scene: Scene, tmp_path: Path) -> None:
    wanted = embedded(tmp_path, [*first(scene), *second(scene)])
    assert scene.digests("") == wanted
    with ClusterReader(scene.settings) as reader:
        assert reader.verify()["bad"] == []
        turns: Any = reader.turns("t", "eve-cold")["turns"]
        assert [scene.said[at] in str(each) for at, each in enumerate(turns)] == [
            True
        ] * 10


def test_redis_answers_who_has_the_key_and_the_owner_all_others(scene: Scene) -> None:
    without = replace(scene.settings, encryption="")
    with ClusterReader(scene.settings) as has, ClusterReader(without) as has_not:
        end = time.monotonic() + 20
        while (state := has.state("t", "eve-hot"))["tier"] != "hot":
            assert time.monotonic() < end
            time.sleep(0.3)
        told = has_not.state("t", "eve-hot")
        assert told["tier"] != "hot"
        assert (told["slots"], told["digest"]) == (state["slots"], state["digest"])
        assert has.hot is not None
        assert has.hot.hits > 0
        assert has_not.hot is not None
        assert has_not.hot.hits == 0


def test_from_nothing_it_is_the_same(scene: Scene) -> None:
    before = scene.digests("")
    one = scene.cluster.workers["one"]
    assert one.stop() == 0
    shutil.rmtree(scene.cluster.folder / "data" / "one")
    start(scene)  # from the backups, and the changelog's tail
    assert scene.digests("") == before
    assert one.stop() == 0
    shutil.rmtree(scene.cluster.folder / "data" / "one")
    start(scene, TURNSTATE_BACKUPS=str(scene.cluster.folder / "none"))
    assert scene.digests("") == before
    with ClusterReader(scene.settings) as reader:
        assert reader.verify()["bad"] == []


def test_another_key_is_refused_by_name(scene: Scene, tmp_path: Path) -> None:
    before = scene.digests("")
    one = scene.cluster.workers["one"]
    assert one.stop() == 0
    topic = scene.cluster.topics.changelog
    records = scene.thread.run(scene.cluster.records(topic))
    keys = _files(keys_place(scene.settings))
    for setting, why in (
        (key_setting(tmp_path), "name the key that it was encrypted with"),
        (f"keyfile:{tmp_path}/none", "cannot be read"),
        ("", "TURNSTATE_ENCRYPTION=keyfile:PATH"),
    ):
        one.start(**{VARIABLE: setting})
        assert one.wait(30) == 6
        assert why in one.last_words(), setting
        assert _files(keys_place(scene.settings)) == keys
        if setting:
            assert scene.thread.run(scene.cluster.records(topic)) == records
    start(scene)
    assert scene.digests("") == before


def test_keys_that_are_lost_are_not_made_anew(scene: Scene) -> None:
    before = scene.digests("")
    one = scene.cluster.workers["one"]
    assert one.stop() == 0
    place = Path(keys_place(scene.settings))
    place.rename(place.with_name("aside"))
    one.start(**{VARIABLE: scene.environment[VARIABLE]})
    assert one.wait(30) == 6
    assert "put the objects back" in one.last_words()
    assert not _files(str(place))
    shutil.rmtree(place, ignore_errors=True)
    place.with_name("aside").rename(place)
    start(scene)
    assert scene.digests("") == before


def test_an_erase_destroys_keys(scene: Scene) -> None:
    others = scene.digests("bob")
    copies = scene.cluster.folder / "copies"
    shutil.copytree(scene.cluster.folder / "backups", copies)
    before = _files(keys_place(scene.settings))
    report = scene.command("erase", "t", "--user", scene.user)
    assert (report["sessions"], report["keys_destroyed"]) == (3, 3)
    assert (report["found_after"], report["unreached"]) == (0, 0)
    after = _files(keys_place(scene.settings))
    assert len(after) == PARTITIONS
    assert not set(before.values()) & set(after.values())
    assert scene.digests("bob") == others
    assert scene.digests("eve") == {}
    again = scene.erase(user=scene.user)
    assert (again["sessions"], again["keys_destroyed"]) == (0, 0)
    assert _files(keys_place(scene.settings)) == after
    with ClusterReader(scene.settings) as reader:
        assert reader.verify()["bad"] == []
        with pytest.raises(NotFoundError):
            reader.state("t", "eve-hot")


def test_after_it_nothing_brings_them_back(scene: Scene) -> None:
    others = scene.digests("bob")
    one = scene.cluster.workers["one"]
    assert one.stop() == 0
    shutil.rmtree(scene.cluster.folder / "data" / "one")
    backups = scene.cluster.folder / "backups"
    shutil.rmtree(backups)
    shutil.copytree(scene.cluster.folder / "copies", backups)
    start(scene)
    assert scene.digests("bob") == others
    assert scene.digests("eve") == {}
    scene.publish([turn(1, "eve-hot", user="eve"), turn(2, "bob-warm", user="bob")])
    assert set(scene.digests("eve")) == {"eve-hot"}
    with ClusterReader(scene.settings) as reader:
        assert reader.verify()["bad"] == []



def test_another_master_key_goes_on_where_the_old_one_ended(
    scene: Scene, tmp_path: Path
) -> None:
    before = scene.digests("")
    new = key_setting(tmp_path)
    found = scene.command("keys", "status")
    assert found["partitions"] == {found["master"]: PARTITIONS}
    done = scene.command("keys", "rotate", new)
    assert done["partitions"] == PARTITIONS
    one = scene.cluster.workers["one"]
    assert one.stop() == 0
    one.start(**{VARIABLE: scene.environment[VARIABLE]})
    assert one.wait(30) == 6
    scene.environment[VARIABLE] = new
    start(scene)
    assert scene.digests("") == before


def _files(folder: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }
